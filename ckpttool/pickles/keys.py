"""Which values of a file may be hashed, and at what cost.

`hash` and `==` of nested tuples recurse in C and revisit what is shared, and the hashes of numbers and tuples can be
chosen so that all collide. So a key that is not a plain name or a small number passes a guard first.
"""

from typing import Any

from ckpttool.errors import DamagedFile, LimitExceeded
from ckpttool.pickles.words import spoken
from ckpttool.values import BytesRef

_PLAIN = frozenset({str, bytes, bool, type(None)})  # no file can choose these hashes
_DISTINCT = 2**61 - 1  # the hashes of integers are taken modulo this
_MOST_PARTS = 1_000  # values inside one key, counted as often as they are reached
_MOST_BYTES = 2**20  # of a byte string that is a key
_MOST_ALIKE = 2_000  # keys of one container with one and the same hash


class KeyGuard:
    """Lets keys pass, and counts those whose hashes an attacker could choose."""

    __slots__ = ("_alike",)

    def __init__(self) -> None:
        self._alike: dict[tuple[int, int], int] = {}  # container and hash: how many keys had it

    def key(self, value: Any, container: object) -> Any:
        """The value as a key or a member of the container.

        Raises:
            DamagedFile: Python could not hash it (a list), or too many keys share one hash.
            LimitExceeded: hashing it would take too long.
        """
        kind = type(value)
        if kind in _PLAIN or (kind is int and -_DISTINCT < value < _DISTINCT):
            return value
        if kind is BytesRef:
            if value.nbytes > _MOST_BYTES:
                raise LimitExceeded(f"a key is {spoken(value)}, more than {_MOST_BYTES:,} bytes")
            return value.read()
        _check_parts(value)
        place = (id(container), hash(value))
        alike = self._alike[place] = self._alike.get(place, 0) + 1
        if alike > _MOST_ALIKE:
            raise DamagedFile(
                f"more than {_MOST_ALIKE:,} keys share one hash, which no program does by accident",
                hint="the file is made to waste time; do not trust it",
            )
        return value


def _check_parts(key: Any) -> None:
    pending = [key]
    seen = 0
    while pending:
        part = pending.pop()
        if type(part) in (tuple, frozenset):
            seen += len(part)
            if seen > _MOST_PARTS:
                raise LimitExceeded(f"a key is made of more than {_MOST_PARTS:,} values")
            pending.extend(part)
        elif isinstance(part, list | dict | set | bytearray):
            raise DamagedFile(f"a key or a set member is or holds {spoken(part)}, which cannot be hashed")
