"""Structure documents in the metadata of safetensors files, and what their trees name."""

import json

import pytest

from ckpttool import containers, structures
from ckpttool.containers import restored
from ckpttool.errors import DamagedFile
from ckpttool.sources import BytesSource
from ckpttool.structures import SCHEMA
from ckpttool.values import GlobalRef, Opaque, Trust
from tests.structures.beside import bare, safetensors_bytes


def read(data: bytes):
    """A file in memory."""
    return containers.read(BytesSource(data, "m.safetensors"))


def test_a_file_without_a_structure_is_as_it_is() -> None:
    """Its flat names are all that there is to restore."""
    contents = read(safetensors_bytes({}, {"format": "pt"}))
    assert restored(contents) is contents


def test_metadata_cannot_name_other_files() -> None:
    """All tensors are in the file that the document lies in."""
    document = {"schema": SCHEMA, "form": "file", "root": {"$tensor": "w", "in": "other.safetensors"}}
    contents = read(safetensors_bytes({}, {structures.KEY: json.dumps(document)}))
    with pytest.raises(DamagedFile, match=r"names another file, 'other\.safetensors'"):
        restored(contents)


def test_metadata_has_no_documents_of_parts() -> None:
    """There is nothing beside it."""
    document = {"schema": SCHEMA, "form": "file", "root": {"$file": "scaler.json"}}
    with pytest.raises(DamagedFile, match="where there can be none"):
        restored(read(safetensors_bytes({}, {structures.KEY: json.dumps(document)})))


def test_what_a_tree_names_is_judged_as_in_a_pickle() -> None:
    """Names that would run code are dangerous again when it is converted back; nested classes by getattr are not."""
    getattr_ = GlobalRef("builtins", "getattr")
    tree = [
        Opaque(GlobalRef("os", "system"), ("true",)),
        Opaque(getattr_, (GlobalRef("my.module", "Outer"), "Inner")),
        GlobalRef("my.module", "Thing"),
        Opaque(GlobalRef("glob", "glob"), ("*",)),
        Opaque(GlobalRef("functools", "partial"), (GlobalRef("shelf", "f"), GlobalRef("glob", "iglob"))),
    ]
    encoded = structures.encode(tree, name="x.pt", container="raw-pickle")
    found = {use.ref: use.trust for use in restored(read(bare(encoded))).globals}
    assert found[GlobalRef("os", "system")] is Trust.DANGEROUS
    assert found[GlobalRef("my.module", "Thing")] is Trust.REFUSED
    assert found[getattr_] is Trust.REFUSED
    assert found[GlobalRef("glob", "glob")] is Trust.DANGEROUS  # called
    assert found[GlobalRef("glob", "iglob")] is Trust.REFUSED  # named
    tree.append(Opaque(tree[1], ("called",)))
    encoded = structures.encode(tree, name="x.pt", container="raw-pickle")
    found = {use.ref: use.trust for use in restored(read(bare(encoded))).globals}
    assert found[getattr_] is Trust.DANGEROUS
    tree[-1] = Opaque(getattr_, ("text", "format"))
    encoded = structures.encode(tree, name="x.pt", container="raw-pickle")
    found = {use.ref: use.trust for use in restored(read(bare(encoded))).globals}
    assert found[getattr_] is Trust.DANGEROUS
