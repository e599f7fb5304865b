"""Scripts that end, or treat their surroundings, in rough ways: what is known of them is told all the same."""

import pytest
import torch

from ckpttool.probe import scratch
from ckpttool.probe.asking import NAMESPACES
from tests.probe.test_asking import CAGED, NEEDS_CAGE, asked, place

__all__ = ["place"]
TRAINS = """
import os, sys, torch
model = torch.nn.Linear(2, 2)
def train():
    model(torch.ones(1, 2)).sum().backward()
{before}
torch.load("ck.pt", weights_only=False)
{after}
train()
"""


@pytest.fixture
def checkpoint(place):
    """One that torch loads."""
    torch.save({"epoch": 3}, place / "ck.pt")
    return place


def trained(place, *, before="", after="", **more):
    """The facts of a script that does something before it loads, or after."""
    return asked(place, TRAINS.format(before=before, after=after), **more)


@CAGED
@pytest.mark.parametrize(
    ("after", "stopped", "why"),
    [
        ("os._exit(3)", "exited", ""),
        ("os.kill(os.getpid(), 9)", "killed", "ended by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "killed", "ended by SIGSEGV"),
        ('os.execvp("true", ["true"])', "exited", "true, which replaces it"),
    ],
)
def test_what_was_loaded_is_known_after_a_sudden_end(checkpoint, after, stopped, why, caged):
    """The file is told of, and how it ended."""
    facts = trained(checkpoint, after=after, caged=caged)
    assert (facts.stopped, [o.how for o in facts.opened]) == (stopped, ["torch.load"])
    assert why in facts.hindered


@pytest.mark.parametrize(
    "before",
    [
        'if not os.environ.get("AGAIN"): os.environ["AGAIN"] = "1"; os.execv(sys.executable, [sys.executable, "-u", *sys.argv])',
        "os.closerange(0, 256)",
        "os.umask(0o777)",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))",
        "import threading; one = threading.Thread(target=sys.exit, args=(3,)); one.start(); one.join()",
        'rows, columns = os.popen("stty size").read().split(); assert os.get_terminal_size() == (int(columns), int(rows)) == (80, 24)',
    ],
)
def test_a_script_that_comes_to_its_training_all_the_same(checkpoint, before):
    """Whatever it does to itself before."""
    facts = trained(checkpoint, before=before)
    assert (facts.stopped, facts.hindered, len(facts.opened)) == ("backward", "", 1)


def test_a_script_that_trains_in_a_fork(checkpoint):
    """It is named, and where."""
    facts = trained(checkpoint, after="if os.fork() == 0: train(); os._exit(0)\nos.wait(); sys.exit()")
    assert (facts.stopped, facts.processes) == ("exited", ("train.py:8",))
    assert "train.py:8" in facts.hindered


def test_an_exit_tells_the_exception_that_it_reports(checkpoint):
    """`sys.exit` in an `except` is the end of an exception; any other is none."""
    facts = trained(checkpoint, after='try: {}["model"]\nexcept KeyError as error: sys.exit(3)')
    assert (facts.stopped, facts.exit_code, facts.raised.type) == ("exited", 3, "KeyError")
    facts = trained(checkpoint, after="sys.exit(3)")
    assert (facts.stopped, facts.exit_code, facts.raised) == ("exited", 3, None)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ('input("sure? ")', "asks for input"),
        ("int(sys.stdin.read())", "standard input"),
        ("breakpoint()", "debugger"),
    ],
)
def test_nobody_sits_at_the_terminal(checkpoint, before, why):
    """What is asked there finds the end of the input at once."""
    facts = trained(checkpoint, before=before)
    assert facts.stopped == "raised"
    assert why in facts.hindered


@NEEDS_CAGE
def test_the_network_ends_at_this_machine(checkpoint):
    """Others are not reached without `online`; processes of the script reach one another."""
    names = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert "['lo']" in trained(checkpoint, before=names).printed
    fetching = 'import urllib.request; urllib.request.urlopen("http://192.0.2.1")'
    facts = trained(checkpoint, before=fetching)
    assert "--online" in facts.hindered
    assert (facts.isolation, facts.left_open) == (NAMESPACES, ())
    assert trained(checkpoint, before="", online=True).left_open == ("the network",)
    local = """
import multiprocessing, torch.distributed as dist
listening = __import__("socket").create_server(("127.0.0.1", 0)); print("port", listening.getsockname()[1] > 0)
__import__("socket").create_connection(listening.getsockname())
dist.init_process_group("gloo"); dist.all_reduce(torch.ones(1))
model = torch.nn.parallel.DistributedDataParallel(model)
print("loaded", len(list(torch.utils.data.DataLoader(range(8), num_workers=2))))
"""
    facts = trained(checkpoint, before=local)
    assert (facts.stopped, "port True" in facts.printed, "loaded 8" in facts.printed) == ("backward", True, True)


@NEEDS_CAGE
def test_folders_are_moved_as_on_one_disk(place):
    """An overlay does not move a folder that lies below it."""
    (place / "elsewhere").mkdir()
    moved = 'import os; os.rename("data", "elsewhere/there"); print(os.listdir("."), os.listdir("elsewhere/there"))'
    assert "['rows']" in asked(place, moved).printed


@NEEDS_CAGE
def test_it_may_not_write_without_end(place, monkeypatch):
    """It is ended where it takes more than its part."""
    monkeypatch.setattr(scratch, "_MOST_WRITTEN", 20_000_000)
    code = """
        import time
        with open("big", "wb") as file:
            for _ in range(600):
                file.write(bytes(1_000_000)); time.sleep(0.02)
        """
    facts = asked(place, code)
    assert (facts.stopped, facts.hindered) == ("killed", "the script was ended because it wrote more than 0.02 GB")
