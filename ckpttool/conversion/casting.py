"""Tensors turned into another floating type as they are read."""

from dataclasses import replace
from typing import Any

from ckpttool.conversion.tally import Changed, Harm, Tally
from ckpttool.conversion.trees import everything
from ckpttool.dtypes import DType
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint
from ckpttool.pickles.views import contiguous_stride
from ckpttool.values import StorageRef, TensorRef
from ckpttool.writers.casts import CastSource, cast_report


class Cast(CastSource):
    """Cast elements that know which storage they are read from."""

    def __init__(self, tensor: TensorRef, read_from: StorageRef, wanted: DType) -> None:
        super().__init__(tensor, wanted)
        self.read_from = read_from


class Casting:
    """Tensors turned into another floating type as they are read; what is one tensor, or shares memory, stays so."""

    def __init__(self, dtype: DType | None, tally: Tally) -> None:
        self._dtype = dtype
        self._tally = tally
        self._tensors: dict[int, TensorRef] = {}
        self._storages: dict[tuple[Any, ...], StorageRef] = {}
        self._views: dict[int, int] = {}  # by id of an old storage: how many views of it were cast

    def parted(self, checkpoint: Checkpoint, limits: Limits) -> str:
        """A sentence about tensors that shared memory and do no longer; empty where there are none."""
        if not self._views:
            return ""
        parted = sum(count for count in self._views.values() if count > 1)
        for contents in checkpoint.contents.values():
            held = (v for _, v in everything(contents.root, limits) if isinstance(v, TensorRef))
            parted += sum(id(t.storage) in self._views for t in held)
        return f"{parted:,} tensors that shared memory with cast ones no longer do" if parted else ""

    def of(self, name: str, tensor: TensorRef) -> TensorRef:
        wanted = self._dtype
        if wanted is None or tensor.dtype.family != "float" or tensor.dtype is wanted or tensor.kind != "strided":
            return tensor
        if tensor.storage is None:
            return tensor
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = self._cast(name, tensor, tensor.storage, wanted)
        return self._tensors[id(tensor)]

    def _cast(self, name: str, tensor: TensorRef, old: StorageRef, wanted: DType) -> TensorRef:
        place = (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype)
        storage = self._storages.get(place)
        self._tally.cast.append(Changed(name, tensor.dtype.name, wanted.name))
        if storage is None:
            source = Cast(tensor, old, wanted)
            storage = StorageRef(source, 0, wanted.nbytes(tensor.numel), location=old.location, dtype=wanted)
            self._storages[place] = storage
            self._views[id(old)] = self._views.get(id(old), 0) + 1
            report = cast_report(tensor, wanted)
            if report.overflowed or report.underflowed:
                harm = Harm(name, wanted.name, tensor.numel, report.overflowed, report.underflowed)
                self._tally.harmed.append(harm)
        return replace(
            tensor,
            dtype=wanted,
            storage=storage,
            storage_offset=0,
            stride=contiguous_stride(tensor.shape),
            conj=False,
            neg=False,
            placed=None,
        )
