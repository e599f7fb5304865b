"""What torch's rebuild functions become, held against torch itself."""

import io
import pickle
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ckpttool.dtypes import BY_NAME, BY_STORAGE
from ckpttool.errors import CkptError, DamagedFile, OutOfBounds, UnsupportedFormat
from ckpttool.pickles import load
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, Opaque, StorageRef, TensorRef
from tests.pickles.streams import call, float_storage, name, read, saved, text

BASE = torch.arange(24.0).reshape(2, 3, 4)


def word(dtype: torch.dtype) -> str:
    """torch's word without the module."""
    return str(dtype).removeprefix("torch.")


def assert_describes(found: Any, tensor: torch.Tensor) -> None:
    """The description agrees with the tensor in everything but the values."""
    assert type(found) is TensorRef
    assert found.dtype.name == word(tensor.dtype)
    assert found.shape == tuple(tensor.shape)
    assert found.stride == tensor.stride()
    assert found.storage_offset == tensor.storage_offset()
    assert found.requires_grad == tensor.requires_grad


@pytest.mark.parametrize(
    "tensor",
    [
        BASE,
        BASE[1],
        BASE[:, 1, ::2],
        BASE.transpose(0, 2),
        torch.tensor(1.5),
        torch.empty(0),
        torch.empty(3, 0, 2),
        torch.ones(1).expand(5, 7),
        torch.ones(3, requires_grad=True),
    ],
    ids=["whole", "offset", "strided", "transposed", "scalar", "empty", "empty-inside", "expanded", "grad"],
)
def test_strided_views(tensor: torch.Tensor) -> None:
    """Shape, strides and offset of a view are torch's; nothing is copied or read."""
    found = saved(tensor)
    assert_describes(found, tensor)
    assert (found.kind, found.parameter, found.parts, found.attributes) == ("strided", False, (), None)
    assert found.storage.read() == bytes(tensor.untyped_storage().tolist())


@pytest.mark.parametrize("dtype", sorted((d for d in BY_NAME if "q" not in d), key=str))
def test_every_element_type(dtype: str) -> None:
    """All element types of torch, through typed storages (v2) or named by the tensor (v3)."""
    tensor = torch.empty(16, dtype=torch.uint8).view(getattr(torch, dtype))
    assert_describes(saved(tensor), tensor)


def test_views_of_one_storage_share_it() -> None:
    """Tied weights are one storage."""
    found = saved({"a": BASE, "b": BASE[1], "c": BASE.clone()})
    assert found["a"].storage is found["b"].storage
    assert found["a"].storage is not found["c"].storage


def test_conjugate_and_negative_flags() -> None:
    """Values that are the conjugate or the negative of their bytes say so."""
    tensor = torch.tensor([1 + 2j])
    for view, flags in [(tensor.conj(), (True, False)), (tensor.conj().imag, (False, True)), (tensor, (False, False))]:
        found = saved(view)
        assert (found.conj, found.neg) == flags


def test_parameters() -> None:
    """A Parameter is known as one, with and without gradient, with attributes of its own."""
    found = saved(torch.nn.Parameter(BASE))
    assert_describes(found, torch.nn.Parameter(BASE))
    assert found.parameter
    assert not saved(torch.nn.Parameter(BASE, requires_grad=False)).requires_grad
    parameter = torch.nn.Parameter(BASE)
    parameter.tag = "x"  # type: ignore[attr-defined]
    found = saved(parameter)
    assert (found.parameter, found.attributes) == (True, {"tag": "x"})


class Named(torch.Tensor):
    """A subclass of Tensor."""


def test_subclasses_and_attributes() -> None:
    """A subclass keeps its class, a tensor with attributes keeps them."""
    found = saved(BASE.as_subclass(Named))
    assert_describes(found, BASE)
    assert found.cls == GlobalRef(__name__, "Named")
    tensor = BASE.clone()
    tensor.tag = "x"  # type: ignore[attr-defined]
    found = saved(tensor)
    assert (found.cls, found.attributes) == (None, {"tag": "x"})


def test_meta_tensors() -> None:
    """A meta tensor has a shape and no elements."""
    tensor = torch.empty(2, 3, device="meta", dtype=torch.bfloat16)
    found = saved(tensor)
    assert_describes(found, tensor)
    assert (found.kind, found.storage) == ("meta", None)


def test_sparse_coo() -> None:
    """Indices and values are tensors of their own."""
    tensor = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse()
    found = saved(tensor)
    assert (found.kind, found.shape, found.dtype.name) == ("sparse_coo", (2, 2), "float32")
    parts = dict(found.parts)
    assert_describes(parts["indices"], tensor._indices())
    assert_describes(parts["values"], tensor._values())
    assert parts["is_coalesced"] is True


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_sparse_compressed(layout: str) -> None:
    """Compressed indices, plain indices and values, by their names in torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.eye(4)
        tensor = getattr(dense, f"to_sparse_{layout}")(*([(2, 2)] if layout[0] == "b" else []))
        found = saved(tensor)
    assert (found.kind, found.shape) == (f"sparse_{layout}", (4, 4))
    inner = dict(found.parts)
    rows = layout.endswith("r")
    assert_describes(
        inner["crow_indices" if rows else "ccol_indices"], tensor.crow_indices() if rows else tensor.ccol_indices()
    )
    assert_describes(
        inner["col_indices" if rows else "row_indices"], tensor.col_indices() if rows else tensor.row_indices()
    )
    assert_describes(inner["values"], tensor.values())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_quantized() -> None:
    """Per tensor: scale and zero point; per channel: tensors of them and the axis."""
    tensor = torch.quantize_per_tensor(BASE, 0.5, 3, torch.quint8)
    found = saved(tensor)
    assert (found.kind, found.dtype.name, found.shape, found.stride) == ("quantized", "quint8", (2, 3, 4), (12, 4, 1))
    assert dict(found.parts) == {"qscheme": GlobalRef("torch", "per_tensor_affine"), "scale": 0.5, "zero_point": 3}
    scales, zeros = torch.tensor([0.5, 1.0]), torch.tensor([0, 1])
    found = saved(torch.quantize_per_channel(BASE, scales, zeros, 0, torch.qint8))
    parts = dict(found.parts)
    assert (parts["qscheme"], parts["axis"]) == (GlobalRef("torch", "per_channel_affine"), 0)
    assert (parts["scales"].shape, parts["zero_points"].shape) == ((2,), (2,))
    packed = torch.quantize_per_channel(torch.ones(2, 4), torch.ones(2), torch.zeros(2), 0, torch.quint4x2)
    found = saved(packed)
    assert (found.dtype.name, found.shape, found.nbytes) == ("quint4x2", (2, 4), 4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested() -> None:
    """A ragged extent is -1: only the values could tell it."""
    components = [torch.ones(2, 3), torch.ones(4, 3)]
    found = saved(torch.nested.nested_tensor(components))
    assert (found.kind, found.shape, found.dtype.name) == ("nested", (2, -1, -1), "float32")
    assert [n for n, _ in found.parts] == ["buffer", "sizes", "strides", "storage_offsets"]
    assert dict(found.parts)["buffer"].shape == (18,)
    jagged = torch.nested.nested_tensor(components, layout=torch.jagged, requires_grad=True)
    found = saved(jagged)
    assert (found.kind, found.shape, found.requires_grad) == ("nested", (2, -1, 3), True)
    assert dict(found.parts)["values"].shape == (6, 3)
    assert dict(found.parts)["offsets"].shape == (3,)
    assert found.cls == GlobalRef("torch.nested._internal.nested_tensor", "NestedTensor")


class Wrapped(torch.Tensor):
    """A subclass that holds another tensor and no elements."""

    inner: torch.Tensor

    @staticmethod
    def of(inner: torch.Tensor) -> "Wrapped":
        """A bfloat16 tensor whose elements are another's."""
        made: Wrapped = torch.Tensor._make_wrapper_subclass(Wrapped, inner.shape, dtype=torch.bfloat16)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is asked to the inner tensor; detach alone is asked when saving."""
        return func(args[0].inner, *args[1:], **(kwargs or {}))


def test_wrapper_subclass() -> None:
    """The tensors in the state are the parts of a tensor that has no storage."""
    found = saved(Wrapped.of(torch.ones(2, 3)))
    assert (found.kind, found.dtype.name, found.shape, found.storage) == ("wrapper_subclass", "bfloat16", (2, 3), None)
    assert found.cls == GlobalRef(__name__, "Wrapped")
    assert [(n, t.dtype.name) for n, t in found.parts] == [("inner", "float32")]


def test_dtensor(tmp_path: Any) -> None:
    """A DTensor has the global shape; what this rank holds is its part `local`."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        tensor = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
        found = saved(tensor)
    finally:
        dist.destroy_process_group()
    assert (found.kind, found.shape, found.dtype.name) == ("dtensor", (4, 2), "float32")
    assert [n for n, _ in found.parts] == ["local"]
    assert found.parts[0][1].shape == (4, 2)


def test_storages_and_devices() -> None:
    """A storage is what its id becomes; devices, sizes, layouts and dtypes stay names and calls."""
    assert isinstance(saved(BASE.untyped_storage()), StorageRef)
    found = saved([torch.Size([1, 2]), torch.device("cuda", 1), torch.float16, torch.strided])
    assert (found[0].name, found[0].args) == ("torch.Size", ((1, 2),))
    assert (found[1].name, found[1].args) == ("torch.device", ("cuda", 1))
    assert found[2] == GlobalRef("torch", "float16")
    assert (found[3].name, found[3].args) == ("torch.serialization._get_layout", ("torch.strided",))


def test_nested_save_in_a_storage_is_not_opened() -> None:
    """`pickle.dumps(storage)` holds a whole torch.save; loading that would run code, so it stays a call."""
    found = read(pickle.dumps(BASE.untyped_storage(), 2))
    assert found.name == "torch.storage._load_from_bytes"


REBUILD = "_rebuild_tensor_v2"
STORAGE = b"K\x00Q"
ONE = b"K\x01\x85"


def rebuilt(function: str, args: bytes, module: str = "torch._utils") -> Any:
    """The value of a call of one of torch's functions; every storage is 4 float32."""
    return read(name(module, function) + b"(" + args + b"tR.", persistent=float_storage(4))


def test_old_forms() -> None:
    """What torch 0.3, 0.4 and 1.7 wrote, and names of today for the same functions."""
    assert rebuilt("_rebuild_tensor", STORAGE + b"K\x01K\x02\x85K\x01\x85").shape == (2,)
    assert rebuilt(REBUILD, STORAGE + b"K\x00]K\x04a" + call("torch", "Size", ONE + b"\x85") + b"\x89N").stride == (1,)
    inner = name("torch._utils", REBUILD) + name("torch", "Tensor") + b"(" + STORAGE + b"K\x00))\x89Nt" + b"N"
    for module in ("torch.tensor", "torch._tensor"):
        assert rebuilt("_rebuild_from_type", inner, module).cls is None


def test_tensors_of_torch_0_1_are_filled_by_build() -> None:
    """`torch.FloatTensor` is made empty, seen by others, and given its storage by BUILD."""
    state = b"(" + STORAGE + b"K\x01K\x03\x85K\x01\x85t"
    for made in (name("torch", "FloatTensor") + b")\x81", name("torch.cuda", "FloatTensor") + b")R"):
        first, second = read(made + b"q\x00" + state + b"bh\x00\x86.", persistent=float_storage(4))
        assert first is second
        assert type(first) is TensorRef
        assert (first.shape, first.storage_offset, first.dtype.name) == ((3,), 1, "float32")
    assert read(name("torch", "LongTensor") + b")R.").dtype.name == "int64"
    assert isinstance(read(name("torch", "LongTensor") + b"]\x85\x81."), Opaque)
    with pytest.raises(DamagedFile, match="a int64 tensor is built over a storage"):
        read(name("torch", "LongTensor") + b")R" + state + b"b.", persistent=float_storage(4))
    with pytest.raises(DamagedFile, match="is built over a persistent id of another type"):
        read(name("torch", "LongTensor") + b")R" + state + b"b.")


def test_parameters_of_torch_0_1_to_0_3() -> None:
    """Made of their data and given requires_grad by BUILD, or made empty and given both; a Variable is a tensor."""
    tensor = name("torch._utils", "_rebuild_tensor") + b"(" + STORAGE + b"K\x00K\x04\x85K\x01\x85tR"
    parameter, variable = name("torch.nn.parameter", "Parameter"), name("torch.autograd.variable", "Variable")
    for cls in (parameter, variable):
        for stream, grad in [
            (cls + tensor + b"\x85R", cls is parameter),
            (cls + tensor + b"\x89\x86R", False),
            (cls + tensor + b"\x85R\x89\x89N\x87b", False),
            (cls + b")\x81" + b"(" + tensor + b"NN\x88\x89tb", True),
        ]:
            found = read(stream + b".", persistent=float_storage(4))
            assert isinstance(found, TensorRef)
            assert (found.parameter, found.requires_grad, found.shape) == (cls is parameter, grad, (4,))
    assert isinstance(read(name("torch.nn.parameter", "Parameter") + b"N\x85R."), Opaque)
    with pytest.raises(DamagedFile, match="the state of a tensor is None"):
        read(name("torch.nn.parameter", "Parameter") + b")\x81Nb.")


def test_tensors_of_other_devices() -> None:
    """XLA tensors are saved as host tensors; where the type was changed for that, the host tensor is a part."""
    host = name("torch._utils", "_rebuild_tensor") + b"(" + STORAGE + b"K\x00K\x04\x85K\x01\x85tR"
    for function in ("_rebuild_device_tensor_from_cpu_tensor", "_rebuild_xla_tensor"):
        found = rebuilt(function, host + name("torch", "float32") + text("xla:0") + b"\x88")
        assert (found.kind, found.dtype.name, found.requires_grad) == ("strided", "float32", True)
    found = rebuilt(function, host + name("torch", "bfloat16") + text("xla:0") + b"\x89")
    assert (found.kind, found.dtype.name, found.shape) == ("wrapper_subclass", "bfloat16", (4,))
    assert found.parts[0][1].dtype.name == "float32"
    array = pickle.dumps(np.zeros(3, np.float32), 2)[2:-1]
    found = rebuilt("_rebuild_device_tensor_from_numpy", array + name("torch", "float32") + text("xla:0") + b"\x89")
    assert (found.kind, found.dtype, found.shape) == ("strided", BY_NAME["float32"], (3,))


def test_data_pkl_without_its_archive_is_read() -> None:
    """Without the archive a storage is an id; its tensors stay calls, and so do their parameters."""
    buffer = io.BytesIO()
    torch.save({"a": torch.nn.Parameter(BASE), "b": BASE.conj(), "c": torch.empty(1, dtype=torch.uint16)}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        found = load(archive.read("archive/data.pkl"), where="data.pkl").value
    assert isinstance(found, dict)
    assert found["a"].name == "torch._utils._rebuild_parameter"
    assert found["b"].name == "torch._utils._rebuild_tensor_v2"
    assert found["c"].name == "torch._utils._rebuild_tensor_v3"
    conj = b"K\x00QK\x00)" + b")\x89N}" + text("conj") + b"\x88s"
    assert isinstance(read(name("torch._utils", REBUILD) + b"(" + conj + b"tR."), Opaque)
    quantized = b"K\x00QK\x00))" + name("torch", "per_tensor_affine") + b"G?\xf0\0\0\0\0\0\0K\x00\x87\x89N"
    assert isinstance(read(name("torch._utils", "_rebuild_qtensor") + b"(" + quantized + b"tR."), Opaque)
    inner = name("torch._utils", REBUILD) + name("m", "C") + b"(K\x00QK\x00))\x89NtN"
    assert isinstance(read(name("torch._tensor", "_rebuild_from_type_v2") + b"(" + inner + b"tR."), Opaque)


def test_unknown_function_below_a_type_stays_data() -> None:
    """`_rebuild_from_type_v2` calls what it is given; a function that is not known makes the whole an Opaque."""
    assert isinstance(
        rebuilt("_rebuild_from_type_v2", name("m", "f") + name("m", "C") + b")N", "torch._tensor"), Opaque
    )
    assert isinstance(rebuilt("_rebuild_from_type_v2", b"K\x01" + name("m", "C") + b")N", "torch._tensor"), Opaque)
    itself = name("torch._tensor", "_rebuild_from_type_v2") + name("m", "C") + b")N"
    assert isinstance(rebuilt("_rebuild_from_type_v2", itself, "torch._tensor"), Opaque)


def test_state_of_a_wrapper_may_be_a_pair() -> None:
    """The state is a dict, or a pair of it and the slots; anything else holds no parts."""
    wrapper = name("torch._utils", "_rebuild_wrapper_subclass") + b"](]" + name("torch", "float32") + b"))K\x00NN\x89t"
    tensor = name("torch._utils", "_rebuild_tensor") + b"(" + STORAGE + b"K\x00))tR"
    pair = b"}" + text("a") + tensor + b"s" + b"}" + text("b") + tensor + b"s\x86"
    slots = b"N}" + text("b") + tensor + b"s\x86"
    for state, parts in [(pair, ["a", "b"]), (slots, ["b"]), (b"N", []), (b"K\x05", [])]:
        found = rebuilt("_rebuild_from_type_v2", wrapper + state, "torch._tensor")
        assert ([n for n, _ in found.parts], found.cls) == (parts, None)


FLOAT32 = name("torch", "float32")
TENSOR = name("torch._utils", "_rebuild_tensor") + b"(" + STORAGE + b"K\x00K\x02K\x02\x86K\x02K\x01\x86tR"
COO = call("torch.serialization", "_get_layout", text("torch.sparse_coo") + b"\x85")


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (REBUILD, b"", "_rebuild_tensor_v2: 0 arguments, 7 are expected"),
        (REBUILD, b"NK\x00))\x89N", "storage is None"),
        (REBUILD, STORAGE + b"N))\x89N", "storage_offset is None"),
        (REBUILD, STORAGE + b"J\xff\xff\xff\xff))\x89N", "storage_offset is the int -1"),
        (REBUILD, STORAGE + b"K\x00N)\x89N", "size is None"),
        (REBUILD, STORAGE + b"K\x00)K\x01\x85\x89N", "size has 0 dimensions, stride has 1"),
        (REBUILD, STORAGE + b"K\x00J\xff\xff\xff\xff\x85K\x01\x85\x89N", "dimension 0 has size the int -1"),
        (REBUILD, STORAGE + b"K\x00K\x01\x85J\xff\xff\xff\xff\x85\x89N", "stride the int -1"),
        (REBUILD, STORAGE + b"K\x00\x88\x85K\x01\x85\x89N", "size True"),
        (REBUILD, STORAGE + b"K\x00\x8a\x09" + b"\xff" * 8 + b"\x01\x85K\x01\x85\x89N", "has size the int"),
        (REBUILD, STORAGE + b"K\x00(" + b"K\x01" * 65 + b"t(" + b"K\x01" * 65 + b"t\x89N", "size is a tuple of 65"),
        (REBUILD, STORAGE + b"K\x00]Na)\x89N", "size holds None"),
        (REBUILD, STORAGE + b"K\x00))NN", "requires_grad is None"),
        (REBUILD, STORAGE + b"K\x00))\x89NK\x05", "metadata is the int 5"),
        (REBUILD, STORAGE + b"K\x00))\x89N}K\x05K\x06s", "metadata is a dict of 1"),
        (REBUILD, STORAGE + b"K\x00))\x89N}" + text("conj") + b"K\x06s", "metadata conj is the int 6"),
        ("_rebuild_tensor_v3", STORAGE + b"K\x00))\x89NN", "dtype is None"),
        ("_rebuild_tensor_v3", STORAGE + b"K\x00))\x89N" + name("os", "float32"), "dtype is the global os.float32"),
        ("_rebuild_tensor_v3", STORAGE + b"K\x00))NN" + FLOAT32, "requires_grad is None"),
        ("_rebuild_parameter", b"N\x89N", "data is None"),
        ("_rebuild_parameter", TENSOR + b"NN", "requires_grad is None"),
        ("_rebuild_parameter_with_state", b"N\x89N", "3 arguments, 4 are expected"),
        ("_rebuild_meta_tensor_no_storage", b"N))\x89", "dtype is None"),
        ("_rebuild_meta_tensor_no_storage", FLOAT32 + b"N)\x89", "size is None"),
        ("_rebuild_wrapper_subclass", b"N" + FLOAT32 + b")NK\x00NN\x89", "stride is None"),
        ("_rebuild_qtensor", STORAGE + b"K\x00))N\x89N", "quantizer_params is None"),
        ("_rebuild_qtensor", STORAGE + b"K\x00))NN\x89N", "8 arguments, 7 are expected"),
        ("_rebuild_sparse_tensor", b"N)", "layout is None"),
        ("_rebuild_sparse_tensor", COO + b"N", "data is None"),
        ("_rebuild_sparse_tensor", COO + b"(N" + TENSOR + b")t", "indices is None"),
        ("_rebuild_sparse_tensor", COO + b"(" + TENSOR + TENSOR + b"Nt", "size is None"),
        ("_rebuild_sparse_tensor", name("torch", "sparse_csr") + b"(" + TENSOR * 2 + b"N)t", "values is None"),
        ("_rebuild_nested_tensor", TENSOR * 3 + b"N", "storage_offsets is None"),
        (
            "_rebuild_nested_tensor",
            TENSOR + name("torch._utils", "_rebuild_tensor") + b"(" + STORAGE + b"K\x00))tR" + TENSOR * 2,
            "sizes is a tensor of shape ()",
        ),
        ("_rebuild_device_tensor_from_numpy", b"NNN\x89", "data is None"),
    ],
)
def test_wrong_arguments_name_the_function_and_the_argument(function: str, args: bytes, message: str) -> None:
    """Nothing is guessed: what torch would not take is damage."""
    with pytest.raises(DamagedFile) as caught:
        rebuilt(function, args)
    assert message in caught.value.message
    assert caught.value.message.startswith((function, "_rebuild_"))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (b"N", "constructor_kwargs is None"),
        (b"}", "values is None"),
        (b"}" + text("values") + TENSOR + b"s", "offsets is None"),
        (b"}(" + text("values") + TENSOR + text("offsets") + TENSOR + b"u", "_ragged_idx is the int 1"),
        (
            b"}(" + text("values") + TENSOR + text("offsets") + TENSOR + text("_ragged_idx") + b"K\x09u",
            "_ragged_idx is the int 9",
        ),
    ],
)
def test_wrong_arguments_of_a_jagged_tensor(kwargs: bytes, message: str) -> None:
    """`_rebuild_njt` takes one dict, in which values and offsets fit together."""
    with pytest.raises(DamagedFile, match=message):
        rebuilt("_rebuild_njt", kwargs, "torch.nested._internal.nested_tensor")


def test_wrong_arguments_below_a_type() -> None:
    """The inner arguments of `_rebuild_from_type_v2` are a tuple."""
    with pytest.raises(DamagedFile, match="args is None"):
        rebuilt("_rebuild_from_type_v2", name("torch._utils", REBUILD) + name("m", "C") + b"NN", "torch._tensor")


def test_what_torch_does_not_have_is_unsupported() -> None:
    """A dtype or a layout of a later torch is named, not guessed."""
    with pytest.raises(UnsupportedFormat, match=r"the global torch\.float3 is not an element type of torch 2.13"):
        rebuilt("_rebuild_tensor_v3", STORAGE + b"K\x00))\x89N" + name("torch", "float3"))
    with pytest.raises(UnsupportedFormat, match=r"layout 'torch\.sparse_xyz'"):
        rebuilt("_rebuild_sparse_tensor", name("torch", "sparse_xyz") + b")")


def test_typed_view_needs_a_typed_storage() -> None:
    """`_rebuild_tensor_v2` takes the type from the storage; an untyped one has none."""
    untyped = StorageRef(BytesSource(bytes(8)), 0, 8, "7")
    stream = name("torch._utils", REBUILD) + b"(" + STORAGE + b"K\x00))\x89NtR."
    with pytest.raises(DamagedFile, match="storage '7' has no element type"):
        read(stream, persistent=lambda _pid: untyped)


@pytest.mark.parametrize(
    ("offset", "size", "stride", "inside"),
    [
        (0, (4,), (1,), True),
        (3, (), (), True),
        (4, (), (), False),
        (1, (4,), (1,), False),
        (0, (2, 2), (2, 1), True),
        (0, (2, 2), (3, 1), False),
        (0, (10**9, 10**9), (0, 0), True),
        (0, (2**62, 4), (1, 2**62), False),
        (99, (0, 5), (5, 1), True),
        (0, (3, 0), (2**62, 1), True),
    ],
)
def test_every_view_is_held_against_its_storage(
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    inside: bool,  # noqa: FBT001
) -> None:
    """offset + Σ(size-1)·stride must lie within the 4 elements; a tensor without elements may begin anywhere."""
    stream = name("torch._utils", REBUILD) + b"(" + STORAGE
    stream += b"".join(pickle.dumps(part, 2)[2:-1] for part in (offset, size, stride)) + b"\x89NtR."
    if inside:
        assert read(stream, persistent=float_storage(4)).shape == size
    else:
        with pytest.raises(OutOfBounds, match="reaches element"):
            read(stream, persistent=float_storage(4))


def test_packed_types_are_counted_in_bits() -> None:
    """Two elements of quint4x2 share a byte."""
    storage = StorageRef(BytesSource(bytes(2)), 0, 2, "0", "cpu", BY_STORAGE["QUInt4x2Storage"])
    params = name("torch", "per_tensor_affine") + b"G?\xf0\0\0\0\0\0\0K\x00\x87"
    for count, fits in ((4, True), (5, False)):
        args = STORAGE + b"K\x00K%c\x85K\x01\x85" % count + params + b"\x89N"
        stream = name("torch._utils", "_rebuild_qtensor") + b"(" + args + b"tR."
        if fits:
            assert read(stream, persistent=lambda _pid: storage).shape == (4,)
        else:
            with pytest.raises(CkptError):
                read(stream, persistent=lambda _pid: storage)


@pytest.mark.parametrize("stream", [b"K\x01K\x02s", b"(K\x01K\x02u", b"K\x01a", b"(K\x01e", b"(K\x01\x90", b"}b"])
def test_a_tensor_takes_no_items_and_no_state(stream: bytes) -> None:
    """What opcodes do to lists and dicts is damage when the target is a tensor."""
    with pytest.raises(DamagedFile, match="a tensor of shape"):
        read(TENSOR + stream + b".", persistent=float_storage(4))
