"""Key paths, for people (`optimizer.state[0].exp_avg`) and for programs (`["optimizer", "state", 0, "exp_avg"]`)."""

from typing import Any

from ckpttool.values import Attribute, GlobalRef, KeyPath, NumpyScalar, TensorRef

_WIDE = 64  # bits of an integer that JSON readers keep exact
_MOST = 200  # characters of a key that is not a string


def json_step(step: Any) -> str | int:
    """One step of a key path as JSON has it.

    Strings and integers as in the file, an attribute as `.name`, a tensor that serves as a key as torch prints it,
    a class as Python prints it (`<class 'lightning.ModelCheckpoint'>`), any other key as Python would spell it.
    """
    match step:
        case str():
            return step
        case int() if step.bit_length() <= _WIDE:
            return step
        case Attribute():
            return f".{step.name}"
        case TensorRef():
            from ckpttool.elements import torch_text

            return torch_text(step)
        case GlobalRef():
            return f"<class '{step}'>"
        case _:
            return _spelled(step)


def json_key(path: KeyPath) -> list[str | int]:
    """A key path as JSON has it."""
    return [json_step(step) for step in path]


def label(key: Any) -> str:
    """A key of a dict as a word."""
    return str(json_step(key))


def dotted(path: KeyPath) -> str:
    """A key path as people write it; empty for the whole file."""
    text = ""
    for step in path:
        match step:
            case str():
                text += f".{step}" if text else step
            case Attribute():
                text += f".{step.name}" if text else step.name
            case TensorRef():
                text += f"[{'parameter' if step.parameter else 'tensor'} {list(step.shape)}]"
            case _:
                text += f"[{_spelled(step)}]"
    return text


def _spelled(key: Any) -> str:
    """A key that is neither a string nor a small integer, cut where it is long."""
    match key:
        case int() if key.bit_length() <= _WIDE:  # and bool
            text = str(key)
        case int():  # in decimal it would take quadratic time to spell
            text = f"{'-' if key < 0 else ''}0x{abs(key) >> max(0, abs(key).bit_length() - 4 * _MOST):x}"
        case GlobalRef():
            text = str(key)
        case NumpyScalar():
            text = repr(key.item())
        case bytes():
            text = repr(key[:_MOST])
        case float() | complex() | None:
            text = repr(key)
        case tuple():
            text = _tuple(key)
        case _:
            text = type(key).__name__
    return text[:_MOST]


def _tuple(key: tuple[Any, ...]) -> str:
    """A tuple of plain keys, one level deep."""
    inner = ", ".join("(…)" if isinstance(k, tuple) else repr(k) if isinstance(k, str) else _spelled(k) for k in key)
    return f"({inner}{',' if len(key) == 1 else ''})"
