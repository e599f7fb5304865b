"""Plain values in JSON: themselves where JSON has a word for them, else an object with one name such as `$bytes`."""

import base64
import binascii
import math
import struct
from collections.abc import Callable
from typing import Any, Final

from ckpttool.errors import DamagedFile
from ckpttool.structures.documents import Json
from ckpttool.values import GlobalRef, Value

_MOST = 2**63  # integers from here on are spelled in hexadecimal: not every reader of JSON keeps them
_USUAL_NAN = struct.pack(">d", math.nan)

NOT_PLAIN: Final = object()


def plain_json(value: Value) -> Json:
    """The JSON of a value that holds no others; `NOT_PLAIN` for all that does."""
    match value:
        case None | bool():
            return value
        case int():
            return value if -_MOST <= value < _MOST else {"$int": hex(value)}
        case float():
            return _float(value)
        case str():
            return value if is_text(value) else {"$text": _base64(value.encode("utf-8", "surrogatepass"))}
        case complex():
            return {"$complex": [_float(value.real), _float(value.imag)]}
        case bytes():
            return {"$bytes": _base64(value)}
        case GlobalRef():
            return {"$global": global_json(value)}
    return NOT_PLAIN


def global_json(ref: GlobalRef) -> list[Json]:
    """Module and name."""
    return [plain_json(ref.module), plain_json(ref.name)]


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: it has no half of a surrogate pair."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(value: Any) -> bool:
    """Whether a key may be the name in a JSON object: text that does not look like a tag."""
    return type(value) is str and not value.startswith("$") and is_text(value)


def _float(value: float) -> Json:
    if math.isfinite(value):
        return value
    if math.isinf(value):
        return {"$float": "inf" if value > 0 else "-inf"}
    bits = struct.pack(">d", value)
    return {"$float": "nan" if bits == _USUAL_NAN else bits.hex()}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def plain_value(tag: str, said: Json) -> Value:
    """The reverse, of an object with one of the tags in `PLAIN_TAGS`.

    Raises:
        DamagedFile: what stands there is of another form.
    """
    try:
        value = _READERS[tag](said)
    except (ValueError, TypeError, OverflowError, struct.error, binascii.Error) as error:
        raise DamagedFile(f"{tag} is not of its form: {error}") from error
    if plain_json(value) != {tag: said}:
        raise DamagedFile(f"{tag} is not of its form: such a value is spelled otherwise")
    return value


def number_value(said: Json) -> Json:
    """A value that is no object and no list.

    Raises:
        DamagedFile: a number that would have a tag.
    """
    beyond = isinstance(said, float) and not math.isfinite(said)
    if beyond or (isinstance(said, int) and not -_MOST <= said < _MOST):
        raise DamagedFile("a number is beyond 64 bits, and is no $int or $float")
    return said


def bytes_value(said: Json) -> bytes:
    """Bytes in base64; errors as `plain_value`."""
    return bytes(plain_value("$bytes", said))  # type: ignore[arg-type]  # it is bytes


def global_value(said: Json) -> GlobalRef:
    """A global from module and name.

    Raises:
        DamagedFile: it is no pair of texts.
    """
    match said:
        case [module, name]:
            return GlobalRef(_text_of(module), _text_of(name))
    raise DamagedFile("a global is not a module and a name")


def _text_of(said: Json) -> str:
    match said:
        case str():
            return said
        case {"$text": str() as text}:
            return str(plain_value("$text", text))
    raise DamagedFile("a module or a name is no text")


def _read_int(said: Json) -> int:
    return int(_string(said), 16)


def _read_float(said: Json) -> float:
    match said:
        case "nan" | "inf" | "-inf":
            return float(said)
    value: float = struct.unpack(">d", bytes.fromhex(_string(said)))[0]
    return value


def _read_complex(said: Json) -> complex:
    match said:
        case [real, imaginary]:
            return complex(_real(real), _real(imaginary))
    raise ValueError("two numbers are expected")


def _real(said: Json) -> float:
    match said:
        case float():
            return said
        case {"$float": text}:
            return _read_float(text)
    raise ValueError("a float is expected")


def _read_bytes(said: Json) -> bytes:
    return base64.b64decode(_string(said), validate=True)


def _read_text(said: Json) -> str:
    return _read_bytes(said).decode("utf-8", "surrogatepass")


def _string(said: Json) -> str:
    if not isinstance(said, str):
        raise TypeError("a string is expected")
    return said


_READERS: dict[str, Callable[[Json], Value]] = {
    "$int": _read_int,
    "$float": _read_float,
    "$text": _read_text,
    "$complex": _read_complex,
    "$bytes": _read_bytes,
    "$global": global_value,
}
PLAIN_TAGS = frozenset(_READERS)
