"""Files of folders that are no part of a checkpoint."""

import json

import pytest
import torch
from safetensors.torch import save_file

import ckpttool
from ckpttool.comparison import folders
from ckpttool.comparison.checkpoints import compare_checkpoints
from ckpttool.comparison.parts import Choices
from ckpttool.errors import CkptError, DamagedFile
from ckpttool.model import Role
from ckpttool.opening import open_checkpoint


def folder(path, files=(), **jsons):
    """A model folder with other files in it."""
    path.mkdir()
    save_file({"fc.weight": torch.ones(3, 2)}, path / "model.safetensors")
    (path / "config.json").write_text('{"model_type": "bert"}')
    for name, data in dict(files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    for name, value in jsons.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def compared(left, right):
    """The part that is about other files; None where there is none."""
    with open_checkpoint(left) as mine, open_checkpoint(right) as other:
        found = compare_checkpoints(mine, other, Choices())
        return next((part for part in found if part.role is Role.OTHER), None)


def test_json_is_compared_field_by_field(tmp_path):
    """The fields by file name; how a file is laid out, and in which order, is no difference."""
    a = folder(tmp_path / "a", tokenizer_config={"max": 512, "sep": "x"}, laid={"a": 1, "b": [2]})
    b = folder(tmp_path / "b", tokenizer_config={"max": 256, "sep": "x"})
    (b / "laid.json").write_text('{"b":   [2],\n "a": 1}')
    part = compared(a, b)
    assert [(c.path, c.left, c.right) for c in part.changes] == [(("tokenizer_config.json", "max"), 512, 256)]
    assert (part.fields, part.name) == (2, "files")


def test_others_are_compared_by_bytes(tmp_path):
    """Text, and what is called JSON and is none on either side: where they begin to differ, and their sizes."""
    a = folder(tmp_path / "a", {"merges.txt": b"a b\nc d", "README.md": b"# x", "bad.json": b"{", "same.txt": b"1"})
    b = folder(tmp_path / "b", {"merges.txt": b"a b\nc e", "README.md": b"# xy", "bad.json": b"{[", "same.txt": b"1"})
    found = {c.path[0]: (c.left.nbytes, c.right.nbytes, c.note) for c in compared(a, b).changes}
    assert found == {
        "README.md": (3, 4, "3 bytes against 4"), "bad.json": (1, 2, "1 bytes against 2, no JSON on either side"),
        "merges.txt": (7, 7, "first at byte 6"),
    }  # fmt: skip


@pytest.mark.parametrize("damaged", [b"", b'{"a": ', b"\xff{}"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_json_that_was_cut_is_damage(tmp_path, damaged, side):
    """One side is JSON and the other is none any more: no difference of theirs, and the error names side and file."""
    a, b = folder(tmp_path / "a", {"t.json": b'{"a": 1}'}), folder(tmp_path / "b", {"t.json": b'{"a": 1}'})
    ((a if side == "left" else b) / "t.json").write_bytes(damaged)
    with pytest.raises(DamagedFile, match=f"the {side} side is not whole: it is no JSON") as caught:
        compared(a, b)
    assert caught.value.where == "t.json"


def test_json_too_deep_to_parse_is_compared_by_bytes(tmp_path):
    """It is no damage that a parser gives up."""
    deep = b"[" * 100_000 + b"]" * 100_000
    a, b = folder(tmp_path / "a", {"t.json": deep}), folder(tmp_path / "b", {"t.json": b"[1]"})
    assert [c.note for c in compared(a, b).changes] == ["200,000 bytes against 3, first at byte 1"]


def test_large_json_is_compared_by_bytes(tmp_path, monkeypatch):
    """Its tree would take more memory than it is worth."""
    monkeypatch.setattr(folders, "_MOST_JSON", 4)
    (change,) = compared(folder(tmp_path / "a", t={"a": 1}), folder(tmp_path / "b", t={"a": 2})).changes
    assert (change.path, change.note) == (("t.json",), "first at byte 6")


def test_a_file_of_one_side(tmp_path):
    """A difference as in `diff -r`; a note in a subfolder. Hidden files say nothing of a checkpoint."""
    a = folder(tmp_path / "a", {"vocab.txt": b"a", "logs/one": b"x", ".git/HEAD": b"y"})
    b = folder(tmp_path / "b", {"notes.md": b"bb", ".cache/x": b"z"})
    part = compared(a, b)
    assert [c.path for c in part.changes] == [("vocab.txt",), ("notes.md",)]
    assert [c.path for c in part.noted] == [("logs/one",)]
    assert (part.changes[0].left.nbytes, repr(part.changes[0].right)) == (1, "absent")
    assert part.changes[1].right.nbytes == 2
    assert compared(b, a).changes[0].path == ("notes.md",)


def test_folders_of_two_trainers(tmp_path):
    """What one trainer alone writes is a note; what the other side reads as a part is no other file."""
    a = folder(tmp_path / "a", {"vocab.txt": b"a"}, trainer_state={"global_step": 3})
    b = folder(tmp_path / "b", {"vocab.txt": b"a"}, generation_config={"eos": 1})
    part = compared(a, b)
    assert (part.changes, [c.path for c in part.noted]) == ([], [])
    (b / "card.md").write_bytes(b"1")
    part = compared(a, b)
    assert (part.changes, [c.path for c in part.noted]) == ([], [("card.md",)])


def test_one_file_beside_a_folder_has_no_other_files(tmp_path):
    """Nor have two folders that hold nothing but the checkpoint."""
    a = folder(tmp_path / "a", {"vocab.txt": b"a"})
    assert compared(a, a / "model.safetensors") is None
    assert compared(a / "model.safetensors", a) is None
    b = folder(tmp_path / "b")
    assert compared(b, b) is None
    assert compared(a, a).changes == []


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["t.json", "t.txt"])
def test_a_file_that_cannot_be_read_names_its_side(tmp_path, side, name):
    """It was deleted after the folder was listed."""
    a, b = folder(tmp_path / "a", {name: b"{}"}), folder(tmp_path / "b", {name: b"[]"})
    gone = (a if side == "left" else b) / name
    with open_checkpoint(a) as mine, open_checkpoint(b) as other:
        gone.unlink()
        with pytest.raises(CkptError, match=f"the {side} side"):
            compare_checkpoints(mine, other, Choices())


@pytest.mark.parametrize("side", ["left", "right"])
def test_json_that_is_cut_meanwhile_names_its_side(tmp_path, monkeypatch, side):
    """After its bytes were compared, before its fields are."""
    a, b = folder(tmp_path / "a", {"t.json": b"{}"}), folder(tmp_path / "b", {"t.json": b"[]"})
    gone = (a if side == "left" else b) / "t.json"
    first = folders.first_unlike

    def cut(*runs):
        place = first(*runs)
        gone.write_bytes(b"")
        return place

    monkeypatch.setattr(folders, "first_unlike", cut)
    said = pytest.raises(CkptError, match=f"the {side} side")
    with open_checkpoint(a) as mine, open_checkpoint(b) as other, said:
        compare_checkpoints(mine, other, Choices())


def test_other_files_can_be_asked_for(tmp_path):
    """`--part other`, and they make the exit code."""
    a, b = folder(tmp_path / "a", t={"a": 1}), folder(tmp_path / "b", t={"a": 2})
    assert ckpttool.diff(a, b, part="other").exit_code == 1
    assert ckpttool.diff(a, b, part="model,config").exit_code == 0
    assert ckpttool.diff(a, b, select=["*"]).exit_code == 0
