"""Whoever asks may be told to end, or be killed: nothing of the question is left."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from ckpttool.errors import ProbeFailed, UsageError
from ckpttool.probe import surroundings
from ckpttool.probe.asking import ask
from ckpttool.probe.pending import Pending
from ckpttool.probe.question import Question
from ckpttool.probe.scratch import scratch
from ckpttool.probe.signals import Told, orderly_end
from tests.probe.test_asking import place

__all__ = ["place"]
ASKS = """
from ckpttool.probe.asking import ask
from ckpttool.probe.pending import Pending
from ckpttool.probe.question import Question
question = Question(checkpoint="ck.pt", script="train.py", python={python!r})
{how}
"""
WAYS = {"itself": "ask(question)", "meanwhile": "with Pending(question) as pending: pending.facts()"}


def folders(where):
    """What questions have left, or use."""
    return sorted(where.glob("ckpt-probe-*"))


def asking(place, how):
    """A process that asks a script which never ends, and the folder where it keeps what it writes."""
    (place / "train.py").write_text("import time; time.sleep(600)")
    temporary = place.parent / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", ASKS.format(python=sys.executable, how=WAYS[how])], env=environment, cwd=place
    )
    until = time.monotonic() + 30
    while not list(temporary.glob("ckpt-probe-*/shared/*.so-far")) and time.monotonic() < until:
        time.sleep(0.05)
    return process, temporary


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end(place, how, number):
    """All is put away, and the process ends of the signal as it would without us."""
    process, temporary = asking(place, how)
    assert folders(temporary)
    process.send_signal(number)
    assert process.wait(30) == -number
    assert folders(temporary) == []


def test_killed(place, monkeypatch):
    """The next question removes what is left, and nothing of one that is being answered."""
    process, temporary = asking(place, "itself")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with scratch() as folder:
        assert len(folders(temporary)) == 2
    assert len(folders(temporary)) == 1
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    with scratch() as folder:
        while folders(temporary) != [folder] and time.monotonic() < until:  # its processes end a little later
            with scratch():
                time.sleep(0.05)
        assert folders(temporary) == [folder]


def test_signals_are_as_they_were():
    """Handlers of the program stay, ours go, and threads may ask."""
    before = signal.getsignal(signal.SIGTERM)
    ran = []
    try:
        signal.signal(signal.SIGTERM, lambda *_: ran.append("own"))
        with orderly_end():
            os.kill(os.getpid(), signal.SIGTERM)
        assert ran == ["own"]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with orderly_end():
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)

    def in_thread():
        with orderly_end():
            ran.append("thread")

    one = threading.Thread(target=in_thread)
    one.start()
    one.join()
    assert ran == ["own", "thread"]
    assert issubclass(Told, BaseException)
    assert not issubclass(Told, Exception)


def test_a_question_in_a_thread(place):
    """As programs that use the package may ask."""
    (place / "train.py").write_text("print('here')")
    found = []

    def in_thread():
        with Pending(Question(checkpoint="ck.pt", script="train.py", python=sys.executable)) as pending:
            found.append(pending.facts().printed)

    one = threading.Thread(target=in_thread)
    one.start()
    one.join()
    assert found == ["here\n"]


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("none", None, UsageError, "there is no such interpreter"),
        ("folder", "", UsageError, "this is a folder"),
        ("file", "x", UsageError, "may not be run"),
        ("ls", "#!/bin/sh\necho ck.pt\n", ProbeFailed, "this is no Python"),
        ("garbage", "\x7fELF", ProbeFailed, "this is no Python"),
        ("old", "#!/bin/sh\necho Python 3 7\n", ProbeFailed, r"Python 3\.7, and scripts are watched under 3\.9"),
    ],
)
def test_what_is_no_interpreter(place, name, text, error, said):
    """One sentence, with what was tried and what to do."""
    (place / "train.py").write_text("")
    path = place.parent / name
    if name == "folder":
        path.mkdir()
    elif text is not None:
        path.write_text(text)
        path.chmod(0o644 if name == "file" else 0o755)
    with pytest.raises(error, match=said) as caught:
        ask(Question(checkpoint="ck.pt", script="train.py", python=str(path)))
    assert caught.value.where == str(path)
    assert "--python" in caught.value.hint


def test_an_interpreter_without_torch(place):
    """The script would need it."""
    (place / "train.py").write_text(
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import torch"
    )
    question = Question(checkpoint="ck.pt", script="train.py", python=sys.executable)
    with pytest.raises(ProbeFailed, match="this Python has none"):
        ask(question)
    assert surroundings.fault_of(sys.executable) is None
