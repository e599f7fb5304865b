"""What a document says must be what a conversion would say, and of the tensors that lie beside it."""

import dataclasses
import json
from typing import Any

import pytest

from ckpttool import structures
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.structures import Document
from ckpttool.structures.headers import header_digest
from ckpttool.values import BytesRef, GlobalRef, Opaque, TensorRef
from tests.structures.beside import back, documents_of, tensors_of, there_and_back
from tests.structures.trees import array, dtype, storage, view
from tests.values_walk import assert_same

OBJECT = {"$object": ["a", "b"], "$id": 1}
ME = {"$ref": 1}


def encoded(value: Any, **options: Any) -> structures.Encoded:
    """A tree as the one document of a safetensors file."""
    return structures.encode(value, name="x.pt", container="torch-zip", **options)


def decoded(root: Any, held: dict[str, TensorRef] | None = None, limits: Limits = DEFAULT_LIMITS, **said: Any) -> Any:
    """The tree of a document that was written by hand, with tensors in the same file."""
    held = held or {}
    top = {"schema": structures.SCHEMA, "form": "file", "root": root, "headers": {"": header_digest(held)}, **said}
    document = structures.parsed(json.dumps(top).encode(), "x.json", DEFAULT_LIMITS)
    return structures.decode(document, tensors=lambda _: held, where="x.json", limits=limits)


def f32(*shape: int) -> TensorRef:
    """A tensor of a safetensors file."""
    return view(storage(400), "float32", shape)


def written(tree: Any, **options: Any) -> tuple[dict[str, Document], dict[str, dict[str, TensorRef]]]:
    """A conversion's documents and tensors, to be changed."""
    made = encoded(tree, **options)
    return documents_of(made), tensors_of(made)


@pytest.mark.parametrize(
    "change",
    [
        lambda held: {name: held[name] for name in ("w", "v")},
        lambda held: {**held, "new": f32(2)},
        lambda held: {"w": held["w"], "v": held["v"], "y": held["x"]},
        lambda held: {**held, "w": f32(3, 2)},
        lambda held: {**held, "x": view(storage(12), "int32", (3,))},
    ],
)
def test_tensors_that_another_program_changed_are_refused(change) -> None:
    """One left out, added, renamed, of another shape or type, though all names that are asked for are there."""
    documents, tensors = written({"w": f32(2, 3), "v": f32(1), "x": f32(3)})
    with pytest.raises(DamagedFile, match="no longer those"):
        back(documents, {"": change(tensors[""])})


def test_the_order_of_tensors_in_the_file_is_free() -> None:
    """The tree says the order; a program that writes the same tensors in another one changes nothing."""
    tree = {"w": f32(2, 3), "v": f32(1)}
    documents, tensors = written(tree)
    assert_same(tree, back(documents, {"": dict(reversed(tensors[""].items()))}))


def test_a_document_without_the_header_is_refused() -> None:
    """Also of a file that held no tensors and has one now."""
    documents, tensors = written({"w": f32(2)})
    documents[""].headers = {}
    with pytest.raises(DamagedFile, match="no longer those"):
        back(documents, tensors)
    documents, _ = written({"epoch": 1})
    assert documents[""].headers == {"": header_digest({})}
    with pytest.raises(DamagedFile, match="no longer those"):
        back(documents, {"": {"w": f32(2)}})


@pytest.mark.parametrize("kind", ["float4_e2m1fn_x2", "complex128", "bits16", "bool", "quint8"])
def test_the_digest_is_of_what_lies_in_the_file(kind) -> None:
    """Types that lie there as another are the same before and after."""
    documents, tensors = written({"w": view(storage(64), kind, (2, 2))})
    assert documents[""].headers == {"": header_digest(tensors[""])}


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"dtype": "float32", "shape": [2, 3]}, "is said to be"),  # what it is anyway
        ({"dtype": "int32", "shape": [2, 3]}, "is said to be"),
        ({"dtype": "complex64", "shape": [3]}, "is said to be"),
        ({"dtype": "bits16", "shape": [12]}, "is said to be"),
        ({"dtype": "float32"}, "without the other"), ({"shape": [6]}, "without the other"),
        ({"offset": 1}, "in no storage"), ({"conj": True}, "no values to conjugate"), ({"conj": False}, "do not have"),
        ({"in": "x"}, "where it is not"), ({"device": "my gpu"}, "not the name of one"), ({"device": ""}, "not the name"),
        ({"device": "cuda:-1"}, "not the name"), ({"bytes_of": "w"}, "none of its own"),
        ({"bytes_of": "v", "stride": [1, 2]}, "of bytes of its own"), ({"bytes_of": "v", "device": "mps"}, "of bytes of its own"),
        ({"bytes_of": "v"}, "another type or shape"), ({"bytes_of": "z"}, "comes later"),
        ({"same_as": "v"}, "is said to be another"), ({"same_as": "v", "conj": True}, "properties of its own"),
        ({"stride": [2**62, 1]}, "reaches|spread over"), ({"stride": [2**63, 1]}, "stride holds"),
        ({"storage": 0, "stride": [2**62, 1]}, "reaches element"),
    ],
)  # fmt: skip
def test_properties_that_contradict_each_other_are_refused(props, said) -> None:
    """Each is an error that says what is wrong, before any byte is read."""
    held = {"w": f32(2, 3), "v": f32(2), "z": f32(2, 3)}
    root = [{"$tensor": "v"}, {"$tensor": "w"}, {"$tensor": "z"}]
    with pytest.raises(CkptError, match=said):
        decoded(root, held, tensors={"": {"w": props}}, storages=[{"nbytes": 24}])


def test_flags_need_values_that_can_have_them() -> None:
    """torch negates no bool, and conjugates complex numbers alone; numpy's arrays have neither."""
    for kind, flag in (("bool", "neg"), ("float32", "conj"), ("bits16", "neg")):
        tensor = view(storage(4), "uint16" if kind == "bits16" else kind, (2,))
        more = {"dtype": kind, "shape": [2]} if kind == "bits16" else {}
        with pytest.raises(DamagedFile, match="no values to conjugate or negate"):
            decoded({"$tensor": "w"}, {"w": tensor}, tensors={"": {"w": {flag: True, **more}}})
    with pytest.raises(DamagedFile, match="only tensors have"):
        decoded({"$array": "w", "dtype": "<f4"}, {"w": f32(2)}, tensors={"": {"w": {"requires_grad": True}}})


def test_a_tensor_is_not_spread_over_more_than_the_limit() -> None:
    """Neither by its strides nor by its place in a storage; a higher limit allows it."""
    few, more = Limits(expanded=1000), Limits(expanded=100_000)
    far = {"tensors": {"": {"w": {"stride": [1000]}}}}
    with pytest.raises(LimitExceeded, match="spread over 4,004 bytes and has 8"):
        decoded({"$tensor": "w"}, {"w": f32(2)}, few, **far)
    assert decoded({"$tensor": "w"}, {"w": f32(2)}, more, **far).placed.stride == (1000,)
    apart = {
        "storages": [{"nbytes": 4004}],
        "tensors": {"": {"v": {"storage": 0}, "w": {"storage": 0, "offset": 1000}}},
    }
    held, both = {"v": f32(1), "w": f32(1)}, [{"$tensor": "v"}, {"$tensor": "w"}]
    with pytest.raises(LimitExceeded, match="storage 0 is spread over 4,004 bytes and has 8"):
        decoded(both, held, few, **apart)
    assert decoded(both, held, more, **apart)[1].placed.storage_offset == 1000


@pytest.mark.parametrize(
    "entry",
    [
        {"nbytes": 8, "dtype": "float99"}, {"nbytes": 8, "dtype": 1}, {"nbytes": True}, {"nbytes": -1}, {"nbytes": 2**60},
        {"nbytes": 8, "device": "?"}, {"nbytes": 8, "more": 1}, {"nbytes": 8, "in": "x"}, {"nbytes": 8, "bytes": 1},
        {"nbytes": 8, "bytes": "w", "in": 1}, {"nbytes": 8, "bytes": "w"}, {"nbytes": 4, "bytes": "b"},
        {"nbytes": 8, "bytes": "b"}, {"nbytes": 8, "bytes": "gone"},
    ],
)  # fmt: skip
def test_storages_that_cannot_be_are_refused(entry) -> None:
    """Of a type that torch lacks, of no size, on no device, of bytes that are another thing."""
    held = {"w": f32(2), "b": view(storage(8), "uint8", (8,))}
    said = {"b": {"device": "mps"}} if entry.get("nbytes") == 8 else {}
    with pytest.raises(DamagedFile):
        decoded([{"$storage": 0}, {"$tensor": "w"}], held, storages=[entry], tensors={"": said})


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ({"$int": "0x1"}, "spelled otherwise"), ({"$int": "0X8000000000000000"}, "spelled otherwise"),
        ({"$int": " 0x8000000000000000"}, "spelled otherwise"), ({"$int": "1_0000_0000_0000_0000"}, "spelled otherwise"),
        ({"$float": "3ff0000000000000"}, "spelled otherwise"), ({"$float": "7ff8000000000000"}, "spelled otherwise"),
        ({"$text": "YQ=="}, "spelled otherwise"), ({"$bytes": "YR=="}, "spelled otherwise"), (2**63, "beyond 64 bits"),
        (-(2**63) - 1, "beyond 64 bits"), ([{"$list": [], "$id": 2}], "the number 2"), ([{"$list": [], "$id": -1}], "the number -1"),
        ([{"$list": [], "$id": 0}], "the number 0"), ({"$tensor": "w", "in": "../w"}, "no file beside"),
        ({"$tensor": "w", "in": "/etc/w"}, "no file beside"), ({"$tensor": "w", "in": ".."}, "no file beside"),
    ],
)  # fmt: skip
def test_what_a_conversion_would_spell_otherwise_is_refused(root, said) -> None:
    """One value has one spelling, numbers count from 1, and files lie beside the document."""
    with pytest.raises(DamagedFile, match=said):
        decoded(root)


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", ".", "..", "", "a\0"])
def test_parts_lie_beside_the_document(name) -> None:
    """A document of a part is asked for by a plain name."""
    main = Document(form="file", root={"$file": name})
    with pytest.raises(DamagedFile, match="no file beside"):
        structures.decode(main, tensors=lambda _: {}, documents=lambda _: Document(form="part"), where="x")


@pytest.mark.parametrize(
    "text",
    [
        '"root": NaN', '"root": [Infinity]', '"root": -Infinity', '"protocol": 6', '"protocol": -1', '"headers": {"": 1}',
        '"form": "folder", "files": {"a": ["../x"]}', '"form": "folder", "files": {"../a": ["x"]}',
        '"form": "folder", "files": {"/a": ["x"]}', '"form": "folder", "files": {"a": ["b//x"]}',
    ],
)  # fmt: skip
def test_documents_say_nothing_else(text) -> None:
    """No number that JSON lacks, no protocol that pickle lacks, no file outside the folder."""
    with pytest.raises(DamagedFile):
        structures.parsed(f'{{"schema": "{structures.SCHEMA}", {text}}}'.encode(), "x", DEFAULT_LIMITS)


def test_numbers_beyond_a_float_are_refused() -> None:
    """Python reads 1e999 as an infinity, which has a tag."""
    text = f'{{"schema": "{structures.SCHEMA}", "root": 1e999}}'
    document = structures.parsed(text.encode(), "x", DEFAULT_LIMITS)
    with pytest.raises(DamagedFile, match="beyond 64 bits"):
        structures.decode(document, tensors=lambda _: {})


@pytest.mark.parametrize(
    "root",
    [
        {**OBJECT, "args": [ME]}, {**OBJECT, "args_value": ME}, {**OBJECT, "kwargs": ME}, {**OBJECT, "$object": ME},
        {**OBJECT, "args": [{"$tuple": [1, {"$tuple": [ME]}]}]}, {**OBJECT, "args": [{"$frozenset": [ME]}]},
        {**OBJECT, "args": [{"$set": [ME]}]}, {"$set": [{"$object": ["a", "b"], "args": [ME]}], "$id": 1},
        {"$tuple": [{"$object": ["a", "b"], "args": [ME]}], "$id": 1}, {"$tuple": [ME], "$id": 1},
        {"$record": ["a", "b"], "args": [ME], "$id": 1}, {"$object": {"$object": ["a", "b"], "args": [ME]}, "$id": 1},
        {"$call": ["numpy._core.multiarray", "_reconstruct"], "args": [ME], "shape": [1], "state": 1, "$id": 1},
    ],
)  # fmt: skip
def test_an_object_that_is_made_of_itself_is_refused_at_once(root) -> None:
    """Its class or its arguments would have to hold it before it is there."""
    with pytest.raises(DamagedFile, match="made of itself"):
        decoded(root, limits=Limits(nodes=20))


def test_an_object_may_hold_itself_where_it_is_filled_later() -> None:
    """In its state, items and entries; and in a list among its arguments, as pickle writes it."""
    made = Opaque(GlobalRef("a", "b"), items=[], entries={})
    listed: list[Any] = [made]
    made.args = (listed, (1, listed))
    made.state = (made, {made: (made,)})
    made.items = [made, (made,)]
    made.entries = {"a": made, "b": {1: made}}
    assert_same(made, there_and_back(made))
    member = Opaque(GlobalRef("a", "b"))
    member.state = {"all": {member}}
    assert_same(member, there_and_back(member))


def objects(shape: tuple[int, ...], items: list[Any], *, fortran: bool = False) -> TensorRef:
    """An array of objects, as the reader makes it."""
    from ckpttool.pickles.constructors import PURE_CONSTRUCTORS, build_object  # noqa: PLC0415

    made = PURE_CONSTRUCTORS[GlobalRef("numpy._core.multiarray", "_reconstruct")](
        (GlobalRef("numpy", "ndarray"), (0,), b"b")
    )
    build_object(made, (1, shape, dtype("|O", (3, "|", None, None, None, -1, -1, 63)), fortran, items))
    return made


def test_arrays_of_objects_keep_their_order() -> None:
    """Items are listed in C order also where the array lies in Fortran order."""
    made = objects((2, 3), [1, "a", None, 2.5, (1,), [2]], fortran=True)
    after = there_and_back({"a": made})["a"]
    assert after.stride == (1, 2)
    assert_same(made, after)


def test_an_array_of_objects_may_hold_itself() -> None:
    """Directly, in a tuple, and where the list of its items stands somewhere else too."""
    items: list[Any] = [1, 2, 3]
    made = objects((3,), items)
    items[:] = [made, (made,), [made]]
    after = there_and_back([made, made])
    held = dict(after[0].parts)["items"]
    assert held[0] is held[1][0] is held[2][0] is after[0] is after[1]
    assert type(after[0]) is TensorRef
    shared: list[Any] = [1, 2]
    assert_same([objects((2,), shared), shared], there_and_back([objects((2,), shared), shared]))


def test_long_bytearrays_lie_beside_the_document() -> None:
    """As long bytes do: base64 of 60 MB would be beyond the limit for a document."""
    data = bytearray(range(256)) * 40
    tree = {"a": data, "b": [data], "c": bytearray(b"short")}
    made = encoded(tree)
    assert made.main.root == {
        "a": {"$data": "a", "mutable": True, "$id": 1}, "b": [{"$ref": 1}], "c": {"$bytearray": "c2hvcnQ="},
    }  # fmt: skip
    after = there_and_back(tree)
    assert after["a"].mutable
    assert after["a"] is after["b"][0]
    assert after["a"].read() == bytes(data)
    reference = BytesRef(BytesSource(bytes(data)), 0, len(data), mutable=True)
    assert encoded({"a": reference}).main.root == {"a": {"$data": "a", "mutable": True}}


def test_bytes_alone_are_no_tensor() -> None:
    """Long bytes are a `U8` tensor of one dimension of which nothing else is said."""
    for held, said in (
        (f32(2), {}),
        (view(storage(8), "uint8", (2, 4)), {}),
        (view(storage(8), "uint8", (8,)), {"device": "mps"}),
    ):
        with pytest.raises(DamagedFile, match="bytes alone"):
            decoded({"$data": "w"}, {"w": held}, tensors={"": {"w": said}} if said else {})


def test_arrays_are_of_the_type_that_lies_there() -> None:
    """`$array` of another width, kind or byte order is refused."""
    for root, held in (("<f8", f32(2)), ("<i4", f32(2)), (">f4", f32(2)), ("<f4", view(storage(8), "uint8", (8,)))):
        with pytest.raises(DamagedFile, match=r"lies as|takes"):
            decoded({"$array": "w", "dtype": root}, {"w": held})
    tree = {"a": array(">f4", (2, 3), bytes(range(24)))}
    documents, tensors = written(tree)
    documents[""].tensors[""]["a"]["dtype"] = "<f4"
    with pytest.raises(DamagedFile, match="lies as"):
        back(documents, tensors)


def test_every_name_of_one_object_is_written_where_that_is_asked_for() -> None:
    """With `duplicate_ties` a reader that knows only safetensors finds all of them; here they are one object again."""
    held = view(storage(24), "float32", (2, 3))
    tied = dataclasses.replace(held)
    tree = {"a": held, "b": held, "c": tied, "d": {"x": [tied, held]}}
    assert [*encoded(tree).tensors[""]] == ["a"]
    made = encoded(tree, duplicate_ties=True)
    assert [*made.tensors[""]] == ["a", "b", "c", "d.x.0", "d.x.1"]
    assert made.main.tensors[""] == {
        "b": {"same_as": "a"}, "c": {"bytes_of": "a"}, "d.x.0": {"same_as": "c"}, "d.x.1": {"same_as": "a"},
    }  # fmt: skip
    assert_same(tree, back(documents_of(made), tensors_of(made)))


def test_names_in_other_files_are_written_too() -> None:
    """An object that a part of its own shares with the rest, and one that a call makes."""
    held = view(storage(24), "float32", (2, 3))
    tree = {"a": held, "m": {"a": held, "b": held}}
    parts = (*structures.FOLDER, structures.Part(path=("m",), tensors="m.st"))
    made = encoded(tree, parts=parts, duplicate_ties=True)
    assert {file: [*names] for file, names in made.tensors.items()} == {"state.safetensors": ["a"], "m.st": ["a", "b"]}
    assert made.main.tensors == {
        "m.st": {"a": {"same_as": "a", "in": "state.safetensors"}, "b": {"same_as": "a", "in": "state.safetensors"}}
    }
    assert_same(tree, back(documents_of(made), tensors_of(made)))
    numbers = array("<f4", (2, 3), bytes(24))
    made = encoded({"a": numbers, "b": numbers}, duplicate_ties=True)
    assert [*made.tensors[""]] == ["a", "b"]
    assert_same({"a": numbers, "b": numbers}, back(documents_of(made), tensors_of(made)))


@pytest.mark.parametrize("props", [{"same_as": "gone"}, {"same_as": "w", "in": "x"}, {"same_as": "z"}])
def test_a_further_name_must_be_one_of_an_object(props) -> None:
    """Of the same type and shape, and not of one that is no object of the tree."""
    held = {"w": f32(2), "z": f32(2)}
    with pytest.raises(DamagedFile, match=r"is said to be|described"):
        decoded({"$tensor": "w"}, held, tensors={"": {"z": props}})
    with pytest.raises(DamagedFile, match="another type or shape"):
        decoded({"$tensor": "w"}, {"w": f32(2), "z": f32(3)}, tensors={"": {"z": {"same_as": "w"}}})
    with pytest.raises(DamagedFile, match="which is not there"):
        decoded({"$tensor": "w"}, {"w": f32(2)}, tensors={"": {"z": {"same_as": "w"}}})


def test_a_storage_on_no_device_is_refused_when_it_is_written() -> None:
    """What could not come back is not written."""
    with pytest.raises(UnsupportedFormat, match="not the name of a device") as refused:
        encoded({"w": view(storage(8, location="my gpu"), "float32", (2,))})
    assert "--map-location" in refused.value.hint
