"""Running the script as Python would: `python script.py ARGS` or `python -m module ARGS`."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Optional

from . import frames
from .orders import Orders

_COMMAND_LINES = ("argparse", "click", "absl", "getopt", "optparse", "docopt", "fire")


def run(orders: Orders, main: ModuleType) -> None:
    """Run the script or module in `main`, which must be a fresh module that nothing refers to yet.

    Whatever it raises comes out.
    """
    sys.modules["__main__"] = main
    if orders.module:
        _run_module(orders)
    else:
        _run_script(orders, main)


def _run_module(orders: Orders) -> None:
    sys.argv = ["-m", *orders.args]
    sys.path[0] = os.getcwd()
    _take_for_users(orders.module)
    runpy._run_module_as_main(orders.module)  # type: ignore[attr-defined]


def _take_for_users(module: str) -> None:
    """A package that is run by its name is the user's program, also where it is installed."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(module.partition(".")[0])
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            frames.is_users(folder)


def _run_script(orders: Orders, main: ModuleType) -> None:
    shown = orders.shown_as or orders.script
    sys.argv = [shown, *orders.args]
    if os.path.isdir(orders.script):  # or a zip: it has a `__main__.py`
        del sys.path[0]  # ours; this puts the script's there
        runpy.run_path(orders.script, run_name="__main__")
        return
    path = os.path.abspath(orders.script)
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main.__file__ = path
    main.__dict__.update({
        "__builtins__": sys.modules["builtins"],
        "__cached__": None,
        "__loader__": importlib.machinery.SourceFileLoader("__main__", path),
        "__spec__": None,
    })  # fmt: skip
    with io.open_code(path) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102  # it is what the user asks for


def end_of(act: Callable[[], None]) -> tuple[str, Optional[int], Optional[BaseException]]:
    """How running ended: `ended`, `exited` or `raised`, the exit code, and the exception.

    Of an exit with another code than 0 it is the one that was being handled, which the exit reports. Threads and
    processes that Python waits for at its end are waited for, since they may be what trains.
    """
    try:
        act()
        _wait_for_others()
    except SystemExit as end:
        _wait_for_others()
        code = _exit_code(end)
        return "exited", code, _reported(end) if code != 0 else None
    except BaseException as error:
        frames.print_error(error)
        return "raised", 1, error
    return "ended", 0, None


def _reported(end: SystemExit) -> Optional[BaseException]:
    """The exception that was being handled; those of command lines say no more than what was printed."""
    error = end.__context__
    return None if error is None or type(error).__module__.partition(".")[0] in _COMMAND_LINES else error


def _wait_for_others() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    processes: Any = sys.modules.get("multiprocessing.process")
    for child in processes.active_children() if processes is not None else ():
        if not child.daemon:
            child.join()


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    sys.stderr.write(f"{end.code}\n")
    return 1
