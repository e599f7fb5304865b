"""`script.arguments`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival.arguments import Argument
from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived

_SHOWN = 4


class OtherArguments:
    """The run was given other arguments than those that the checkpoint keeps.

    What: the arguments and configuration that are kept in or beside the checkpoint, against those of the same name in
    the script (`args`, `config`, its constants): learning rate, warm-up, decay, clipping, dropout, seed and the like.
    How long training shall be is a wish, and a note.

    Why: a script that computes its learning rate from its arguments, as nanoGPT does, goes on with another one; where
    the rate lies in the optimizer's state, the argument is not heeded. Both are easily meant otherwise.

    Example: `lr_decay_iters is 600 in the checkpoint and 1000 in the run (constants of train.py)`

    Reference: karpathy/nanoGPT train.py, which saves `config` and does not read it again.
    """

    code: ClassVar[str] = "script.arguments"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for all that change training, one for how long it shall be."""
        found = arrived(case)
        for length in (False, True) if found is not None else ():
            unlike = [one for one in found.arguments if one.length is length] if found is not None else []
            if not unlike:
                continue
            said = [_said(one) for one in unlike[:_SHOWN]]
            more = f", and {len(unlike) - _SHOWN:,} more differ" if len(unlike) > _SHOWN else ""
            yield Finding(
                code=self.code,
                severity=Severity.NOTE if length else Severity.WARNING,
                where=unlike[0].change.name,
                message=f"{'; '.join(said)}{more}",
                hint=""
                if length
                else "right if training is to go on so; else resume with the arguments that were saved",
            )


def _said(one: Argument) -> str:
    change = one.change
    return f"{change.name} is {change.saved} in the checkpoint and {change.live} in the run ({one.where})"
