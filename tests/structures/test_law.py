"""What was encoded and decoded is what it was, whatever it was."""

import contextlib
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpttool import structures
from ckpttool.errors import CkptError, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.structures import Part
from tests.structures.beside import back, documents_of, tensors_of, there_and_back
from tests.structures.trees import trees
from tests.values_walk import assert_same

_CALM = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@_CALM
@given(trees())
def test_decoding_what_was_encoded_is_the_identity(tree) -> None:
    """Kinds, order, values, which objects are one and who shares memory: all is as it was."""
    assert_same(tree, there_and_back(tree))


@_CALM
@given(trees(), st.sampled_from(["", "b.json"]))
def test_parts_change_nothing(tree, document) -> None:
    """A subtree with a document and a safetensors file of its own shares objects with the rest as before."""
    whole = {"a": tree, "b": tree if isinstance(tree, dict) else {"x": tree}, "c": [tree]}
    parts = (
        Part(document="state.json", tensors="a.safetensors"),
        Part(path=("b",), document=document, tensors="b.safetensors"),
    )
    assert_same(whole, there_and_back(whole, parts))


@_CALM
@given(trees())
def test_encoding_twice_gives_the_same_text(tree) -> None:
    """The same tree gives the same documents and names."""
    one, two = (structures.encode(tree, name="x", container="y") for _ in range(2))
    assert one.main.compact() == two.main.compact()
    assert [*one.tensors.get("", {})] == [*two.tensors.get("", {})]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(), st.randoms(use_true_random=False))
def test_changed_documents_give_values_or_an_error(tree, chance) -> None:
    """Whatever is changed in a document, nothing but a `CkptError` comes out."""
    encoded = structures.encode(tree, name="x", container="y")
    tensors, text = tensors_of(encoded), encoded.main.compact()
    for _ in range(30):
        with contextlib.suppress(CkptError):
            changed = _changed(json.loads(text), chance)
            document = structures.parsed(json.dumps(changed).encode(), "x", DEFAULT_LIMITS)
            back({"": document}, tensors)


def _changed(document, chance: random.Random):
    """A document with one value put in the place of another, left out, or made something else."""
    places = []
    pending = [document]
    while pending:
        value = pending.pop()
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, child in inside:
            places.append((value, step))
            pending.append(child)
    holder, step = chance.choice(places)
    other, place = chance.choice(places)
    match chance.randrange(4):
        case 0:
            holder[step] = json.loads(json.dumps(other[place]))
        case 1:
            del holder[step]
        case 2:
            holder[step] = chance.choice([None, True, -1, 10**30, 1.5, "", "x", [], {}, [[]], {"$ref": 1}, {"$id": 1}])
        case _:
            if isinstance(holder, dict):
                holder[chance.choice(["$id", "$tensor", "$call", "args", "x", "in", "$below"])] = holder.pop(step)
    return document


def test_damaged_bytes_give_values_or_an_error(fixtures_dir) -> None:
    """The same for bytes of the text of a document, of which there is one for every kind of tensor."""
    from ckpttool import containers  # noqa: PLC0415
    from ckpttool.sources import FileSource  # noqa: PLC0415

    chance = random.Random(0)
    for name in ("views", "arrays", "quantized", "sparse", "nested", "containers"):
        with FileSource(fixtures_dir / "tensors" / f"{name}.pt") as source:
            encoded = structures.encode(containers.read(source).root, name="x", container="y")
            tensors, text = tensors_of(encoded), encoded.main.compact().encode()
        for _ in range(400):
            at = chance.randrange(len(text))
            changed = text[:at] + chance.choice([b"", b"0", b'"', b"[", b"$", b"9", b"\xff"]) + text[at + 1 :]
            with contextlib.suppress(CkptError):
                back({"": structures.parsed(changed, "x", DEFAULT_LIMITS)}, tensors)


def test_every_fixture_comes_back(fixtures_dir) -> None:
    """Every file that the real frameworks wrote comes back as it was read."""
    from ckpttool import containers  # noqa: PLC0415
    from ckpttool.sources import FileSource  # noqa: PLC0415

    count = 0
    for path in sorted(fixtures_dir.rglob("*")):
        if path.suffix not in (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".tar"):
            continue
        with contextlib.suppress(CkptError), FileSource(path) as source:
            root = containers.read(source).root
            assert_same(root, there_and_back(root, structures.FOLDER))
            count += 1
    assert count > 100


def test_what_nobody_can_spell_is_refused_by_its_place() -> None:
    """An object that is no value of a checkpoint is named by its key path."""
    with pytest.raises(UnsupportedFormat, match="a range has no place") as refused:
        structures.encode({"a": [1, range(3)]}, name="x", container="y")
    assert refused.value.where == "a.1"


def test_documents_of_parts_are_read_by_their_names() -> None:
    """Each part is a document of its own; the main one says where it stands."""
    parts = (*structures.FOLDER, Part(path=("scaler",), document="scaler.json", tensors="state.safetensors"))
    encoded = structures.encode({"epoch": 1, "scaler": {"scale": 65536.0}}, name="x", container="y", parts=parts)
    assert encoded.main.root == {"epoch": 1, "scaler": {"$file": "scaler.json"}}
    assert documents_of(encoded)["scaler.json"].root == {"scale": 65536.0}
