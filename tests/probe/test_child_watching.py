"""The watching half of the probe's child: small scripts are really run, and what was seen of them is looked at."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

PROJECT = Path(__file__).parent.parent.parent
CHILD = Path(__file__).parent / "watching_child.py"

START = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
def train(steps=1, batches=None):
    for x, y in batches or [data[:4]] * steps:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


class Run:
    """A folder with a checkpoint `ck.pt`, and scripts that are run in it under the probe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "ck.pt"
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        self.saved = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "meta": {"epoch": 3},
            "rng": torch.get_rng_state(),
        }
        torch.save(self.saved, self.checkpoint)

    def orders(self, script: str, /, *args: str, start: str = START, **orders: object) -> Path:
        (self.folder / "train.py").write_text(start + textwrap.dedent(script))
        path = self.folder / "orders.json"
        given = {
            "answer": str(self.folder / "answer.json"),
            "checkpoint": str(self.checkpoint),
            "script": str(self.folder / "train.py"),
            "shown_as": "train.py",
            "args": list(args),
            "isolation": "namespaces",
            "scratch": str(self.folder),
            **orders,
        }
        path.write_text(json.dumps(given))
        return path

    def command(self, orders: Path) -> dict:
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return {"args": [sys.executable, str(CHILD), str(orders)], "cwd": self.folder, "env": environment}

    def __call__(self, script: str, /, *args: str, start: str = START, **orders: object) -> dict:
        command = self.command(self.orders(script, *args, start=start, **orders))
        done = subprocess.run(**command, capture_output=True, text=True, check=False)
        assert (self.folder / "answer.began").exists()
        facts = json.loads((self.folder / "answer.json").read_text())
        return {**facts, "printed": done.stdout + done.stderr}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A checkpoint in a folder of its own."""
    return Run(tmp_path)


def kinds(facts: dict) -> list[str]:
    return [load["kind"] for load in facts["loads"]]


def test_it_stops_at_the_first_backward_after_loading(run: Run) -> None:
    """Nothing of the script runs on: no step, no `finally`, no `atexit`; loads, keys and what was made are known."""
    facts = run("""
    import atexit
    atexit.register(print, "ATEXIT")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.5})
    ck = torch.load(sys.argv[1])
    model.load_state_dict(ck["model"])
    try:
        optimizer.load_state_dict(ck["optimizer"])
    except ValueError:
        print("SWALLOWED")
    if "scheduler" in ck.keys():
        scheduler.load_state_dict(ck["scheduler"])
    epoch = ck["meta"]["epoch"]
    ck["meta"].get("best")
    ck.get("ema")
    scheduler.load_state_dict({"last_epoch": 7})
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(scaler.state_dict())
    torch.set_rng_state(ck["rng"])
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    for _ in range(2):
        batches = iter(loader)
        next(batches)
    next(batches)
    try:
        train(batches=batches)
    finally:
        print("FINALLY")
    """, "ck.pt")  # fmt: skip
    assert facts["stopped"] == "backward"
    assert facts["raised"] is None
    assert facts["unwatched"] == []
    assert "SWALLOWED" in facts["printed"]
    assert "FINALLY" not in facts["printed"]
    assert "ATEXIT" not in facts["printed"]
    (opened,) = facts["opened"]
    assert opened["path"] == str(run.checkpoint)
    assert opened["how"] == "torch.load"
    assert not opened["all_keys"]
    assert {"model", "optimizer", "meta", "meta.epoch", "rng"} <= set(opened["keys"])
    assert set(opened["missed"]) == {"scheduler", "ema", "meta.best"}
    assert kinds(facts) == ["module", "optimizer", "scheduler", "scaler", "rng"]
    module, optimizer, scheduler = facts["loads"][:3]
    assert module["frame"]["text"] == 'model.load_state_dict(ck["model"])'
    assert len(module["digests"]) == 2
    assert optimizer["raised"].startswith("ValueError: loaded state dict has a different number of parameter groups")
    assert scheduler["value"] == {"last_epoch": 7}
    notes = facts["notes"]
    assert notes["loaded"] == ["Linear", "StepLR", "GradScaler"]
    assert [group["lr"] for group in notes["made"][0]["groups"]] == [1e-3, 0.5]
    assert notes["made"][1]["state"]["last_epoch"] == 0
    assert notes["rng"]["torch"]["set_since"]
    assert notes["rng"]["torch"]["seeded_since"]
    assert notes["loaders"] == [{"cls": "DataLoader", "iterators": 2, "given": 3, "skipped": 0, "ahead": 0}]
    assert notes["main"]["epoch"] == 3
    assert facts["frames"][0]["text"] == "train(batches=batches)"
    assert facts["frames"][1] == {**facts["frames"][1], "function": "train", "library": False}
    assert facts["frames"][-1]["library"]


def test_steps_beyond_the_boundary_are_made_and_saves_are_not(run: Run) -> None:
    """With steps, everything is looked at first; a save of training state is noted and writes nothing."""
    facts = run("""
    model.load_state_dict(torch.load("ck.pt", weights_only=True)["model"])
    train()
    torch.save({"model": model.state_dict()}, "out.pt")
    torch.save([1, 2], "data.pt")
    assert torch.load("data.pt") == [1, 2]
    train(9)
    """, steps=3)  # fmt: skip
    assert (facts["stopped"], facts["steps_made"]) == ("steps done", 3)
    (save,) = facts["saves"]
    assert save["how"] == "torch.save"
    assert save["path"] == str(run.folder / "out.pt")
    assert save["keys"] == ["model"]
    assert not (run.folder / "out.pt").exists()
    assert facts["frames"][-1]["text"] == "torch.autograd.backward("  # where it was looked at


@pytest.mark.parametrize(
    ("script", "stopped", "code", "steps_before"),
    [
        ("train(9)", "backward", None, 2),
        ("optimizer.param_groups[0]['lr'] = 0.0; train(); torch.load('ck.pt')", "ended", 0, 0),
        ("train(2); open('ck.pt', 'rb').read(); train()", "backward", None, 2),
        ("torch.load('ck.pt'); optimizer.step()", "optimizer step", None, 0),
        ("sys.exit(3)", "exited", 3, 0),
        ("sys.exit('words')", "exited", 1, 0),
        ("import threading; torch.load('ck.pt'); threading.Thread(target=train).start()", "backward", None, 0),
        ("torch.load('ck.pt'); torch.autograd.grad(model(torch.ones(4)).sum(), model.weight)", "backward", None, 0),
    ],
)
def test_where_it_stops(run: Run, script: str, stopped: str, code: int | None, steps_before: int) -> None:
    """A run that never opens the checkpoint is let go two steps; a learning rate of 0 makes no step of training."""
    facts = run(script)
    assert (facts["stopped"], facts["exit_code"], facts["steps_before"]) == (stopped, code, steps_before)


def test_an_exception_says_which_loading_call_it_came_out_of(run: Run) -> None:
    """The traceback is that of the script alone, printed as Python would, and causes are told."""
    facts = run("""
    def load():
        try:
            model.load_state_dict({"weight": torch.ones(3, 3)})
        except RuntimeError as error:
            raise ValueError("cannot resume") from error
    torch.load("ck.pt")
    load()
    """)
    raised = facts["raised"]
    assert facts["stopped"] == "raised"
    assert (raised["type"], raised["message"], raised["during"]) == (
        "ValueError",
        "cannot resume",
        "Linear.load_state_dict",
    )
    assert [frame["function"] for frame in raised["frames"]] == ["<module>", "load"]
    assert raised["causes"][0].startswith("RuntimeError: Error(s) in loading state_dict for Linear")
    assert "_ckpt_probe" not in facts["printed"]
    assert "probe/child" not in facts["printed"]
    assert "Traceback (most recent call last):\n" in facts["printed"]


def test_paths_that_are_asked_for_and_not_there(run: Run) -> None:
    """`os.path`, `pathlib`, `open` and `torch.load` alike, in the checkpoint and beside it; elsewhere it is no matter."""
    facts = run("""
    import pathlib, contextlib
    os.path.exists("scheduler.pt"), pathlib.Path("optimizer.pt").is_file(), os.access("latest", os.R_OK)
    os.path.isdir("ck.pt/inner"), os.path.exists("/nowhere/else")
    for read in (open, torch.load):
        with contextlib.suppress(FileNotFoundError):
            read(read.__name__ + ".bin")
    """)
    names = {os.path.relpath(path, run.folder) for path in facts["asked"]}
    assert names == {"scheduler.pt", "optimizer.pt", "latest", "ck.pt/inner", "open.bin", "load.bin"}
    assert facts["opened"] == []


def test_the_loaded_dict_is_like_a_dict(run: Run) -> None:
    """Copies, pickles, JSON, comparison, unpacking, trees and class are those of a dict."""
    facts = run("""
    import copy, json, pickle, torch.utils._pytree as pytree
    ck = torch.load("ck.pt")
    plain = {k: v for k, v in ck.items()}
    for twin in (copy.copy(ck), ck.copy(), dict(ck), {**ck}, ck | {}, {} | ck):
        assert type(twin) is dict and list(twin) == list(ck) and twin["meta"] == {"epoch": 3}
    meta = ck["meta"]
    assert isinstance(meta, dict) and meta.__class__ is dict and type(meta).__name__ == "dict"
    assert meta == {"epoch": 3} and {"epoch": 3} == meta and str(meta) == "{'epoch': 3}"
    assert repr(meta.keys()) == "dict_keys(['epoch'])" and meta.keys() == {"epoch"} and meta.keys() & {"epoch", 1}
    for twin in (pickle.loads(pickle.dumps(meta)), copy.deepcopy(meta), copy.deepcopy(ck)["meta"]):
        assert type(twin) is dict and twin == {"epoch": 3}
    assert json.loads(json.dumps(meta)) == meta
    assert pytree.tree_map(lambda n: n + 1, meta) == {"epoch": 4}
    assert (lambda **given: given)(**meta) == meta
    meta["epoch"] += 1; meta.update(more=1); meta.setdefault("x", 2)
    assert meta.pop("x") == 2 and meta.pop("y", 5) == 5 and meta == {"epoch": 4, "more": 1}
    try:
        ck.extra = 1
    except AttributeError:
        print("NO ATTRIBUTES")
    try:
        meta["nothing"]
    except KeyError as error:
        assert error.args == ("nothing",)
    """)
    assert facts["stopped"] == "ended", facts["printed"]
    assert "NO ATTRIBUTES" in facts["printed"]
    assert facts["opened"][0]["all_keys"]
    assert "meta.nothing" in facts["opened"][0]["missed"]


def test_bytes_are_traced_back_to_the_file(run: Run) -> None:
    """A checkpoint that comes through memory or another file object is still that checkpoint."""
    facts = run("""
    import io
    kept = io.BytesIO(open("ck.pt", "rb").read())
    torch.load(kept)["model"]
    """)
    assert [(o["how"], o["keys"]) for o in facts["opened"]] == [("torch.load", ["model"])]
    facts = run("""
    other = io.BytesIO()
    torch.save({"a": 1}, other); other.seek(0)
    assert torch.load(other) == {"a": 1}
    """, start="import io, torch\nopen('ck.pt', 'rb').close()\n")  # fmt: skip
    assert facts["stopped"] == "ended", facts["printed"]
    assert [o["how"] for o in facts["opened"]] == ["open"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_safetensors_and_distributed_checkpoints_are_seen(run: Run) -> None:
    """Readers of Rust, and those of `torch.distributed.checkpoint`, whose made-up steps are none of training."""
    folder = run.folder / "checkpoint"
    folder.mkdir()
    save_file({"weight": torch.ones(2, 4), "bias": torch.ones(2)}, folder / "model.safetensors")
    dcp.save({"model": {"weight": torch.ones(2, 4)}}, checkpoint_id=folder / "dcp", no_dist=True)
    facts = run("""
    from safetensors import safe_open
    from safetensors.torch import load_file, load, save_file
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    model.load_state_dict(load_file("checkpoint/model.safetensors"))
    get_optimizer_state_dict(model, optimizer)
    dcp.load({"model": {"weight": torch.zeros(2, 4)}}, checkpoint_id="checkpoint/dcp")
    save_file(model.state_dict(), "out.safetensors")
    dcp.save({"model": model.state_dict()}, checkpoint_id="out")
    assert dcp.async_save({"model": model.state_dict()}, checkpoint_id="out").result() is None
    train()
    """, checkpoint=str(folder))  # fmt: skip
    assert facts["stopped"] == "backward", facts["printed"]
    how = {os.path.relpath(o["path"], folder): o["how"] for o in facts["opened"]}
    assert how["model.safetensors"] == "safetensors"
    assert {how["dcp/.metadata"], how["dcp/__0_0.distcp"]} == {"torch.distributed.checkpoint"}
    assert [s["how"].rpartition(".")[2] for s in facts["saves"]] == ["save_file", "save", "async_save"]
    assert not (run.folder / "out").exists()
    assert facts["steps_before"] == 0


def test_overrides_and_puttings_back(run: Run) -> None:
    """An override is one load; a state that was got before and is set again is no restoring of the checkpoint's."""
    facts = run("""
    import random
    class Net(torch.nn.Linear):
        def load_state_dict(self, state, strict=True, **more):
            return super().load_state_dict(state, strict=False, **more)
    class Own(torch.optim.SGD):
        def load_state_dict(self, state):
            self.taken = state
    ck = torch.load("ck.pt")
    Net(4, 2).load_state_dict({"other": torch.ones(1)})
    Own(model.parameters(), lr=0.1).load_state_dict({"x": 1})
    with torch.random.fork_rng():
        torch.manual_seed(5)
    random.setstate(random.Random(4).getstate())
    torch.distributed.is_available()
    """)
    assert kinds(facts) == ["module", "optimizer", "rng"], facts["printed"]
    assert facts["loads"][0]["missing"] == ["weight", "bias"]
    assert facts["loads"][0]["unexpected_count"] == 1
    assert facts["loads"][1]["cls"] == "__main__.Own"
    assert facts["loads"][2]["target"] == "python"
    assert not facts["notes"]["rng"]["torch"]["seeded_since"]


WORKERS = """
import os, pickle, sys
import neighbour, torch
class Config:
    pass
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, n):
        torch.manual_seed(n)
        torch.nn.Linear(1, 1).load_state_dict({"weight": torch.ones(1, 1), "bias": torch.ones(1)})
        return torch.ones(1, requires_grad=False)
if __name__ == "__main__":
    assert os.path.basename(__file__) == "train.py" and os.path.isabs(__file__)
    assert sys.argv == ["train.py", "--x", "1"] and sys.path[0] == os.path.dirname(os.path.realpath(__file__))
    assert sys.modules["__main__"].Config is Config and neighbour.value == 7
    assert type(pickle.loads(pickle.dumps(Config()))) is Config
    assert not any("probe" in path for path in sys.path)
    batch = "set by exec"
    exec(open("configurator.txt").read())
    os.makedirs("elsewhere", exist_ok=True); os.chdir("elsewhere")
    model = torch.nn.Linear(1, 1)
    torch.load("../ck.pt")
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=context)
        assert len(list(loader)) == 4
    model(torch.ones(1)).backward()
"""


def test_the_script_runs_as_python_would_run_it(run: Run) -> None:
    """`__main__`, neighbours, `exec`, `chdir`, pickling and workers of both kinds; what workers do is not watched."""
    (run.folder / "neighbour.py").write_text("value = 7\n")
    (run.folder / "configurator.txt").write_text("batch = 12\n")
    facts = run("", "--x", "1", start=WORKERS)
    assert facts["stopped"] == "backward", facts["printed"]
    assert facts["notes"]["main"]["batch"] == 12
    assert facts["loads"] == []
    assert [note["given"] for note in facts["notes"]["loaders"]] == [4]


def test_a_module_is_run_like_python_m(run: Run) -> None:
    """Its relative imports work, and its package is the user's program."""
    package = run.folder / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("value = 7\n")
    (package / "train.py").write_text(
        "import sys, torch\nfrom .part import value\nassert __name__ == '__main__' and __spec__.name == 'mine.train'\n"
        "assert sys.argv[1:] == ['a'] and sys.argv[0] == __file__\ntorch.load('ck.pt')\n"
        "torch.nn.Linear(1, 1)(torch.ones(1)).backward()\n"
    )
    facts = run("", "a", start="", script="", module="mine.train")
    assert facts["stopped"] == "backward", facts["printed"]
    assert not next(frame for frame in facts["frames"] if frame["file"].endswith("mine/train.py"))["library"]


def test_a_world_of_one_and_nothing_is_compiled(run: Run) -> None:
    """Whatever launcher and backend the script counts on, it is rank 0 of 1; `torch.compile` keeps its prefix."""
    facts = run("""
    import torch.distributed as dist, torch.multiprocessing as mp
    assert "RANK" not in os.environ and os.environ.get("LOCAL_RANK") is None
    rank = int(os.environ["LOCAL_RANK"])
    def worker(rank, text):
        dist.init_process_group("nccl", rank=rank, world_size=4)
        assert (dist.get_backend(), dist.get_world_size(), text) == ("gloo", 1, "text")
        compiled = torch.compile(model, mode="max-autotune")
        assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        calls = []
        model.register_forward_pre_hook(lambda *_: calls.append(torch.compiler.is_compiling()))
        compiled(torch.ones(4))
        assert calls == [False]
        torch.load("ck.pt")
        train()
    mp.spawn(worker, args=("text",), nprocs=4)
    """)
    assert facts["stopped"] == "backward", facts["printed"]
    assert facts["world_size"] == 1
    assert sum("world of one" in words for words in facts["unwatched"]) == 2
    assert any("LOCAL_RANK" in words for words in facts["unwatched"])


def test_trackers_that_no_variable_turns_off(run: Run) -> None:
    """mlflow's server is replaced by a folder, and older experiments of comet are disabled."""
    (run.folder / "mlflow.py").write_text("seen = []\ndef set_tracking_uri(uri):\n    seen.append(uri)\n")
    (run.folder / "comet_ml.py").write_text(
        "class Experiment:\n    def __init__(self, key, disabled=False):\n        self.disabled = disabled\n"
    )
    facts = run("""
    import mlflow, comet_ml
    mlflow.set_tracking_uri("https://tracking.example"); mlflow.set_tracking_uri("runs")
    assert mlflow.seen[0].startswith("file:") and mlflow.seen[1] == "runs", mlflow.seen
    assert comet_ml.Experiment("key").disabled
    """, start="")  # fmt: skip
    assert facts["stopped"] == "ended", facts["printed"]


def test_a_watch_that_fails_does_not_change_the_script(run: Run) -> None:
    """What cannot be looked at is said to be unwatched, and the call goes on."""
    facts = run("""
    class Odd(dict):
        def values(self):
            raise RuntimeError("odd")
    class Scheduler(torch.optim.lr_scheduler.StepLR):
        def state_dict(self):
            raise RuntimeError("no state yet")
    scheduler = Scheduler(optimizer, 3)
    torch.load("ck.pt")
    train()
    """)
    assert facts["stopped"] == "backward", facts["printed"]
    assert any("no state yet" in words for words in facts["unwatched"])


def test_a_script_that_is_told_to_end_says_where_it_stood(run: Run) -> None:
    """At SIGTERM there is still an answer."""
    command = run.command(run.orders("torch.load('ck.pt')\nopen('ready', 'w').close()\nimport time\ntime.sleep(60)\n"))
    with subprocess.Popen(**command) as process:
        while not (run.folder / "ready").exists():
            time.sleep(0.05)
        process.terminate()
        assert process.wait(30) == 0
    facts = json.loads((run.folder / "answer.json").read_text())
    assert facts["stopped"] == "timed out"
    assert facts["frames"][-1]["text"] == "time.sleep(60)"
    assert len(facts["opened"]) == 1


def test_a_script_without_torch(run: Run) -> None:
    """Nothing is imported that the script does not import."""
    facts = run("import sys\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\n1 / 0\n", start="")
    assert facts["raised"]["type"] == "ZeroDivisionError"
    assert facts["unwatched"] == ["torch was not imported"]


def test_what_is_saved_and_read_back(run: Run) -> None:
    """A script that fails because its save was not carried out is not blamed for it."""
    facts = run('torch.save(model.state_dict(), "first.pt")\ntorch.load("first.pt")\n')
    assert facts["raised"]["type"] == "FileNotFoundError"
    assert facts["unwatched"] == [
        f"it reads back {run.folder / 'first.pt'}, which it saved, and saves are not carried out"
    ]


ACCELERATE = """
import sys, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 1))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
if sys.argv[1:]:
    accelerator.load_state(sys.argv[1])
    loader = accelerator.skip_first_batches(loader, 3)
for n, (x,) in enumerate(loader):
    accelerator.backward(model(x).sum())
    optimizer.step()
    schedule.step()
    if n == 2:
        assert accelerator.save_state("state") is not None
        break
"""

TRAINER = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=32, n_positions=16))
rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(32)]
given = TrainingArguments(
    "out", per_device_train_batch_size=4, save_steps=3, max_steps=12 if sys.argv[1:] else 3, report_to=[], use_cpu=True,
    save_total_limit=1, disable_tqdm=True,
)
Trainer(model=model, args=given, train_dataset=rows).train(resume_from_checkpoint=sys.argv[1] if sys.argv[1:] else None)
"""

LIGHTNING = """
import sys, torch, lightning
from lightning.pytorch.callbacks import ModelCheckpoint
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
    def training_step(self, batch, n):
        return self.inner(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=8)
trainer = lightning.Trainer(
    max_epochs=2 if sys.argv[1:] else 1, accelerator="cpu", logger=False, enable_progress_bar=False,
    callbacks=[ModelCheckpoint("out", filename="x")],
)
trainer.fit(Net(), loader, ckpt_path=sys.argv[1] if sys.argv[1:] else None)
"""


class Seen(NamedTuple):
    """What is to be seen of a trainer."""

    script: str
    checkpoint: str
    library: str
    loaded: set[str]
    loader: tuple[int, int, int]  # batches given, skipped, taken ahead
    save: str


TRAINERS = [
    Seen(ACCELERATE, "state", "accelerate", {"Linear", "SGD", "LambdaLR"}, (1, 3, 1), "Accelerator.save_state"),
    Seen(
        TRAINER,
        "out/checkpoint-3",
        "transformers",
        {"GPT2LMHeadModel", "AdamW", "LambdaLR"},
        (1, 3, 1),
        "Trainer._save_checkpoint",
    ),
    Seen(
        LIGHTNING,
        "out/x.ckpt",
        "lightning",
        {"Net", "Adam", "StepLR", "ModelCheckpoint"},
        (1, 0, 0),
        "Trainer.save_checkpoint",
    ),
]


@pytest.mark.framework
@pytest.mark.parametrize("seen", TRAINERS, ids=lambda seen: seen.library)
def test_trainers(run: Run, seen: Seen) -> None:
    """They pass through torch's own classes; batches are counted as they hand them out, and saves write nothing."""
    path = str(run.folder / seen.checkpoint)
    plain = run.command(run.orders("", start=seen.script))
    subprocess.run(**{**plain, "args": [sys.executable, "train.py"]}, check=True, capture_output=True)
    before = weights_in(run.folder)
    facts = run("", seen.checkpoint, start=seen.script, checkpoint=path, steps=6)
    assert facts["stopped"] in ("steps done", "ended"), facts["printed"]
    assert facts["unwatched"] == []
    assert set(facts["notes"]["loaded"]) == seen.loaded
    assert {load["in_library"] for load in facts["loads"]} == {seen.library}
    outer = facts["notes"]["loaders"][0]
    assert (outer["given"], outer["skipped"], outer["ahead"]) == seen.loader
    assert seen.save in {save["how"] for save in facts["saves"]}
    assert weights_in(run.folder) == before


def weights_in(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.suffix in (".safetensors", ".bin", ".pt", ".ckpt", ".pth")}
