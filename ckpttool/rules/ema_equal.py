"""`ema.equal`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tensors import compare_tensors
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._against import pairs
from ckpttool.rules._places import count, figure, place
from ckpttool.rules._reading import readable
from ckpttool.values import TensorRef


class EmaEqual:
    """Averaged weights that are the trained ones, bit for bit, or that do not move.

    What: each averaged tensor against the trained one of its name; held against another checkpoint, averaged weights
    that stayed while the trained ones moved.

    Why: an average over more than one update is never equal to the weights: either it is a copy, or the trained weights
    were overwritten with it when it was evaluated or saved, and training went on from there. One that does not move is
    not updated any more.

    Example: `all 28 averaged tensors equal the trained ones after 400 updates`

    Reference: harubaru/waifu-diffusion#31, huggingface/diffusers#5783.
    """

    code: ClassVar[str] = "ema.equal"
    needs: ClassVar[Needs] = Needs.VALUES

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        yield from readable(self.code, self._looked(case))

    def _looked(self, case: Case) -> Iterator[Finding]:
        here = case.checkpoint
        averages = [w for w in here.weights if w.role is Role.EMA]
        for average in averages:
            yield from self._of_model(here, average)
        moved = any(_differ(case, p.tensors()) for p in pairs(case) if p.mine.role is Role.MODEL) if averages else False
        for pair in pairs(case):
            if moved and pair.mine.role is Role.EMA and pair.same and not _differ(case, pair.tensors()):
                yield self._finding(
                    pair.mine,
                    Severity.SILENT,
                    "the averaged weights are those of the other checkpoint bit for bit, and the trained ones moved: "
                    "the average is not updated",
                )

    def _of_model(self, here: Checkpoint, average: Weights) -> Iterator[Finding]:
        bare = {without_wrappers(n): t for n, t in average.tensors.items() if t.dtype.is_floating and t.numel}
        for model in (w for w in here.weights if w.role is Role.MODEL):
            both = [(t, bare[n]) for n, t in _bare(model) if n in bare]
            if len(both) < len(bare) or not bare:
                continue
            shared = all(one.tied_to(other) for one, other in both)
            if not all(_same(here, one, other) for one, other in both):
                continue
            updates = _updates(here, average)
            steps = max((o.steps[-1] for o in here.optimizers if o.steps), default=None)
            if (updates is not None and updates <= 1) or (updates is None and steps is not None and steps <= 1):
                return
            after = f" after {figure(updates)} updates" if updates is not None else ""
            how = "one memory" if shared else "bit for bit"
            yield self._finding(
                average,
                Severity.SILENT if updates is not None else Severity.WARNING,
                f"all {count(len(both), 'averaged tensor')} equal the trained ones ({how}){after}: a copy, or the "
                "trained weights were overwritten with the average"
                + ("" if updates is not None else ", unless averaging has not begun yet"),
            )
            return

    def _finding(self, average: Weights, severity: Severity, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=place(average.at) or average.name,
            message=message,
            hint="restore the trained weights after evaluating or saving the average, and update it after each step",
        )


def _bare(weights: Weights) -> Iterator[tuple[str, TensorRef]]:
    return ((without_wrappers(n), t) for n, t in weights.tensors.items())


def _same(here: Checkpoint, one: TensorRef, other: TensorRef) -> bool:
    if one.tied_to(other):
        return True
    if one.shape != other.shape or one.dtype.name != other.dtype.name:
        return False
    return compare_tensors(one, other, limits=here.limits).sameness is Sameness.IDENTICAL


def _differ(case: Case, tensors: Iterator[tuple[str, TensorRef, TensorRef]]) -> bool:
    """Whether any floating tensor differs from its counterpart; buffers that count do not."""
    return any(t.dtype.is_floating and not _same(case.checkpoint, t, other) for _, t, other in tensors)


def _updates(here: Checkpoint, average: Weights) -> int | None:
    """How often the average was updated; None where nothing counts it."""
    found = number(average.tensors.get("n_averaged"))
    if found is None:
        states = [c.value for c in here.custom if c.name == "averaging_state" and isinstance(c.value, dict)]
        found = next((number(s.get("n_averaged")) for s in states), None)
    if found is None:
        found = next((number(c.value) for c in here.counters if c.name == "ema_updates"), None)
    return int(found) if found is not None and found == found and abs(found) != float("inf") else None  # noqa: PLR0124
