"""Hostile files: nothing in them is run, nothing but the file is opened, and they end in values or one named error."""

import json
import pickle
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

from tests.containers import samples as make
from tests.containers.zips import Entry, archive

# Runs in a child: reads each file under an audit hook and tells what it saw, how it ended, and the memory it took.
CHILD = """
import json, os, pathlib, resource, sys
import numpy, safetensors
from ckpttool import containers
from ckpttool.containers import verify_storage
from ckpttool.errors import CkptError
from ckpttool.sources import FileSource

events = None
WATCHED = ("import", "exec", "compile", "open", "os.", "subprocess", "socket", "shutil", "ctypes", "pickle.find_class",
           "builtins.", "code.__new__", "marshal", "tempfile", "glob")

def hook(event, args):
    watched = event.startswith(WATCHED) and event != "builtins.id"
    if events is not None and watched and "/proc/self/statm" not in map(str, args):  # how much memory it takes
        events.append([event, repr(args)[:200]])

def most_memory():
    try:  # ru_maxrss begins with what the parent had
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def mine(path):
    with FileSource(path) as source:
        contents = containers.read(source)
        for storage in contents.storages[:100]:
            try:
                verify_storage(storage)
            except CkptError:
                pass
        return [contents.complete, [p.code for p in contents.problems], [str(g.ref) for g in contents.globals]]

def stock(path):
    import pickle
    return repr(pickle.loads(pathlib.Path(path).read_bytes()))

how = {"mine": mine, "stock": stock}[sys.argv[1]]
mine(sys.argv[2])  # what is imported lazily is imported here
sys.addaudithook(hook)
answers = {}
for path in sys.argv[2:]:
    events = []
    try:
        outcome = how(path)
    except CkptError as error:
        outcome = [type(error).__name__, error.where, str(error)]
    seen, events = events, None
    answers[path.rsplit("/", 1)[-1]] = {"seen": seen, "outcome": outcome}
print(json.dumps({"answers": answers, "bytes": most_memory()}))
"""
PLAIN = make.saved({"a": torch.ones(2)})
CALL = b"\x80\x04cbuiltins\neval\n(X\x17\0\0\0open('made_by_it', 'w')tR."  # would make a file


def child(how: str, *paths: Path) -> dict:
    """Read files in a child process."""
    run = subprocess.run(
        [sys.executable, "-c", CHILD, how, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        cwd=paths[0].parent,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def in_zip(stream: bytes, **more: bytes) -> bytes:
    """An archive with this pickle, and other members below its folder."""
    content = {"x/data.pkl": stream, "x/version": b"3\n"} | {f"x/{n}": d for n, d in more.items()}
    return make.zipped(content)


def in_legacy(stream: bytes) -> bytes:
    """A legacy file with this pickle for its object."""
    return make.dumped(0x1950A86A20F9469CFC6C, 1001, {}) + stream + make.dumped([])


def flags_set(data: bytes, bits: int, signature: bytes, at: int) -> bytes:
    """An archive with flag bits set in all its local headers, or in all entries of its directory."""
    changed = bytearray(data)
    start = changed.find(signature)
    while start >= 0:
        changed[start + at] |= bits
        start = changed.find(signature, start + 4)
    return bytes(changed)


def deflated(data: bytes, count: int) -> tuple[bytes, int]:
    """A deflate stream of a block many times over, and how long it is once inflated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join(packer.compress(data) for _ in range(count)) + packer.flush(), len(data) * count


HOSTILE = {
    "call.pkl": CALL,
    "call_protocol_0.bin": b"cbuiltins\neval\n(S\"open('made_by_it', 'w')\"\ntR.",
    "call.pt": in_zip(CALL),
    "call_legacy.pt": in_legacy(CALL),
    "call_in_sys_info.pt": make.dumped(0x1950A86A20F9469CFC6C, 1001) + CALL + make.dumped({}, []),
    "call_in_tar.pt": make.tarred(make.old_members() | {"pickle": CALL}),
    "call_in_tar_storages.pt": make.tarred(make.old_members() | {"storages": CALL}),
    "call_in_tensor_bytes.pkl": pickle.dumps({"a": 1}) + CALL,
    "call_hidden_member.pt": in_zip(pickle.dumps(1), **{"more.pkl": CALL, "data/0": CALL}),
    "call_behind_pickle.pt": in_zip(pickle.dumps(1) + CALL),
    "call_then_broken.pt": in_zip(CALL[:-1] + b"\xff"),
    "call_in_constants.pt": in_zip(CALL, **{"constants.pkl": CALL, "code/x.py": b"open('made_by_it', 'w')"}),
    "call_in_package.pt": make.zipped({"p/.data/extern_modules": b"os", "p/m/x.pkl": CALL, "p/m.py": b"open('x')"}),
    "call_as_magic.pt": b"\x80\x02cbuiltins\nint\n(X\x19\0\0\0119547037146038801333356tR."
    + make.dumped(1001, {}, 1, []),
    "call_in_front.pt": CALL + PLAIN,
    "canary.pt": in_zip(b"\x80\x02cckpt_test\ncanary\n."),
    "nested_load.pkl": b"\x80\x02ctorch.storage\n_load_from_bytes\n(" + b"C" + bytes([len(CALL)]) + CALL + b"tR.",
    "flags_1_local.pt": flags_set(PLAIN, 0x1, b"PK\3\4", 6),
    "flags_20_local.pt": flags_set(PLAIN, 0x20, b"PK\3\4", 6),
    "flags_40_local.pt": flags_set(PLAIN, 0x40, b"PK\3\4", 6),
    "flags_1_directory.pt": flags_set(PLAIN, 0x1, b"PK\1\2", 8),
    "other_local_name.pt": PLAIN.replace(b"data.pkl", b"datap.kl", 1),
    "two_members.pt": make.zipped([*make.members(PLAIN).items(), ("archive/data/0", b"12345678")]),
    "two_roots.pt": make.zipped({"x/y": b"", "a/data.pkl": CALL, "b/data.pkl": CALL}),
    "overlap.pt": archive(Entry("x/data.pkl", CALL), Entry("x/data/0", b"", header=0, told={"name": "x/data.pkl"})),
    "storage_key.pt": in_zip(b"\x80\x02(X\7\0\0\0storagectorch\nFloatStorage\nX\4\0\0\0../0X\3\0\0\0cpuK\1tQ."),
    "storage_class.pt": in_zip(b"\x80\x02(X\7\0\0\0storagecckpt_test\ncanary\nX\1\0\0\x000X\3\0\0\0cpuK\1tQ."),
    "tar.pt": make.tarred({"x.pkl": CALL}),
    "seven_zip.pt": b"7z\xbc\xaf\x27\x1c" + bytes(50),
    "shell.pt": b"#!/bin/sh\ntouch made_by_it\n",
    "index.json": json.dumps({"weight_map": {"a": "/etc/hostname", "b": "../other", "c": "call.pt"}}).encode(),
    "text.pt": b"hello",
    "empty.pt": b"",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict:
    """What a child saw and answered for every hostile file."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "warm.safetensors").write_bytes(make.safe({"a": torch.ones(1)}))
    paths = []
    for name, data in HOSTILE.items():
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    answers = child("mine", folder / "warm.safetensors", *paths)["answers"]
    assert not list(folder.glob("made_by_it"))
    assert sorted(p.name for p in folder.iterdir()) == sorted(answers)
    return answers


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_happens_but_the_file_is_opened(seen, name) -> None:
    """Reading a file opens it for reading, and does nothing else that Python would report."""
    events = seen[name]["seen"]
    assert [event for event, _ in events] == ["open"], events
    assert name in events[0][1]


def test_stock_pickle_is_seen_to_run_the_same_bytes(tmp_path) -> None:
    """The watch works: pickle itself, on the same file, compiles, executes and writes."""
    (tmp_path / "call.pkl").write_bytes(CALL)
    events = {event for event, _ in child("stock", tmp_path / "call.pkl")["answers"]["call.pkl"]["seen"]}
    assert {"pickle.find_class", "compile", "exec", "open"} <= events
    assert (tmp_path / "made_by_it").exists()


@pytest.mark.parametrize("name", [n for n in HOSTILE if n.startswith("call") and n != "call_in_package.pt"])
def test_call_is_named_or_the_file_is_not_clean(seen, name) -> None:
    """Wherever a call hides, its global is listed, or the file is not called complete, or it cannot be read."""
    match seen[name]["outcome"]:
        case [str(), str() as where, _]:
            assert name in where
        case [complete, _, named]:
            assert "builtins.eval" in named or not complete or name == "call_hidden_member.pt"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("call_hidden_member.pt", "zip.hidden-pickle"),
        ("call_behind_pickle.pt", "pickle.trailing"),
        ("call_in_tensor_bytes.pkl", "pickle.trailing"),
        ("call_in_front.pt", "pickle.trailing"),
        ("call_in_constants.pt", "torchscript.program"),
        ("call_in_package.pt", "package.program"),
        ("flags_1_local.pt", "zip.local-header"),
        ("flags_20_local.pt", "zip.local-header"),
        ("flags_40_local.pt", "zip.local-header"),
        ("other_local_name.pt", "zip.local-header"),
        ("index.json", "index.alone"),
    ],
)
def test_trick_is_reported(seen, name, code) -> None:
    """Each of these tricks has led a scanner astray; each has its finding."""
    assert code in seen[name]["outcome"][1]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("call_then_broken.pt", "DamagedFile"),
        ("flags_1_directory.pt", "UnsupportedFormat"),
        ("two_members.pt", "DamagedFile"),
        ("two_roots.pt", "DamagedFile"),
        ("overlap.pt", "DamagedFile"),
        ("storage_key.pt", "DamagedFile"),
        ("storage_class.pt", "UnsupportedFormat"),
        ("tar.pt", "NotACheckpoint"),
        ("seven_zip.pt", "NotACheckpoint"),
        ("shell.pt", "NotACheckpoint"),
        ("text.pt", "NotACheckpoint"),
        ("empty.pt", "NotACheckpoint"),
    ],
)
def test_file_that_cannot_be_trusted_is_refused_by_name(seen, name, error) -> None:
    """What could be read in two ways, or not at all, is one error with its file."""
    kind, where, _ = seen[name]["outcome"]
    assert (kind, name in where) == (error, True)


def test_broken_pickle_says_what_it_asked_for(seen) -> None:
    """The dangerous global stands in the error itself."""
    assert "builtins.eval (dangerous)" in seen["call_then_broken.pt"]["outcome"][2]


def safetensors_header(text: bytes) -> bytes:
    """A file of nothing but a header."""
    return struct.pack("<Q", len(text)) + text


def _entries(count: int) -> bytes:
    return b"{" + b",".join(b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(count)) + b"}"


def _bomb(data: bytes, count: int, size: int | None = None) -> bytes:
    packed, full = deflated(data, count)
    return archive(Entry("x/data.pkl", packed, size=full if size is None else size, method=8), Entry("x/version", b"3"))


BOMBS = {
    "inflates.pt": lambda: _bomb(bytes(1 << 20), 1000),
    "inflates_more_than_told.pt": lambda: _bomb(bytes(1 << 20), 1000, size=1000),
    "inflates_to_opcodes.pt": lambda: _bomb(b"N" * (1 << 20), 60),
    "members.pt": lambda: archive(
        Entry("x/data.pkl", pickle.dumps(1)), *(Entry(f"x/{n}") for n in range(60_000)), wide=True, count=60_001
    ),
    "too_many_members.pt": lambda: archive(Entry("x/data.pkl"), count=65_535),
    "tensors.safetensors": lambda: safetensors_header(_entries(199_000)),
    "too_many_tensors.safetensors": lambda: safetensors_header(_entries(300_000)),
    "dimensions.safetensors": lambda: safetensors_header(
        b'{"a":{"dtype":"U8","shape":[0' + b",99999999" * 1_500_000 + b'],"data_offsets":[0,0]}}'
    ),
    "metadata.safetensors": lambda: safetensors_header(
        b'{"__metadata__":{' + b",".join(b'"%015d":""' % n for n in range(790_000)) + b"}}"
    ),
    "deep.safetensors": lambda: safetensors_header(
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + b"[" * 9_000_000 + b"]" * 9_000_000 + b"}}"
    ),
    "names.json": lambda: b'{"weight_map":{' + b",".join(b'"%d":"%d"' % (n, n) for n in range(199_000)) + b"}}",
    "deep.json": lambda: b'{"weight_map":' + b"[" * 10_000_000,
    "tail.pkl": lambda: pickle.dumps(1) + b"\x80\2" * 2_000_000,
    "legacy_keys.pt": lambda: make.dumped(0x1950A86A20F9469CFC6C, 1001, {}, 1, ["k"] * 1_000_000),
    "huge_count.pt": lambda: make.tarred(make.old_members() | {"storages": make.dumped(1 << 40)}),
    "nested_files.pkl": lambda: pickle.dumps([torch.ones(1)] * 1 + [torch.ones(1) for _ in range(3000)]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_memory_stays_bounded(tmp_path, name) -> None:
    """A file built to exhaust memory is read, or refused by name, within 300 MB."""
    path = tmp_path / name
    path.write_bytes(BOMBS[name]())
    warm = tmp_path / "warm.pt"
    warm.write_bytes(PLAIN)
    answer = child("mine", warm, path)
    assert answer["bytes"] < 300_000_000
    assert answer["answers"][name]["outcome"]
