"""Constructors of Python's own types: what `set`, `OrderedDict`, `bytes` and the like make of checked arguments.

Every function takes the tuple of arguments and returns a value, or `NotImplemented` where the call is of a form that
picklers do not write; the machine then keeps it as an `Opaque`.
"""

from typing import Any

from ckpttool.errors import DamagedFile
from ckpttool.pickles.keys import KeyGuard
from ckpttool.pickles.words import spoken
from ckpttool.values import ORDERED_DICT, BytesRef, GlobalRef, Opaque, Record

COUNTER = GlobalRef("collections", "Counter")
DEFAULT_DICT = GlobalRef("collections", "defaultdict")


def ordered_dict(args: tuple[Any, ...]) -> Any:
    """`OrderedDict()` (Python 3.5 on: entries come by SETITEMS) or `OrderedDict([[key, value], …])` before."""
    if not args:  # once for every tensor of a file
        return Record(ORDERED_DICT)
    match args:
        case (list() as pairs,):
            record = Record(ORDERED_DICT)
            guard = KeyGuard()
            for pair in pairs:
                if type(pair) not in (list, tuple) or len(pair) != 2:  # noqa: PLR2004  # key and value
                    raise DamagedFile(f"collections.OrderedDict: an item is {spoken(pair)}, not a pair")
                record[guard.key(pair[0], record)] = pair[1]
            return record
    return NotImplemented


def counter(args: tuple[Any, ...]) -> Any:
    """`Counter({element: count})`."""
    match args:
        case (dict() as counts,):
            record = Record(COUNTER)
            record.update(counts)
            return record
        case ():
            return Record(COUNTER)
    return NotImplemented


def default_dict(args: tuple[Any, ...]) -> Any:
    """`defaultdict(factory)`; entries come by SETITEMS, and the factory is never called."""
    return Record(DEFAULT_DICT, args) if len(args) <= 1 else NotImplemented


def set_(args: tuple[Any, ...]) -> Any:
    """`set([member, …])`, as protocols 0 to 3 write it."""
    members = _members(args)
    return NotImplemented if members is None else set(members)


def frozenset_(args: tuple[Any, ...]) -> Any:
    """`frozenset([member, …])`, as protocols 0 to 3 write it."""
    members = _members(args)
    return NotImplemented if members is None else frozenset(members)


def _members(args: tuple[Any, ...]) -> list[Any] | None:
    match args:
        case ():
            return []
        case (list() | tuple() | set() | frozenset() as items,) if not isinstance(items, GlobalRef):
            guard = KeyGuard()
            return [guard.key(item, items) for item in items]
    return None


def bytes_(args: tuple[Any, ...]) -> Any:
    """`bytes()`, as protocols 0 to 2 write the empty one, or `bytes([65, …])`, as 3.0 wrote it."""
    match args:
        case ():
            return b""
        case (list() as numbers,) if all(type(n) is int and n in range(256) for n in numbers):
            return bytes(numbers)
    return NotImplemented


def bytearray_(args: tuple[Any, ...]) -> Any:
    """`bytearray(b"…")`, or `bytearray("…", "latin-1")` in protocols 0 to 2."""
    match args:
        case ():
            return bytearray()
        case (bytes() as data,):
            return bytearray(data)
        case (BytesRef() as ref,):
            return BytesRef(ref.source, ref.start, ref.nbytes, mutable=True)
        case (str() as text, "latin-1" | "latin1"):
            return bytearray(_latin_1(text, "builtins.bytearray"))
    return NotImplemented


def encode(args: tuple[Any, ...]) -> Any:
    """`_codecs.encode("…", "latin1")`, which is how protocols 0 to 2 spell bytes."""
    match args:
        case (str() as text, "latin1" | "latin-1"):
            return _latin_1(text, "_codecs.encode")
    return NotImplemented


def _latin_1(text: str, function: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as e:
        raise DamagedFile(f"{function}: character {e.start:,} is beyond latin-1, so this is no byte string") from e


def complex_(args: tuple[Any, ...]) -> Any:
    """`complex(real, imaginary)`."""
    match args:
        case (float() | int() as real, float() | int() as imaginary):
            try:
                return complex(real, imaginary)
            except OverflowError as e:
                raise DamagedFile("builtins.complex: an integer is too large for a float") from e
    return NotImplemented


def reconstructor(args: tuple[Any, ...]) -> Any:
    """`copyreg._reconstructor(cls, base, base_state)`, which is how protocols 0 and 1 make an instance.

    Source: CPython Lib/copyreg.py
    """
    match args:
        case (cls, GlobalRef("builtins" | "__builtin__", "object"), None):
            return Opaque(cls, how="newobj")
        case (cls, GlobalRef("builtins" | "__builtin__", "list"), list() as items):
            return Opaque(cls, how="newobj", items=list(items))
        case (cls, GlobalRef("builtins" | "__builtin__", "dict"), dict() as entries):
            return Opaque(cls, how="newobj", entries=dict(entries))
    return NotImplemented


def newobj(args: tuple[Any, ...]) -> Any:
    """`copyreg.__newobj__(cls, *args)`: what NEWOBJ does, spelled as a call."""
    return Opaque(args[0], args[1:], how="newobj") if args else NotImplemented
