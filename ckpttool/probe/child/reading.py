"""A dict that notes which of its keys are read, and else is a dict.

`torch.load` of a checkpoint's file gives one where the file holds a plain dict, and so are the plain dicts in it. Only
`type(x) is dict` can tell the difference: `isinstance`, `x.__class__`, printing, comparing, copying and pickling
cannot, and every copy is a plain dict again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, KeysView, Mapping
from typing import Any, Optional

from .record import Opened, Record

_MOST_KEYS = 20_000


class ReadingDict(dict):  # type: ignore[type-arg] # it stands for dicts of any kind
    """A dict that tells an entry of the record what is read of it. Made by a copy it tells nobody."""

    __slots__ = ("__weakref__", "_entry", "_within")

    def watch(self, entry: Opened, within: str) -> None:
        """Begin to tell; `within` is the key of the dict around it."""
        self._entry: Optional[Opened] = entry
        self._within = within

    def _read(self, key: object, *, there: bool) -> None:
        entry = getattr(self, "_entry", None)
        if entry is None or not isinstance(key, (str, int)):
            return
        notes = entry.keys if there else entry.missed
        if len(notes) < _MOST_KEYS:
            notes[f"{self._within}.{key}" if self._within else str(key)] = None
        elif not self._within:
            entry.all_keys = True

    def _walked(self) -> None:
        entry = getattr(self, "_entry", None)
        if entry is not None and not self._within:
            entry.all_keys = True

    def __getitem__(self, key: Any) -> Any:
        self._read(key, there=dict.__contains__(self, key))
        return dict.__getitem__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._read(key, there=dict.__contains__(self, key))
        return dict.get(self, key, default)

    def __contains__(self, key: object) -> bool:
        there = dict.__contains__(self, key)
        if not there:
            self._read(key, there=False)
        return there

    def pop(self, key: Any, *default: Any) -> Any:
        self._read(key, there=dict.__contains__(self, key))
        return dict.pop(self, key, *default)

    def popitem(self) -> Any:
        self._walked()
        return dict.popitem(self)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self._read(key, there=dict.__contains__(self, key))
        return dict.setdefault(self, key, default)

    def __iter__(self) -> Iterator[Any]:
        # It is overridden so that `dict(x)`, `{**x}` and `update(x)` go by keys() and __getitem__, and so are seen.
        return dict.__iter__(self)

    def keys(self) -> Any:
        return _Keys(self)

    def values(self) -> Any:
        self._walked()
        return dict.values(self)

    def items(self) -> Any:
        self._walked()
        return dict.items(self)

    def copy(self) -> dict[Any, Any]:
        self._walked()
        return dict(dict.items(self))

    def __or__(self, other: Any) -> Any:
        return self.copy() | other  # type: ignore[operator, unused-ignore] # Python 3.9 has it

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __copy__(self) -> dict[Any, Any]:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        twin: dict[Any, Any] = {}
        memo[id(self)] = twin  # before its values are, for they may hold it
        self._walked()
        for key, value in dict.items(self):
            twin[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (), None, None, iter(dict.items(self))

    @property
    def __class__(self) -> Any:
        return dict

    @__class__.setter
    def __class__(self, kind: Any) -> None:
        raise TypeError(f"__class__ assignment only supported for mutable types or ModuleType subclasses, not {kind}")


ReadingDict.__name__ = ReadingDict.__qualname__ = "dict"
ReadingDict.__module__ = "builtins"


class _Keys(KeysView):  # type: ignore[type-arg]
    """As `dict_keys`, but `in` is noted."""

    _mapping: ReadingDict  # set by KeysView

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __iter__(self) -> Iterator[Any]:
        return dict.__iter__(self._mapping)

    def __reversed__(self) -> Iterator[Any]:
        return dict.__reversed__(self._mapping)

    def __repr__(self) -> str:
        return repr(dict.keys(self._mapping))

    @property
    def mapping(self) -> Mapping[Any, Any]:
        return self._mapping


def reading(record: Record, loaded: Any, entry: Opened) -> Any:
    """What a loader returned, with the dicts in it made to note what is read; anything but a plain dict as it is."""
    if type(loaded) is not dict:
        entry.all_keys = True
        return loaded
    inner: dict[int, ReadingDict] = {}
    root = ReadingDict()
    for key, value in loaded.items():
        if type(value) is dict and value is not loaded:
            if id(value) not in inner:  # one dict under two keys stays one
                inner[id(value)] = ReadingDict(value)
                inner[id(value)].watch(entry, str(key))
            dict.__setitem__(root, key, inner[id(value)])
        else:
            dict.__setitem__(root, key, value)
    root.watch(entry, "")
    record.roots.put(root, entry.path)
    return root


def register_with_pytree(pytree: Any) -> None:
    """`torch.utils._pytree` goes by the exact type."""
    pytree.register_pytree_node(
        ReadingDict,
        lambda tree: (list(dict.values(tree)), list(dict.keys(tree))),
        lambda values, keys: dict(zip(keys, values)),
    )
