"""Wrapping functions so that a watch sees the call: whatever goes wrong in a watch is noted, and the call goes on.

A watch is a generator function `watch(args, kwargs)`: it runs up to its `yield` before the call, is sent the `Outcome`
after it, and what it returns, unless None, is given to the caller instead of the result.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Callable, Optional

from .record import Record

Steps = Generator[None, "Outcome", Any]
Watch = Callable[[tuple[Any, ...], dict[str, Any]], Steps]


@dataclass
class Outcome:
    """How a call went."""

    result: Any = None
    error: Optional[BaseException] = None


def watched(record: Record, call: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    """A function that does what `call` does, and lets the watch see it."""

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not record.on:
            return call(*args, **kwargs)
        steps = _begun(record, watch, args, kwargs)
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            _ended(record, steps, Outcome(error=error))
            raise
        instead = _ended(record, steps, Outcome(result))
        return result if instead is None else instead

    wrapper._ckpt_watched = True  # type: ignore[attr-defined]
    return wrapper


def _begun(record: Record, watch: Watch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Optional[Steps]:
    try:
        steps = watch(args, kwargs)
        next(steps)
    except StopIteration:
        return None
    except Exception as error:
        record.could_not(f"{_name(watch)}: {type(error).__name__}: {error}")
        return None
    return steps


def _ended(record: Record, steps: Optional[Steps], outcome: Outcome) -> Any:
    if steps is None:
        return None
    try:
        steps.send(outcome)
    except StopIteration as end:
        return end.value
    except Exception as error:
        record.could_not(f"{_name(steps)}: {type(error).__name__}: {error}")
    return None


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", getattr(thing, "__name__", "a watch")))


def patch(record: Record, owner: Any, name: str, watch: Watch) -> None:
    """Put a watch around a function of a module or a method of a class; nothing where there is none."""
    call = getattr(owner, name, None)
    if call is None or is_watched(call):
        return
    try:
        setattr(owner, name, watched(record, call, watch))
    except (AttributeError, TypeError) as error:  # a class of C
        record.could_not(f"{name} of {owner!r}: {error}")


def is_watched(call: object) -> bool:
    """Whether it is such a wrapper."""
    return bool(getattr(call, "_ckpt_watched", False))


def patch_family(record: Record, base: type, name: str, watch: Watch) -> None:
    """Put a watch around a method of a class and around every override of it, also in classes yet to be made."""
    pending = [base]
    for kind in pending:  # it grows
        pending += type.__subclasses__(kind)
        _patch_own(record, kind, name, watch)
    _on_subclass(record, base, lambda kind: _patch_own(record, kind, name, watch))


def _patch_own(record: Record, kind: type, name: str, watch: Watch) -> None:
    own = vars(kind).get(name)
    if callable(own) and not is_watched(own):
        setattr(kind, name, watched(record, own, watch))


def _on_subclass(record: Record, base: Any, act: Callable[[type], None]) -> None:
    """Do something with each class that will be derived, after its own `__init_subclass__` was through."""
    before = vars(base).get("__init_subclass__")

    def init_subclass(cls: Any, /, **kwargs: Any) -> None:
        if before is not None:
            before.__get__(None, cls)(**kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)
        try:
            act(cls)
        except Exception as error:
            record.could_not(f"class {cls.__qualname__}: {type(error).__name__}: {error}")

    base.__init_subclass__ = classmethod(init_subclass)


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    """An argument that may be given by position or by name; None where it is not."""
    return args[place] if len(args) > place else kwargs.get(name)
