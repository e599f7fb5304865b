"""What a tensor, an array or a scalar remembers of the call that made it, so that it can be spelled again."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from ckpttool.values import GlobalRef, Opaque, Record, TensorRef
from tests.pickles.streams import read, saved


class Subclass(torch.Tensor):
    """A tensor of a class."""


def test_plain_tensors_and_parameters_remember_nothing() -> None:
    """Their fields say all."""
    flagged = torch.ones(2, dtype=torch.complex64).conj()
    for tensor in (torch.ones(2), torch.nn.Parameter(torch.ones(2)), flagged, torch.ones(1).to(torch.float8_e5m2)):
        assert saved(tensor).made is None


@pytest.mark.filterwarnings("ignore")  # kinds that are young, or on their way out
def test_other_kinds_remember_their_call() -> None:
    """The function as the file spells it; inner tensors are arguments, what the fields say is left out."""
    sparse = saved(torch.eye(2).to_sparse())
    assert sparse.made.function == GlobalRef("torch._utils", "_rebuild_sparse_tensor")
    assert sparse.made.args[1][:2] == tuple(part for _, part in sparse.parts[:2])
    quantized = saved(torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8))
    assert quantized.made.args[:4] == (None,) * 4
    assert quantized.made.args[4][1:] == (0.5, 1)
    meta = saved(torch.empty(2, device="meta"))
    assert meta.made.args[1:] == ((2,), (1,), False)


def test_subclasses_and_attributes() -> None:
    """The state that the call is given is the same object as the tensor's attributes."""
    tensor = torch.ones(2).as_subclass(Subclass)
    tensor.note = 1
    found = saved(tensor)
    func, cls, inner, state = found.made.args
    assert (func.name, cls.name, state) == ("_rebuild_tensor_v2", "Subclass", {"note": 1})
    assert (inner[:5], type(inner[5])) == ((None, None, None, None, False), Record)
    assert state is found.attributes
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.note = 2
    found = saved(parameter)
    assert (found.made.function.name, found.made.args[0], found.made.args[3]) == (
        "_rebuild_parameter_with_state",
        None,
        {"note": 2},
    )
    around = saved(torch.nn.Parameter(torch.eye(2).to_sparse()))
    assert isinstance(around.made.args[0], TensorRef)
    assert around.made.args[0].kind == "sparse_coo"


def test_hooks_that_are_more_than_an_empty_dict() -> None:
    """They were saved by old torch, and are part of the call."""

    class Hooked:
        def __reduce_ex__(self, _protocol: int) -> Any:
            storage = torch.storage.TypedStorage(2, dtype=torch.float32, device="cpu")
            return torch._utils._rebuild_tensor_v2, (storage, 0, (2,), (1,), False, None)

    with warnings.catch_warnings():  # torch warns of TypedStorage once in a process, or not
        warnings.simplefilter("ignore")
        found = saved(Hooked())
    assert found.made.args == (None, None, None, None, False, None)


@pytest.mark.parametrize("mutable", [False, True])
def test_arrays(*, mutable: bool) -> None:
    """The dtype's object and the way to the array; empty bytes stand for its own, of the type that held them."""
    array = np.arange(3.0)
    array.flags.writeable = mutable
    found = read(pickle.dumps(array, 2))
    assert found.made.function.name == "_reconstruct"
    assert (found.made.args[1:], found.made.state[0], found.made.state[4]) == (((0,), b"b"), 1, b"")
    assert isinstance(found.made.state[2], Opaque)
    found = read(pickle.dumps(array, 5))
    held, dtype, *rest = found.made.args
    assert (type(held), len(held), rest) == (bytearray if mutable else bytes, 0, [None, None])
    assert isinstance(dtype, Opaque)
    objects = read(pickle.dumps(np.array([1, "x"], object), 2))
    assert objects.made.state[4] is None


def test_scalars() -> None:
    """All but the data; two scalars of one dtype share its object."""
    one, other = read(pickle.dumps([np.float32(1), np.float32(2)], 4))
    assert one.made.function.name == "scalar"
    assert one.made.args[0] is other.made.args[0]
