"""Whether the kernel gives users namespaces of their own: in some containers it does not."""

import functools
import sys
import tempfile
from pathlib import Path

from ckpttool.probe.asking import NAMESPACES, ask
from ckpttool.probe.question import Question


@functools.cache
def isolation() -> str:
    """What the report of a script says of its sandbox on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "nothing.py")
        script.write_text("")
        return ask(Question(checkpoint=folder, script=str(script), python=sys.executable)).isolation


def caged() -> bool:
    """Whether namespaces are to be had."""
    return isolation() == NAMESPACES
