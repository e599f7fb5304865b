"""Exceptions of real loads, matched to the rule that explains each."""

import io
import pickle
import tempfile
import traceback
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn

from ckpttool.facts import FrameFact, OpenedFact, RaisedFact, ScriptFacts
from ckpttool.rules import RULES
from ckpttool.rules._causes import BY_CALL, KNOWN, STEPPING
from ckpttool.rules._exceptions import _LACKING, came_out_of, cause_of
from ckpttool.rules._messages import line_of, short
from tests.conftest import FIXTURES


def net(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.Linear(width, 2))


def raised(call):
    """What a call raises, as a probe would write it down."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001  # CheckpointException is one
        frames = tuple(
            FrameFact(file=f.filename, line=f.lineno, function=f.name, library="-packages" in f.filename)
            for f in traceback.extract_tb(error.__traceback__)
        )
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return RaisedFact(type=name, message=str(error), frames=frames, causes=causes_of(error))
    raise AssertionError("it raised nothing")


def causes_of(error):
    below = error.__cause__ or error.__context__
    return (f"{type(below).__name__}: {below}", *causes_of(below)) if below else ()


def rule_of(call, during=""):
    """The rule that explains what a call raises; `during` as the probe marks an exception of a load."""
    fact = replace(raised(call), during=during)
    return cause_of(f"{fact.type}: {fact.message}", None, during=came_out_of(fact), causes=fact.causes).rule


def adam(model, groups=1):
    parameters = list(model.parameters())
    return torch.optim.Adam([{"params": parameters[n::groups]} for n in range(groups)])


def prefixed(state, prefix="module."):
    return {prefix + key: value for key, value in state.items()}


def bare(key):
    state = dict(net().state_dict())
    state.pop(key)
    return state


def torch_load(data, **options):
    return torch.load(io.BytesIO(data), **options)


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class Own:
    """A class that weights_only does not know."""


def scaler():
    return torch.amp.GradScaler("cpu")


def scaled(state):
    """Load the state of a loss scale, and scale a loss."""
    one = scaler()
    one.load_state_dict(state)
    one.scale(torch.ones(1))


def stepped(state, kind=torch.optim.Adam, width=3):
    """Load a state and make a step."""
    model = net(width)
    optimizer = kind(model.parameters(), lr=0.1)
    optimizer.load_state_dict(state)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def adam_state(**without):
    """A state of Adam after a step; without a key of a parameter's state, or of the group."""
    model = net()
    optimizer = adam(model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0].pop(without.get("of_state"), None)
    state["param_groups"][0].pop(without.get("of_group"), None)
    return state


def schedule(last_epoch=-1):
    return torch.optim.lr_scheduler.LambdaLR(adam(net()), lambda _: 1.0, last_epoch)


CALLS = {
    "prefix": (lambda: net().load_state_dict(prefixed(net().state_dict())), "model.key-prefix"),
    "compiled": (lambda: net().load_state_dict(prefixed(net().state_dict(), "_orig_mod.")), "model.key-prefix"),
    "own prefix": (lambda: net().load_state_dict(prefixed(net().state_dict(), "model.")), "model.key-prefix"),
    "nesting": (lambda: net().load_state_dict({"model": net().state_dict(), "epoch": 3}), "model.nesting"),
    "shape": (lambda: net(4).load_state_dict(net().state_dict()), "model.shape"),
    "missing": (lambda: net().load_state_dict(bare("1.bias")), "model.missing-key"),
    "unexpected": (lambda: net().load_state_dict({**net().state_dict(), "x": torch.ones(1)}), "model.unexpected-key"),
    "no tensor": (lambda: net().load_state_dict({**net().state_dict(), "1.bias": [1.0]}), "model.structure"),
    "groups": (lambda: adam(net()).load_state_dict(adam(net(), 2).state_dict()), "optimizer.group-count"),
    "size": (lambda: adam(net()).load_state_dict(adam(net()[0]).state_dict()), "optimizer.group-size"),
    "no groups": (lambda: adam(net()).load_state_dict({}), "optimizer.structure"),
    "empty scaler": (lambda: scaler().load_state_dict({}), "scaler.empty"),
    "no scaler": (lambda: scaler().load_state_dict(None), "scaler.fields"),
    "odd scale": (lambda: scaled({**scaler().state_dict(), "scale": "x"}), "scaler.fields"),
    "no field": (lambda: scaler().load_state_dict({"scale": 2.0}), "scaler.fields"),
    "sgd": (lambda: stepped(adam_state(), torch.optim.SGD), "optimizer.class-changed"),
    "moment": (lambda: stepped(adam_state(of_state="exp_avg")), "optimizer.class-changed"),
    "step": (lambda: stepped(adam_state(of_state="step")), "optimizer.structure"),
    "lr": (lambda: stepped(adam_state(of_group="lr")), "optimizer.class-changed"),
    "wider": (lambda: stepped(adam_state(), width=5), "optimizer.state-shape"),
    "no model": (lambda: net().load_state_dict(None), "model.structure"),
    "no optimizer": (lambda: adam(net()).load_state_dict([1]), "optimizer.structure"),
    "protocol": (lambda: torch_load(pickle.dumps({"a": 1}, protocol=5)), "load.weights-only"),
    "garbage": (lambda: torch_load(b"\x0d" * 100), "container.unreadable"),
    "folder": (lambda: torch.load(tempfile.gettempdir()), "container.unreadable"),
    "cut": (lambda: torch_load(saved(net().state_dict())[:400]), "container.unreadable"),
    "nothing": (lambda: torch_load(b""), "container.unreadable"),
    "own class": (lambda: torch_load(saved(Own())), "load.weights-only"),
    "initial_lr": (lambda: schedule(last_epoch=3), "scheduler.no-initial-lr"),
    "schedule": (lambda: schedule().load_state_dict({}), "scheduler.class-changed"),
    "rng": (lambda: torch.set_rng_state(torch.zeros(10, dtype=torch.uint8)), "rng.unusable"),
    "no file": (lambda: torch.load("/nowhere/last.pt"), "container.incomplete"),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 5")
@pytest.mark.parametrize("name", CALLS)
def test_torch(name):
    """What torch raises leads to the page that explains it."""
    call, rule = CALLS[name]
    assert rule_of(call) == rule


# In the words of the trainers.
SAID = {
    "RuntimeError: Number of custom checkpoints in folder c does not match the number of registered": "container.custom-count",
    "ValueError: Can't find a valid checkpoint at runs/c": "container.incomplete",
    "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 2 but the current world size is 1.": "shard.world-size",
    "KeyError: 'Trying to restore optimizer state but checkpoint contains only the model.'": "lightning.version",
    "CheckpointException: RuntimeError: Missing key in checkpoint state_dict: model.extra.": "model.missing-key",
    "CheckpointException: ValueError: Size mismatch between saved torch.Size([2]) and current: torch.Size([3])": "model.shape",
    "CheckpointException: AssertionError: metadata is None; global metadata read failed: [Errno 2]": "shard.missing",
    "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered": "container.unreadable",
    "AttributeError: 'NoneType' object has no attribute 'load_state_dict'": "scaler.unused",
    "ValueError: Tried to step 11 times. The specified number of total steps is 10": "scheduler.horizon",
}


@pytest.mark.parametrize("text", SAID)
def test_trainers(text):
    """What trainers say leads there as well."""
    assert cause_of(text, None).rule == SAID[text]


def test_key_that_the_script_reads():
    """A key that the file lacks is named, with those that it read before."""
    opened = OpenedFact(path="c.pt", how="torch.load", keys=("model",), missed=("optim",))
    cause = cause_of("KeyError: 'optim'", ScriptFacts(opened=(opened,)))
    assert cause.says == "the script reads 'optim', which the checkpoint does not have; it read model"


def test_pages():
    """Every rule that a cause names has a page."""
    codes = {rule.code for rule in RULES}
    named = {known.cause.rule for known in (*KNOWN, *BY_CALL, *STEPPING)} | set(_LACKING.values())
    assert named <= codes


def test_one_line_of_other_sizes():
    """Of several tensors of other sizes the first is told, and how many more there are."""
    fact = raised(lambda: net(4).load_state_dict(net().state_dict()))
    assert short(fact) == (
        "RuntimeError: Error(s) in loading state_dict for Sequential: size mismatch for 0.weight: [3, 2] in the "
        "checkpoint, [4, 2] in the model, and 2 more"
    )
    assert line_of(fact).path == "tests/arrival/test_exceptions.py"


def test_one_line_of_what_is_refused():
    """Of what `weights_only` says at length, with colours, the class that it stopped at."""
    said = short(raised(lambda: torch_load(saved(Own()))))
    assert said.startswith("_pickle.UnpicklingError: Weights only load failed: Unsupported global: GLOBAL tests.")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_one_line_of_distributed_checkpoints(tmp_path):
    """Of the traceback in a message its last line; a shard that is cut, or not there, is the cause."""
    state = {"model": net(200).state_dict()}
    dcp.save(state, checkpoint_id=tmp_path)
    (shard,) = tmp_path.glob("*.distcp")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:2000])
    load = partial(dcp.load, {"model": net(200).state_dict()}, checkpoint_id=tmp_path)
    assert rule_of(load) == "container.unreadable"
    assert "CheckpointException: RuntimeError: PytorchStreamReader failed" in short(raised(load))
    shard.unlink()
    assert rule_of(load) == "shard.missing"
    shard.write_bytes(whole)
    odd = partial(dcp.load, {"model": {"0.weight": 3.0}}, checkpoint_id=tmp_path)
    assert rule_of(odd) == "model.structure"


def test_folders_that_accelerate_cannot_sort(tmp_path):
    """A folder without a number beside the checkpoints, from which `load_state` takes the newest."""
    accelerator = Accelerator(
        cpu=True, project_config=ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    )
    model = accelerator.prepare(net())
    accelerator.save_state()
    (tmp_path / "checkpoints" / "best").mkdir()
    assert rule_of(accelerator.load_state) == "container.rotation"
    (tmp_path / "checkpoints" / "best").rmdir()
    for weights in (tmp_path / "checkpoints" / "checkpoint_0").glob("model*"):
        weights.unlink()
    assert rule_of(accelerator.load_state) == "container.incomplete"
    assert model is not None
    assert rule_of(lambda: accelerator.register_for_checkpointing(3)) == "custom.not-restored"


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")  # of the framework about itself
@pytest.mark.parametrize(
    ("lacking", "rule"),
    [("state_dict", "lightning.version"), ("loops", "lightning.version"), ("optimizer_states", "lightning.version")],
)
def test_lightning(tmp_path, lacking, rule):
    """A key that Lightning reads and that is not there."""
    import lightning  # noqa: PLC0415  # it takes seconds

    class Small(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 10), nn.Tanh(), nn.Linear(10, 1))

        def training_step(self, batch):
            return self.net(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    saved = torch.load(FIXTURES / "resume/lightning_fit/base/epoch=1-step=10.ckpt", weights_only=False)
    if lacking == "loops":
        saved["loops"].pop("fit_loop")
    else:
        saved.pop(lacking)
    torch.save(saved, tmp_path / "last.ckpt")
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    data = torch.utils.data.DataLoader(torch.ones(4, 4))
    assert (
        rule_of(lambda: trainer.fit(Small(), data, ckpt_path=str(tmp_path / "last.ckpt"), weights_only=False)) == rule
    )
