"""Reading a pickle runs nothing, imports nothing and opens nothing, whatever the pickle asks for.

A child process reads with an audit hook that notes every event; the same child, told to use the `pickle` module on the
same bytes, shows that the hook would have seen it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pickles.streams import call, name, text

CHILD = """
import json, sys

from ckpttool.errors import CkptError
from ckpttool.pickles import load, trust_of

how, stream = sys.argv[1], bytes.fromhex(sys.argv[2])
import pickle

seen = []
mention = None
sys.addaudithook(lambda event, args: seen.append(event + (" " + str(args[0]) if event in ("import", "open") else "")))
seen.clear()
try:
    if how == "ours":
        mentions = load(stream, where="x").globals
    else:
        pickle.loads(stream)
except CkptError as e:
    mentions = e.seen
except BaseException:
    pass
events = list(seen)
print(json.dumps([events, {str(g): trust_of(g) for g in mentions} if how == "ours" else {}]))
"""

MARKER = "touched-by-a-pickle"


def eval_of(code: str) -> bytes:
    """A call of eval."""
    return call("builtins", "eval", text(code) + b"\x85")


HOSTILE = {
    "os.system by REDUCE": call("os", "system", text(f"touch {MARKER}") + b"\x85") + b".",
    "os.system by INST": b"(" + text(f"touch {MARKER}") + b"ios\nsystem\n.",
    "os.system by OBJ, thrown away": b"(" + name("os", "system") + text(f"touch {MARKER}") + b"o0N.",
    "subprocess by NEWOBJ": name("subprocess", "Popen") + text("true") + b"\x85\x81.",
    "by keyword with NEWOBJ_EX": name("subprocess", "Popen") + b")}" + text("args") + text("true") + b"s\x92.",
    "by STACK_GLOBAL": text("os") + text("system") + b"\x93" + text(f"touch {MARKER}") + b"\x85R.",
    "eval": eval_of(f"open('{MARKER}', 'w')") + b".",
    "exec": call("builtins", "exec", text(f"open('{MARKER}', 'w')") + b"\x85") + b".",
    "open": call("builtins", "open", text(MARKER) + text("w") + b"\x86") + b".",
    "a module that is not loaded": name("antigravity", "geohash") + b".",
    "import of a submodule": name("xml.dom.minidom", "parseString") + b".",
    "__import__": call("builtins", "__import__", text("this") + b"\x85") + b".",
    "getattr of a module": call("builtins", "getattr", call("importlib", "import_module", text("os") + b"\x85")
                                + text("system") + b"\x86") + text("true") + b"\x85R.",
    "pickle in a pickle": call("pickle", "loads", b"C\x24" + (call("os", "system", text("true") + b"\x85") + b".")[:36]
                               .ljust(36, b".") + b"\x85") + b".",
    "state that calls": name("types", "SimpleNamespace") + b")R" + b"}" + text("a") + eval_of("open('/dev/null')") + b"sb.",
    "key that calls": b"}" + eval_of("open('/dev/null')") + b"K\x01s.",
    "socket": call("socket", "create_connection", text("localhost") + b"K\x01\x86\x85") + b".",
    "a payload before damage": call("os", "system", text(f"touch {MARKER}") + b"\x85") + b"\xff",
}  # fmt: skip

# What reading may do: look at the memory of its own process, and ask whether two objects are the same.
HARMLESS = {"open /proc/self/statm", "builtins.id"}


def events(how: str, stream: bytes, folder: Path) -> tuple[list[str], dict[str, str]]:
    """What a child process sees when it reads the stream."""
    root = Path(__file__).parent.parent.parent
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{CHILD}", how, stream.hex()],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    seen, mentions = json.loads(run.stdout.splitlines()[-1])
    return [event for event in seen if event not in HARMLESS], mentions


@pytest.mark.parametrize("stream", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_pickle_runs_nothing(stream: bytes, tmp_path: Path) -> None:
    """Our machine causes no audit event but harmless ones, and says what the pickle names; `pickle` runs it, and is seen."""
    seen, mentions = events("ours", stream, tmp_path)
    assert seen == []
    assert mentions
    assert list(tmp_path.iterdir()) == []
    seen, _ = events("stock", stream, tmp_path)
    assert seen != []
    assert any(
        event.startswith(("import", "os.system", "subprocess", "exec", "open", "socket", "pickle")) for event in seen
    )


def test_globals_that_do_not_exist_are_named(tmp_path: Path) -> None:
    """A module that nobody has is data like any other; looking for it would be an import event."""
    stream = call("no_such_module_anywhere", "canary", b")") + b"."
    assert events("ours", stream, tmp_path) == ([], {"no_such_module_anywhere.canary": "refused"})
    assert any(event.startswith("import no_such_module_anywhere") for event in events("stock", stream, tmp_path)[0])
