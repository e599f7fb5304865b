"""A function that returns a report becomes a subcommand."""

import io
import json

import pytest
import typer

from ckpttool.blocks import Note
from ckpttool.cli import boundary
from ckpttool.cli.bind import bind
from ckpttool.cli.boundary import exit_code_of
from ckpttool.cli.progress import Bar
from ckpttool.errors import FileChanged, LimitExceeded
from ckpttool.params import All, CheckpointPath


class Made:
    """A report about what it was called with."""

    schema = "ckpt.made/1"
    exit_code = 1
    closed = False

    def __init__(self, **values):
        self.values = values

    def blocks(self):
        yield Note(f"{sorted(self.values)}")

    def document(self):
        return {"schema": self.schema, **{k: str(v) for k, v in self.values.items()}}

    def close(self):
        Made.closed = True


def made(path: CheckpointPath, *, all: All = False, progress=None) -> Made:  # noqa: A002
    """Make a report."""
    return Made(path=path, all=all, told=callable(progress))


def run(function, *arguments):
    app = typer.Typer(add_completion=False)
    app.command()(bind(function))
    with pytest.raises(SystemExit) as end:
        app(list(arguments), prog_name="x")
    return end.value.code


def test_options_reach_the_function(capsys):
    """The function gets its options and a progress callback; its report is written, closed, and is the exit code."""
    assert run(made, "a.pt", "--all") == 1
    assert capsys.readouterr().out == "['all', 'path', 'told']\n"
    assert Made.closed
    assert run(made, "a.pt", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "schema": "ckpt.made/1",
        "path": "a.pt",
        "all": "False",
        "told": "True",
    }


def test_a_function_without_progress_gets_none(capsys):
    """Only who asks for a callback is given one."""

    def quiet(path: CheckpointPath) -> Made:
        return Made(path=path)

    assert run(quiet, "a.pt") == 1
    assert "told" not in capsys.readouterr().out


def test_a_late_failure_is_the_exit_code(capsys):
    """A file that changed is found when the report is closed: the report is out, the exit code says it is not true."""

    class Changed(Made):
        def close(self):
            raise FileChanged("the file changed", where="a.pt")

    def changing(path: CheckpointPath) -> Made:
        return Changed(path=path)

    assert run(changing, "a.pt") == 2
    assert capsys.readouterr().err == "error: the file changed\n  at: a.pt\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            LimitExceeded("too much", where="m.pt", hint="raise it"),
            2,
            "error: too much\n  at: m.pt\n  hint: raise it\n",
        ),
        (LimitExceeded("a\x1b[2Jb"), 2, "error: a\\x1b[2Jb\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "out"), 2, "error: No space left on device\n  at: out\n"),
        (OSError("odd"), 2, "error: odd\n"),
        (MemoryError(), 2, "error: there is not enough memory\n  hint: raise what the process may take\n"),
    ],
)
def test_failures_become_sentences(capsys, error, code, said):
    """What a file, a user or the machine caused is said in a sentence, with its place and the next step."""

    def action():
        raise error

    assert exit_code_of(action) == code
    assert capsys.readouterr().err == said


def test_a_bug_shows_itself(capsys):
    """Anything else is ours: a traceback made printable, and how to report it, exit code 70."""

    def action():
        raise RuntimeError("odd \x1b[2J")

    assert exit_code_of(action) == 70
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "RuntimeError: odd \\x1b[2J" in said
    assert "This is a bug of ckpt" in said


def test_a_closed_pipe_is_quiet(capsys, monkeypatch, tmp_path):
    """A reader that went away ends the command as its signal would."""
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(boundary.sys, "stdout", stream)

        def action():
            raise BrokenPipeError

        assert exit_code_of(action) == 141
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    """Something that someone looks at."""

    def isatty(self):
        return True


def test_a_bar_is_drawn_for_someone(monkeypatch):
    """After a moment a bar is drawn on a terminal, with a safe label, and wiped away."""
    monkeypatch.setattr("ckpttool.cli.progress._PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Bar(stream, beside_text=True) as bar:
        bar("reading \x1b]0;x\x07", 1, 10)
        bar("reading", 10, 10)
        bar("reading", 10, 10)
    assert "reading" in stream.getvalue()
    assert "\x1b]0;" not in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_bar_is_not_drawn_for_no_one(stream):
    """A log file gets no bar, and a short read none either."""
    with Bar(stream, beside_text=True) as bar:
        bar("reading", 1, 10)
    assert stream.getvalue() == ""


def test_a_bar_does_not_mix_with_json_on_a_terminal(monkeypatch):
    """While JSON is written to a terminal line by line, no bar is drawn over it; into a pipe it may be."""
    monkeypatch.setattr("ckpttool.cli.progress._PATIENCE", 0.0)
    for terminal in (True, False):
        monkeypatch.setattr("ckpttool.cli.progress._is_terminal", lambda _, answer=terminal: answer)
        stream = Terminal()
        with Bar(stream, beside_text=False) as bar:
            bar("reading", 1, 10)
        assert bool(stream.getvalue()) is not terminal
