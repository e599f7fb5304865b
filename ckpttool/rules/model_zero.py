"""`model.zero`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Role
from ckpttool.protocols import Case, Needs, NotChecked, TensorScan
from ckpttool.rules._alignment import Shape, alignments
from ckpttool.rules._places import count
from ckpttool.rules._trained import is_adapter, resumes

_MATRIX = 2  # dimensions; biases and scales are zero at first, and some stay so
_FEWEST = 2  # matrices that are all zero, so that it is no gate


class Zero:
    """Weights that are zero as no training leaves them.

    What: with `--values`, every matrix of the model zero; a matrix that is zero where no state of its shape has zero
    moments, so that the optimizer moved it away from zero; a `running_var` with numbers below zero, or all zero in a
    layer that counted batches.

    Why: they load like any others. A model of zeros has gradients of zero; a variance below zero makes NaN in eval.

    Example: `transformer.wpe.weight is all zero, and the optimizer stepped every parameter of its shape`

    Reference: torch 2.13 nn/modules/module.py `_load_from_state_dict`, nn/functional.py `batch_norm`.
    """

    code: ClassVar[str] = "model.zero"
    needs: ClassVar[Needs] = Needs.VALUES

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        if case.values is None or not case.values.figures:
            yield NotChecked(code=self.code, why="only checksums were read, not the numbers")
            return
        model = [s for s in case.values.tensors if s.part is Role.MODEL]
        below = [s for s in model if s.negative and s.name.endswith("running_var")]
        if below:
            what = (
                f"{count(len(below), 'variance')} of the model {'has' if len(below) == 1 else 'have'} numbers below 0"
            )
            yield self._said(below[0], f"{what}: {below[0].name}; a root of it is NaN when the model evaluates")
        flat = [s for s in model if s.zero and _was_tracked(case.checkpoint, s.name)]
        if flat:
            more = f", as {count(len(flat) - 1, 'other')} {'is' if len(flat) == 2 else 'are'}" if len(flat) > 1 else ""  # noqa: PLR2004  # one other
            what = f"{flat[0].name} is all zero{more}, after batches that its layer counted"
            yield self._said(
                flat[0], f"{what}: it was 1 at first, and the model evaluates with a root of eps in its place"
            )
        if any(is_adapter(w) for w in case.checkpoint.weights) or not resumes(case.checkpoint):
            return
        matrices = [s for s in model if len(s.tensor.shape) >= _MATRIX and s.tensor.dtype.is_floating]
        zero = [s for s in matrices if s.zero]
        if len(zero) == len(matrices) >= _FEWEST:
            yield self._said(zero[0], f"all {len(zero):,} matrices of the model are zero")
        elif zero:
            moved = _moved(case)
            found = [s for s in zero if tuple(s.tensor.shape) in moved]
            if found:
                more = f", as {count(len(found) - 1, 'other')} is" if len(found) > 1 else ""
                message = f"{found[0].name} is all zero{more}, and the optimizer stepped every parameter of its shape"
                yield self._said(found[0], message)

    def _said(self, scan: TensorScan, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=scan.where,
            message=message,
            hint="resume from a checkpoint whose weights are whole",
        )


def _was_tracked(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a name is of a variance whose layer counted batches, of which each leaves nine tenths of it."""
    module, _, last = name.rpartition(".")
    if last != "running_var":
        return False
    counts = (
        w.tensors.get(f"{module}.num_batches_tracked" if module else "num_batches_tracked") for w in checkpoint.weights
    )
    return any((number(n) or 0) > 0 for n in counts if n is not None)


def _moved(case: Case) -> set[Shape]:
    """Shapes of parameters of which every one has moments that are not zero, and a rate above zero."""
    scans = {id(s.tensor): s for s in case.values.tensors} if case.values is not None else {}
    moved: set[Shape] = set()
    stayed: set[Shape] = set()
    for optimizer, pair in alignments(case.checkpoint):
        if not all((number(g.hyperparameters.get("lr")) or 0) > 0 for g in optimizer.groups):
            continue
        for one in pair.kept:
            scan = scans.get(id(one.moment)) if one.moment is not None else None
            if one.shape is not None:
                (stayed if scan is None or scan.zero else moved).add(one.shape)
        if any(one.shape is None for one in pair.kept):  # it may be the one that is zero
            return set()
    return moved - stayed - _frozen(case.checkpoint)


def _frozen(checkpoint: Checkpoint) -> set[Shape]:
    """Shapes that more weights have than states: one of them was not stepped."""
    return {shape for _, pair in alignments(checkpoint) for shape in pair.surplus}
