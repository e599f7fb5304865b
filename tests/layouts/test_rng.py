"""States of random generators."""

import random

import numpy as np
import pytest
import torch

from ckpttool.model import Role
from tests.layouts.trees import parts, parts_in, tensor, thing

numpy_state = np.random.get_state  # the legacy state is what trainers save


def generators(found):
    return [(r.generator, r.detail) for r in found.rng]


def test_the_three_usual_generators_are_told_by_their_structure():
    """Python's tuple, numpy's tuple and torch's 5,056 bytes, under keys that say nothing."""
    saved = {"a": random.getstate(), "b": numpy_state(), "c": torch.get_rng_state(), "d": []}
    found = parts_in(saved)
    assert [g for g, _ in generators(found)] == ["python", "numpy", "torch"]
    assert found.rng[0].detail == f"Mersenne Twister, position {random.getstate()[1][-1]}"
    assert found.rng[1].detail == f"MT19937, position {numpy_state()[2]}"
    assert found.rng[2].detail == "5,056 bytes"
    assert [c.name for c in found.custom] == ["d"]


def test_generators_of_numpy_are_known_as_dicts_and_as_objects():
    """`bit_generator.state` names its kind; a pickled Generator is told by its constructor."""
    found = parts_in({"state": np.random.default_rng(1).bit_generator.state, "legacy": numpy_state(legacy=False)})
    assert generators(found)[0] == ("numpy", "PCG64")
    assert generators(found)[1][1].startswith("MT19937, position")
    found = parts_in({"x": np.random.default_rng(1), "y": np.random.RandomState(1)})
    assert [g for g, _ in generators(found)] == ["numpy", "numpy"]
    assert generators(found)[1][1] == "MT19937"


def test_device_generators_have_their_index():
    """A list under `cuda` is one state a device; other devices are told by their key."""
    byte = tensor(16, dtype="uint8")
    found = parts({"rng_state": {"cuda": [byte, byte], "torch_xpu_manual_seed": byte, "xm_seed": byte, "other": byte}})
    assert [g for g, _ in generators(found)] == ["xpu", "xla", "torch", "cuda:0", "cuda:1"]


def test_short_bytes_are_a_state_only_under_a_generators_key():
    """Sixteen bytes may be anything."""
    found = parts({"epoch": 3, "labels": tensor(16, dtype="uint8"), "cuda": tensor(16, dtype="uint8")})
    assert not found.rng
    assert len(parts({"x": tensor(16, dtype="uint8")}, hint="rng_state").rng) == 1
    assert len(parts(tensor(16, dtype="uint8"), role=Role.RNG).rng) == 1


@pytest.mark.parametrize("shape", [(16, 2), (0,), (20_000,)])
def test_other_shapes_are_no_state(shape):
    """A state is one row of at most 10,000 bytes."""
    assert not parts({"rng": tensor(*shape, dtype="uint8")}).rng


@pytest.mark.parametrize(
    "value",
    [
        (3, (1, 2), None),
        (3, tuple("a" for _ in range(625)), None),
        ("3", tuple(range(625)), None),
        (3, tensor(625), None),
        ("MT19937", 3, 4),
        ("MT19937", tensor(624), "x"),
        ("PCG-64", tensor(624), 1),
        ("OTHER", tensor(624), 1),
        {"bit_generator": 3, "state": {}},
        {"bit_generator": "PCG64", "state": 3},
    ],
)
def test_what_only_looks_like_a_state_is_none(value):
    """Each field is looked at before a generator is named."""
    assert not parts({"x": value}).rng


def test_a_list_under_rng_has_one_entry_a_rank():
    """Composer and Megatron save `rng: [{...}, {...}]`."""
    state = {"torch": tensor(5056, dtype="uint8")}
    found = parts({"rng": [dict(state), dict(state)]})
    assert [r.rank for r in found.rng] == [0, 1]
    assert parts({"torch": tensor(5056, dtype="uint8")}, rank=3).rng[0].rank == 3


def test_numpy_objects_without_a_readable_state_keep_their_kind():
    """The constructor's name tells what it is."""
    assert generators(parts({"x": thing("__generator_ctor", 5)})) == [("numpy", "generator")]
    assert not parts({"x": thing("Sampler", {"bit_generator": "x"})}).rng
