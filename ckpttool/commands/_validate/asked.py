"""What is asked of a script: the options of `validate` that are about one, checked."""

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckpttool.errors import UsageError
from ckpttool.probe.question import Question

if TYPE_CHECKING:
    from ckpttool.probe.pending import Pending


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
) -> Question | None:
    """The question, or None where no script is named.

    Raises:
        UsageError: two of them are, or an option that needs one stands alone.
    """
    if script is None and module is None:
        alone = {"ARGS": args, "--python": python, "--steps": steps, "--online": online}
        for name, value in alone.items():
            if value:
                raise UsageError(f"{name} belongs to a script, and none is named", hint="--script FILE")
        return None
    if script is not None and module is not None:
        raise UsageError("--script and --module name two programs", hint="leave one of them out")
    if not (script or module):
        raise UsageError("the name of the script is empty", hint="--script FILE")
    return Question(
        checkpoint=checkpoint,
        script=script or "",
        module=module or "",
        args=tuple(args or ()),
        python=python or "",
        steps=_count(steps),
        seconds=_time(seconds),
        online=online,
    )


def _count(value: int | str) -> int:
    try:
        steps = int(value)
    except ValueError:
        steps = -1
    if steps < 0:
        raise UsageError(f"--steps {value} is no number of steps", hint="0 or more")
    return steps


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
