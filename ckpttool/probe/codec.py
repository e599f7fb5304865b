"""The probe's answer, JSON, into `ScriptFacts`; anything that is not what `facts` says is an error, not a guess."""

import dataclasses
import json
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from ckpttool.errors import ProbeFailed
from ckpttool.facts import ScriptFacts

_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def facts_from(text: str | bytes) -> ScriptFacts:
    """Read an answer.

    Raises:
        ProbeFailed: it is no JSON, or a field is missing, unknown or of another type.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProbeFailed(f"the probe's answer is no JSON: {error}", hint="this is a bug of ckpt") from error
    facts: ScriptFacts = _built(ScriptFacts, answer, "answer")
    return facts


def _built(kind: Any, value: Any, where: str) -> Any:
    """A value of a declared type: a dataclass of facts, a tuple, a mapping, or plain.

    Fields nest as deep as `facts` declares them; a value of no declared type is passed on as it is.
    """
    if dataclasses.is_dataclass(kind):
        return _fact(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # `X | None`, `int | float`
        return None if value is None and types.NoneType in arguments else _one_of(arguments, value, where)
    if origin is tuple:
        items = _checked(value, list, where)
        return tuple(_built(arguments[0], item, f"{where}[{n}]") for n, item in enumerate(items))
    if origin is Mapping:
        entries = _checked(value, dict, where)
        return {key: _built(arguments[1], item, f"{where}.{key}") for key, item in entries.items()}
    if kind is object:
        return value
    if kind is float:
        return _number(value, where)
    return _checked(value, kind, where)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        if dataclasses.is_dataclass(kind) or type(value) is kind:
            return _built(kind, value, where)
    if float in kinds:
        return _number(value, where)
    raise _odd(value, where)


def _fact(kind: Any, value: Any, where: str) -> Any:
    fields = _checked(value, dict, where)
    types_ = _types_of(kind)
    unknown = fields.keys() - types_.keys()
    if unknown:
        raise ProbeFailed(f"the probe's answer has an unknown field {min(unknown)!r}", where=where)
    try:
        return kind(**{name: _built(types_[name], item, f"{where}.{name}") for name, item in fields.items()})
    except TypeError as error:  # a field without a default is not there
        raise ProbeFailed(f"the probe's answer is not complete: {error}", where=where) from error


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _number(value: Any, where: str) -> float:
    """A float; those that JSON has no word for come as `{"$float": "nan"}`."""
    match value:
        case bool():
            raise _odd(value, where)
        case int() | float():
            return float(value)
        case {"$float": str(word)} if word in _NOT_FINITE:
            return _NOT_FINITE[word]
    raise _odd(value, where)


def _checked(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind:
        raise _odd(value, where)
    return value


def _odd(value: Any, where: str) -> ProbeFailed:
    return ProbeFailed(
        f"the probe's answer has a {type(value).__name__} where none belongs", where=where, hint="this is a bug of ckpt"
    )
