"""A value tree as a pickle of protocol 2, the way `torch.save` writes one: the reverse of `pickles`.

Nothing is imported or called to write it; objects are spelled by the globals that the file named. Where the tree
allows, only opcodes are used that `torch.load(weights_only=True)` knows, and a plain state_dict comes out byte for byte
as torch's own.

Source: CPython 3.13 Lib/pickle.py; torch/_weights_only_unpickler.py and `_save` in torch/serialization.py, torch 2.13
"""

import pickle
from collections.abc import Iterator
from typing import Any

from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import Source
from ckpttool.values import (
    BytesRef,
    GlobalRef,
    NumpyScalar,
    Opaque,
    Record,
    StorageRef,
    TensorRef,
    Value,
)
from ckpttool.writers.memory import Memory
from ckpttool.writers.pickle_scalars import SHORT, TUPLES
from ckpttool.writers.pickle_tensors import Tensors
from ckpttool.writers.reach import path_to

_BATCH = 1000  # items of one APPENDS or SETITEMS, as pickle has it
_SET = GlobalRef("builtins", "set")
_FROZENSET = GlobalRef("builtins", "frozenset")

_Writing = Iterator[Any] | None  # what is still to be written of an object: its children, one after the other


def pickled(
    root: Value, memory: Memory, *, protocol: int = 2, limits: Limits = DEFAULT_LIMITS
) -> tuple[bytes | Source, ...]:
    """The pickle of a tree, in pieces: our bytes, and long byte strings that stay in their source.

    Args:
        memory: says how each storage is named, and where in it a tensor lies.
        protocol: of the pickle from which the names of globals were taken: from 3 on they are Python 3's. The stream
            says 2 wherever those names mean the same there, else 4.
        limits: `opcodes` bounds how much is written; a tree that holds itself in tuples can take more than it has.

    Raises:
        UnsupportedFormat: a value that a torch file has no way to hold; the error says where it is.
        LimitExceeded: more than `limits.opcodes` values.
    """
    writer = _Pickler(memory, limits, python3=protocol > 2)  # noqa: PLR2004
    try:
        return writer.write(root)
    except UnsupportedFormat as error:
        raise error.at(path_to(root, writer.current)) from None


class _Pickler(Tensors):
    """Writes values with a stack of its own, so that no tree is too deep."""

    def __init__(self, memory: Memory, limits: Limits, *, python3: bool) -> None:
        super().__init__(memory, limits, python3=python3)
        self.current: Any = None  # the value being begun, for messages

    def write(self, root: Value) -> tuple[bytes | Source, ...]:
        """The whole stream."""
        stack: list[Iterator[Any]] = [iter((root,))]
        begun = 0
        while stack:
            for child in stack[-1]:
                begun += 1
                more = self._begin(child)
                if more is not None:
                    stack.append(more)
                    break
            else:
                stack.pop()
            if begun > self.limits.opcodes:
                raise LimitExceeded(
                    f"the pickle to write has more than {self.limits.opcodes:,} values",
                    hint=f"raise it with --limit opcodes={10 * self.limits.opcodes}",
                )
        self.out += pickle.STOP
        return self.chunks()

    def _begin(self, value: Any) -> _Writing:
        """Write a value, or its beginning; what is still to come is given back."""
        write = _LEAVES.get(type(value))
        if write is not None:
            write(self, value)
            return None
        if self.recalled(value):
            return None
        self.current = value
        if value != ():
            self.require_new(value)
        begin = _OBJECTS.get(type(value))
        if begin is not None:
            more: _Writing = begin(self, value)
            return more
        if isinstance(value, Opaque):  # a numpy.dtype is one of a class of its own
            return self.write_object(value)
        raise UnsupportedFormat(f"a {type(value).__name__} is no value of a checkpoint")

    # Containers: known to the memo before what they hold where they can hold themselves

    def write_tuple(self, value: tuple[Any, ...]) -> Iterator[Any]:
        count = len(value)
        if count > SHORT:
            self.out += pickle.MARK
        yield from value
        if self.known(value):  # it holds itself, by way of a list: that one wrote it
            self.out += pickle.POP_MARK if count > SHORT else pickle.POP * count
            self.recalled(value)
            return
        self.out += TUPLES[count] if count <= SHORT else pickle.TUPLE
        if count:
            self.remember(value)

    def write_list(self, value: list[Any]) -> Iterator[Any]:
        self.out += pickle.EMPTY_LIST
        self.remember(value)
        yield from self._appended(value)

    def _appended(self, items: list[Any]) -> Iterator[Any]:
        if len(items) == 1:
            yield items[0]
            self.out += pickle.APPEND
            return
        for start in range(0, len(items), _BATCH):
            self.out += pickle.MARK
            yield from items[start : start + _BATCH]
            self.out += pickle.APPENDS

    def write_dict(self, value: dict[Any, Any]) -> Iterator[Any]:
        self.out += pickle.EMPTY_DICT
        self.remember(value)
        yield from self._entered(value)

    def _entered(self, entries: dict[Any, Any]) -> Iterator[Any]:
        if len(entries) == 1:
            for pair in entries.items():
                yield from pair
            self.out += pickle.SETITEM
            return
        left = 0
        for pair in entries.items():
            if not left:
                self.out += pickle.MARK
                left = _BATCH
            yield from pair
            left -= 1
            if not left:
                self.out += pickle.SETITEMS
        if left:
            self.out += pickle.SETITEMS

    def write_set(self, value: set[Any]) -> Iterator[Any]:
        return self._members(_SET, value)

    def write_frozenset(self, value: frozenset[Any]) -> Iterator[Any]:
        return self._members(_FROZENSET, value)

    def _members(self, cls: GlobalRef, value: set[Any] | frozenset[Any]) -> Iterator[Any]:
        self.write_global(cls)
        self.out += pickle.EMPTY_LIST
        self.put()
        yield from self._appended(list(value))
        self.ended(pickle.TUPLE1)
        self.reduced(value)

    # Objects

    def write_record(self, value: Record) -> Iterator[Any]:
        yield value.cls
        yield value.args
        if self.reduced(value):
            yield from self._entered(value)
            yield from self._built(value.state)

    def write_object(self, value: Opaque) -> Iterator[Any]:
        if value.how in ("persistent", "extension"):
            what = "a persistent id that is no storage" if value.how == "persistent" else "an extension code"
            raise UnsupportedFormat(
                f"{what} means something only to the program that wrote it; a torch file cannot hold it",
                hint="leave it out with --drop-opaque",
            )
        yield value.cls
        yield value.args
        if value.how == "newobj" and value.kwargs is not None:
            yield value.kwargs
        if not (self._made_new(value) if value.how == "newobj" else self.reduced(value)):
            return
        yield from self._appended(value.items or [])
        yield from self._entered(value.entries or {})
        yield from self._built(value.state)

    def _made_new(self, value: Opaque) -> bool:
        """NEWOBJ, as `reduced` does REDUCE."""
        if self.known(value):
            self.out += pickle.POP * (2 if value.kwargs is None else 3)
            self.recalled(value)
            return False
        self.out += pickle.NEWOBJ if value.kwargs is None else pickle.NEWOBJ_EX
        self.remember(value)
        return True

    def _built(self, state: Any) -> Iterator[Any]:
        if state is not None:
            yield state
            self.out += pickle.BUILD


_LEAVES: dict[type, Any] = {
    type(None): _Pickler.write_none,
    bool: _Pickler.write_bool,
    int: _Pickler.write_int,
    float: _Pickler.write_float,
    str: _Pickler.write_str,
    GlobalRef: _Pickler.write_global,
    StorageRef: _Pickler.write_storage,
}
_OBJECTS: dict[type, Any] = {
    bytes: _Pickler.write_bytes,
    bytearray: _Pickler.write_bytearray,
    complex: _Pickler.write_complex,
    BytesRef: _Pickler.write_bytes_ref,
    tuple: _Pickler.write_tuple,
    list: _Pickler.write_list,
    dict: _Pickler.write_dict,
    set: _Pickler.write_set,
    frozenset: _Pickler.write_frozenset,
    Record: _Pickler.write_record,
    NumpyScalar: _Pickler.write_scalar,
    TensorRef: _Pickler.write_tensor,
}
