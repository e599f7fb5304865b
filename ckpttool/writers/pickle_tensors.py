"""Tensors, storages and numpy's objects as the calls that torch and numpy spell for them."""

import pickle
from collections.abc import Iterator
from typing import Any

from ckpttool.errors import UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan
from ckpttool.values import ORDERED_DICT, GlobalRef, Made, NumpyScalar, StorageRef, TensorRef
from ckpttool.writers import spelling
from ckpttool.writers.memory import Memory, StorageName, View
from ckpttool.writers.pickle_scalars import SHORT, TUPLES, Scalars

_TEXT = 16 * 2**20  # bytes of an array that are spelled as text, which weights_only can read; longer ones are copied
_PARAMETER = GlobalRef("torch._utils", "_rebuild_parameter")


class Tensors(Scalars):
    """Writes what has elements. A method that gives values back wants them written before it goes on."""

    def __init__(self, memory: Memory, limits: Limits, *, python3: bool) -> None:
        super().__init__(python3=python3)
        self.limits = limits
        self._memory = memory
        self._kept: list[Any] = []  # what was made here and is in the memo, so that no id is given twice

    def write_storage(self, value: StorageRef) -> None:
        self._named(self._memory.storage(value))  # each time: the reader knows it by its key

    def _named(self, name: StorageName) -> None:
        """The persistent id of a storage."""
        self.out += pickle.MARK
        self.write_str("storage")
        self.write_global(name.cls)
        self.write_str(name.key)
        self.write_str(name.location)
        self.write_int(name.units)
        self.ended(pickle.TUPLE)
        self.out += pickle.BINPERSID

    def write_tensor(self, value: TensorRef) -> Iterator[Any] | None:
        if value.kind == "ndarray":
            return self._array(value)
        if value.made is not None:
            return self._made(value)
        if value.storage is None or value.kind != "strided":
            raise UnsupportedFormat(f"a tensor of kind {value.kind} has no call that a torch file could spell")
        if value.parameter:
            self._parameter(value)
        else:
            self._strided(value, requires_grad=value.requires_grad)
        self.remember(value)
        return None

    def _parameter(self, value: TensorRef) -> None:
        self.write_global(_PARAMETER)
        self._strided(value, requires_grad=False)
        self.put()
        self.write_bool(value.requires_grad)
        self._hooks()
        self.ended(pickle.TUPLE3)
        self.out += pickle.REDUCE

    def _strided(self, value: TensorRef, *, requires_grad: bool) -> None:
        view = self._memory.view(value)
        self.write_global(spelling.TENSOR_V2 if view.typed else spelling.TENSOR_V3)
        self._place(value, view)
        self.write_bool(requires_grad)
        self._hooks()
        self._flags(value, view)
        self.out += pickle.REDUCE

    def _place(self, value: TensorRef, view: View) -> None:
        """The first of a view's arguments: MARK, storage, offset, size, stride."""
        self.out += pickle.MARK
        self._named(view.name)
        self.write_int(view.offset)
        self._numbers(value.shape)
        self._numbers(view.stride)

    def _numbers(self, numbers: tuple[int, ...]) -> None:
        if len(numbers) > SHORT:
            self.out += pickle.MARK
        for number in numbers:
            self.write_int(number)
        if numbers:
            self.ended(TUPLES[len(numbers)] if len(numbers) <= SHORT else pickle.TUPLE)
        else:
            self.out += pickle.EMPTY_TUPLE

    def _hooks(self) -> None:
        self.write_global(ORDERED_DICT)
        self.out += pickle.EMPTY_TUPLE + pickle.REDUCE
        self.put()

    def _flags(self, value: TensorRef, view: View) -> None:
        """The last of a view's arguments: dtype where the storage has none, flags, TUPLE."""
        if not view.typed:
            self.write_global(GlobalRef("torch", value.dtype.name))
        flags = [name for name in ("conj", "neg") if getattr(value, name)]
        if flags:
            self.out += pickle.EMPTY_DICT
            self.put()
            self.out += pickle.MARK if len(flags) > 1 else b""
            for name in flags:
                self.write_str(name)
                self.write_bool(True)
            self.out += pickle.SETITEMS if len(flags) > 1 else pickle.SETITEM
        self.ended(pickle.TUPLE)

    def _made(self, value: TensorRef) -> Iterator[Any]:
        made = value.made or _NO_CALL
        yield self._function(value, made.function)
        yield from self._arguments(value, made.function, made.args)
        self.reduced(value)

    def _function(self, value: TensorRef, function: GlobalRef) -> GlobalRef:
        """The function to spell: which of those for plain views depends on the type that the values have by now."""
        if function in spelling.OF_VIEWS:
            return spelling.TENSOR_V2 if self._memory.view(value).typed else spelling.TENSOR_V3
        return function

    def _arguments(self, value: TensorRef, function: GlobalRef, args: tuple[Any, ...]) -> Iterator[Any]:
        """The tuple of arguments, with what the tensor's fields say put back where `Made` left it out."""
        match args:
            case (GlobalRef() as func, cls, inner, *rest) if function in spelling.FROM_TYPE and type(inner) is tuple:
                self.out += pickle.MARK
                yield self._function(value, func)
                yield cls
                yield from self._own_arguments(value, func, inner)
                yield from rest
                self.ended(pickle.TUPLE)
            case _:
                yield from self._own_arguments(value, function, args)

    def _own_arguments(self, value: TensorRef, function: GlobalRef, args: tuple[Any, ...]) -> Iterator[Any]:
        if function in spelling.OF_STORAGES:
            view = self._memory.view(value)
            self._place(value, view)
            if function in spelling.OF_VIEWS:
                yield from args[4:6] or (False, None)  # requires_grad and hooks; the oldest has neither
                self._flags(value, view)
                return
            if not view.typed:
                raise UnsupportedFormat("a quantized tensor shares its storage with tensors of another type")
            yield from args[4:]
        else:
            self.out += pickle.MARK
            for n, argument in enumerate(args):
                if argument is None and n == 0:
                    self._strided(value, requires_grad=False)
                    self.put()
                elif isinstance(argument, str) and n == spelling.DEVICE_ARGUMENT.get(function):
                    yield self._memory.location(argument)
                else:
                    yield argument
        self.ended(pickle.TUPLE)

    def write_scalar(self, value: NumpyScalar) -> Iterator[Any]:
        made = value.made or self._new_call(spelling.scalar(value))
        yield made.function
        yield from made.args
        self.write_encoded(value.data)
        self.put()
        self.ended(pickle.TUPLE2)
        self.reduced(value)

    def _array(self, value: TensorRef) -> Iterator[Any]:
        made = value.made or self._new_call(spelling.array(value))
        if not spelling.is_array_call(made):
            raise UnsupportedFormat(f"an array is made by a call of {made.function} that numpy does not know")
        data = spelling.laid(value, self.limits)
        yield made.function
        if made.state is None:
            yield from self._from_buffer(value, made.args, data)
            self.reduced(value)
        else:
            yield made.args
            self.reduced(value)
            yield from self._array_state(value, made.state, data)

    def _from_buffer(self, value: TensorRef, args: tuple[Any, ...], data: spelling.Laid | None) -> Iterator[Any]:
        """`(data, dtype, shape, order[, axes])`."""
        self.out += pickle.MARK
        yield from self._elements(value, data, mutable=isinstance(args[0], bytearray))
        yield args[1]
        order, axes = (data.order, data.axes) if data else ("C", ())
        self._numbers(tuple(value.shape[axes.index(n)] for n in range(len(axes))) or value.shape)
        self.write_str(order)
        if axes:
            self._numbers(axes)
        self.ended(pickle.TUPLE)

    def _array_state(self, value: TensorRef, state: Any, data: spelling.Laid | None) -> Iterator[Any]:
        """`([version,] shape, dtype, is_fortran, data)`."""
        self.out += pickle.MARK
        yield from state[:-4]
        self._numbers(value.shape)
        yield state[-3]
        self.write_bool(spelling.is_fortran(value) if data is None else data.order == "F")
        yield from self._elements(value, data, mutable=False)
        self.ended(pickle.TUPLE)
        self.out += pickle.BUILD

    def _elements(self, value: TensorRef, data: spelling.Laid | None, *, mutable: bool) -> Iterator[Any]:
        """The bytes of an array, or the list of its objects."""
        if data is None:
            yield dict(value.parts).get("items")
        elif data.nbytes > _TEXT:
            self.write_streamed(data.source, data.start, data.nbytes, mutable=mutable)
            self.put()
        else:
            if mutable:
                self.write_global(spelling.BYTEARRAY)
            self.write_encoded(data.source.read(ByteSpan(data.start, data.start + data.nbytes)))
            self.put()
            if mutable:
                self.ended(pickle.TUPLE1)
                self.out += pickle.REDUCE
                self.put()

    def _new_call(self, made: Made) -> Made:
        """A call made up here, kept so that nothing else gets the ids of what is in it."""
        self._kept.append(made)
        return made


_NO_CALL = Made(GlobalRef("", ""), ())
