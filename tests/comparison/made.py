"""Tensors and checkpoints for comparisons, as torch would save them."""

import io

import torch

from ckpttool.dtypes import BY_NAME
from ckpttool.model import At, Checkpoint, OptimizerState, ParamGroup, Weights
from ckpttool.sources import BytesSource, _require
from ckpttool.values import StorageRef, TensorRef


def ref(t: torch.Tensor, **fields) -> TensorRef:
    """The description of a strided tensor, over a copy of its storage."""
    raw = torch.tensor([], dtype=torch.uint8).set_(t.untyped_storage()).numpy().tobytes()
    given = {
        "dtype": BY_NAME[str(t.dtype).removeprefix("torch.")], "shape": tuple(t.shape), "stride": t.stride(),
        "storage_offset": t.storage_offset(), "storage": StorageRef(BytesSource(raw), 0, len(raw)),
        "conj": t.is_conj(), "neg": t.is_neg(),
    }  # fmt: skip
    return TensorRef(**{**given, **fields})


def cut(tensor: TensorRef, nbytes: int) -> TensorRef:
    """The same tensor in a file that ends after so many bytes."""
    whole = tensor.storage
    storage = StorageRef(Short(whole.read()[:nbytes]), 0, whole.nbytes)
    return TensorRef(dtype=tensor.dtype, shape=tensor.shape, stride=tensor.stride, storage=storage)


class Short(BytesSource):
    """A file that was cut short after it was opened."""

    def read_into(self, start, buffer):
        _require(self, type("Span", (), {"start": start, "end": start + len(buffer)})())
        super().read_into(start, buffer)


def saved(value, **settings) -> io.BytesIO:
    """What torch.save writes."""
    stream = io.BytesIO()
    torch.save(value, stream, **settings)
    return stream


def optimizer(*groups, state=None, names=None, **settings) -> OptimizerState:
    """An optimizer; each group a tuple of ids."""
    names = {str(i): name for i, name in (names or {}).items()}
    made = tuple(
        ParamGroup(hyperparameters={"lr": 0.1, **settings}, params=ids, names=tuple(names.get(str(i)) for i in ids))
        for ids in groups
    )
    return OptimizerState(at=At(""), groups=made, state=state or {})


def weights(role, name="model", **tensors) -> Weights:
    """A state_dict of torch tensors."""
    return Weights(at=At(""), role=role, name=name, tensors={k: ref(t) for k, t in tensors.items()})


def checkpoint(**parts) -> Checkpoint:
    """A checkpoint of these parts."""
    return Checkpoint(path="m.pt", layout="plain", **parts)
