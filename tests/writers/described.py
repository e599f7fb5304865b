"""Torch tensors as the readers describe them."""

import torch

from ckpttool.dtypes import BY_NAME
from ckpttool.sources import BytesSource
from ckpttool.values import Placement, StorageRef, TensorRef


def raw(t: torch.Tensor) -> bytes:
    """The bytes of a tensor's whole storage."""
    return torch.tensor([], dtype=torch.uint8).set_(t.untyped_storage()).numpy().tobytes()


def packed_bytes(t: torch.Tensor) -> bytes:
    """The values side by side in C order, conj and neg resolved."""
    return raw(t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format))


def ref(t: torch.Tensor, **changes) -> TensorRef:
    """A strided tensor over a copy of its storage."""
    data = raw(t)
    fields = {
        "dtype": BY_NAME[str(t.dtype).removeprefix("torch.")], "shape": tuple(t.shape), "stride": t.stride(),
        "storage_offset": t.storage_offset(), "storage": StorageRef(BytesSource(data), 0, len(data)),
        "conj": t.is_conj(), "neg": t.is_neg(),
    }  # fmt: skip
    return TensorRef(**(fields | changes))


def packed_ref(t: torch.Tensor) -> TensorRef:
    """The same tensor once a conversion put its values side by side."""
    data = packed_bytes(t)
    storage = StorageRef(BytesSource(b"ahead" + data), 5, len(data))
    stride = torch.empty(t.shape, device="meta").stride()
    placed = Placement(StorageRef(BytesSource(b""), 0, t.untyped_storage().nbytes()), t.storage_offset(), t.stride())
    return ref(t, storage=storage, stride=stride, storage_offset=0, placed=placed)


def typed(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """So many elements of any bits."""
    generator = torch.Generator().manual_seed(seed)
    width = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 256, (max(1, count) * width,), generator=generator, dtype=torch.uint8)
    return ((bits % 2).view(dtype) if dtype == torch.bool else bits.view(dtype))[:count]
