"""What `ckpt diff` answers to paths that lead to no checkpoint: the side, the reason, the next step, and no report."""

import os

import pytest
import torch


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A checkpoint `a.pt` in the current folder, and what is none."""
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(2)}, "a.pt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/readme.txt").write_text("hello")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/config.json").write_text("{}")
    (tmp_path / "zero.pt").touch()
    (tmp_path / "text.pt").write_text("hello\n")
    (tmp_path / "leads.pt").symlink_to("nowhere.pt")
    (tmp_path / "loop.pt").symlink_to("loop.pt")
    os.mkfifo(tmp_path / "pipe")


REFUSED = {
    "": "the path is empty",
    "-": "stdin cannot be read at any place",
    "nowhere.pt": "there is no such file or folder",
    "*.pt": "there is no such file or folder",
    "x" * 300: "File name too long",
    "empty": "the folder is empty",
    "texts": "the folder holds no checkpoint",
    "settings": "the folder holds no checkpoint",
    "zero.pt": "not a checkpoint: the file is empty",
    "text.pt": "not a checkpoint: starts with 'hello",
    "leads.pt": "it is a link to 'nowhere.pt', which is not there",
    "loop.pt": "Too many levels of symbolic links",
    "pipe": "it is a pipe or a device",
    "/dev/null": "it is a pipe or a device",
}


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("output", [[], ["--json"], ["--quiet"], ["--stat"]], ids=" ".join)
@pytest.mark.parametrize("path", REFUSED)
def test_a_path_without_a_checkpoint(ckpt, path, output):
    """On either side, in every format: exit code 2, an empty stdout, the side, the reason and a hint."""
    for side, arguments in (("left", (path, "a.pt")), ("right", ("a.pt", path))):
        result = ckpt("diff", *output, "--", *arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: the {side} side: ")
        assert REFUSED[path] in result.err
        assert "\n  hint: " in result.err


@pytest.mark.usefixtures("places")
def test_two_wrong_paths_begin_with_the_left_one(ckpt):
    """One error at a time, in the order of the command line."""
    assert ckpt("diff", "nowhere.pt", "text.pt").err.startswith("error: the left side: there is no such file")


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("folder", ["empty", "texts", "settings"])
def test_two_folders_without_a_checkpoint_are_not_identical(ckpt, folder):
    """Nothing was compared, so nothing is the same."""
    assert ckpt("diff", folder, folder).code == 2


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("again", ["a.pt", "./a.pt", "again.pt"])
def test_a_path_given_twice_is_said(ckpt, tmp_path, again):
    """By itself or through a link: no difference, but hardly what was meant."""
    (tmp_path / "again.pt").symlink_to("a.pt")
    result = ckpt("diff", "a.pt", again)
    assert (result.code, result.out.splitlines()[0]) == (0, "identical (both sides are one path)")


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(("arguments", "said"), [([], "'LEFT'"), (["a.pt"], "'RIGHT'"), (["a.pt"] * 3, "a.pt")])
def test_one_path_or_three(ckpt, arguments, said):
    """Wrong usage, with what is missing or too much."""
    result = ckpt("diff", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("given", [["--stat", "--all"], ["--stat", "--top", "3"], ["--top", "0", "--all"]])
def test_options_that_undo_each_other(ckpt, given):
    """None is dropped without a word, whatever the format."""
    for output in ([], ["--json"]):
        result = ckpt("diff", "a.pt", "a.pt", *given, *output)
        assert (result.code, result.out) == (2, "")
        assert "do not go together" in result.err
