"""What a value is, in a word or two."""

from ckpttool.rules._payloads import ABSENT
from ckpttool.values import TensorRef, Value


def kind_of(value: Value) -> str:
    """What a value is, in a word or two: `None`, `a list`, `a tensor`."""
    match value:
        case None:
            return "None"
        case bool():
            return str(value)
        case TensorRef():
            return "an array" if value.kind == "ndarray" else "a tensor"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a dict" if value else "an empty dict"
        case tuple():
            return "a tuple"
    return "nothing" if value is ABSENT else "an object"
