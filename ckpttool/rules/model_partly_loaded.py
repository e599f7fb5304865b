"""`model.partly-loaded`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Outcome
from ckpttool.arrival.weights import WeightsArrival
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived, some
from ckpttool.rules._benign import is_benign
from ckpttool.rules._places import count, place


class ModelPartlyLoaded:
    """Some weights of the checkpoint reached the script's model, and some did not or are others there.

    What: after the comparison by name and by content: tensors of the file that are nowhere in the run, tensors that
    hold something else there, and parameters of the model that nothing in the file is for. A name whose memory another
    name of the file has overwritten (tied weights), buffers that a model makes for itself, and those that the forward
    pass moves on are no difference.

    Why: with `strict=False` what does not fit keeps its random start beside trained weights, and nothing says so.

    Example: `model: 2 of 28 tensors did not reach the model: head.weight, head.bias; head2.weight, head2.bias start
    afresh`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "model.partly-loaded"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """What was lost, what starts afresh, what nobody needs."""
        found = arrived(case)
        for one in found.weights if found is not None else ():
            if one.weights.role is not Role.MODEL or one.outcome not in (Outcome.CHANGED, Outcome.REACHED):
                continue
            tensors = one.weights.tensors
            lost = [*(n for n in one.changed if not is_benign(n, tensors[n])), *one.other_shape]
            unused = [n for n in one.absent if not is_benign(n, tensors[n])]
            if lost or one.lacking:
                yield self._lost(one, lost, unused)
            elif unused:
                yield self._unused(one, unused)

    def _lost(self, one: WeightsArrival, lost: list[str], unused: list[str]) -> Finding:
        said = []
        if lost:
            of = f"{len(lost):,} of {count(len(one.weights.tensors), 'tensor')}"
            said.append(f"{of} hold something else in the run: {some(lost)}")
        if one.lacking:
            said.append(f"{some(one.lacking)} of the model start afresh, as nothing in the checkpoint is for them")
        if unused:
            said.append(f"{some(unused)} of the checkpoint reached nothing")
        return Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place(one.weights.at) or one.weights.name,
            message="; ".join(said),
            hint="load with strict=True, and look at what it raises; `ckpt convert SRC DST --rename OLD=NEW` renames",
        )

    def _unused(self, one: WeightsArrival, unused: list[str]) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.WARNING,
            where=place(one.weights.at) or one.weights.name,
            message=f"{count(len(unused), 'tensor')} of the checkpoint reached nothing in the run, which has no place "
            f"for them: {some(unused)}",
            hint="right if the model no longer has them",
        )
