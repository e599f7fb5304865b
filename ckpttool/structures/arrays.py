"""numpy's simple dtypes as one word, `<f8` for what pickle spells with a call and a state; and usual arrays."""

import re
from typing import Any

from ckpttool.errors import DamagedFile
from ckpttool.pickles.constructors import PURE_CONSTRUCTORS, build_object
from ckpttool.values import GlobalRef, Made, Opaque, TensorRef

DTYPE = GlobalRef("numpy", "dtype")
RECONSTRUCT = GlobalRef("numpy._core.multiarray", "_reconstruct")
USUAL_ARGS = (GlobalRef("numpy", "ndarray"), (0,), b"b")
_CODE = re.compile(r"([<>|])([biufc][0-9]{1,2})")
_VERSION = 3  # of the state that numpy pickles


def dtype_code(value: Any) -> str:
    """The word for a dtype as numpy pickles a simple one; empty for any other object."""
    match value:
        case Opaque(cls=cls, args=(str() as code, False, True), state=(3, "<" | ">" | "|" as order, *rest)):
            plain = cls == DTYPE and value.how == "reduce" and rest == [None, None, None, -1, -1, 0]
            word = f"{order}{code}"
            if plain and _CODE.fullmatch(word):
                return word
    return ""


def array_code(tensor: TensorRef) -> str:
    """The word for the dtype of an array that numpy pickles in the usual way; empty for any other tensor."""
    match tensor.made:
        case Made(args=args, state=(1, None, dtype, None, b"")) if tensor.kind == "ndarray" and tensor.cls is None:
            usual = tensor.made.function.name == RECONSTRUCT.name and args == USUAL_ARGS
            return dtype_code(dtype) if usual else ""
    return ""


def usual_state(code: str) -> Any:
    """The state of such an array, without what its shape and its elements say."""
    return (1, None, dtype_of(code), None, b"")


def dtype_of(code: str) -> Any:
    """A dtype from its word, as if read from a pickle.

    Raises:
        DamagedFile: no such word.
    """
    found = _CODE.fullmatch(code)
    if not found:
        raise DamagedFile(f"there is no numpy type {code[:40]!r}")
    made = PURE_CONSTRUCTORS[DTYPE]((found[2], False, True))
    build_object(made, (_VERSION, found[1], None, None, None, -1, -1, 0))
    return made
