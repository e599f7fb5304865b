"""Folders and files that a conversion made open as what they were made from."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from ckpttool import containers, structures
from ckpttool.elements import number
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, NotACheckpoint
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Run
from ckpttool.opening import open_checkpoint, open_path, read_converted, restored_folder
from ckpttool.sources import FileSource, Folder
from ckpttool.structures import Document, Part
from tests.structures.beside import bare, write
from tests.values_walk import assert_same

_PARTS = (
    *structures.FOLDER,
    Part(path=("net",), tensors="model.safetensors"),
    Part(path=("opt",), document="optimizer.json", tensors="optimizer.safetensors"),
    Part(path=("amp",), document="scaler.json", tensors="state.safetensors"),
)


def _encoded(path: Path, parts=_PARTS):
    with FileSource(path, path.name) as source:
        contents = containers.read(source)
        return structures.encode(contents.root, name=path.name, container=contents.container, protocol=2, parts=parts)


@pytest.fixture
def train(fixtures_dir) -> Path:
    return fixtures_dir / "plain" / "train.pth"


@pytest.fixture
def folder(tmp_path, train) -> Path:
    with FileSource(train, train.name) as source:
        contents = containers.read(source)
        encoded = structures.encode(contents.root, name="train.pth", container="torch-zip", protocol=2, parts=_PARTS)
        write(tmp_path / "made", encoded)
    return tmp_path / "made"


def _parts(checkpoint: Checkpoint):
    return (
        checkpoint.layout,
        [(w.role, w.at.path, [*w.tensors]) for w in checkpoint.weights],
        [(o.at, o.steps, o.candidates, len(o.state), o.names_from) for o in checkpoint.optimizers],
        [(s.scale, s.growth_tracker) for s in checkpoint.scalers],
        [(s.at, s.candidates) for s in checkpoint.schedulers],
        [(c.name, c.key, number(c.value)) for c in checkpoint.counters],
        [(r.generator, r.at) for r in checkpoint.rng],
    )


def test_a_folder_of_one_file_opens_as_that_file(folder, train) -> None:
    """The same layout and the same parts at the same key paths; the path is that of the folder."""
    with open_checkpoint(train) as before, open_checkpoint(folder) as after:
        assert _parts(before) == _parts(after)
        assert after.path == str(folder)
        (contents,) = after.contents.values()
        assert (contents.name, contents.container) == ("train.pth", "structure")
        assert contents.facts["was"] == "torch-zip"
        assert contents.facts["protocol"] == 2
        assert_same(before.contents[""].root, contents.root)
        assert {g.ref: g.trust for g in contents.globals}.items() <= {g.ref: g.trust for g in before.globals()}.items()


def test_its_files_are_listed_with_what_they_are(folder) -> None:
    """Documents and safetensors files are files of the checkpoint; another file beside them was not read."""
    (folder / "notes.txt").write_text("x")
    with open_checkpoint(folder) as checkpoint:
        assert {f.name: (f.container, f.read) for f in checkpoint.files} == {
            "model.safetensors": ("safetensors", True), "notes.txt": ("", False),
            "optimizer.json": ("structure", True), "optimizer.safetensors": ("safetensors", True),
            "scaler.json": ("structure", True), "state.json": ("structure", True),
            "state.safetensors": ("safetensors", True),
        }  # fmt: skip


def test_the_tree_is_read_back_by_itself(folder, train) -> None:
    """`read_converted` and `restored_folder` give the tree without a layout."""
    with FileSource(train) as source:
        root = containers.read(source).root
        assert_same(root, read_converted(folder).root)
        opened = Folder(folder)
        assert_same(root, restored_folder(opened))
        opened.close()


def test_a_folder_of_several_files_is_not_one_tree(tmp_path) -> None:
    """`read_converted` says so."""
    tmp_path.joinpath("state.json").write_text("".join(Document(form="folder", files={}).text()))
    with pytest.raises(NotACheckpoint, match="one file that was taken apart"):
        read_converted(tmp_path)


def test_weights_with_a_structure_open_flat(tmp_path, fixtures_dir) -> None:
    """The flat names are shown; the structure is not in the metadata that people see, and gives the tree back."""
    path = fixtures_dir / "plain" / "weights.pt"
    with FileSource(path) as source:
        root = containers.read(source).root
        made = tmp_path / "model.safetensors"
        made.write_bytes(bare(structures.encode(root, name="weights.pt", container="torch-zip")))
        with open_checkpoint(made) as checkpoint:
            (weights,) = checkpoint.weights
            assert weights.stored == {"format": "pt"}
            assert [*weights.tensors] == [name for name in root if name != "head.weight"]  # tied, written once
            contents = containers.restored(checkpoint.contents[""])
            assert contents.facts["original"] == "weights.pt"
            assert_same(root, contents.root)
        assert_same(root, read_converted(made).root)


def test_shards_with_a_structure_in_their_index_come_back(tmp_path, fixtures_dir) -> None:
    """The index keeps the document; the tensors are found in whichever shard they are."""
    from tests.structures.beside import safetensors_bytes  # noqa: PLC0415

    path = fixtures_dir / "plain" / "weights.pt"
    with FileSource(path) as source:
        root = containers.read(source).root
        encoded = structures.encode(root, name="weights.pt", container="torch-zip")
        names = [*encoded.tensors[""]]
        where = {name: f"model-{n % 2}.safetensors" for n, name in enumerate(names)}
        for file in set(where.values()):
            held = {n: t for n, t in encoded.tensors[""].items() if where[n] == file}
            tmp_path.joinpath(file).write_bytes(safetensors_bytes(held))
        index = {"metadata": {structures.KEY: encoded.main.compact()}, "weight_map": where}
        made = tmp_path / "model.safetensors.index.json"
        made.write_text(json.dumps(index))
        assert_same(root, read_converted(made).root)


def test_a_folder_may_keep_its_tensors_in_shards(folder, train) -> None:
    """The file that a document names may be an index."""
    header = FileSource(folder / "model.safetensors")
    names = [*containers.read(header).root]
    header.close()
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    folder.joinpath("model.safetensors.index.json").write_text(json.dumps(index))
    state = folder.joinpath("state.json")
    state.write_text(state.read_text().replace('"model.safetensors"', '"model.safetensors.index.json"'))
    with FileSource(train) as source:
        assert_same(containers.read(source).root, read_converted(folder).root)


@pytest.fixture
def trainer(tmp_path, fixtures_dir) -> tuple[Path, Path]:
    """A folder of Accelerate's, and the same with its optimizer and its random states converted."""
    before = next(p.parent for p in sorted(fixtures_dir.glob("accelerate/**/random_states_0.pkl")))
    after = tmp_path / "runs" / "checkpoint_0"
    shutil.copytree(before, after)
    files = {}
    for name in ("optimizer.bin", "random_states_0.pkl"):
        stem = name.partition(".")[0]
        parts = (Part(document=f"{stem}.json", tensors=f"{stem}.safetensors"),)
        with FileSource(after / name, name) as source:
            contents = containers.read(source)
            encoded = structures.encode(contents.root, name=name, container=contents.container, parts=parts)
            write(after, encoded)
        (after / name).unlink()
        files[name] = [f"{stem}.json", f"{stem}.safetensors"]
    folder = Document(form="folder", name=before.name, files=files)
    after.joinpath("state.json").write_text("".join(folder.text()))
    return before, after


def test_a_converted_folder_shows_the_original_names(trainer) -> None:
    """Layouts see `optimizer.bin`, wherever its tree is now."""
    before, after = trainer
    with open_checkpoint(before) as one, open_checkpoint(after) as two:
        assert _parts(one) == _parts(two)
        assert [f.name for f in one.files] == [f.name for f in two.files]
        assert two.contents["optimizer.bin"].container == "structure"
        assert not two.all_problems() or two.all_problems() == one.all_problems()


def test_converted_folders_are_members_of_a_run(trainer) -> None:
    """A run folder opens them like all others."""
    before, after = trainer
    shutil.copytree(before, after.parent / "checkpoint_1")
    with open_path(after.parent) as run:
        assert isinstance(run, Run)
        assert [c.layout for c in run.checkpoints] == ["accelerate"] * 2


def test_a_document_by_itself_says_to_name_the_folder(folder) -> None:
    """`state.json` given alone is recognised, and nothing beside it is opened."""
    with open_checkpoint(folder / "state.json") as checkpoint:
        assert ("structure.alone", "name the folder") in [(p.code, p.hint) for p in checkpoint.all_problems()]


def test_another_programs_state_json_is_none_of_ours(tmp_path, train) -> None:
    """Without our schema at its beginning, a `state.json` is a file like any other; a pipe is left alone."""
    import os  # noqa: PLC0415

    shutil.copy(train, tmp_path / "model.pth")
    tmp_path.joinpath("state.json").write_text('{"schema": 1}')
    with open_path(tmp_path) as opened:
        assert not isinstance(opened, Checkpoint) or opened.layout == "plain"
    tmp_path.joinpath("state.json").unlink()
    os.mkfifo(tmp_path / "state.json")
    open_path(tmp_path).close()


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a\0b", "missing.safetensors", "state.json", "p.pt"]
)
def test_only_safetensors_files_beside_are_opened(folder, fixtures_dir, name) -> None:
    """A file that leaves the folder, is not there, or is of another format is an error, whoever names it."""
    shutil.copy(fixtures_dir / "plain" / "weights.pt", folder / "p.pt")
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"in": "model.safetensors"', f'"in": {json.dumps(name)}'))
    with pytest.raises(CkptError):
        open_checkpoint(folder)


def test_a_changed_file_is_named(folder) -> None:
    """A file that another program wrote again under other names no longer fits, and the file is said."""
    (folder / "model.safetensors").write_bytes((folder / "optimizer.safetensors").read_bytes())
    with pytest.raises(DamagedFile, match="no longer those that the structure speaks of") as refused:
        open_checkpoint(folder)
    assert refused.value.where == "model.safetensors"


def test_a_tensor_that_the_structure_does_not_know_is_refused(tmp_path, fixtures_dir) -> None:
    """One that was added is not dropped without a word."""
    path = fixtures_dir / "plain" / "weights.pt"
    with FileSource(path) as source:
        root = containers.read(source).root
        encoded = structures.encode(root, name="weights.pt", container="torch-zip")
        encoded.tensors[""]["new"] = next(iter(encoded.tensors[""].values()))
        made = tmp_path / "model.safetensors"
        made.write_bytes(bare(encoded))
    with pytest.raises(DamagedFile, match="no longer those that the structure speaks of"):
        read_converted(made)
    with open_checkpoint(made) as checkpoint:
        assert "new" in checkpoint.weights[0].tensors


def test_a_long_document_is_over_the_limit(folder) -> None:
    """The limit is that of a pickle, whose place the document takes."""
    with pytest.raises(LimitExceeded, match="the structure has"):
        open_checkpoint(folder, Limits(pickle=100))


def test_a_document_of_an_unknown_form_is_damaged(folder) -> None:
    """A part is not a whole."""
    shutil.copy(folder / "scaler.json", folder / "state.json")
    with pytest.raises(DamagedFile, match="that of a part, not of a whole file"):
        open_checkpoint(folder)


def test_opening_needs_numpy_only_for_safetensors(folder) -> None:
    """What our own part of opening imports is no numpy."""
    import subprocess  # noqa: PLC0415

    code = "import sys, ckpttool.opening, ckpttool.structures; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert folder
