"""Single facts of the structure document: what stands where, and what is refused."""

import json
import struct
from typing import Any

import pytest

from ckpttool import structures
from ckpttool.dtypes import BY_NAME
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, PathNotFound, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.pickles.constructors import PURE_CONSTRUCTORS
from ckpttool.pickles.tensors import OpenTensor
from ckpttool.sources import ByteSpan, BytesSource
from ckpttool.structures import Part, stored_as
from ckpttool.structures.headers import header_digest
from ckpttool.structures.surveys import lies
from ckpttool.values import BytesRef, GlobalRef, Made, NumpyScalar, Opaque, Record, TensorRef
from tests.structures.beside import back, documents_of, tensors_of, there_and_back
from tests.structures.trees import array, dtype, scalar, storage, view
from tests.values_walk import assert_same, difference

FLOAT = BY_NAME["float32"]


def encoded(value: Any, **options: Any) -> structures.Encoded:
    """A tree as the one document of a safetensors file."""
    return structures.encode(value, name="x.pt", container="torch-zip", **options)


def decoded(root: Any, tensors: Any = None, limits: Limits = DEFAULT_LIMITS, table: Any = None, **said: Any) -> Any:
    """The tree of a document that was written by hand."""
    said["tensors"] = table or {}
    headers = {file: header_digest(held) for file, held in {"": {}, **(tensors or {})}.items()}
    text = json.dumps({"schema": structures.SCHEMA, "form": "file", "root": root, "headers": headers, **said}).encode()
    document = structures.parsed(text, "x.json", DEFAULT_LIMITS)

    def documents(name: str) -> structures.Document:
        if name == "r.json":
            return structures.Document(form="file")
        if name not in {"p.json", "q.json"}:
            raise PathNotFound("there is no such file")
        table = {"": {"twice": {"neg": True}}}
        return structures.Document(form="part", root=1, tensors=table if name == "q.json" else {})

    return structures.decode(
        document,
        tensors=lambda file: (tensors or {}).get(file, {}),
        documents=documents,
        where="x.json",
        limits=limits,
    )


def u8(count: int) -> TensorRef:
    """A tensor of a safetensors file."""
    return view(storage(count), "uint8", (count,))


def test_what_json_can_say_is_itself() -> None:
    """A loss scale's state needs no tag at all."""
    state = {"scale": 65536.0, "growth_interval": 2000, "names": ["a", None, True], "deep": {"x": {}}}
    assert encoded(state).main.root == state


def test_short_things_stand_on_one_line() -> None:
    """A dict of more than three entries has a line for each, a list of numbers one for all."""
    text = "".join(encoded({"scale": 1.0, "a": 2, "b": [1] * 50, "betas": (0.9, 0.999)}).main.text())
    assert '    "scale": 1.0,\n    "a": 2,\n' in text
    assert '"b": [1, 1, 1' in text
    assert '"betas": {"$tuple": [0.9, 0.999]}' in text


@pytest.mark.parametrize("depth", [20, 60, 3000])
def test_deep_trees_are_taken_apart(depth) -> None:
    """However deep a tree is, its document is not: what lies below stands in a list of its own."""
    tree: Any = [1]
    for n in range(depth):
        tree = {"a": tree} if n % 2 else ([tree], {1: tree} if n == 5 else None)
    assert bool(encoded(tree).main.below) == (depth > 20)
    assert difference(tree, there_and_back(tree)) is None


def test_a_tuple_may_hold_itself_through_a_list() -> None:
    """It exists when its list does, which waits for it."""
    inner: list[Any] = []
    ring = (1, inner, frozenset({2}))
    inner.append(ring)
    after = there_and_back([ring])
    assert after[0][1][0] is after[0]
    key = Opaque(GlobalRef("a", "b"))
    holder = (key,)
    key.state = {holder: (holder, [holder])}
    after = there_and_back(holder)
    assert [*after[0].state] == [after]
    assert after[0].state[after][0] is after


def test_an_object_of_itself_alone_is_refused() -> None:
    """No program can make a tuple that holds itself directly."""
    with pytest.raises(DamagedFile, match="made of itself"):
        decoded({"$tuple": [{"$ref": 1}], "$id": 1})


def test_tied_tensors_are_written_once() -> None:
    """The first in the tree's order has the bytes, the other says whose they are; both are one memory after it."""
    held = storage(16)
    tree = {"a": view(held, "float32", (2, 2)), "b": view(held, "float32", (2, 2), requires_grad=True)}
    made = encoded(tree)
    assert [*made.tensors[""]] == ["a"]
    assert made.ties == (("", "b", "a"),)
    assert made.main.tensors == {"": {"b": {"requires_grad": True, "bytes_of": "a"}}}
    after = there_and_back(tree)
    assert after["a"].tied_to(after["b"])
    assert [*encoded(tree, duplicate_ties=True).tensors[""]] == ["a", "b"]
    twice = encoded(tree, duplicate_ties=True)
    assert_same(tree, back(documents_of(twice), tensors_of(twice)))


def test_views_of_one_storage_are_tensors_of_their_own() -> None:
    """Their place in the storage is said; what no view covers is dropped, from a multiple of 16 bytes on."""
    held = storage(400, key="7")
    tree = [view(held, "float32", (2, 2), offset=10), view(held, "float32", (2, 2), stride=(1, 2), offset=20)]
    made = encoded(tree)
    assert made.main.storages == [{"nbytes": 64}]
    assert made.main.tensors == {
        "": {"0": {"storage": 0, "offset": 2}, "1": {"stride": [1, 2], "storage": 0, "offset": 12}}
    }
    assert [(d.name, d.nbytes) for d in made.dropped] == [("0", 336)]
    one, two = there_and_back(tree)
    assert one.placed.storage is two.placed.storage
    assert (one.placed.storage_offset, two.placed.storage_offset) == (2, 12)
    with pytest.raises(UnsupportedFormat, match="lie in the tensors"):
        one.placed.storage.source.read_into(0, memoryview(bytearray(4)))


def test_a_part_of_a_large_storage_alone_is_an_ordinary_tensor() -> None:
    """Nothing is said of it; the bytes around it are dropped and told."""
    made = encoded({"w": view(storage(400), "float32", (3,), offset=5)})
    assert made.main.tensors == {}
    assert [(d.file, d.name, d.nbytes) for d in made.dropped] == [("", "w", 388)]


def test_names_that_are_taken_get_a_number() -> None:
    """The first keeps its name; `__metadata__` belongs to the format."""
    tree = {"a.b": u8(1), "a": {"b": u8(2)}, "__metadata__": u8(3), "x": [{1: u8(4)}, {"1": u8(5)}], "\ud800": u8(6)}
    assert [*encoded(tree).tensors[""]] == ["a.b", "a.b#2", "__metadata__#2", "x.0.1", "x.1.1", "?"]
    assert_same(tree, there_and_back(tree))


def test_long_and_odd_keys_make_names() -> None:
    """A name does not grow without end, and never shows an object."""
    tree: Any = {2**70: u8(1), Opaque(None): u8(2), GlobalRef("m", "n"): u8(3), None: u8(4)}
    for _ in range(300):
        tree = {"abcdefghij": tree}
    names = [*encoded(tree).tensors[""]]
    assert len(names) == 4
    assert all(len(name) < 1200 for name in names)
    short = {2**70: u8(1), Opaque(None): u8(2), GlobalRef("m", "n"): u8(3), 1.5: u8(4)}
    assert [*encoded(short).tensors[""]] == ["0x400000000000000000", "Opaque", "m.n", "1.5"]


def test_a_tensor_of_the_root_has_a_name() -> None:
    """`torch.save(tensor)`."""
    assert [*encoded(u8(3)).tensors[""]] == ["tensor"]
    assert [*encoded({"a": u8(3)}, parts=(Part(), Part(path=("a",), tensors="a.st"))).tensors["a.st"]] == ["a"]


@pytest.mark.parametrize(
    ("dtype_", "shape", "code", "stored"),
    [
        ("float32", (2, 3), "F32", (2, 3)), ("complex128", (2,), "F64", (2, 2)), ("complex32", (2,), "U8", (8,)),
        ("float4_e2m1fn_x2", (2, 3), "F4", (2, 6)), ("float4_e2m1fn_x2", (), "U8", (1,)), ("quint8", (2,), "U8", (2,)),
        ("qint32", (2,), "I32", (2,)), ("bits1x8", (3,), "U8", (3,)), ("float8_e8m0fnu", (3,), "F8_E8M0", (3,)),
        ("bits16", (3,), "U16", (3,)), ("quint4x2", (4,), "U8", (2,)),
    ],
)  # fmt: skip
def test_types_lie_as_the_format_has_them(dtype_, shape, code, stored) -> None:
    """Its own type where there is one; else one that holds the same bytes."""
    made = stored_as(view(storage(64), dtype_, shape))
    assert (made.code, made.shape) == (code, stored)
    tensor = view(storage(64), dtype_, shape)
    if dtype_ != "quint4x2":
        assert_same({"w": tensor}, there_and_back({"w": tensor}))


def test_arrays_are_tensors_with_a_word_for_their_type() -> None:
    """One in Fortran order, or of a type of numpy's own, lies as its bytes."""
    tree = {
        "f": array("<f4", (2, 3), bytes(24)),
        "b": array(">f4", (2, 3), bytes(range(24))),
        "c": array("<c16", (1, 3), bytes(range(48)), fortran=True),
        "o": array("<f4", (2, 3), bytes(24), fortran=True),
    }
    made = encoded(tree)
    assert made.main.root["f"] == {"$array": "f", "dtype": "<f4"}
    codes = {name: stored_as(t).code for name, t in made.tensors[""].items()}
    assert codes == {"f": "F32", "b": "U8", "c": "F64", "o": "U8"}
    assert_same(tree, there_and_back(tree))


def test_arrays_of_numpy_1_and_of_protocol_5_say_who_makes_them() -> None:
    """The function's name is kept."""
    old = PURE_CONSTRUCTORS[GlobalRef("numpy.core.multiarray", "_reconstruct")](
        (GlobalRef("numpy", "ndarray"), (0,), b"b")
    )
    from ckpttool.pickles.constructors import build_object  # noqa: PLC0415

    build_object(old, (1, (2,), dtype("<f4"), False, bytes(8)))
    buffer = PURE_CONSTRUCTORS[GlobalRef("numpy._core.numeric", "_frombuffer")]
    tree = [old, buffer((bytes(range(8)), dtype("<i4"), (2,), "C")), buffer((bytearray(8), dtype("<f8"), (1,), "C"))]
    tree.append(buffer((BytesRef(BytesSource(bytes(range(48))), 0, 48), dtype("<i4"), (3, 4), "F")))
    tree.append(buffer((bytes(range(96)), dtype("<i4"), (2, 3, 4), "K", (1, 2, 0))))
    assert encoded(tree).main.root[0]["by"] == ["numpy.core.multiarray", "_reconstruct"]
    assert_same(tree, there_and_back(tree))


def test_arrays_of_objects_hold_their_items() -> None:
    """Shape and items stand in the document; there are no elements."""
    made = PURE_CONSTRUCTORS[GlobalRef("numpy._core.multiarray", "_reconstruct")](
        (GlobalRef("numpy", "ndarray"), (0,), b"b")
    )
    from ckpttool.pickles.constructors import build_object  # noqa: PLC0415

    objects = dtype("|O", (3, "|", None, None, None, -1, -1, 63))
    build_object(made, (1, (1, 3), objects, False, [1, u8(2), "x"]))
    assert_same([made, made], there_and_back([made, made]))
    buffer = PURE_CONSTRUCTORS[GlobalRef("numpy._core.numeric", "_frombuffer")]
    assert_same(buffer(([1, 2], objects, (2,), "C")), there_and_back(buffer(([1, 2], objects, (2,), "C"))))


def test_an_array_that_was_never_filled_is_refused() -> None:
    """`_reconstruct` without the BUILD that follows it."""
    empty = TensorRef(
        dtype=FLOAT, shape=(0,), kind="ndarray", made=Made(GlobalRef("numpy._core.multiarray", "_reconstruct"), ())
    )
    with pytest.raises(UnsupportedFormat, match="never filled"):
        encoded(empty)
    unfilled = OpenTensor(dtype=FLOAT, shape=(0,), kind="ndarray", made=empty.made)
    with pytest.raises(UnsupportedFormat, match="without the call"):
        encoded(unfilled)


@pytest.mark.parametrize(
    "value",
    [
        NumpyScalar(FLOAT, bytes(4)),
        TensorRef(dtype=FLOAT, shape=(2,), kind="meta"),
        {"s": Opaque(("a", "tuple"))},
    ],
)
def test_what_has_no_spelling_is_refused(value) -> None:
    """A scalar or a tensor without its call, an object made by what cannot be called."""
    with pytest.raises(UnsupportedFormat):
        encoded(value)


def test_scalars_show_their_number() -> None:
    """`value` where the number gives the same bytes; else `bytes`."""
    tree = [
        scalar("<f8", struct.pack("<d", 1.5)), scalar("<f4", struct.pack("<I", 0x7FA00001)),
        scalar("<f8", struct.pack("<d", float("inf"))), scalar("<c8", bytes(range(8))),
        PURE_CONSTRUCTORS[GlobalRef("numpy.core.multiarray", "scalar")]((dtype("<i8"), bytes(8))),
        PURE_CONSTRUCTORS[GlobalRef("numpy.core.multiarray", "scalar")](
            (dtype("<M8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"D", 1, 1, 1)))), bytes(8))
        ),
    ]  # fmt: skip
    root = encoded(tree).main.root
    assert root[0] == {"$numpy": "float64", "value": 1.5, "dtype": "<f8"}
    assert "bytes" in root[1]
    assert root[2]["value"] == {"$float": "inf"}
    assert root[4]["by"] == ["numpy.core.multiarray", "scalar"]
    assert_same(tree, there_and_back(tree))


def test_storages_as_values_are_kept_whole() -> None:
    """All bytes, also those that no tensor looks at; the tensors that look at it share it again."""
    held = storage(64, dtype=FLOAT, location="cuda:1")
    tree = {"s": held, "again": [held], "v": view(held, "float32", (2,), offset=3, conj=False)}
    made = encoded(tree)
    assert made.main.storages == [{"nbytes": 64, "dtype": "float32", "device": "cuda:1", "bytes": "s.storage"}]
    assert made.dropped == ()
    after = there_and_back(tree)
    assert_same(tree, after)
    assert after["v"].storage is after["s"]
    parts = (Part(document="state.json", tensors="a.st"), Part(path=("s",), tensors="b.st"))
    assert_same(tree, there_and_back(tree, parts))


def test_big_endian_storages_are_swapped_where_their_type_is_known() -> None:
    """Of others nobody can tell how."""
    known = storage(8, dtype=FLOAT, big_endian=True)
    assert stored_as(encoded(known).tensors[""]["tensor.storage"]).code == "F32"
    with pytest.raises(UnsupportedFormat, match="big-endian"):
        encoded(storage(8, big_endian=True))
    with pytest.raises(UnsupportedFormat, match="big-endian"):
        encoded([known, view(known, "float64", (1,))])


def test_long_bytes_lie_beside_the_document() -> None:
    """From 4 KB on, and what the reader left in the file; the same object lies there once."""
    long = bytes(range(256)) * 20
    ref = BytesRef(BytesSource(long), 10, 200)
    made = encoded([long, {"a": long}, ref, [ref], b"short"])
    assert [*made.tensors[""]] == ["0", "2"]
    assert_same([long, ref], there_and_back([long, ref]))


def test_parts_that_lead_nowhere_change_nothing() -> None:
    """A plain value stays in place even where a part begins; a path that is not there is never met."""
    parts = (*structures.FOLDER, Part(path=("epoch",), document="e.json"), Part(path=("no", 1), document="n.json"))
    assert encoded({"epoch": 1}, parts=parts).documents["state.json"].root == {"epoch": 1}
    inside = (Part(), Part(path=("m", "x"), tensors="x.st"))
    tree = {"m": {"w": u8(1), "x": {"w": u8(2)}, "y": {"$w": u8(3)}}}
    made = encoded(tree, parts=inside)
    assert {file: [*tensors] for file, tensors in made.tensors.items()} == {"": ["m.w", "m.y.$w"], "x.st": ["w"]}
    assert_same(tree, there_and_back(tree, inside))


def test_attributes_are_steps_of_their_own() -> None:
    """A part may be an attribute of an object, as in a pickled trainer."""
    from ckpttool.values import Attribute  # noqa: PLC0415

    tree = Opaque(GlobalRef("my", "Trainer"), state={"optimizer": {"w": u8(1)}, "n": 1})
    parts = (*structures.FOLDER, Part(path=(Attribute("optimizer"),), document="o.json", tensors="o.st"))
    made = encoded(tree, parts=parts)
    assert made.documents["o.json"].root == {"$tensors": ["w"]}
    assert_same(tree, there_and_back(tree, parts))


def test_too_many_values_are_over_the_limit() -> None:
    """When encoding, when parsing, and when decoding what a short text repeats."""
    few = Limits(nodes=50)
    with pytest.raises(LimitExceeded, match="more than 50 values"):
        encoded([[1]] * 60, limits=few)
    with pytest.raises(LimitExceeded, match="holds 60 values"):
        structures.parsed(json.dumps([[]] * 30).encode(), "x", few)
    with pytest.raises(LimitExceeded, match="more than 5 values"):
        decoded([1] * 10, limits=Limits(nodes=5))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"\xff", b"[" * 100_000, b"[]", b"1", b'{"schema": "other/1"}', b'{"a": 1, "a": 2}',
        b"1" * 5000, b'{"schema": "ckpt.structure/1", "form": 1}', b'{"schema": "ckpt.structure/1", "more": 1}',
        b'{"schema": "ckpt.structure/1", "form": "new"}', b'{"schema": "ckpt.structure/1", "storages": [1]}',
        b'{"schema": "ckpt.structure/1", "tensors": {"a": 1}}', b'{"schema": "ckpt.structure/1", "tensors": {"a": {"b": 1}}}',
        b'{"schema": "ckpt.structure/1", "files": {"a": "b"}}', b'{"schema": "ckpt.structure/1", "files": {"a": []}}',
    ],
)  # fmt: skip
def test_what_is_no_document_is_damaged(text) -> None:
    """Each is an error, none a crash."""
    with pytest.raises(DamagedFile):
        structures.parsed(text, "x", DEFAULT_LIMITS)


_CALL = {"$call": ["torch._utils", "_rebuild_meta_tensor_no_storage"], "args": []}


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ({"$new": 1}, "no tag"), ({"$id": 1}, "no tag"), ({"$ref": 1}, "no object 1"), ({"$ref": "1"}, "no object"),
        ({"$int": 1}, r"\$int is not"), ({"$int": "x"}, r"\$int is not"), ({"$bytes": "?"}, r"\$bytes is not"),
        ({"$float": "zz"}, r"\$float is not"), ({"$float": None}, r"\$float is not"), ({"$text": "/w=="}, r"\$text is not"),
        ({"$complex": [1]}, r"\$complex is not"), ({"$complex": [1, 2]}, r"\$complex is not"), ({"$global": ["a"]}, "module and a name"),
        ({"$global": [1, "a"]}, "no text"), ({"$int": "0x1", "more": 1}, "do not belong"), ({"$int": "0x1", "$id": 1}, "do not belong"),
        ([{"$list": [], "$id": 1}, {"$list": [], "$id": 1}], "comes after 1 other"), ({"$list": [], "$id": "a"}, "comes after 0 others"),
        ({"$list": 1}, "no list"), ({"$tuple": {}}, "no list"), ({"$dict": 1}, "neither an object"), ({"$dict": [1]}, "no pair"),
        ({"$dict": [[1, 2], [1, 3]]}, "key twice"), ({"$dict": [[[], 1]]}, "cannot be hashed"), ({"$set": [1, 1]}, "member twice"),
        ({"$set": [[]]}, "cannot be hashed"), ({"$frozenset": [{}]}, "cannot be hashed"), ({"$dict": {"$x": 1}}, "no tag"),
        ({"$file": 1}, "can be none"), ({"$file": "x.pt.json"}, "no such file"), ({"$file": "r.json"}, "not of a part"), ([{"$file": "p.json"}, {"$file": "p.json"}], "two places"),
        ({"$below": 0}, "no entry"), ({"$below": "a"}, "no entry"), ({"$tensor": "w"}, "no tensor 'w'"), ({"$tensor": 1}, "no text"),
        ({"$tensor": "w", "in": 1}, "no text"), ({"$tensors": [1]}, "neither a key"), ({"$tensors": [], "prefix": 1}, "do not belong"),
        ({"$storage": 0}, "no storage"), ({"$storage": True}, "no storage"), ({"$data": "w"}, "no tensor"),
        ({"$object": ["a", "b"], "how": "new"}, "pickle does not have"), ({"$object": 1}, "module and a name"),
        ({"$dtype": "<q9"}, "no numpy type"), ({"$dtype": ["os", "system"]}, "makes no numpy dtype"), ({"$dtype": ["numpy", "dtype"]}, "makes no"),
        ({"$numpy": "float64", "dtype": "<f8", "value": "x"}, "does not hold"), ({"$numpy": "float32", "dtype": "<f8", "value": 1}, "said to be"),
        ({"$numpy": "int8", "dtype": "<i1", "value": 300}, "no numpy|does not hold"), ({"$numpy": "a", "dtype": "<f8", "value": 1, "by": ["os", "x"]}, "no numpy scalar"),
        ({"$numpy": "float64", "dtype": "<f8", "bytes": ""}, "takes 8 bytes"), ({"$numpy": "a", "dtype": [], "value": 1}, "dtype"),
        (_CALL, "arguments"), ({**_CALL, "state": 1}, "given a state"), ({"$call": ["os", "system"], "args": ["x"]}, "no tensor is made"),
        ({"$call": ["numpy", "load"], "shape": [1]}, "no array is made"), ({"$call": ["numpy", "x"]}, "shape is None"),
        ({"$call": ["numpy._core.numeric", "_frombuffer"], "shape": [1]}, "makes no array"),
        ({"$call": ["numpy._core.multiarray", "_reconstruct"], "shape": [1], "stride": [1]}, "makes no array"),
        ({"$array": "w", "dtype": "<f8"}, "no tensor"), ({"$array": "w", "dtype": 1}, "no text|no tensor"),
    ],
)  # fmt: skip
def test_what_documents_cannot_say_is_damaged(root, said) -> None:
    """Each is an error that says what is wrong, at its place."""
    with pytest.raises(CkptError, match=said):
        decoded(root)


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"new": 1}, "do not have"), ({"conj": 1}, "do not have"), ({"offset": True}, "do not have"),
        ({"dtype": "float99", "shape": [8]}, "is said to be"), ({"dtype": "float64", "shape": [1]}, "is said to be"), ({"dtype": "float32", "shape": [3]}, "is said to be"),
        ({"dtype": "float32", "shape": ["a"]}, "shape holds"), ({"stride": [1, 2]}, "has 1 dimensions"), ({"stride": [-1]}, "stride holds"),
        ({"storage": 0, "offset": 50}, "reaches element"), ({"storage": 9}, "no storage 9"), ({"storage": 1}, "not of the form"),
        ({"storage": 2}, "bytes alone"), ({"storage": 3}, "not of the form"), ({"bytes_of": "v"}, "no tensor 'v'"), ({"device": "x" * 200}, "not the name of one"),
    ],
)  # fmt: skip
def test_what_tables_cannot_say_is_damaged(props, said) -> None:
    """What is said of a tensor must fit the tensor and the storages."""
    storages = [{"nbytes": 16}, {"nbytes": -1}, {"nbytes": 4, "bytes": "w"}, {"nbytes": 1, "device": 1}]
    with pytest.raises(CkptError, match=said):
        decoded({"$tensor": "w"}, {"": {"w": u8(8)}}, storages=storages, table={"": {"w": props}})


def test_bytes_of_a_tensor_without_bytes_are_refused() -> None:
    """A tie leads to a tensor that has bytes, in one step; and nothing is described twice."""
    ties = {"": {"a": {"bytes_of": "b"}, "b": {"bytes_of": "c"}}}
    with pytest.raises(DamagedFile, match="none of its own"):
        decoded({"$tensor": "a"}, {"": {"c": u8(1)}}, table=ties)


def test_arrays_must_fit_their_strides() -> None:
    """Strides of elements that do not lie side by side are none of an array."""
    table = {"": {"w": {"stride": [5]}}}
    with pytest.raises(DamagedFile, match="has the strides"):
        decoded({"$array": "w", "dtype": "|u1"}, {"": {"w": u8(8)}}, table=table)


def test_where_says_the_place() -> None:
    """The document, and the way to what is wrong."""
    with pytest.raises(DamagedFile) as refused:
        decoded({"a": [1, {"b": {"$new": 1}}]})
    assert refused.value.where == "x.json: a[1].b"


def test_records_keep_arguments_and_state() -> None:
    """A defaultdict's factory, an OrderedDict's attributes."""
    made = Record(GlobalRef("collections", "defaultdict"), (GlobalRef("builtins", "list"),))
    made[1] = [u8(1)]
    made.state = {"_metadata": {"": {"version": 1}}}
    assert encoded(made).main.root == {
        "$record": ["collections", "defaultdict"], "args": [{"$global": ["builtins", "list"]}],
        "items": [[1, [{"$tensor": "1.0"}]]], "state": {"_metadata": {"": {"version": 1}}},
    }  # fmt: skip
    assert_same(made, there_and_back(made))


def test_sources_of_placed_storages_have_no_bytes() -> None:
    """Whoever reads them is told where the bytes are."""
    made = there_and_back(view(storage(64), "float32", (2, 2), stride=(1, 4)))
    with pytest.raises(UnsupportedFormat, match="bytes 0 to 4"):
        made.placed.storage.source.read(ByteSpan(0, 4))


def test_a_tensor_is_described_in_one_document() -> None:
    """Two that do, even in the same words, are refused."""
    with pytest.raises(DamagedFile, match="does not occur"):
        decoded([{"$file": "q.json"}])
    with pytest.raises(DamagedFile, match="described twice"):
        decoded([{"$file": "q.json"}], table={"": {"twice": {"neg": True}}})


def test_a_dtype_needs_no_state() -> None:
    """One that BUILD did not touch is that of this machine's order."""
    assert decoded({"$dtype": ["numpy", "dtype"], "args": ["f8", False, True]}).state is None


def test_a_tensor_without_elements_lies_nowhere() -> None:
    """A meta tensor has no storage to speak of."""
    with pytest.raises(UnsupportedFormat, match="no elements of its own"):
        lies(TensorRef(dtype=FLOAT, shape=(2,), kind="meta"))


def test_what_came_back_converts_to_the_same_again() -> None:
    """Packed tensors remember where they lay, so a second conversion says the same of them."""
    held = storage(64)
    tree = [
        view(held, "float32", (2, 2), offset=4), view(held, "float32", (2, 2), stride=(1, 2), offset=8),
        view(storage(64), "float32", (3, 3), stride=(0, 0)), view(storage(64), "complex64", (2,), conj=True),
        view(storage(64), "complex64", (2,), offset=1), view(storage(64), "float32", (1, 3), stride=(1, 1)),
    ]  # fmt: skip
    once = there_and_back(tree)
    assert encoded(once).main.as_json() == encoded(tree).main.as_json()
    assert_same(tree, there_and_back(once))
