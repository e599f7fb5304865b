"""Look into, compare, convert and validate training checkpoints without running anything in them.

>>> import ckpttool
>>> with ckpttool.open_checkpoint("checkpoint.pt") as checkpoint:  # doctest: +SKIP
...     checkpoint.scalers[0].scale
65536.0
>>> ckpttool.inspect("checkpoint.pt").exit_code  # doctest: +SKIP
0

Everything is loaded when it is first used; importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from ckpttool.errors import CkptError

if TYPE_CHECKING:
    from ckpttool.commands.convert import convert
    from ckpttool.commands.diff import diff
    from ckpttool.commands.inspect import inspect
    from ckpttool.commands.validate import validate
    from ckpttool.opening import open_checkpoint

__version__ = "0.1.0"
__all__ = ["CkptError", "__version__", "convert", "diff", "inspect", "open_checkpoint", "validate"]

_HOMES = {
    "convert": "ckpttool.commands.convert",
    "diff": "ckpttool.commands.diff",
    "inspect": "ckpttool.commands.inspect",
    "open_checkpoint": "ckpttool.opening",
    "validate": "ckpttool.commands.validate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ckpttool' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
