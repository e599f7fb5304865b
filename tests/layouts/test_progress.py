"""Counters, data positions, arguments."""

import argparse
import types

import pytest

from ckpttool.model import Role
from tests.layouts.trees import parts, parts_in, scalar, tensor, thing


def test_counters_keep_the_trainers_own_key():
    """Our word, their key, and the value as it lies in the file."""
    found = parts({"iter_num": 5, "epoch": 2.5, "best_acc1": scalar(0.5), "meta": {"samples_seen": 7}})
    assert [(c.name, c.key) for c in found.counters] == [
        ("global_step", "iter_num"), ("epoch", "epoch"), ("best", "best_acc1"), ("samples", "meta.samples_seen"),
    ]  # fmt: skip
    assert found.counters[3].at.path == ("meta", "samples_seen")


@pytest.mark.parametrize(
    "tree",
    [{"epoch": True}, {"epoch": "3"}, {"epoch": tensor(3)}, {"epoch": [3]}, {"a": {"b": {"c": {"epoch": 3}}}}, 3],
)
def test_what_is_no_number_near_the_top_counts_nothing(tree):
    """Flags, texts, vectors, and keys far down that happen to be called so."""
    assert not parts(tree).counters


def test_loaders_and_samplers_are_data_positions():
    """By torchdata's keys, by the key above, or by the trainer's file."""
    found = parts(
        {"x": {"_num_yielded": 3, "_iterator_finished": False}, "sampler": {"epoch": 1}, "train_iterator": {"epoch": 2}}
    )
    assert [d.name for d in found.data] == ["x", "sampler", "train_iterator"]
    assert not found.counters
    assert parts(thing("SeedableRandomSampler", {"epoch": 1}), role=Role.DATA).data[0].name == "SeedableRandomSampler"
    assert parts({"a": 1}, role=Role.DATA).data[0].name == "data"
    assert not parts({"x": {"_num_yielded": 3}, "sampler": {}}).data


def test_arguments_are_kept_by_their_own_keys():
    """A Namespace, a dict under a key that says so, and a second source with the same key."""
    saved = {
        "args": argparse.Namespace(lr=0.1, name="a"),
        "hyper_parameters": {"lr": 0.2, "h": 8},
        "x": types.SimpleNamespace(z=1),
    }
    found = parts_in(saved)
    assert found.config == {"lr": 0.1, "name": "a", "hyper_parameters.lr": 0.2, "h": 8, "z": 1}
    assert list(found.config_at) == ["args", "hyper_parameters", "x"]


def test_enums_and_nodes_stand_for_what_they_hold():
    """An enum by its value, OmegaConf's nodes by theirs, and anything else as it is."""
    node = thing("AnyNode", {"_val": 3})
    omega = thing("DictConfig", {"_content": {"a": node}, "_flags": None})
    other = thing("Thing", {"b": 1})
    fields = {
        "optim": thing("OptimizerNames", args=("adamw",)),
        "other": other,
        "two": thing("T", args=(1, 2)),
        "l": thing("L", items=[1]),
    }
    found = parts({"cfg": omega, "training_args": thing("TrainingArguments", fields)})
    assert found.config["a"] == 3
    assert found.config["optim"] == "adamw"
    assert found.config["other"] is other
    assert found.config["two"] is fields["two"]
    assert found.config["l"] is fields["l"]


@pytest.mark.parametrize("tree", [{"args": {}}, {"args": None}, {"config": {"w": tensor(2)}}, {"config": 3}])
def test_other_things_under_such_keys_are_no_arguments(tree):
    """Nothing, or tensors."""
    assert not parts(tree).config


def test_a_trainers_folder_may_say_so():
    """`training_args.bin` holds arguments whatever its class."""
    assert parts(thing("Odd", {"a": 1}), role=Role.CONFIG, hint="training_args").config == {"a": 1}
    assert list(parts(thing("Odd", {"a": 1}), role=Role.CONFIG).config_at) == ["arguments"]


def test_how_long_training_shall_be_is_no_position():
    """`epochs`, `num_epochs`, `max_steps` and `total_steps` are arguments."""
    found = parts({"epochs": 90, "num_epochs": 90, "max_steps": 5, "total_steps": 5, "num_iterations": 4, "epoch": 3})
    assert [(c.name, c.key) for c in found.counters] == [("epoch", "epoch")]


def test_updates_of_an_average_are_not_the_step():
    """`ema.num_updates` counts something else than fairseq's `num_updates`."""
    found = parts({"ema": {"num_updates": 7, "epoch": 2}, "num_updates": 9})
    assert [(c.name, c.key) for c in found.counters] == [
        ("global_step", "num_updates"), ("ema_updates", "ema.num_updates"), ("epoch", "ema.epoch"),
    ]  # fmt: skip
