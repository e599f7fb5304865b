"""Reports for programs: one JSON object, written as it comes.

A list that may be long is an iterator in the document and is written element by element, one to a line, so that
memory does not grow with it. Text is ASCII with escapes, so that lone surrogates and whatever a name holds survive
any pipe.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import TextIO

from ckpttool.errors import CkptError

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ENCODER = json.JSONEncoder(allow_nan=False)


def write(document: Mapping[str, object], stream: TextIO) -> None:
    """Write one object, a member or an element of a list of objects to a line.

    Args:
        document: JSON values, and iterators of JSON values. NaN and the infinities become strings.
        stream: text; receives ASCII only.

    Raises:
        CkptError: of an iterator. The document is closed first, with the failure as its last member, `error`.
    """
    stream.write("{")
    try:
        for n, (key, value) in enumerate(document.items()):
            stream.write(f"{',' if n else ''}\n  {_ENCODER.encode(key)}: ")
            match value:
                case Iterator():
                    _write_elements(value, stream)
                case [dict(), *_]:
                    _write_elements(iter(value), stream)
                case _:
                    stream.write(encode(value))
    except CkptError as e:
        stream.write(f',\n  "error": {encode(e.told())}\n}}\n')
        raise
    stream.write("\n}\n")


def _write_elements(elements: Iterator[object], stream: TextIO) -> None:
    stream.write("[")
    count = 0
    try:
        for count, element in enumerate(elements, 1):  # the count decides about the bracket's line
            stream.write(f"{',' if count > 1 else ''}\n    {encode(element)}")
    finally:  # a list that breaks off is closed, too
        stream.write("\n  ]" if count else "]")


def encode(value: object) -> str:
    """One JSON value on one line."""
    try:
        return _ENCODER.encode(value)
    except ValueError:  # it holds a NaN or an infinity
        return _ENCODER.encode(_spelled(value))


def _spelled(value: object) -> object:
    """The value with strings for what JSON has no number for. Documents are a few levels deep."""
    match value:
        case float() if not math.isfinite(value):
            return _SPECIAL[str(value)]
        case dict():
            return {key: _spelled(child) for key, child in value.items()}
        case list() | tuple():
            return [_spelled(child) for child in value]
        case _:
            return value
