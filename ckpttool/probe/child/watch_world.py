"""`torch.distributed` as a world of one, and `torch.compile` without compiling.

There are no other processes and no GPUs to speak to them: whatever the script asks for, it gets gloo on a free port of
this machine, as rank 0 of 1. A launcher's environment (`RANK`, `LOCAL_RANK`, …) is there as soon as the script itself
reads such a variable as one that must be there; what only looks whether it is there finds none.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from typing import Any, Callable

from . import frames
from .imports import AfterImport
from .patching import argument
from .record import Record


def install(record: Record, after: AfterImport) -> None:
    """Replace the functions when they are imported."""
    world = _World(record)
    world.environment()
    after.when("torch", world.torch)
    after.when("torch.multiprocessing", world.multiprocessing)
    after.when("torch.distributed.distributed_c10d", world.distributed)


class _World:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._eager = False

    def torch(self, torch: Any) -> None:
        """`torch.compile` gives its wrapper, whose names begin with `_orig_mod.`, and runs what it was given."""
        torch.compile = self._compile(torch, torch.compile)
        if getattr(torch, "distributed", None) is not None and hasattr(torch.distributed, "init_process_group"):
            torch.distributed.init_process_group = torch.distributed.distributed_c10d.init_process_group
        torch.multiprocessing.spawn = self._spawn(torch.multiprocessing.spawn)

    def _compile(self, torch: Any, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            if hasattr(torch.compiler, "set_stance"):  # torch 2.6
                if not self._eager:
                    self._eager = True
                    torch.compiler.set_stance("force_eager")
            else:
                for name in ("mode", "options"):
                    kwargs.pop(name, None)
                kwargs["backend"] = "eager"
            return real(*args, **kwargs)

        return call

    def distributed(self, module: Any) -> None:
        module.init_process_group = self._init(module.init_process_group)

    def _init(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not self._record.on:
                return real(backend, *args, **kwargs)
            asked = argument(args, kwargs, 2, "world_size") or -1
            self._wanted(max(int(asked), int(os.environ.get("WORLD_SIZE", "1"))), f"init_process_group({backend!r})")
            port = free_port()
            passed = {name: kwargs[name] for name in ("timeout", "group_name") if name in kwargs}
            return real("gloo", init_method=f"tcp://127.0.0.1:{port}", world_size=1, rank=0, **passed)

        return call

    def _wanted(self, size: int, what: str) -> None:
        if size > 1:
            self._record.could_not(f"{what} asked for {size} processes; this is a world of one")

    def multiprocessing(self, module: Any) -> None:
        module.spawn = self._spawn(module.spawn)

    def _spawn(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.multiprocessing.spawn` runs the first of its processes here."""
        if hasattr(real, "_ckpt_watched"):
            return real

        @functools.wraps(real)  # so its arguments are those of torch
        def call(*args: Any, **kwargs: Any) -> Any:
            function, given = argument(args, kwargs, 0, "fn"), argument(args, kwargs, 1, "args") or ()
            count = argument(args, kwargs, 2, "nprocs")
            nprocs = 1 if count is None else int(count)
            if not self._record.on or nprocs < 1:
                return real(*args, **kwargs)
            self._wanted(nprocs, "torch.multiprocessing.spawn")
            function(0, *given)
            return _Joined() if argument(args, kwargs, 3, "join") is False else None

        call._ckpt_watched = True  # type: ignore[attr-defined]
        return call

    def environment(self) -> None:
        """Answer the script's own `os.environ["RANK"]` as a launcher of one process would."""
        kind = type(os.environ)
        real = kind.__getitem__

        @functools.wraps(real)
        def getitem(environ: Any, key: str) -> str:
            try:
                return real(environ, key)
            except KeyError:
                if environ is not os.environ or key not in _LAUNCHED or not self._is_asked_by_user():
                    raise
            for name, value in _LAUNCHED.items():
                os.environ.setdefault(name, value or str(free_port()))
            self._record.could_not(f"os.environ[{key!r}] was not set; it got what a launcher of one process sets")
            return real(environ, key)

        kind.__getitem__ = getitem  # type: ignore[method-assign]

    def _is_asked_by_user(self) -> bool:
        # `get` and `in` come from _collections_abc, and only ask.
        caller = sys._getframe(2)
        return self._record.on and not frames.is_library(caller.f_code.co_filename)


_LAUNCHED = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "",
}  # fmt: skip


class _Joined:
    """What `spawn(join=False)` gives; its process has run."""

    processes: tuple[Any, ...] = ()

    def join(self, *_args: Any, **_kwargs: Any) -> bool:
        return True


def free_port() -> int:
    """A TCP port of this machine that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
