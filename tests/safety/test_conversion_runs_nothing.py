"""A conversion runs nothing, imports nothing and opens nothing but its own files, whatever the pickle asks for.

A child process converts with an audit hook that notes every event; the same child, told to use the `pickle` module on
the same bytes, shows that the hook would have seen it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.pickles.streams import call, name, text

ROOT = FIXTURES.parent
MARKER = "touched-by-a-pickle"

CHILD = """
import json, os, pickle, sys, threading

import ckpttool
from ckpttool.errors import CkptError

how, steps = sys.argv[1], json.loads(sys.argv[2])
WATCHED = ("import", "exec", "compile", "open", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess",
           "socket", "ctypes", "pickle.find_class", "code.__new__", "marshal", "builtins.input", "builtins.breakpoint", "sys.")
here = os.getcwd()
noting, events, ends = False, [], []

def hook(event, args):
    if noting and event.startswith(WATCHED):
        what = str(args[0]) if args else ""
        own = event == "open" and (what.startswith(here) or not what.startswith("/") or what.isdigit())
        if not own and what != "/proc/self/statm":
            events.append(event + " " + what)

# Everything that a conversion imports is there before anyone listens.
pickle.dump({"model": {"w": [1]}, "epoch": 3}, open("warm.pkl", "wb"), 2)
for source, target in () if how == "stock" else (("warm.pkl", "warm.pt"), ("warm.pt", "warm/"), ("warm", "warm2.pt"), ("warm2.pt", "warm3/")):
    ckpttool.convert(source, target, to="torch" if target.endswith(".pt") else None, plain=True)
sys.addaudithook(hook)
noting = True
if how == "ours":
    for arguments in steps:
        try:
            ends.append(ckpttool.convert(arguments.pop("source"), arguments.pop("target"), **arguments).exit_code)
        except CkptError as error:
            ends.append(error.code)
else:
    try:
        pickle.load(open("evil.pkl", "rb"))
    except BaseException:
        pass
noting = False
print(json.dumps([events, ends]))
"""


def eval_of(code):
    """A call of eval."""
    return call("builtins", "eval", text(code) + b"\x85")


HOSTILE = {
    "os.system": (call("os", "system", text(f"touch {MARKER}") + b"\x85"), "os.system"),
    "posix.system": (call("posix", "system", text(f"touch {MARKER}") + b"\x85"), "posix.system"),
    "subprocess": (name("subprocess", "Popen") + text("true") + b"\x85\x81", "subprocess.Popen"),
    "eval": (eval_of(f"open('{MARKER}', 'w')"), "builtins.eval"),
    "exec": (call("builtins", "exec", text(f"open('{MARKER}', 'w')") + b"\x85"), "builtins.exec"),
    "open": (call("builtins", "open", text(MARKER) + text("w") + b"\x86"), "builtins.open"),
    "import": (call("builtins", "__import__", text("antigravity") + b"\x85"), "builtins.__import__"),
    "a class alone": (name("os", "system"), "os.system"),
    "in the state": (name("types", "SimpleNamespace") + b")R}" + text("a") + eval_of("open('/dev/null')") + b"sb", "builtins.eval"),
    "in a key": (b"}" + eval_of("open('/dev/null')") + b"K\x01s", "builtins.eval"),
    "in a set of items": (name("collections", "deque") + b")R" + eval_of("open('/dev/null')") + b"a", "builtins.eval"),
    "what a call gives is called": (call("builtins", "getattr", name("os", "path") + text("exists") + b"\x86") + text("/") + b"\x85R", ["builtins.getattr", "os.path"]),
}  # fmt: skip


def run(how, body, steps, folder):
    """What a child process saw, and how each step ended."""
    (folder / "evil.pkl").write_bytes(b"\x80\x02}" + text("w") + b"K\x01s" + text("bad") + body + b"s.")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, how, json.dumps(steps)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("body", "named"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_runs_nothing(body, named, tmp_path):
    """Refused, left out, written again by name and brought back: no event, no file; `pickle` runs it, and is seen."""
    allowed = {"allow_opaque": [named] if isinstance(named, str) else named}
    steps = [
        {"source": "evil.pkl", "target": "a.pt"},
        {"source": "evil.pkl", "target": "a/"},
        {"source": "evil.pkl", "target": "a.safetensors"},
        {"source": "evil.pkl", "target": "a.pt", "dry_run": True},
        {"source": "evil.pkl", "target": "b.pt", "drop_opaque": True},
        {"source": "evil.pkl", "target": "c.pt", "drop_opaque": True, "plain": True, "map_location": "cpu"},
        {"source": "evil.pkl", "target": "d.pt", **allowed},
        {"source": "evil.pkl", "target": "e/", **allowed},
        {"source": "e", "target": "f.pt", "to": "torch"},
        {"source": "e", "target": "g.pt", "to": "torch", **allowed},
        {"source": "d.pt", "target": "h.pt"},
        {"source": "d.pt", "target": "i/", **allowed},
        {"source": "d.pt", "target": "j/", "drop_opaque": True},
    ]
    seen, ends = run("ours", body, steps, tmp_path)
    assert seen == []
    refused = "dangerous-object"
    assert ends == [refused] * 4 + [1, 1, 0, 0, refused, 0, refused, 0, 1]
    assert not (tmp_path / MARKER).exists()
    assert not {"a", "a.pt", "a.safetensors", "f.pt", "h.pt"} & {p.name for p in tmp_path.iterdir()}
    seen, _ = run("stock", body, steps, tmp_path)
    assert any(event.startswith(("import", "os.", "subprocess", "exec", "open", "pickle.find_class")) for event in seen)


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("plain/weights.pt", "x.pt", {}),
        ("plain/train_legacy.pth", "x.pt", {}),
        ("plain/train.pth", "x.pt", {"part": "model", "rename": ["^embed=emb"]}),
        ("plain/train_pickled.pkl", "x.pt", {"map_location": "cuda:0"}),
        ("plain/train.pth", "x.pt", {"set": ["epoch=3"], "drop_opaque": True, "checksum": True}),
    ],
)
def test_no_numpy_where_no_element_is_touched(source, target, options, tmp_path):
    """Whole tensors are copied as bytes; numpy comes with safetensors' library alone, or for arithmetic."""
    assert not {"torch", "numpy", "rich"} & imported(source, target, options, tmp_path)


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("plain/weights.pt", "x.safetensors", {}),
        ("plain/train.pth", "x/", {"dtype": "bf16"}),
        ("tensors/views.pt", "x.safetensors", {}),
        ("accelerate/run/checkpoints/checkpoint_1", "x/", {"everything": True}),
        ("hf_model", "x/", {"max_shard_size": "1MB", "to": "torch"}),
    ],
)
def test_torch_is_never_imported(source, target, options, tmp_path):
    """Nor what draws on a terminal."""
    assert not {"torch", "rich"} & imported(source, target, options, tmp_path)


def imported(source, target, options, folder):
    """Which of the heavy packages a conversion brings."""
    given = f"{str(FIXTURES / source)!r}, {target!r}, **{options!r}"
    code = f"import ckpttool, sys; ckpttool.convert({given}); print(*sorted({{'torch', 'numpy', 'rich', 'typer'}} & {{*sys.modules}}))"
    run_ = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert run_.returncode == 0, run_.stderr
    return {*run_.stdout.split()}


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"]], ids=" ".join)
def test_help_pays_for_nothing(arguments):
    """A help page imports no reader, no writer and nothing of a conversion."""
    run_ = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ckpttool", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run_.returncode == 0
    modules = {line.rpartition("|")[2].strip() for line in run_.stderr.splitlines() if line.startswith("import time:")}
    assert "ckpttool.commands.convert" in modules
    rooms = ("conversion", "writers", "structures", "opening", "containers", "pickles", "commands._convert.choices")
    assert not [
        m for m in modules if m.startswith(tuple(f"ckpttool.{room}" for room in rooms)) or m in ("numpy", "torch")
    ]


def test_a_source_is_only_read(tmp_path):
    """A source without write permission, in a folder without it, is converted elsewhere, and keeps its times."""
    folder = tmp_path / "locked"
    folder.mkdir()
    source = folder / "w.pt"
    source.write_bytes((FIXTURES / "plain/weights.pt").read_bytes())
    source.chmod(0o440)
    folder.chmod(0o555)
    before = source.stat()
    code = f"import ckpttool; ckpttool.convert({str(source)!r}, 'x.safetensors')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    folder.chmod(0o755)
    after = source.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_mode) == (before.st_mtime_ns, before.st_size, before.st_mode)
    assert Path(tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o440
