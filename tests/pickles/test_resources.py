"""No pickle, however made, takes more than 300 MB: each is read by a child process that reports its peak."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.pickles import budget, load, resident

MOST = 300_000_000  # bytes

CHILD = """
import json, os, pathlib, re, sys
from ckpttool.errors import CkptError
from ckpttool.pickles import load

M = 1_000_000
stream = eval(sys.argv[1])
try:
    outcome = type(load(stream, where="x").value).__name__
except CkptError as e:
    outcome = type(e).__name__ + ": " + e.message
# Not ru_maxrss, in which the memory of the parent lives on through fork and exec.
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
print(json.dumps([outcome, peak]), flush=True)
os._exit(0)  # millions of objects need not be taken apart
"""

BOMBS = {
    "millions of dicts": ("b'}' * (30 * M)", "reading the pickle takes more than"),
    "millions of sets": (r"b'\x8f' * (30 * M)", "reading the pickle takes more than"),
    "millions of empty lists in one": ("b'](' + b']' * 2_200_000 + b'e.'", "list"),
    "a million lists in lists": ("b'](' + b']]a' * 1_000_000 + b'e.'", ""),
    "millions of marks": ("b'(' * (30 * M)", "reading the pickle takes more than"),
    "deep lists": ("b']' * (15 * M) + b'a' * (15 * M - 1) + b'.'", "reading the pickle takes more than"),
    "billion laughs": (r"b')' + b'2\x86' * (15 * M) + b'.'", "reading the pickle takes more than"),
    "millions of ids": ("b'N' + b'Q' * (30 * M)", "reading the pickle takes more than"),
    "millions of objects": (r"b'cm\nf\nq\0000' + b'h\000)\x81' * (8 * M)", "the work of more than 15,000,000 opcodes"),
    "copies of a long list": (
        r"b'](' + b'K\x01' * M + b'eq\0000cbuiltins\nset\nq\x010' + b'h\x01h\000\x85R' * M", "the work of more than"
    ),
    "copies of a long set": (
        (
            r"b'](' + b''.join(b'J%b' % i.to_bytes(4, 'little') for i in range(M // 2)) + b'eq\0000'"
            r" + b'cbuiltins\nfrozenset\nq\x010' + b'h\x01h\000\x85R' * M"
        ),
        "reading the pickle takes more than",
    ),
    "wide text": (
        r"b'X' + (60 * M).to_bytes(4, 'little') + b'\xf0\x9f\x98\x80' + b'a' * (60 * M - 4) + b'.'",
        "reading the pickle takes more than",
    ),
    "two-byte text": (r"b'X' + (60 * M).to_bytes(4, 'little') + b'\xe4\xb8\xad' + b'a' * (60 * M - 3) + b'.'", "str"),
    "text with escapes": (r"b'V' + b'\\u0041' * (10 * M) + b'\n.'", "reading the pickle takes more than"),
    "quoted text": (r"b'S\'' + b'\\x41' * (15 * M) + b'\'\n.'", "str"),
    "bytes spelled as text": (
        r"b'c_codecs\nencode\nX' + (60 * M).to_bytes(4, 'little') + b'\xc3\xa9' * (30 * M) + b'\x8c\x06latin1\x86R.'",
        "bytes",
    ),
    "a number of millions of digits": (r"b'I' + b'1' * (60 * M) + b'\n.'", "an integer is written with 60,000,000"),
    "a number of millions of bytes": (r"b'\x8b' + (60 * M).to_bytes(4, 'little') + b'\x7f' * (60 * M) + b'.'", "int"),
    "a terabyte of text announced": (r"b'\x8d' + (2**40).to_bytes(8, 'little') + b'abc'", "are announced, 3 are left"),
    "a terabyte of bytes announced": (r"b'\x8e' + (2**40).to_bytes(8, 'little') + b'abc'", "are announced, 3 are left"),
    "a long number announced": (r"b'\x8b\xff\xff\xff\x7f'", "2,147,483,647 bytes are announced"),
    "colliding keys": (
        r"b'}(' + b''.join(b'\x8a\x0c' + (i * (2**61 - 1)).to_bytes(12, 'little') + b'N' for i in range(1, 10**5)) + b'u.'",
        "share one hash",
    ),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(("stream", "outcome"), BOMBS.values(), ids=BOMBS.keys())
def test_bomb_ends_in_a_limit_or_a_value_within_300_mb(stream: str, outcome: str) -> None:
    """Under the default limits each ends by name, or in the value it honestly holds."""
    root = Path(__file__).parent.parent.parent
    child = f"import sys; sys.path.insert(0, {str(root)!r})\n{CHILD}"
    run = subprocess.run([sys.executable, "-c", child, stream], capture_output=True, text=True, check=True)
    said, peak = json.loads(run.stdout)
    assert outcome in said
    assert peak < MOST


def test_memory_is_looked_at_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long pickle is watched from its start; the limit can be raised."""
    grown = iter(range(0, 10**12, 10**8))
    monkeypatch.setattr(budget, "resident_bytes", lambda: next(grown))
    stream = b"N0" * 400_000 + b"N."
    with pytest.raises(LimitExceeded, match="takes more than 200,000,000 bytes of memory"):
        load(stream, where="x")
    assert load(stream, where="x", limits=Limits(memory=10**12)).value is None


def test_resident_memory_where_proc_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the peak stands in for the memory of now, in the units of the system."""
    assert resident.resident_bytes() > 10**6
    monkeypatch.setattr(resident, "_STATM", "/nowhere/statm")
    peak = resident.resident_bytes()
    assert peak > 10**6
    monkeypatch.setattr(resident.sys, "platform", "darwin")
    assert 0 < resident.resident_bytes() < peak
