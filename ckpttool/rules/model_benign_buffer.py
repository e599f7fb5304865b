"""`model.benign-buffer`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import pairs
from ckpttool.rules._leftovers import described, missing, unexpected
from ckpttool.rules._places import place


class BenignBuffer:
    """Two checkpoints differ in buffers that a model makes for itself.

    What: `position_ids`, `inv_freq`, `masked_bias`, `num_batches_tracked`, the causal mask `attn.bias` and the like, on
    one side only.

    Why: nothing that was learned is lost, but strict loading may raise all the same: buffers became non-persistent
    between versions of a library, and old files still hold them.

    Example: `2 keys (h.0.attn.bias, h.1.attn.bias) are buffers that only this checkpoint has`

    Reference: torch/nn/modules/module.py `register_buffer(persistent=)`, torch 2.13; huggingface/transformers#25330.
    """

    code: ClassVar[str] = "model.benign-buffer"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding]:
        for pair in pairs(case):
            for names, whose in ((unexpected(pair).benign, "this"), (missing(pair).benign, "the other")):
                if names:
                    yield Finding(
                        code=self.code,
                        severity=Severity.WARNING,
                        where=place(pair.mine.at),
                        message=f"{described(names)} {'is a buffer' if len(names) == 1 else 'are buffers'} that only "
                        f"{whose} checkpoint has; nothing learned is lost, but strict loading may raise",
                        hint="load with the library version that saved it, or leave them out: "
                        f"`ckpt convert SRC DST --exclude '*{names[0].rsplit('.', 1)[-1]}'`",
                    )
