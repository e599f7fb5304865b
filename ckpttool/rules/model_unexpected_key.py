"""`model.unexpected-key`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, loads_strictly, pairs, raising
from ckpttool.rules._leftovers import described, unexpected
from ckpttool.rules._places import place


class UnexpectedKey:
    """The checkpoint has weights that the one it is held against lacks.

    What: names of a state_dict that only this checkpoint has, wrappers' prefixes aside. Buffers that a model makes for
    itself are `model.benign-buffer`, tied partners `model.tied`.

    Why: strict loading raises; the Trainer and PEFT load with `strict=False` and log a warning, and what was trained
    under these names does not reach the run.

    Example: `1 key (extra.weight) is not in the other checkpoint`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13; transformers/trainer.py
    `_load_from_checkpoint`, transformers 5.24.
    """

    code: ClassVar[str] = "model.unexpected-key"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding]:
        for pair in pairs(case):
            names = unexpected(pair).names
            if not names:
                continue
            strictly = loads_strictly(case, pair.mine)
            then = (
                f"strict loading raises {RAISED}: Unexpected key(s) in state_dict"
                if strictly
                else "the trainer loads with strict=False, so they do not reach the model"
            )
            yield Finding(
                code=self.code,
                severity=raising(case) if strictly else Severity.SILENT,
                where=place(pair.mine.at),
                message=f"{described(names)} {'is' if len(names) == 1 else 'are'} not in the other checkpoint: {then}",
                hint=f"`ckpt convert SRC DST --exclude '{names[0]}'` leaves one out, if the model has it no longer",
            )
