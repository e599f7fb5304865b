"""Tensors and storages by the names that documents call them, and what the documents' tables say of each."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ckpttool.dtypes import BY_NAME, DType
from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.views import checked_view, contiguous_stride, shape_of
from ckpttool.sources import ByteSpan
from ckpttool.structures.calls import ArrayData
from ckpttool.structures.documents import Document, Json
from ckpttool.structures.stored import described
from ckpttool.values import BytesRef, Placement, StorageRef, TensorRef

OpenTensors = Callable[[str], Mapping[str, TensorRef]]  # the tensors of a safetensors file, or of an index of several

_CHANGED = "another program changed the files since they were converted; get them again, or convert the original again"
_LONGEST_DEVICE = 100  # characters
_MOST_BYTES = 1 << 56  # no file system holds more
_PROPS: Mapping[str, type] = {
    "bytes_of": str, "in": str, "device": str, "dtype": str, "shape": list, "stride": list, "storage": int,
    "offset": int, "parameter": bool, "requires_grad": bool, "conj": bool, "neg": bool,
}  # fmt: skip


class ElsewhereSource:
    """Where the bytes of a storage would be that are now spread over the tensors that looked at it."""

    name = "a storage of the original"
    size = 0

    def read(self, span: ByteSpan) -> bytes:
        raise UnsupportedFormat(
            f"bytes {span.start:,} to {span.end:,} of an original storage lie in the tensors that looked at it"
        )

    def read_into(self, start: int, buffer: memoryview) -> None:
        self.read(ByteSpan(start, start + len(buffer)))


class Lookups:
    """What documents refer to, each made once."""

    def __init__(self, open_tensors: OpenTensors, main: Document) -> None:
        self._open = open_tensors
        self._main = main
        self._files: dict[str, Mapping[str, TensorRef]] = {}
        self._props: dict[tuple[str, str], Mapping[str, Json]] = {}
        self._bases: dict[tuple[str, str], TensorRef] = {}
        self._tensors: dict[tuple[str, str], TensorRef] = {}
        self._storages: dict[int, StorageRef] = {}
        self._used: set[tuple[str, str]] = set()

    def note(self, document: Document) -> None:
        """Take over what a document says of tensors.

        Raises:
            DamagedFile: it says it in another form than the schema has, or another document says it too.
        """
        for file, table in document.tensors.items():
            for name, props in table.items():
                if (file, name) in self._props:
                    raise DamagedFile(f"the tensor {name[:100]!r} is described twice")
                for word, value in props.items():
                    if type(value) is not _PROPS.get(word):
                        raise DamagedFile(f"the tensor {name[:100]!r} has a {word[:40]!r} that tensors do not have")
                self._props[file, name] = props

    def tensor(self, file: str, name: str) -> TensorRef:
        """A tensor whose name says which object it is.

        Raises:
            DamagedFile: there is none of this name, or the documents say what cannot be of it.
        """
        key = (file, name)
        if key not in self._tensors:
            self._tensors[key] = self.base(file, name)
        return self._tensors[key]

    def base(self, file: str, name: str) -> TensorRef:
        """The same, for one that a call makes of these elements: an object of its own."""
        props = self._props.get((file, name), {})
        first = (props.get("in", file), props["bytes_of"]) if "bytes_of" in props else (file, name)
        if first != (file, name):
            self._used.add((file, name))
            if "bytes_of" in self._props.get(first, {}):
                raise DamagedFile(f"the bytes of {name[:100]!r} are those of a tensor that has none of its own")
        if first not in self._bases:
            self._bases[first] = self._placed(*first)
        if not props:  # nearly every tensor
            return self._bases[first]
        return dataclasses.replace(
            self._bases[first],
            parameter=props.get("parameter", False),
            requires_grad=props.get("requires_grad", False),
        )

    def _stored(self, file: str, name: str) -> tuple[TensorRef, StorageRef]:
        if file not in self._files:
            self._files[file] = self._open(file)
        tensor = self._files[file].get(name)
        if not isinstance(tensor, TensorRef) or tensor.storage is None:
            raise DamagedFile(f"there is no tensor {name[:100]!r}", where=file, hint=_CHANGED)
        self._used.add((file, name))
        return tensor, tensor.storage

    def _placed(self, file: str, name: str) -> TensorRef:
        """The elements where they are, with the place where they were."""
        props = self._props.get((file, name), {})
        tensor, stored = self._stored(file, name)
        if not props:
            return tensor
        if "dtype" in props:
            tensor = self._described(tensor, props, name)
        storage = StorageRef(
            stored.source, stored.start, stored.nbytes, location=_device(props), dtype=tensor.dtype, key=stored.key
        )
        conj, neg = props.get("conj", False), props.get("neg", False)
        tensor = dataclasses.replace(tensor, storage=storage, conj=conj, neg=neg)
        return self._with_place(tensor, storage, props, name)

    def _with_place(self, tensor: TensorRef, storage: StorageRef, props: Mapping[str, Json], name: str) -> TensorRef:
        function = f"the tensor {name[:100]!r}"
        stride = shape_of(props["stride"], function, "stride") if "stride" in props else tensor.stride
        offset = props.get("offset", 0)
        if "storage" in props:
            shared = self.storage(props["storage"])
            checked_view(function, shared, tensor.dtype, offset, tensor.shape, stride)
            if not isinstance(shared.source, ElsewhereSource):  # all its bytes were kept, as they were
                return dataclasses.replace(tensor, storage=shared, storage_offset=offset, stride=stride)
            return dataclasses.replace(tensor, placed=Placement(shared, offset, stride))
        moved = dataclasses.replace(tensor, stride=stride)
        # What has a place holds values: the flags of a view say what is to be undone when its place is filled again.
        if len(stride) == len(tensor.shape) and moved.contiguous and not (tensor.conj or tensor.neg):
            return moved
        last = sum((extent - 1) * step for extent, step in zip(tensor.shape, stride, strict=False))
        nbytes = tensor.dtype.nbytes(last + 1) if tensor.numel else 0
        own = StorageRef(ElsewhereSource(), 0, nbytes, location=storage.location, dtype=tensor.dtype)
        checked_view(function, own, tensor.dtype, 0, tensor.shape, stride)
        return dataclasses.replace(tensor, placed=Placement(own, 0, stride))

    def _described(self, tensor: TensorRef, props: Mapping[str, Json], name: str) -> TensorRef:
        dtype: DType | None = BY_NAME.get(props["dtype"])
        shape = shape_of(props.get("shape", list(tensor.shape)), f"the tensor {name[:100]!r}", "shape")
        known = described(tensor, dtype, shape) if dtype is not None else None
        if known is None:
            raise DamagedFile(
                f"the tensor {name[:100]!r} is said to be {props['dtype'][:40]} of the shape {list(shape)}, "
                f"it has {tensor.nbytes:,} bytes",
                hint=_CHANGED,
            )
        return known

    def array(self, file: str, name: str) -> ArrayData:
        """The elements of a numpy array."""
        props = self._props.get((file, name), {})
        first = (props.get("in", file), props["bytes_of"]) if "bytes_of" in props else (file, name)
        self._used.add((file, name))
        return self._array(*first)

    def _array(self, file: str, name: str) -> ArrayData:
        props = self._props.get((file, name), {})
        tensor, storage = self._stored(file, name)
        shape = shape_of(props.get("shape", list(tensor.shape)), f"the array {name[:100]!r}", "shape")
        stride = shape_of(props["stride"], f"the array {name[:100]!r}", "stride") if "stride" in props else None
        data = BytesRef(storage.source, storage.start, storage.nbytes)
        return ArrayData(shape=shape, stride=stride, data=data)

    def data(self, file: str, name: str, *, mutable: bool) -> BytesRef:
        """A long bytes object."""
        _, storage = self._stored(file, name)
        return BytesRef(storage.source, storage.start, storage.nbytes, mutable=mutable)

    def storage(self, number: Any) -> StorageRef:
        """A storage of the main document's table.

        Raises:
            DamagedFile: there is none of this number, or its entry is of another form.
        """
        if type(number) is not int or not 0 <= number < len(self._main.storages):
            raise DamagedFile(f"there is no storage {str(number)[:40]}: the table has {len(self._main.storages):,}")
        if number not in self._storages:
            self._storages[number] = self._storage(self._main.storages[number])
        return self._storages[number]

    def _storage(self, entry: Mapping[str, Json]) -> StorageRef:
        dtype = BY_NAME.get(entry["dtype"]) if isinstance(entry.get("dtype"), str) else None
        match entry:
            case {"nbytes": int(nbytes), "bytes": str(name)}:
                file = entry.get("in", self._main.file)
                _, stored = self._stored(file if isinstance(file, str) else "", name)
                if nbytes != stored.nbytes:
                    raise DamagedFile(f"a storage of {nbytes:,} bytes has {stored.nbytes:,} in {name[:100]!r}")
                return StorageRef(stored.source, stored.start, nbytes, location=_device(entry), dtype=dtype)
            case {"nbytes": int(nbytes)} if 0 <= nbytes < _MOST_BYTES:
                return StorageRef(ElsewhereSource(), 0, nbytes, location=_device(entry), dtype=dtype)
        raise DamagedFile("a storage in the table is not of the form that it must have")

    def unused(self) -> Iterator[str]:
        """Tensors of the files that were opened which no document speaks of."""
        for file, tensors in self._files.items():
            yield from (name for name in tensors if (file, name) not in self._used)


def _device(props: Mapping[str, Json]) -> str:
    device = props.get("device", "cpu")
    if not isinstance(device, str) or len(device) > _LONGEST_DEVICE:
        raise DamagedFile("a device is not the name of one")
    return device


__all__ = ["ElsewhereSource", "Lookups", "OpenTensors", "contiguous_stride"]
