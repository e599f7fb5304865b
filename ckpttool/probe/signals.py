"""An orderly end where a process is told to end while it asks: by a scheduler, a closed terminal, `timeout`."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_ENDING = ("SIGTERM", "SIGHUP")


class Told(BaseException):
    """This process was told to end; it is raised where it stands, so that all is put away on the way out."""


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Raise `Told` at such a signal, and let it do what it does by itself once all is put away.

    Only where it would end the process at once: who has a handler, or ignores it, keeps that. In threads nothing is
    changed, for there Python has no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = [
        n for n in (getattr(signal, name, None) for name in _ENDING) if n and signal.getsignal(n) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, _telling(came))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), came[0])


def _telling(came: list[int]) -> Callable[[int, FrameType | None], None]:
    def told(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:  # the second one finds us putting things away
            _raise()

    return told


def _raise() -> NoReturn:
    raise Told
