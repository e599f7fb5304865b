"""`model.missing-key`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, loads_strictly, pairs, raising
from ckpttool.rules._leftovers import described, missing
from ckpttool.rules._places import place


class MissingKey:
    """The checkpoint lacks weights that the one it is held against has.

    What: names of a state_dict that only the other checkpoint has, wrappers' prefixes aside. Buffers that a model makes
    for itself are `model.benign-buffer`, tied partners `model.tied`, and where no name matches at all it is
    `model.key-prefix` or another model.

    Why: strict loading raises; the Trainer and PEFT load with `strict=False`, log a warning, and train on with what the
    model was initialised with.

    Example: `2 keys (head.weight, head.bias) of the other checkpoint are missing`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13; transformers/trainer.py
    `_load_from_checkpoint`, transformers 5.24.
    """

    code: ClassVar[str] = "model.missing-key"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding]:
        for pair in pairs(case):
            names = missing(pair).names
            if not names:
                continue
            strictly = loads_strictly(case, pair.mine)
            then = (
                f"strict loading raises {RAISED}: Missing key(s) in state_dict"
                if strictly
                else "the trainer loads with strict=False, so they stay as they were initialised"
            )
            yield Finding(
                code=self.code,
                severity=raising(case) if strictly else Severity.SILENT,
                where=place(pair.mine.at),
                message=f"{described(names)} of the other checkpoint are missing: {then}",
                hint="resume from a checkpoint of the same model, or give the missing ones by hand",
            )
