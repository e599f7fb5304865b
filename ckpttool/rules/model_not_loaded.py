"""`model.not-loaded`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._arrived import arrived
from ckpttool.rules._places import count, place


class ModelNotLoaded:
    """The weights of the checkpoint are nowhere in the script's models when training goes on.

    What: every parameter and buffer of the script, by its content, held against the weights of the checkpoint: by
    name, names without wrappers and prefixes, then wherever they are.

    Why: `strict=False` loads what fits and says nothing of the rest; a `try` around the load swallows what it raised;
    weights that were loaded into a model that was then made anew are lost. Training goes on from random weights.

    Example: `model: none of 28 tensors reached the model; its parameters are others`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13; transformers/trainer.py
    `_load_from_checkpoint`, transformers 5.24, which loads with strict=False.
    """

    code: ClassVar[str] = "model.not-loaded"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding a state_dict; `model.key-prefix` says more where it is the prefix."""
        found = arrived(case)
        if found is None:
            return
        reached = any(w.reached for w in found.weights if w.weights.role is Role.MODEL)
        yield from self._of_nothing(case, found)
        for one in found.weights:
            where = place(one.weights.at) or one.weights.name
            if one.outcome is Outcome.UNKNOWN:
                why = one.why or "its tensors have no plain elements that could be compared"
                yield NotChecked(code=self.code, why=f"{where}: {why}")
            elif one.outcome is Outcome.ABSENT and one.weights.role is Role.MODEL:
                # Of several models, one that no module here fits may be a copy that training does not need.
                needed = one.module is not None or not reached
                said = "and the model that they are for holds others" if one.module else "and no model here has them"
                yield Finding(
                    code=self.code,
                    severity=Severity.SILENT if needed else Severity.WARNING,
                    where=where,
                    message=f"none of {count(len(one.weights.tensors), 'tensor')} reached the run, {said}",
                    hint="load them with load_state_dict(strict=True) into the model that is trained, and look at "
                    "what it raises"
                    if needed
                    else "right if they are a copy that training does not need, such as the best weights so far",
                )

    def _of_nothing(self, case: Case, found: Arrival) -> Iterator[Finding]:
        """A load that is not strict takes a state without a tensor, too."""
        loads = [x for x in found.facts.loads if x.kind == "module" and not x.raised]
        given = {x.target for x in loads if x.digests}
        if any(w.role is Role.MODEL for w in case.checkpoint.weights):
            return
        for load in loads:
            if load.missing_count and not load.digests and load.target not in given:
                yield Finding(
                    code=self.code,
                    severity=Severity.SILENT,
                    where=f"{load.frame.file}:{load.frame.line}" if load.frame is not None else load.cls,
                    message=f"a state without a tensor was loaded, and {load.missing_count:,} of the model are missing",
                    hint="load with strict=True, and resume from a checkpoint that holds the weights",
                )
                return
