"""Exceptions of real loads, matched to the rule that explains each."""

import io

import pytest
import torch
from torch import nn

from ckpttool.facts import OpenedFact, ScriptFacts
from ckpttool.rules import RULES
from ckpttool.rules._exceptions import cause_of


def net(width=3):
    return nn.Sequential(nn.Linear(2, width), nn.Linear(width, 2))


def raised(call):
    """What a call raises, as a probe would write it down."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whatever it is
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it raised nothing")


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
    "cut": (lambda: torch_load(saved(net().state_dict())[:400]), "container.unreadable"),
    "nothing": (lambda: torch_load(b""), "container.unreadable"),
    "own class": (lambda: torch_load(saved(Own())), "load.weights-only"),
    "initial_lr": (lambda: schedule(last_epoch=3), "scheduler.no-initial-lr"),
    "schedule": (lambda: schedule().load_state_dict({}), "scheduler.class-changed"),
    "rng": (lambda: torch.set_rng_state(torch.zeros(10, dtype=torch.uint8)), "rng.unusable"),
    "no file": (lambda: torch.load("/nowhere/last.pt"), "container.incomplete"),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch(name):
    """What torch raises leads to the page that explains it."""
    call, rule = CALLS[name]
    assert cause_of(raised(call), None).rule == rule


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
    """Every rule that a cause names has a page, or is told by `script.raises` alone."""
    codes = {rule.code for rule in RULES} | {"scheduler.no-initial-lr"}
    named = {rule for _, rule in CALLS.values()} | set(SAID.values())
    assert named <= codes
