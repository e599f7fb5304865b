"""Closed streams and early interruptions end quietly."""

import os
import signal
import subprocess
import sys

import pytest

from ckpttool.cli.streams import ClosedStream

MAIN = [sys.executable, "-m", "ckpttool"]


def shell(command):
    """Run a command line and wait for it; `ckpt` is ours."""
    line = command.replace("ckpt ", f"'{sys.executable}' -m ckpttool ")
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", ["", "--json", "--tensors"])
@pytest.mark.usefixtures("checkpoint")
def test_a_closed_stdout_is_a_closed_pipe(options):
    """`>&-` leaves nowhere to write to: no traceback, and the code of a closed pipe."""
    result = shell(f"ckpt inspect m.pt {options} >&-")
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.usefixtures("checkpoint")
def test_an_error_with_every_stream_closed():
    """Where nothing can be said the exit code still is, and stdout is no file that was opened in its place."""
    assert shell("ckpt inspect gone.pt <&- >&- 2>&-").returncode == 2
    assert shell("ckpt inspect m.pt 2>&- <&-").stdout.startswith("m.pt  ")


def test_a_closed_stream_takes_nothing():
    """A write fails as on a closed pipe."""
    with pytest.raises(BrokenPipeError):
        ClosedStream().write("x")


def test_ctrl_c_while_importing(tmp_path):
    """Ctrl-C before the command has begun ends without a traceback, with the code of an interruption."""
    (tmp_path / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    result = subprocess.run(
        [*MAIN, "inspect", "m.pt"], capture_output=True, text=True, check=False, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")
