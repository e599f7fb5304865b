"""`model.other-function`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived


class OtherFunction:
    """The weights fit, and the model computes something else with them.

    What: settings that leave every shape as it is: attention heads, key and value heads, LoRA's alpha, the rotary
    base, the epsilon of norms, the activation. The configuration that is kept in or beside the checkpoint is held
    against the one of the live model, or else the script's arguments; and two places of one checkpoint against each
    other.

    Why: `load_state_dict` looks at names and shapes. A model of 8 heads takes the weights of one of 4, and its loss
    starts near that of a random one.

    Example: `n_head is 4 in the checkpoint and 8 in the run (config of GPT): the attention heads are others`

    Reference: karpathy/nanoGPT train.py, which takes `n_head` from the checkpoint; peft/tuners/lora `scaling`.
    """

    code: ClassVar[str] = "model.other-function"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a setting."""
        found = arrived(case)
        for one in found.function if found is not None else ():
            change = one.change
            if one.within:
                message = f"the checkpoint says {change.name} twice: {change.saved}, and {change.live}"
            else:
                message = (
                    f"{change.name} is {change.saved} in the checkpoint and {change.live} in the run ({one.where})"
                )
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=change.name,
                message=f"{message}: the {one.what} are others, and the weights fit all the same",
                hint="resume with the settings that the weights were trained with",
            )
