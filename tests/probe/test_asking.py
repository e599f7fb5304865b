"""A script is run in a sandbox: nothing that it does is left, and nothing of it lives on."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ckpttool.errors import ProbeFailed, UsageError
from ckpttool.probe import surroundings
from ckpttool.probe.asking import NAMESPACES, PATCHED, ask
from ckpttool.probe.question import Question
from tests.probe.namespaces import caged

NEEDS_CAGE = pytest.mark.skipif(not caged(), reason="no namespaces for users here")
CAGED = pytest.mark.parametrize("caged", [pytest.param(True, marks=NEEDS_CAGE), False], ids=["namespaces", "patched"])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a checkpoint and files of the user."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "ck.pt").write_bytes(b"not read here")
    (folder / "data").mkdir()
    (folder / "data" / "rows").write_text("1 2 3")
    monkeypatch.chdir(folder)
    return folder


def asked(place, code, *args, caged=True, seconds=60.0, **more):
    """The facts of a script."""
    script = place / "train.py"
    script.write_text(textwrap.dedent(code))
    before = state(place)
    facts = ask(
        Question(
            checkpoint="ck.pt",
            script="train.py",
            args=args,
            caged=caged,
            seconds=seconds,
            python=sys.executable,
            **more,
        )
    )
    assert state(place) == before
    return facts


def state(folder):
    """Every name below a folder, what is in it, its mode and when it was written."""
    found = []
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found.append((str(path), about.st_mode, about.st_mtime_ns, path.read_bytes() if path.is_file() else None))
    return found


def marked(word):
    """Processes with a word in their command line."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line and " ps " not in line]


@CAGED
def test_what_a_script_writes_is_seen_by_it_alone(place, caged):
    """New, changed, removed and moved files; also in the home folder and where temporary files go."""
    home = Path.home() / ".ckpt-was-here"
    facts = asked(
        place,
        """
        import os, pathlib, shutil, tempfile
        open("data/rows", "a").write(" 4")
        print(open("data/rows").read())
        os.makedirs("out/deep"); open("out/deep/x", "w").write("x")
        os.rename("out", "moved"); print(os.listdir("moved/deep"))
        shutil.rmtree("data"); print(os.path.exists("data"))
        pathlib.Path("~/.ckpt-was-here").expanduser().write_text("x")
        print(pathlib.Path("~/.ckpt-was-here").expanduser().exists())
        with open(os.path.join(tempfile.gettempdir(), "ckpt-was-here"), "w") as file: file.write("x")
        """,
        caged=caged,
    )
    assert facts.printed.split("\n")[:4] == ["1 2 3 4", "['x']", "False", "True"]
    assert (facts.stopped, facts.exit_code, facts.isolation) == ("ended", 0, NAMESPACES if caged else PATCHED)
    assert not home.exists()
    assert not Path("/tmp/ckpt-was-here").exists()


@NEEDS_CAGE
def test_what_other_programs_write_is_caught_too(place):
    """A program that the script starts lives in the same namespaces."""
    facts = asked(
        place, 'import subprocess; print(subprocess.check_output("echo hi > new; cat new; rm -r data", shell=True))'
    )
    assert facts.printed.startswith("b'hi")
    assert not (place / "new").exists()


@CAGED
def test_what_is_done_to_the_checkpoint_is_thrown_away(place, caged):
    """Scripts rotate and log beside their checkpoints, and run on; the real one stays."""
    folder = str(place)
    facts = asked(
        place,
        f"""
        import os, shutil
        with open("ck.pt", "a") as file: file.write("!")
        print(open("ck.pt").read())
        os.replace("ck.pt", "old.pt"); print(os.path.exists("ck.pt"), open("old.pt").read())
        os.remove("old.pt"); print(os.path.exists("old.pt"))
        os.chdir("/"); shutil.rmtree({folder!r}); print(os.path.exists({folder!r}))
        """,
        caged=caged,
    )
    assert facts.printed.splitlines() == ["not read here!", "False not read here!", "False", "False"]


@CAGED
def test_no_process_is_left(place, caged):
    """Neither children, nor those that have a session of their own, nor those whose parent has ended."""
    word = f"ckpt-{os.getpid()}-{caged}"
    asked(
        place,
        f"""
        import subprocess, sys
        sleeping = [sys.executable, "-c", "import time; time.sleep(600)", {word!r}]
        subprocess.Popen(sleeping)
        subprocess.Popen(sleeping, start_new_session=True)
        subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)", *sleeping])
        """,
        caged=caged,
    )
    assert marked(word) == []


@CAGED
def test_time_runs_out(place, caged):
    """The script is ended, and where it stood is told."""
    word = f"ckpt-late-{os.getpid()}-{caged}"
    facts = asked(
        place,
        f"""
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {word!r}], start_new_session=True)
        print("waiting", flush=True)
        time.sleep(600)
        """,
        caged=caged,
        seconds=1.0,
    )
    assert facts.stopped == "timed out"
    assert facts.printed == "waiting\n"
    assert facts.frames[-1].text == "time.sleep(600)"
    assert marked(word) == []


def test_a_script_that_will_not_end(place):
    """It is killed where it does not listen."""
    facts = asked(
        place, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)", seconds=1.0
    )
    assert facts.stopped == "timed out"


@NEEDS_CAGE
def test_all_ends_with_the_one_that_asked(place):
    """Killed without a word, too, as by the kernel or a scheduler."""
    word = f"ckpt-orphan-{os.getpid()}"
    script = place / "train.py"
    script.write_text(
        f'import subprocess, sys, time\nsubprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{word}"], start_new_session=True)\ntime.sleep(600)'
    )
    before = state(place)
    program = f"""
from ckpttool.probe.asking import ask
from ckpttool.probe.question import Question
ask(Question(checkpoint="ck.pt", script="train.py", python={sys.executable!r}))
"""
    asking = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    )
    until = time.monotonic() + 30
    while not marked(word) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(word)
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    while marked(word) and time.monotonic() < until:
        time.sleep(0.05)
    assert marked(word) == []
    assert state(place) == before


def test_arguments(place):
    """They arrive as they are written, and `{checkpoint}` is the path."""
    facts = asked(place, "import sys; print(sys.argv)", "--resume", "{checkpoint}", "--name=a b", "")
    assert facts.printed == "['train.py', '--resume', 'ck.pt', '--name=a b', '']\n"
    assert facts.args == ("--resume", "ck.pt", "--name=a b", "")


def test_a_module(place):
    """What is run as `python -m` finds its neighbours in the current folder."""
    (place / "pack").mkdir()
    (place / "pack" / "__init__.py").write_text("")
    (place / "pack" / "run.py").write_text("from pack import other\nimport sys\nprint(__name__, sys.argv[1:], other.X)")
    (place / "pack" / "other.py").write_text("X = 3")
    facts = ask(Question(checkpoint="ck.pt", module="pack.run", args=("a",), python=sys.executable))
    assert facts.printed == "__main__ ['a'] 3\n"


def test_what_a_script_is_told_of_its_surroundings(place, monkeypatch):
    """Trackers are off, hubs offline unless asked for, data sets are cached where all is thrown away."""
    monkeypatch.setenv("MINE", "kept")
    code = 'import os; print([os.environ.get(k) for k in ("MINE", "WANDB_MODE", "HF_HUB_OFFLINE")], os.path.exists(os.path.dirname(os.environ["HF_DATASETS_CACHE"])))'
    assert asked(place, code).printed == "['kept', 'disabled', '1'] True\n"
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert asked(place, code, online=True).printed == "['kept', 'disabled', None] True\n"


def test_a_script_that_raises(place):
    """The exception, with the lines that led to it."""
    facts = asked(place, 'def load():\n    raise KeyError("optimizer")\nload()')
    assert facts.stopped == "raised"
    assert (facts.raised.type, facts.raised.message) == ("KeyError", "'optimizer'")
    assert facts.raised.frames[-1].line == 2


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"script": "nowhere.py"}, "there is no such script"),
        ({}, "a script or a module is needed"),
        ({"script": "s.py", "module": "m"}, "a script or a module is needed"),
        ({"script": "ck.pt", "python": "no-such-python"}, "there is no such interpreter"),
    ],
)
@pytest.mark.usefixtures("place")
def test_what_cannot_be_asked(question, said):
    """A usage error before anything is started."""
    with pytest.raises(UsageError, match=said):
        ask(Question(checkpoint="ck.pt", **question))


def test_an_interpreter_that_is_none(place):
    """A program that gives no answer is no script that has an answer."""
    facts = asked(place, "")
    assert facts.stopped == "ended"
    false = Question(checkpoint="ck.pt", script="train.py", python="false")
    with pytest.raises(ProbeFailed, match="this is no Python"):
        ask(false)


def test_which_interpreter(tmp_path, monkeypatch):
    """The one that is named, then that of the active environment, then ours where torch is in it."""
    inside = tmp_path / "bin" / "python"
    inside.parent.mkdir()
    inside.symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert surroundings.interpreter("") == str(inside)
    assert surroundings.interpreter(sys.executable) == sys.executable
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert surroundings.interpreter("") == sys.executable


@NEEDS_CAGE
def test_every_folder_is_covered(place, monkeypatch):
    """Also one that comes after the folder of temporary files, where the layers of all are kept."""
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    (place / "train.py").write_text('open("was-here", "w").close(); print(open("was-here").read() == "")')
    facts = ask(Question(checkpoint=str(place / "ck.pt"), script=str(place / "train.py"), python=sys.executable))
    assert (facts.isolation, facts.printed) == (NAMESPACES, "True\n")
    assert not (root / "was-here").exists()
