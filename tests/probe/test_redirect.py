"""Writes of a script where there are no namespaces: they land in a mirror, and the script sees them as its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ckpttool.probe

PROBE = Path(ckpttool.probe.__file__).parent


@pytest.fixture
def work(tmp_path):
    """A folder with files, a folder and a link."""
    folder = tmp_path / "work"
    (folder / "d" / "deep").mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "b").write_text("B")
    (folder / "d" / "in").write_text("in")
    (folder / "d" / "deep" / "er").write_text("er")
    (folder / "link").symlink_to("a")
    return folder


def told(work, code):
    """What a script says of itself, with its functions patched; the real folder stays as it was."""
    before = state(work)
    mirror = work.parent / "mirror"
    mirror.mkdir(exist_ok=True)
    program = f"""
import glob, json, os, pathlib, shutil, sys
sys.path.insert(0, {str(PROBE)!r})
from child import redirect
redirect.Mirror({str(mirror)!r}, []).install()
import tempfile
os.chdir({str(work)!r})
said = []
{code}
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert state(work) == before
    return json.loads(done.stdout)


def state(folder):
    """Every name below a folder, with what is in it and when it was written."""
    paths = sorted(folder.rglob("*"))
    return [(str(p), p.lstat().st_mtime_ns, p.read_bytes() if p.is_file() else None) for p in paths]


def test_what_is_written_is_read_again(work):
    """An appended file holds the old and the new; a new one is listed beside the old ones."""
    code = """
with open("a", "a") as f: f.write("more")
said.append(open("a").read())
os.makedirs("out/x", exist_ok=True)
pathlib.Path("out/x/f").write_text("hi")
said += [pathlib.Path("out/x/f").read_text(), sorted(os.listdir(".")), os.path.getsize("a")]
with open("b", "r+") as f: f.write("Z")
said.append(open("b").read())
"""
    assert told(work, code) == ["Amore", "hi", ["a", "b", "d", "link", "out"], 5, "Z"]


def test_what_is_removed_is_gone_for_the_script(work):
    """Files and whole folders; what is made anew in their place is empty."""
    code = """
os.remove("b")
said += [os.path.exists("b"), sorted(os.listdir("."))]
try: open("b")
except FileNotFoundError: said.append("not there")
shutil.rmtree("d")
said += [os.path.isdir("d"), os.path.exists("d/in")]
os.mkdir("d")
said.append(os.listdir("d"))
open("d/new", "w").close()
said.append([list(walked) for walked in os.walk("d")])
try: os.remove("never")
except FileNotFoundError: said.append("never there")
"""
    left = ["a", "d", "link"]
    assert told(work, code) == [False, left, "not there", False, False, [], [["d", [], ["new"]]], "never there"]


def test_what_is_moved(work):
    """A folder is moved with all that is in it; a file takes the place of another."""
    code = """
os.rename("d", "moved")
said += [os.path.exists("d"), open("moved/deep/er").read(), sorted(glob.glob("m*"))]
os.replace("a", "b")
said += [open("b").read(), os.path.exists("a")]
shutil.copytree("moved", "copied")
said.append(sorted(os.listdir("copied")))
"""
    assert told(work, code) == [False, "er", ["moved"], "A", False, ["deep", "in"]]


def test_a_write_through_a_link(work):
    """It reaches what the link leads to, and the link stays one."""
    code = """
with open("link", "w") as f: f.write("through")
said += [open("a").read(), open("link").read(), os.path.islink("link")]
os.remove("link")
said += [os.path.lexists("link"), open("a").read()]
"""
    assert told(work, code) == ["through", "through", True, False, "through"]


def test_errors_are_those_of_the_system(work):
    """A folder that is not there, a file that is, a folder that is not empty."""
    code = """
for act in (lambda: open("no/x", "w"), lambda: open("a", "x"), lambda: os.mkdir("d"), lambda: os.rmdir("d"), lambda: open("d", "w")):
    try: act()
    except OSError as error: said.append(type(error).__name__)
    else: said.append("fine")
"""
    errors = ["FileNotFoundError", "FileExistsError", "FileExistsError", "OSError", "IsADirectoryError"]
    assert told(work, code) == errors


def test_temporary_files(work):
    """The tempfile module works as ever, in the mirror."""
    code = """
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/x", "w") as f: f.write("1")
    said.append(os.listdir(folder))
    with tempfile.NamedTemporaryFile(dir=folder) as f: said.append(os.path.exists(f.name))
said.append(os.path.exists(folder))
"""
    assert told(work, code) == [["x"], True, False]


def test_devices_are_not_mirrored(work):
    """What is written to a device goes there."""
    code = """
with open(os.devnull, "w") as f: f.write("x")
said.append(os.path.exists(os.devnull))
"""
    assert told(work, code) == [True]
    assert not (work.parent / "mirror" / "dev").exists()
