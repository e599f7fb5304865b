"""What is asked of a script: the options of `validate` that are about one, checked."""

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckpttool.commands._options import whole
from ckpttool.errors import UsageError
from ckpttool.probe.question import Question

if TYPE_CHECKING:
    from ckpttool.probe.pending import Pending

_UNASKED = Question(checkpoint="")  # what the options are where nobody gives them


def question(  # noqa: PLR0913  # one parameter for each option
    checkpoint: str,
    *,
    script: str | None,
    module: str | None,
    args: list[str] | None,
    python: str | None,
    steps: int | str,
    seconds: float | str,
    online: bool,
    against: str | None = None,
) -> Question | None:
    """The question, or None where no script is named.

    Raises:
        UsageError: two of them are, or an option that needs one stands alone.
    """
    if script is None and module is None:
        timed = seconds != _UNASKED.seconds
        alone = {"ARGS": args, "--python": python, "--steps": steps, "--timeout": timed, "--online": online}
        for name, value in alone.items():
            if value:
                raise UsageError(f"{name} belongs to a script, and none is named", hint="--script FILE")
        return None
    if script is not None and module is not None:
        raise UsageError("--script and --module name two programs", hint="leave one of them out")
    if not (script or module):
        raise UsageError("the name of the script is empty", hint="--script FILE")
    if against is not None:
        program = "--script" if script else "--module"
        raise UsageError(
            f"--against holds two checkpoints against each other, {program} one against a program",
            hint="leave one of them out",
        )
    return Question(
        checkpoint=checkpoint,
        script=script or "",
        module=module or "",
        args=tuple(args or ()),
        python=python or "",
        steps=whole("--steps", steps),
        seconds=_time(seconds),
        online=online,
    )


def _time(value: float | str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"--timeout {value} is no time", hint="a number of seconds, more than 0")
    return seconds


def pending(question: Question, stack: ExitStack) -> "Pending":
    """Start the script; it ends with the stack.

    A checkpoint that is not there is no reason not to: whether the script raises then or trains from scratch is what
    there is to know.
    """
    from ckpttool.probe.pending import Pending  # it brings processes and threads

    return stack.enter_context(Pending(question))
