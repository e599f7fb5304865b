"""The tables of a conversion: tensors by file and name, what is not as usual about each, and shared storages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckpttool.dtypes import UINT8
from ckpttool.errors import UnsupportedFormat
from ckpttool.sources import BytesSource
from ckpttool.structures.documents import Document, Json
from ckpttool.structures.names import Taken
from ckpttool.structures.properties import is_device
from ckpttool.structures.stored import stored_as
from ckpttool.structures.surveys import Shared, Survey, lies, sameness
from ckpttool.values import BytesRef, StorageRef, TensorRef


@dataclass(frozen=True, slots=True)
class Dropped:
    """Bytes of a storage that no tensor looks at, and which are not written."""

    file: str
    name: str  # of the first tensor that looks at the storage
    nbytes: int


class Tables:
    """What is said of tensors and storages while a tree is walked, in the tree's order."""

    def __init__(self, survey: Survey, *, duplicate_ties: bool) -> None:
        self.tensors: dict[str, dict[str, TensorRef]] = {}
        self.ties: list[tuple[str, str, str]] = []
        self.main = Document()  # whose table of storages all documents share
        self._survey = survey
        self._duplicate_ties = duplicate_ties
        self._taken: dict[str, Taken] = {}
        self._named: dict[int, tuple[str, str]] = {}  # id of a tensor: file and name
        self._first: dict[Any, tuple[str, str]] = {}  # of tied tensors the first: file and name
        self._numbers: dict[int, int] = {}  # id of a shared storage: its place in the table
        self._asked: set[tuple[int, str, str]] = set()  # id of a tensor, file, and the name that it was to have there
        self._data: dict[int, tuple[str, str]] = {}  # id of a long bytes object: file and name
        self._looked_at: dict[int, tuple[StorageRef, str, str]] = {}  # id of a storage: where it was met first

    def unique(self, file: str, wanted: str) -> str:
        """A name that is free in a safetensors file."""
        return self._taken.setdefault(file, Taken()).unique(wanted)

    def add(self, tensor: TensorRef, file: str, wanted: str) -> str:
        """Give bytes a name in a safetensors file."""
        name = self.unique(file, wanted)
        self.tensors.setdefault(file, {})[name] = tensor
        return name

    def data(self, value: bytes | bytearray | BytesRef, file: str, wanted: str) -> tuple[str, str]:
        """File and name of a long bytes object, which lies in a safetensors file."""
        if id(value) not in self._data:
            if isinstance(value, BytesRef):
                storage = StorageRef(value.source, value.start, value.nbytes)
            else:
                storage = StorageRef(BytesSource(value, "bytes"), 0, len(value))
            tensor = TensorRef(dtype=UINT8, shape=(storage.nbytes,), stride=(1,), storage=storage)
            self._data[id(value)] = (file, self.add(tensor, file, wanted))
        return self._data[id(value)]

    def tensor(self, tensor: TensorRef, document: Document, file: str, wanted: str) -> tuple[str, str]:
        """File and name of a tensor with elements; the same object has the same name each time."""
        known = self._named.get(id(tensor))
        if known is not None:
            self._again(tensor, known, document, file, wanted)
            return known
        self._asked.add((id(tensor), file, wanted))
        same = sameness(tensor)
        name = self.unique(file, wanted)
        place = self._named[id(tensor)] = (file, name)
        first = self._first.setdefault(same, place)
        props = self._own_flags(tensor)
        if first == place:
            props |= self._lying(tensor, place)
            self.tensors.setdefault(file, {})[name] = tensor
        else:
            props |= self._tied(tensor, place, first)
        if props:
            document.tensors.setdefault(file, {})[name] = props
        return place

    def _again(  # a tensor, the name that it has, and the one that it would have here
        self, tensor: TensorRef, known: tuple[str, str], document: Document, file: str, wanted: str
    ) -> None:
        """The object is met again: where every name is to be written, under this one too."""
        if not self._duplicate_ties or (id(tensor), file, wanted) in self._asked:
            return
        self._asked.add((id(tensor), file, wanted))
        name = self.add(tensor, file, wanted)
        same: dict[str, Json] = {"same_as": known[1]} if known[0] == file else {"same_as": known[1], "in": known[0]}
        document.tensors.setdefault(file, {})[name] = same

    def _tied(self, tensor: TensorRef, place: tuple[str, str], first: tuple[str, str]) -> dict[str, Json]:
        """The bytes are there under another name; in another file they are written once more, for its own readers."""
        file, name = place
        if first[0] != file or self._duplicate_ties:
            self.tensors.setdefault(file, {})[name] = tensor
        else:
            self.ties.append((file, name, first[1]))
        return {"bytes_of": first[1]} if first[0] == file else {"bytes_of": first[1], "in": first[0]}

    def _own_flags(self, tensor: TensorRef) -> dict[str, Json]:
        """What is a tensor's own, also where its bytes are another's; a call that makes it says so itself."""
        if tensor.made is not None:
            return {}
        flags = {"parameter": tensor.parameter, "requires_grad": tensor.requires_grad}
        return {word: True for word, set_ in flags.items() if set_}

    def _lying(self, tensor: TensorRef, place: tuple[str, str]) -> dict[str, Json]:
        """How the elements lie in the file, and how they lay in the original."""
        storage, offset, stride = lies(tensor)
        self._looked_at.setdefault(id(storage), (storage, *place))
        stored = stored_as(tensor)
        props: dict[str, Json] = {}
        if not stored.plain:
            props |= {"dtype": tensor.dtype.name, "shape": list(tensor.shape)}
        if storage.location != "cpu":
            props["device"] = _device(storage)
        for flag, set_ in (("conj", tensor.conj), ("neg", tensor.neg)):
            if set_:
                props[flag] = True
        if stride != _usual(tensor):
            props["stride"] = list(stride)
        shared = self._survey.shared.get(id(storage))
        if shared is not None:
            props["storage"] = self._number(shared)
            start = offset - shared.start * 8 // tensor.dtype.bits
            if start and tensor.numel:
                props["offset"] = start
        return props

    def storage(self, storage: StorageRef, file: str, wanted: str) -> Json:
        """A storage that is a value itself: all its bytes are kept.

        Raises:
            UnsupportedFormat: it is big-endian, and of no type, or looked at as of another.
        """
        number = self._number(self._survey.shared[id(storage)])
        entry = self.main.storages[number]
        if "bytes" not in entry:
            entry["bytes"] = self.add(self._whole(storage), file, f"{wanted}.storage")
            if file != self.main.file:
                entry["in"] = file
        return {"$storage": number}

    def _whole(self, storage: StorageRef) -> TensorRef:
        views = self._survey.views.get(id(storage), [])
        if not storage.big_endian:
            kept = UINT8
        elif storage.dtype is None or any(v.dtype.swap != storage.dtype.swap for v in views):
            raise UnsupportedFormat("a storage of big-endian numbers whose type is not known")
        else:
            kept = storage.dtype
        return TensorRef(dtype=kept, shape=(storage.nbytes * 8 // kept.bits,), stride=(1,), storage=storage)

    def _number(self, shared: Shared) -> int:
        number = self._numbers.get(id(shared.storage))
        if number is None:
            number = self._numbers[id(shared.storage)] = len(self.main.storages)
            entry: dict[str, Json] = {"nbytes": shared.nbytes}
            if shared.storage.dtype is not None:
                entry["dtype"] = shared.storage.dtype.name
            if shared.storage.location != "cpu":
                entry["device"] = _device(shared.storage)
            self.main.storages.append(entry)
        return number

    def dropped(self) -> Iterator[Dropped]:
        """Storages of which not all bytes are kept."""
        for key, (storage, file, name) in self._looked_at.items():
            shared = self._survey.shared.get(key)
            if shared is None:
                first, end = self._survey.views[key][0].covered
                kept = end - first
            else:
                kept = shared.nbytes
            if kept < storage.nbytes:
                yield Dropped(file, name, storage.nbytes - kept)


def _device(storage: StorageRef) -> str:
    if not is_device(storage.location):
        raise UnsupportedFormat(
            f"a storage is on {storage.location[:40]!r}, which is not the name of a device",
            hint="say where it belongs with --map-location cpu",
        )
    return storage.location


def _usual(tensor: TensorRef) -> tuple[int, ...]:
    """Strides of elements side by side in C order."""
    stride, step = [], 1
    for extent in reversed(tensor.shape):
        stride.append(step)
        step *= max(extent, 1)
    return tuple(reversed(stride))
