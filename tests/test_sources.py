"""What a path leads to that is no file says so, with the next step."""

import os

import pytest

from ckpttool.errors import PathNotFound, UnsupportedFormat
from ckpttool.sources import FileSource


def test_a_pipe_is_refused_with_a_way_out(tmp_path):
    """A pipe and a device have no places to read from."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(UnsupportedFormat, match="cannot be read at any place") as caught:
            FileSource(path)
        assert caught.value.hint == "save it to a file first"


def test_a_dangling_link_names_its_target(tmp_path):
    """The link is there; what is missing is the file behind it."""
    (tmp_path / "link.pt").symlink_to("gone.pt")
    with pytest.raises(PathNotFound, match=r"it is a link to 'gone\.pt', which is not there"):
        FileSource(tmp_path / "link.pt")


def test_a_folder_is_no_file(tmp_path):
    """A folder where a file is wanted is refused."""
    with pytest.raises(UnsupportedFormat, match="neither a regular file nor a folder"):
        FileSource(tmp_path)
