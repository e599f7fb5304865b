"""Tensors and storages by the names that documents call them, and what the documents' tables say of each."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ckpttool.dtypes import BY_NAME, UINT8, DType
from ckpttool.errors import DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.pickles.views import checked_view, shape_of
from ckpttool.sources import ByteSpan
from ckpttool.structures.calls import ArrayData
from ckpttool.structures.documents import Document, Json, is_beside
from ckpttool.structures.headers import header_digest
from ckpttool.structures.properties import check_array, check_properties, check_signs, is_device
from ckpttool.structures.stored import described, stored_as
from ckpttool.values import BytesRef, Placement, StorageRef, TensorRef

OpenTensors = Callable[[str], Mapping[str, TensorRef]]  # the tensors of a safetensors file, or of an index of several

_CHANGED = "another program changed the files since they were converted; get them again, or convert the original again"
_MOST_BYTES = 1 << 56  # no file system holds more
_STORAGE = frozenset({"nbytes", "dtype", "device", "bytes", "in"})  # what is said of one

_Key = tuple[str, str]  # file and name


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
    """What documents refer to, each made once, in the order in which the tree is read."""

    def __init__(self, open_tensors: OpenTensors, main: Document, limits: Limits) -> None:
        self._open = open_tensors
        self._main = main
        self._limits = limits
        self._files: dict[str, Mapping[str, TensorRef]] = {}
        self._props: dict[_Key, Mapping[str, Json]] = {}
        self._bases: dict[_Key, TensorRef] = {}
        self._tensors: dict[_Key, TensorRef] = {}
        self._storages: dict[int, StorageRef] = {}
        self._viewed: dict[int, int] = {}  # number of a storage: bytes of the tensors that look at it
        self._named: set[_Key] = set()  # what the tree speaks of
        self._read: set[_Key] = set()  # what has bytes of its own, so far
        self._used: set[_Key] = set()

    def note(self, document: Document) -> None:
        """Take over what a document says of tensors.

        Raises:
            DamagedFile: it says it in another form than the schema has, or another document says it too.
        """
        for file, table in document.tensors.items():
            for name, props in table.items():
                if (file, name) in self._props:
                    raise DamagedFile(f"the tensor {name[:100]!r} is described twice")
                check_properties(name, props)
                self._props[file, name] = props

    def open_files(self) -> None:
        """Open the safetensors files that the main document speaks of.

        Raises:
            DamagedFile: one of them is not what it was.
        """
        for file in self._main.headers:
            self._file(file)

    def _file(self, file: str) -> Mapping[str, TensorRef]:
        if file not in self._files:
            if file and not is_beside(file):
                raise DamagedFile(f"{file[:100]!r} is no file beside the structure")
            tensors = self._open(file)
            if self._main.headers.get(file) != header_digest(tensors):
                raise DamagedFile(
                    "the tensors are no longer those that the structure speaks of", where=file, hint=_CHANGED
                )
            self._files[file] = tensors
        return self._files[file]

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
        first = self._bytes_of(file, name)
        if first not in self._bases:
            self._bases[first] = self._placed(*first)
        if not props:  # nearly every tensor
            return self._bases[first]
        return dataclasses.replace(
            self._bases[first],
            parameter=props.get("parameter", False),
            requires_grad=props.get("requires_grad", False),
        )

    def _bytes_of(self, file: str, name: str) -> _Key:
        """Where the bytes of a tensor are: its own, or those of one that was met before."""
        key, props = (file, name), self._props.get((file, name), {})
        self._named.add(key)
        if "same_as" in props:
            raise DamagedFile(f"the tensor {name[:100]!r} is said to be another")
        if "bytes_of" not in props:
            self._read.add(key)
            return key
        first = (props.get("in", file), props["bytes_of"])
        if "bytes_of" in self._props.get(first, {}) or first == key:
            raise DamagedFile(f"the bytes of {name[:100]!r} are those of a tensor that has none of its own")
        self._require_alike(key, first)
        if first not in self._read:
            raise DamagedFile(f"the bytes of {name[:100]!r} are those of {first[1][:100]!r}, which comes later")
        return first

    def _require_alike(self, key: _Key, other: _Key) -> None:
        """Check that what is written once more lies there as the first one does; and that this one is there."""
        first, _ = self._stored(*other)
        copy = self._file(key[0]).get(key[1])
        if copy is not None:
            self._used.add(key)
            if (copy.dtype, copy.shape) != (first.dtype, first.shape):
                raise DamagedFile(
                    f"the tensor {key[1][:100]!r} is said to be {other[1][:100]!r}, which is of another type or shape",
                    hint=_CHANGED,
                )

    def _stored(self, file: str, name: str) -> tuple[TensorRef, StorageRef]:
        tensor = self._file(file).get(name)
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
        check_signs(name, tensor.dtype, props)
        storage = StorageRef(
            stored.source,
            stored.start,
            stored.nbytes,
            location=props.get("device", "cpu"),
            dtype=tensor.dtype,
            key=stored.key,
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
            self._viewed[props["storage"]] = self._viewed.get(props["storage"], 0) + tensor.nbytes
            if not isinstance(shared.source, ElsewhereSource):  # all its bytes were kept, as they were
                return dataclasses.replace(tensor, storage=shared, storage_offset=offset, stride=stride)
            return dataclasses.replace(tensor, placed=Placement(shared, offset, stride))
        moved = dataclasses.replace(tensor, stride=stride)
        # What has a place holds values: the flags of a view say what is to be undone when its place is filled again.
        if len(stride) == len(tensor.shape) and moved.contiguous and not (tensor.conj or tensor.neg):
            return moved
        last = sum((extent - 1) * step for extent, step in zip(tensor.shape, stride, strict=False))
        nbytes = tensor.dtype.nbytes(last + 1) if tensor.numel else 0
        self._require_room(function, nbytes, tensor.nbytes)
        own = StorageRef(ElsewhereSource(), 0, nbytes, location=storage.location, dtype=tensor.dtype)
        checked_view(function, own, tensor.dtype, 0, tensor.shape, stride)
        return dataclasses.replace(tensor, placed=Placement(own, 0, stride))

    def _require_room(self, what: str, nbytes: int, held: int) -> None:
        """Check how much a storage has beyond what the tensors hold that look at it."""
        if nbytes - held > self._limits.expanded:
            raise LimitExceeded(
                f"{what} is spread over {nbytes:,} bytes and has {held:,}; the limit is {self._limits.expanded:,} more",
                hint=f"raise it with --limit expanded={nbytes - held}",
            )

    def _described(self, tensor: TensorRef, props: Mapping[str, Json], name: str) -> TensorRef:
        dtype: DType | None = BY_NAME.get(props["dtype"])
        shape = shape_of(props["shape"], f"the tensor {name[:100]!r}", "shape")
        known = described(tensor, dtype, shape) if dtype is not None else None
        if known is None or not _lies_as(tensor, known):
            raise DamagedFile(
                f"the tensor {name[:100]!r} is said to be {props['dtype'][:40]} of the shape {list(shape)}, "
                f"it is {tensor.dtype.name} of the shape {list(tensor.shape)}, {tensor.nbytes:,} bytes",
                hint=_CHANGED,
            )
        return known

    def array(self, file: str, name: str) -> ArrayData:
        """The elements of a numpy array."""
        file, name = self._bytes_of(file, name)
        props = self._props.get((file, name), {})
        check_array(name, props)
        tensor, storage = self._stored(file, name)
        shape = shape_of(props.get("shape", list(tensor.shape)), f"the array {name[:100]!r}", "shape")
        stride = shape_of(props["stride"], f"the array {name[:100]!r}", "stride") if "stride" in props else None
        data = BytesRef(storage.source, storage.start, storage.nbytes)
        return ArrayData(shape=shape, stride=stride, data=data, stored=tensor, dtype=props.get("dtype", ""))

    def data(self, file: str, name: str, *, mutable: bool) -> BytesRef:
        """A long bytes object."""
        return self._bytes(file, name, UINT8, mutable=mutable)

    def _bytes(self, file: str, name: str, dtype: DType, *, mutable: bool = False) -> BytesRef:
        """The bytes of what is no tensor of the tree; their type says in which units they were turned around."""
        tensor, storage = self._stored(file, name)
        if tensor.dtype != dtype or len(tensor.shape) != 1 or (file, name) in self._props:
            raise DamagedFile(f"the tensor {name[:100]!r} is said to be bytes alone", hint=_CHANGED)
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
        nbytes, location, dtype = entry.get("nbytes"), entry.get("device", "cpu"), None
        sound = entry.keys() <= _STORAGE and is_device(location)
        if "dtype" in entry:
            dtype = BY_NAME.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
            sound = sound and dtype is not None
        if not sound or type(nbytes) is not int or not 0 <= nbytes < _MOST_BYTES:
            raise DamagedFile("a storage in the table is not of the form that it must have")
        match entry.get("bytes"), entry.get("in", self._main.file):
            case None, _ if "in" not in entry and "bytes" not in entry:
                return StorageRef(ElsewhereSource(), 0, nbytes, location=location, dtype=dtype)
            case str(name), str(file):
                tensor, _ = self._stored(file, name)
                held = self._bytes(file, name, tensor.dtype if tensor.dtype == dtype else UINT8)
                if nbytes != held.nbytes:
                    raise DamagedFile(f"a storage of {nbytes:,} bytes has {held.nbytes:,} in {name[:100]!r}")
                return StorageRef(held.source, held.start, nbytes, location=location, dtype=dtype)
        raise DamagedFile("a storage in the table is not of the form that it must have")

    def finish(self) -> None:
        """Check, once the tree is read, that it speaks of all tensors, and of all that was said of tensors.

        Raises:
            DamagedFile: it does not.
            LimitExceeded: a storage is far larger than the tensors that look at it.
        """
        for (file, name), props in self._props.items():
            if "same_as" in props:
                self._require_same(file, name, props)
            elif (file, name) not in self._named:
                raise DamagedFile(f"the tensor {name[:100]!r} is described, and does not occur")
        for number, storage in self._storages.items():
            if isinstance(storage.source, ElsewhereSource):
                self._require_room(f"storage {number}", storage.nbytes, self._viewed.get(number, 0))
        for file, tensors in self._files.items():
            for name in tensors:
                if (file, name) not in self._used:
                    raise DamagedFile(f"the structure does not speak of the tensor {name[:100]!r}", hint=_CHANGED)

    def _require_same(self, file: str, name: str, props: Mapping[str, Json]) -> None:
        """Check that a name is a further one of an object of the tree."""
        kept = (props.get("in", file), props["same_as"])
        if kept not in self._named or name not in self._file(file):
            raise DamagedFile(f"the tensor {name[:100]!r} is said to be {kept[1][:100]!r}, which is not there")
        self._require_alike((file, name), self._bytes_of(*kept))


def _lies_as(stored: TensorRef, tensor: TensorRef) -> bool:
    """Whether a tensor would be written as one that was read, and not as what it is itself."""
    ours, there = stored_as(tensor), stored_as(stored)
    return not ours.plain and (ours.code, ours.shape) == (there.code, there.shape)


__all__ = ["ElsewhereSource", "Lookups", "OpenTensors"]
