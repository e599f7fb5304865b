"""What a document may say of a tensor beside its name: the words, and which of them go together."""

import re
from collections.abc import Mapping

from ckpttool.dtypes import DType
from ckpttool.errors import DamagedFile
from ckpttool.structures.documents import Json

PROPERTIES: Mapping[str, type] = {
    "bytes_of": str, "same_as": str, "in": str, "device": str, "dtype": str, "shape": list, "stride": list,
    "storage": int, "offset": int, "parameter": bool, "requires_grad": bool, "conj": bool, "neg": bool,
}  # fmt: skip
_OF_TIED = frozenset({"bytes_of", "in", "parameter", "requires_grad"})
_OF_THE_SAME = frozenset({"same_as", "in"})
_OF_ARRAYS = frozenset({"dtype", "shape", "stride"})
_DEVICE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,50}(:[0-9]{1,9})?")
_NUMBERS = ("float", "complex", "int", "uint")


def is_device(tag: object) -> bool:
    """Whether a text is a device as torch spells one: `cuda:0`, `mps`."""
    return isinstance(tag, str) and _DEVICE.fullmatch(tag) is not None


def check_properties(name: str, said: Mapping[str, Json]) -> None:
    """Check what a document says of a tensor by itself.

    Raises:
        DamagedFile: a word that there is not, or one that contradicts another or needs one that is missing.
    """
    for word, value in said.items():
        if type(value) is not PROPERTIES.get(word) or value is False:
            raise DamagedFile(f"the tensor {name[:100]!r} has a {word[:40]!r} that tensors do not have")
    words = said.keys()
    wrong = ""
    if "bytes_of" in words and not words <= _OF_TIED:
        wrong = "has the bytes of another, and properties of bytes of its own"
    elif "same_as" in words and not words <= _OF_THE_SAME:
        wrong = "is the same as another, and has properties of its own"
    elif "in" in words and not words & {"bytes_of", "same_as"}:
        wrong = "is said to be in a file where it is not"
    elif ("dtype" in words) != ("shape" in words):
        wrong = "has one of dtype and shape without the other"
    elif "offset" in words and "storage" not in words:
        wrong = "has an offset in no storage"
    elif "device" in words and not is_device(said["device"]):
        wrong = f"is on {said['device'][:40]!r}, which is not the name of one device"
    if wrong:
        raise DamagedFile(f"the tensor {name[:100]!r} {wrong}")


def check_signs(name: str, dtype: DType, said: Mapping[str, Json]) -> None:
    """Check that a tensor whose values are conjugated or negated has such values.

    Raises:
        DamagedFile: it has not.
    """
    if ("conj" in said and dtype.family != "complex") or ("neg" in said and dtype.family not in _NUMBERS):
        raise DamagedFile(f"the tensor {name[:100]!r} of {dtype.name} has no values to conjugate or negate")


def check_array(name: str, said: Mapping[str, Json]) -> None:
    """Check that an array has no properties of a tensor.

    Raises:
        DamagedFile: it has.
    """
    if not said.keys() <= _OF_ARRAYS:
        raise DamagedFile(f"the array {name[:100]!r} has properties that only tensors have")
