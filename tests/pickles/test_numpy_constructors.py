"""What pickled numpy arrays, scalars and dtypes become, held against numpy itself."""

import pickle
from typing import Any

import numpy as np
import pytest

from ckpttool.elements import windows
from ckpttool.errors import DamagedFile, LimitExceeded
from ckpttool.limits import Limits
from ckpttool.pickles import load
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, NumpyScalar, Opaque, TensorRef
from tests.pickles.streams import call, name, read, text

PROTOCOLS = range(6)
SIMPLE = [
    "?", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", "u8", "e", "f4", ">f4", "f8", "f16", "c8", ">c8", "c16", "c32",
    "S5", "U3", ">U3", "V8", "M8[D]", "M8[25s]", ">M8[ns]", "m8[h]", "m8",
]  # fmt: skip
STRUCTURES = [
    [("a", "i4"), ("b", "f8")],
    [("a", ">i4", (2, 3)), (("title", "b"), "U3")],
    [("a", "f4", 3)],
    [("n", [("a", "i1"), ("b", "S3")])],
    [("m", "M8[D]"), ("c", "c8"), ("q", "?"), ("v", "V3"), ("t", "m8"), ("s", "S0"), ("u", "U0"), ("w", "V0")],
    {"names": ["x", "y"], "formats": ["i4", "f4"], "offsets": [4, 16], "itemsize": 32},
    {"names": ["x", "y'"], "formats": ["i4", "f4"], "offsets": [8, 0], "titles": ["T", None]},
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype([("a", "i1"), ("b", np.dtype([("q", "c16"), ("z", "U2")], align=True))], align=True),
    np.dtype((np.record, [("a", "i4")])),
    [],
]
OBJECTS = ["O", [("a", "O"), ("b", "i4")], np.dtypes.StringDType()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", [np.dtype(d) for d in [*SIMPLE, *STRUCTURES]], ids=str)
def test_arrays_of_every_type(dtype: "np.dtype[Any]", protocol: int) -> None:
    """The dtype is numpy's word, the shape and the order of elements are the array's, in every protocol."""
    for array in (
        np.zeros((2, 3), dtype),
        np.zeros((), dtype),
        np.zeros((0, 4), dtype),
        np.asfortranarray(np.zeros((2, 3), dtype)),
        np.zeros((2, 3, 4), dtype).transpose(1, 0, 2),
    ):
        found = read(pickle.dumps(array, protocol))
        assert type(found) is TensorRef
        assert (found.kind, found.dtype.name, found.shape) == ("ndarray", str(dtype), array.shape)
        assert found.dtype.bits == 8 * dtype.itemsize
        assert found.storage.nbytes == array.nbytes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_keep_their_places(protocol: int) -> None:
    """Fortran order and permuted axes are strides over the bytes as they lie in the file."""
    base = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    for array in (base, np.asfortranarray(base), base.transpose(1, 0, 2), base[::2, 1:]):
        found = read(pickle.dumps(array, protocol))
        got = np.concatenate([np.array(part).reshape(-1) for _, part in windows(found)])
        assert got.tolist() == array.reshape(-1).tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", [np.dtype(d) for d in OBJECTS], ids=str)
def test_arrays_of_objects_keep_their_items(dtype: "np.dtype[Any]", protocol: int) -> None:
    """Objects are values in the pickle: no bytes, a list of items."""
    array = np.zeros((2, 3), dtype)
    found = read(pickle.dumps(array, protocol))
    assert (found.kind, found.dtype.name, found.shape, found.storage) == ("ndarray", str(dtype), (2, 3), None)
    assert (found.nbytes, len(dict(found.parts)["items"])) == (0, 6)


def test_array_may_hold_itself() -> None:
    """An array is known before its items are, so a cycle through it is a cycle here."""
    array = np.empty(1, object)
    array[0] = [array]
    found = read(pickle.dumps(array, 4))
    assert dict(found.parts)["items"][0][0] is found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "scalar",
    [np.float32(1.5), np.float64(-2), np.float16(1), np.int8(-3), np.uint64(2**63), np.bool_(True), np.complex64(1 + 2j),
     np.complex128(3j)],
    ids=repr,
)  # fmt: skip
def test_scalars_know_their_python_value(scalar: Any, protocol: int) -> None:
    """A numpy scalar keeps type and bytes, and gives its value without numpy."""
    found = read(pickle.dumps(scalar, protocol))
    assert type(found) is NumpyScalar
    assert (found.dtype.name, found.data, found.item()) == (str(scalar.dtype), scalar.tobytes(), scalar.item())


@pytest.mark.parametrize(
    "scalar", [np.str_("ab"), np.bytes_(b"ab"), np.datetime64("2020-01-01"), np.longdouble(1)], ids=repr
)
def test_scalars_that_python_has_no_word_for_give_bytes(scalar: Any) -> None:
    """Strings, times and long doubles stay bytes."""
    found = read(pickle.dumps(scalar, 2))
    assert (found.dtype.name, found.item()) == (str(scalar.dtype), scalar.tobytes())


def test_subclasses_of_ndarray() -> None:
    """Matrices, record arrays and memory maps are arrays of a class; others with states of their own are opaque."""
    matrix = np.zeros((2, 2)).view(np.matrix)
    found = read(pickle.dumps(matrix, 2))
    assert (found.kind, found.cls.name, found.shape) == ("ndarray", "matrix", (2, 2))
    found = read(pickle.dumps(np.rec.array([(1,)], dtype=[("a", "i4")]), 2))
    assert (found.cls.name, found.dtype.name) == ("recarray", "(numpy.record, [('a', '<i4')])")
    assert isinstance(read(pickle.dumps(np.ma.masked_array([1], [True]), 2)), Opaque)


def test_names_of_old_and_new_numpy() -> None:
    """numpy 1 kept its C code in `numpy.core`, numpy 2 keeps it in `numpy._core`."""
    for protocol in (2, 5):
        new = pickle.dumps(np.arange(3), protocol)
        old = pickle.dumps(np.arange(3), protocol, fix_imports=False)
        if protocol == 2:  # text, so that its length does not matter
            old = old.replace(b"numpy._core", b"numpy.core")
            assert old != new
        assert read(old).shape == read(new).shape == (3,)
    frombuffer = name("numpy.core.numeric", "_frombuffer") + b"(C\x02ab" + U1 + b"K\x02\x85" + text("C") + b"tR."
    assert read(frombuffer).shape == (2,)


def test_arrays_of_python_2() -> None:
    """Python 2 wrote bytes and text alike; what was by chance UTF-8 is turned back into its bytes."""
    state = b"(K\x01K\x03\x85" + U1 + b"\x89U\x03a\xc3\xa9tb"
    array = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85U\x01b\x87R" + state
    assert read(array + b".").storage.read() == "aé".encode()
    scalar = name("numpy.core.multiarray", "scalar") + U1 + b"U\x01a\x86R."
    assert read(scalar).data == b"a"
    four = b"(K\x03\x85" + U1 + b"\x89U\x03abctb"
    array = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85U\x01b\x87R" + four
    assert read(array + b".").shape == (3,)


def test_long_arrays_stay_in_the_file() -> None:
    """The bytes of a long array are looked at where they lie; several views of the pickle's source."""
    array = np.arange(5000)
    for protocol in (3, 4, 5):
        stream = pickle.dumps(array, protocol)
        source = BytesSource(stream)
        found = load(stream, where="x", source=source).value
        assert isinstance(found, TensorRef)
        assert found.storage is not None
        assert found.storage.source is source
        assert found.storage.read() == array.tobytes()


def test_long_scalars_are_read_within_reason() -> None:
    """A scalar has its bytes at hand; one of megabytes is refused."""
    scalar = np.zeros(1, "V5000")[0]
    stream = pickle.dumps(scalar, 3)
    assert load(stream, where="x", source=BytesSource(stream)).value.data == bytes(5000)
    stream = pickle.dumps(np.zeros(1, "V2000000")[0], 3)
    with pytest.raises(LimitExceeded, match="a scalar of 2,000,000 bytes"):
        load(stream, where="x", source=BytesSource(stream))


def test_types_of_ml_dtypes_have_torchs_names() -> None:
    """bfloat16 and float8 arrays of JAX and others name a class instead of a code."""
    dtype = name("numpy", "dtype") + name("ml_dtypes", "bfloat16") + b"\x89\x88\x87R"
    state = b"(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
    for declared in (dtype, dtype + state):
        found = read(array + b"(K\x01K\x02\x85" + declared + b"\x89C\x04abcdtb.")
        assert (found.dtype.name, found.dtype.bits, found.shape) == ("bfloat16", 16, (2,))
    other = name("numpy", "dtype") + name("ml_dtypes", "int4") + b"\x89\x88\x87R"
    assert read(other + b".").base == GlobalRef("ml_dtypes", "int4")


def test_dtypes_alone_are_data() -> None:
    """A pickled dtype is an object with arguments and state, as any other."""
    found = read(pickle.dumps(np.dtype([("a", "i4")]), 2))
    assert type(found) is NumpyDtype
    assert (found.name, found.args, found.state[3]) == ("numpy.dtype", ("V4", False, True), ("a",))
    assert isinstance(read(call("numpy", "dtype", text("float64") + b"\x85") + b"."), Opaque)
    assert isinstance(read(call("numpy", "dtype", b")") + b"."), Opaque)
    assert read(call("numpy", "dtype", text("=i4") + b"\x85") + b".").order == "<"
    assert read(call("numpy", "dtype", text(">i4") + b"\x85") + b".").order == ">"


U1 = call("numpy", "dtype", text("u1") + b"\x89\x88\x87")


def built(dtype: bytes, state: bytes) -> bytes:
    """A dtype with its state."""
    return call("numpy", "dtype", dtype + b"\x89\x88\x87") + b"(" + state + b"tb"


def state_of(  # noqa: PLR0913, PLR0917
    order: bytes = text("|"), subarray: bytes = b"N", names: bytes = b"N", fields: bytes = b"N", size: bytes = b"K\x04",
    alignment: bytes = b"K\x01", flags: bytes = b"K\x00", more: bytes = b"",
) -> bytes:  # fmt: skip
    """The parts of a dtype's state."""
    return b"K\x03" + order + subarray + names + fields + size + alignment + flags + more


V4 = text("V4")
A = text("a")


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (call("numpy", "dtype", text("i3") + b"\x85"), "there is no type the str 'i3'"),
        (call("numpy", "dtype", text("V999999999") + b"\x85"), "there is no type"),
        (built(V4, b"K\x03"), "the state is a tuple of 1"),
        (built(V4, state_of()) + b"(" + state_of() + b"tb", "it gets a state after it was used, or a second one"),
        (built(V4, state_of(order=text("x"))), "byte order the str 'x'"),
        (built(V4, state_of(size=b"J\xfe\xff\xff\xff")), "the int -2 as size"),
        (built(V4, state_of(alignment=b"K\x41")), "the int 65 as alignment"),
        (built(text("i4"), state_of(size=b"K\x08")), "type 'i' has 4 bytes, its state says 8"),
        (built(text("i4"), state_of(names=A + b"\x85")), "type 'i' is made of parts"),
        (built(text("M8"), state_of(size=b"K\x08")), "a datetime has no unit"),
        (
            built(text("M8"), state_of(size=b"K\x08", more=b"N" + text("D") + b"K\x00\x86\x86")),
            "a datetime counts the int 0",
        ),
        (
            built(text("M8"), state_of(size=b"K\x08", more=b"N" + text("xxxxxxxxx") + b"K\x01\x86\x86")),
            "of the str 'xxx",
        ),
        (built(V4, state_of(subarray=b"K\x05")), "the subarray is the int 5"),
        (built(V4, state_of(subarray=U1 + text("x") + b"\x86")), "subarray shape is the str 'x'"),
        (built(V4, state_of(names=A)), "names is the str 'a', fields is None"),
        (built(V4, state_of(names=A + b"\x85", fields=b"K\x05")), "fields is the int 5"),
        (built(V4, state_of(names=A + b"\x85", fields=b"}")), "the field the str 'a' is None"),
        (built(V4, state_of(names=b"K\x05\x85", fields=b"}")), "the field the int 5 is None"),
        (
            built(V4, state_of(names=A + b"\x85", fields=b"}" + A + U1 + b"K\x04\x86s")),
            "at byte 4 lies outside the item",
        ),
    ],
)
def test_bad_dtypes_are_damage(stream: bytes, message: str) -> None:
    """What numpy would refuse is refused, with the argument that is wrong."""
    with pytest.raises(DamagedFile) as caught:
        read(stream + b".")
    assert caught.value.message.startswith("numpy.dtype: ")
    assert message in caught.value.message


def array(dtype: bytes, shape: bytes = b"K\x02\x85", data: bytes = b"C\x02ab", order: bytes = b"\x89") -> bytes:
    """An array built from parts."""
    made = name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
    return made + b"(K\x01" + shape + dtype + order + data + b"tb"


FROMBUFFER = name("numpy._core.numeric", "_frombuffer")
SCALAR = name("numpy._core.multiarray", "scalar")
TWO = b"K\x02\x85"


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (array(b"N"), "numpy.ndarray: dtype is None"),
        (array(U1, shape=b"N"), "numpy.ndarray: shape is None"),
        (array(U1, data=b"N"), "numpy.ndarray: data is None"),
        (array(U1, data=b"C\x03abc"), "a uint8 array of shape (2,) takes 2 bytes, its data has 3"),
        (array(U1, shape=b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85"), "takes 9,223,372,036,854,775,807 bytes"),
        (
            array(call("numpy", "dtype", text("O8") + b"\x85")),
            "the items of an object array of shape (2,) are the bytes",
        ),
        (array(U1) + b"Nb", "a state is given to a tensor of shape (2,)"),
        (array(U1, data=b"", order=b""), "numpy.ndarray: the state is a tuple of 3"),
        (array(call("numpy", "dtype", name("m", "C") + b"\x85")), "takes 0 bytes"),
        (FROMBUFFER + b"(C\x02ab" + U1 + b"K\x03\x85" + text("C") + b"tR", "takes 3 bytes, its data has 2"),
        (FROMBUFFER + b"(C\x02ab" + U1 + TWO + text("K") + b"K\x01\x85tR", "axis_order is (1,) for 1 dimensions"),
        (FROMBUFFER + b"(C\x02ab" + U1 + TWO + text("K") + b"K\x01tR", "axis_order is the int 1"),
        (SCALAR + b"NC\x01a\x86R", "numpy.scalar: dtype is None"),
        (SCALAR + U1 + b"C\x02ab\x86R", "a uint8 takes 1 bytes, not 2"),
    ],
)
def test_bad_arrays_are_damage(stream: bytes, message: str) -> None:
    """The data must have exactly the bytes that shape and type say, and every argument its kind."""
    with pytest.raises(DamagedFile) as caught:
        read(stream + b".")
    assert message in caught.value.message


@pytest.mark.parametrize(
    "stream",
    [
        FROMBUFFER + b")R",
        FROMBUFFER + b"(C\x02ab" + U1 + TWO + text("X") + b"tR",
        SCALAR + U1 + b"K\x01\x86R",
        name("numpy._core.multiarray", "_reconstruct") + name("m", "C") + b"K\x00\x85C\x01b\x87R",
    ],
)
def test_unfamiliar_calls_stay_data(stream: bytes) -> None:
    """Forms that numpy does not write are kept as calls."""
    assert isinstance(read(stream + b"."), Opaque)


def test_object_scalars_are_the_object() -> None:
    """A scalar of an object dtype is the object itself."""
    assert read(SCALAR + call("numpy", "dtype", text("O8") + b"\x85") + text("x") + b"\x86R.") == "x"


def test_a_dtype_in_use_cannot_change() -> None:
    """A state that comes after the dtype was used would change what was said before."""
    stream = U1 + b"q\x00" + array(b"h\x00") + b"0" + b"(" + state_of(size=b"K\x01") + b"tb."
    with pytest.raises(DamagedFile, match="it gets a state after it was used"):
        read(stream)


def test_names_that_double_are_refused() -> None:
    """A structure that holds another twice has a name twice as long; thirty levels of that are refused early."""
    stream = built(text("V1"), state_of(names=A + b"\x85", fields=b"}" + A + U1 + b"K\x00\x86s", size=b"K\x01"))
    size = 1
    for _ in range(16):
        size *= 2
        number = b"J" + size.to_bytes(4, "little")
        half = b"J" + (size // 2).to_bytes(4, "little")
        inner = stream + b"q\x000"
        fields = b"}(" + A + b"h\x00K\x00\x86" + text("b") + b"h\x00" + half + b"\x86u"
        stream = inner + built(text(f"V{size}"), state_of(names=A + text("b") + b"\x86", fields=fields, size=number))
    with pytest.raises(LimitExceeded, match="the name of a structured type has"):
        read(stream + b".")


def test_structures_with_many_fields_are_paid_for() -> None:
    """Each use of a long list of names costs as many opcodes as it has names."""
    names = b"(" + text("x") * 2000 + b"t"
    stream = names + b"q\x00}" + text("x") + U1 + b"K\x00\x86sq\x01"
    stream += (built(V4, state_of(names=b"h\x00", fields=b"h\x01")) + b"0") * 20 + b"."
    with pytest.raises(LimitExceeded, match="the work of more than 30,000 opcodes"):
        read(stream, limits=Limits(opcodes=30_000))
