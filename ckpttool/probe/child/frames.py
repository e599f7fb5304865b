"""Lines of the program that were being run: `FrameFact`, `RaisedFact`, and who called.

Frames of the probe itself are left out everywhere: the script would not have them.
"""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))
_OUTERMOST = os.path.join(_HERE, "running.py")  # what called this is no part of the script
_PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_MOST_FRAMES, _LONGEST_LINE, _LONGEST_MESSAGE, _MOST_CAUSES = 100, 200, 100_000, 8
DURING = "_ckpt_during"  # attribute of an exception: the loading call it came out of


def _library_folders() -> tuple[str, ...]:
    paths = [sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.join(os.path.realpath(path), "") for path in (*paths, site.getusersitepackages()) if path})


_LIBRARIES = _library_folders()
_NO_TRAINERS = frozenset({"torch", "numpy", "safetensors", "fsspec"})
_own: set[str] = set()  # folders of the user's program that lie among libraries


def is_users(folder: str) -> None:
    """Take code below a folder for the user's, though it is installed: a module that is run by its name."""
    _own.add(os.path.join(os.path.abspath(folder), ""))


def is_probe(file: str) -> bool:
    """Whether code is ours."""
    return file.startswith(_HERE + os.sep)


def is_library(file: str) -> bool:
    """Whether code is installed, of the standard library or of no file at all."""
    if file.startswith("<"):
        return not file.startswith(("<string>", "<stdin>"))  # what a configurator runs by `exec` is the user's
    if any(file.startswith(folder) for folder in _own):
        return False
    return any(part in file for part in _PACKAGES) or os.path.realpath(file).startswith(_LIBRARIES)


def outward(frame: Optional[FrameType]) -> Iterator[FrameType]:
    """A frame and those that called it, without ours."""
    while frame is not None and frame.f_code.co_filename != _OUTERMOST:
        if not is_probe(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def fact(file: str, line: int, function: str, names: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    """A `FrameFact`."""
    text = linecache.getline(file, line, names).strip()[:_LONGEST_LINE]
    return {"file": file, "line": line, "function": function, "text": text, "library": is_library(file)}


def of_frame(frame: FrameType) -> dict[str, Any]:
    """A `FrameFact` of a live frame."""
    return fact(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_globals)


def stack(frame: Optional[FrameType]) -> list[dict[str, Any]]:
    """The frames from the outermost to this one; of a deep recursion the innermost."""
    frames = list(outward(frame))[:_MOST_FRAMES]
    return [of_frame(one) for one in reversed(frames)]


def users(frame: Optional[FrameType]) -> Optional[dict[str, Any]]:
    """The nearest frame of the user's program."""
    for one in outward(frame):
        if not is_library(one.f_code.co_filename):
            return of_frame(one)
    return None


def library(frame: Optional[FrameType]) -> str:
    """The package that the user's program called to get to torch, or nothing where it called torch itself."""
    found = ""
    for one in outward(frame):
        if not is_library(one.f_code.co_filename):
            break
        package = str(one.f_globals.get("__name__", "")).partition(".")[0]
        if package and package not in _NO_TRAINERS and package not in _standard():
            found = package
    return found


def _standard() -> frozenset[str]:
    return getattr(sys, "stdlib_module_names", frozenset({"contextlib", "functools", "runpy"}))


def raised(error: BaseException) -> dict[str, Any]:
    """A `RaisedFact`."""
    chain = list(_causes(error))
    during = next((getattr(one, DURING) for one in (error, *chain) if hasattr(one, DURING)), "")
    return {
        "type": type_name(error),
        "message": message(error),
        "frames": _of_traceback(error.__traceback__),
        "during": during,
        "causes": [described(one) for one in chain],
    }


def type_name(error: BaseException) -> str:
    """Its class, with the module unless that is builtins."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def message(error: BaseException) -> str:
    """What an exception says; its own `__str__` may fail."""
    try:
        return str(error)[:_LONGEST_MESSAGE]
    except Exception as failure:
        return f"<no message: {type(failure).__name__}>"


def described(error: BaseException) -> str:
    """`type: message`."""
    return f"{type_name(error)}: {message(error)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen, current = {id(error)}, _cause(error)
    while current is not None and id(current) not in seen and len(seen) <= _MOST_CAUSES:
        yield current
        seen.add(id(current))
        current = _cause(current)


def _cause(error: BaseException) -> Optional[BaseException]:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _of_traceback(trace: Optional[TracebackType]) -> list[dict[str, Any]]:
    steps = list(traceback.walk_tb(trace))
    outermost = [n for n, (frame, _line) in enumerate(steps) if frame.f_code.co_filename == _OUTERMOST]
    found = [
        fact(frame.f_code.co_filename, line, frame.f_code.co_name, frame.f_globals)
        for frame, line in steps[outermost[-1] + 1 if outermost else 0 :]
        if not is_probe(frame.f_code.co_filename)
    ]
    return found[-_MOST_FRAMES:]


def innermost(error: BaseException) -> Optional[FrameType]:
    """The frame that raised."""
    last = None
    for frame, _line in traceback.walk_tb(error.__traceback__):
        last = frame
    return last


def print_error(error: BaseException) -> None:
    """Print an exception to stderr as Python would, without our frames."""
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    layer: Optional[traceback.TracebackException] = shown
    for _ in range(_MOST_CAUSES):
        if layer is None:
            break
        layer.stack = traceback.StackSummary.from_list(_without_ours(layer.stack))
        layer = layer.__cause__ or layer.__context__
    sys.stderr.write("".join(shown.format()))


def _without_ours(summary: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    return [one for one in summary if not is_probe(one.filename) and not one.filename.startswith("<frozen runpy")]
