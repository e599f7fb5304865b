"""What each hyperparameter of torch.optim may be: a number and its range, or so many of them.

Sources: the checks of `__init__` in torch/optim/*.py of 2.13. `load_state_dict` does not repeat them.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from ckpttool.elements import number
from ckpttool.values import NumpyScalar, TensorRef, Value


class Span(NamedTuple):
    """The range of a number, in words and as a test."""

    words: str  # of a value outside: `is below 0`
    holds: Callable[[float], bool]


class Kind(NamedTuple):
    """What a hyperparameter holds: one number, or one of each span."""

    spans: tuple[Span, ...]
    several: bool = False
    optional: frozenset[int] = frozenset()  # those of several that may be None


_ANY = Span("", lambda _: True)
_POSITIVE = Span("is below 0", lambda x: x >= 0)
_FRACTION = Span("is not from 0 to below 1", lambda x: 0 <= x < 1)
_SHARE = Span("is not from 0 to 1", lambda x: 0 <= x <= 1)

_NUMBER = Kind((_ANY,))
_AT_LEAST_0 = Kind((_POSITIVE,))
_EVERY: Final = {
    **dict.fromkeys(("lr", "eps", "weight_decay", "momentum", "lr_decay", "momentum_decay"), _AT_LEAST_0),
    **dict.fromkeys(("dampening", "lambd", "t0"), _NUMBER),
    "alpha": _AT_LEAST_0,
    "rho": Kind((_SHARE,)),
    "betas": Kind((_FRACTION, _FRACTION), several=True),
    "etas": Kind(
        (Span("is not between 0 and 1", lambda x: 0 < x < 1), Span("is not above 1", lambda x: x > 1)), several=True
    ),
    "step_sizes": Kind((_ANY, _ANY), several=True, optional=frozenset((0, 1))),  # bounds of `clamp_`
    "beta2_decay": Kind((Span("is above 0", lambda x: x <= 0),)),
    "d": Kind((Span("is below 1", lambda x: x >= 1),)),
    "ns_coefficients": Kind((_ANY, _ANY, _ANY), several=True),
}
_OWN: Final = {
    ("Adafactor", "eps"): Kind((_POSITIVE, _POSITIVE), several=True, optional=frozenset((0,))),
    ("ASGD", "alpha"): _NUMBER,
}
_UNREAD: Final = frozenset((("Rprop", "lr"),))  # only the first state of a parameter is made of it


class Fault(NamedTuple):
    """What is wrong with a value."""

    what: str  # `is text`
    raised: str = ""  # by the first step; empty where it goes on with the value
    number: float | None = None  # the number that is out of range


def fault_of(made: str, key: str, value: Value) -> Fault | None:
    """What is wrong with a hyperparameter of a class; None where it does, or nothing is known of the key."""
    kind = _OWN.get((made, key), _EVERY.get(key))
    if kind is None or (made, key) in _UNREAD:
        return None
    if isinstance(value, complex) and made == "ASGD":  # the real part of which is taken, with a warning
        return Fault("is complex")
    if not kind.several:
        return _of_number(kind.spans[0], value)
    if isinstance(value, TensorRef):
        return None
    if not isinstance(value, list | tuple):
        return Fault(f"is {_word(value)}, not {len(kind.spans)} numbers", _unpacked(value))
    if len(value) != len(kind.spans):
        return Fault(f"has {len(value):,} items, not {len(kind.spans)}", "ValueError")
    found = (
        (n, fault)
        for n, (span, item) in enumerate(zip(kind.spans, value, strict=True))
        if not (item is None and n in kind.optional) and (fault := _of_number(span, item)) is not None
    )
    first = next(found, None)
    return first and Fault(f"[{first[0]}] {first[1].what}", first[1].raised, first[1].number)


def _of_number(span: Span, value: Value) -> Fault | None:
    if isinstance(value, TensorRef) and value.kind == "strided" and value.numel != 1:
        return Fault(f"is a tensor of {value.numel:,} elements", "RuntimeError or TypeError")
    if value is True:
        return Fault("is True, which counts as 1", number=1.0)
    if not isinstance(value, int | float | NumpyScalar | TensorRef):
        return Fault(
            f"is {_word(value)}, no number", "RuntimeError or TypeError" if isinstance(value, complex) else "TypeError"
        )
    read = number(value)
    if read is None:
        return None
    if isinstance(read, float) and not math.isfinite(read):
        return Fault(f"is {read:g}", number=read)
    return None if span.holds(read) else Fault(span.words, number=float(read))


def _unpacked(value: Value) -> str:
    """What Python raises where it unpacks a value into several names."""
    return "ValueError" if isinstance(value, str | dict) else "TypeError"


def _word(value: Value) -> str:
    match value:
        case None:
            return "None"
        case str():
            return "text"
        case bool() | int() | float():
            return "a single number"
        case complex():
            return "complex"
        case list() | tuple():
            return "a list" if isinstance(value, list) else "a tuple"
        case dict():
            return "a dict"
    return "an object"
