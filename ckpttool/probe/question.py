"""What is asked: a script, and how it would be called to resume."""

from dataclasses import dataclass
from typing import Final

CHECKPOINT: Final = "{checkpoint}"  # in arguments: the path


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A script, and how it would be called to resume."""

    checkpoint: str
    script: str = ""  # path of a file, or
    module: str = ""  # the name of what is run as `python -m`
    args: tuple[str, ...] = ()  # `{checkpoint}` stands for the path
    python: str = ""  # interpreter; empty: that of the active environment
    steps: int = 0  # optimizer steps that are really made
    seconds: float = 300.0  # time limit
    online: bool = False  # hubs may be asked
    caged: bool = True  # False: only functions are patched, as where the kernel has no namespaces for users

    @property
    def called(self) -> str:
        """The program and its arguments, as they were given."""
        program = [self.script] if self.script else ["-m", self.module]
        return " ".join([*program, *self.args])
