"""What every checkpoint of a report is judged with: rules, values, what it is held against."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpttool.blocks import Finding, Progress
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.installed import installed
from ckpttool.commands._validate.judged import Judged
from ckpttool.model import Checkpoint, Run
from ckpttool.protocols import Case, Needs, Scan
from ckpttool.rules import counter_table
from ckpttool.validation.judging import judge
from ckpttool.validation.unread import holding, left_out, told_of_unread
from ckpttool.values import TensorRef

if TYPE_CHECKING:  # it brings processes and threads
    from ckpttool.probe.pending import Pending

MOST_READ = 2_000_000_000  # bytes of values that are read without being asked for


class Bench:
    """What every checkpoint of a report is judged with."""

    def __init__(self, choices: Choices, other: Checkpoint | None, progress: Progress | None) -> None:
        self.choices = choices
        self._other = other
        self._progress = progress
        self._installed = installed() if any(Needs.INSTALLED in rule.needs for rule in choices.rules) else {}

    def judged(
        self, checkpoint: Checkpoint, *, run: Run | None = None, read: bool, pending: "Pending | None" = None
    ) -> Judged:
        """Judge one checkpoint; its values are read first, while a script may still be running."""
        values = self._scanned(checkpoint) if read else None
        notes = _notes(checkpoint, read=read) if pending is not None else {}
        facts = pending.facts() if pending is not None else None
        case = Case(
            checkpoint=checkpoint, run=run, other=self._other, facts=facts, values=values, notes={**notes},
            installed={**self._installed, **(facts.versions if facts else {})},
        )  # fmt: skip
        found, unchecked = told_of_unread(checkpoint, values.unread if values else ())
        unchecked += left_out(checkpoint, self.choices.rules)
        judgement = judge(case, self.choices.rules, [*self._held(checkpoint), *found], unchecked)
        counters = counter_table(case)
        if run is not None:  # there may be hundreds, of several files each
            for source in checkpoint.opened:
                source.release()
        steps = dict(zip(map(id, run.checkpoints), run.steps, strict=True)) if run else {}
        return Judged(
            path=checkpoint.path,
            layout=checkpoint.layout,
            judgement=judgement,
            counters=counters,
            holds=holding(checkpoint),
            step=steps.get(id(checkpoint)),
            read_bytes=_read(values),
            facts=facts,
        )

    def affordable(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        """Which have their values read: all or none as asked, else from the last on until `MOST_READ` is used up."""
        if self.choices.values is not None:
            return [self.choices.values] * len(checkpoints)
        left, reads = MOST_READ, []
        for checkpoint in reversed(checkpoints):
            left -= sum(s.nbytes for c in checkpoint.contents.values() for s in c.storages)
            reads.append(left >= 0)
        return reads[::-1]

    def _scanned(self, checkpoint: Checkpoint) -> Scan:
        from ckpttool.validation.scanning import scan  # it brings threads and their queues

        return scan(checkpoint, figures=self.choices.figures, progress=self._progress)

    def _held(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """What a manifest says against it."""
        if self.choices.manifest:
            from ckpttool.validation.manifest import held_against

            yield from held_against(checkpoint, self.choices.manifest)


def _notes(checkpoint: Checkpoint, *, read: bool) -> dict[str, object]:
    """Digests of what a script may hold; where much would have to be read, each when it is needed."""
    from ckpttool.arrival import DIGESTS, Digests  # with all that compares a live state

    digests = Digests(checkpoint.limits)
    if read:
        weights = [t for w in checkpoint.weights for t in w.tensors.values()]
        states = [v for o in checkpoint.optimizers for e in o.state.values() for v in e.values()]
        digests.prepare([*weights, *(v for v in states if isinstance(v, TensorRef))])
    return {DIGESTS: digests}


def _read(values: Scan | None) -> int | None:
    return values.read_bytes if values is not None else None
