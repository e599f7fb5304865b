"""Key paths are spelled for people and for programs."""

import json
import struct

import pytest

from ckpttool.commands._names import dotted, json_key
from ckpttool.dtypes import DType
from ckpttool.values import Attribute, GlobalRef, NumpyScalar
from tests.commands.made import tensor

FLOAT64 = DType("float64", 64, "float", struct="<d")


@pytest.mark.parametrize(
    ("path", "name", "key"),
    [
        ((), "", []),
        (("model", "fc.weight"), "model.fc.weight", ["model", "fc.weight"]),
        (("optimizer", "state", 0, "exp_avg"), "optimizer.state[0].exp_avg", ["optimizer", "state", 0, "exp_avg"]),
        ((Attribute("param_groups"), 0), "param_groups[0]", [".param_groups", 0]),
        (("opt", Attribute("state")), "opt.state", ["opt", ".state"]),
        ((140_537_000_123_456,), "[140537000123456]", [140_537_000_123_456]),
        ((None, 1.5, True), "[None][1.5][True]", ["None", "1.5", True]),
        ((("a", 1, (2,)),), "[('a', 1, (…))]", ["('a', 1, (…))"]),
        (((1,),), "[(1,)]", ["(1,)"]),
        ((b"\xff",), "[b'\\xff']", ["b'\\xff'"]),
        ((GlobalRef("m", "C"),), "[m.C]", ["<class 'm.C'>"]),
        ((frozenset(),), "[frozenset]", ["frozenset"]),
        ((NumpyScalar(FLOAT64, struct.pack("<d", 2.5)),), "[2.5]", ["2.5"]),
    ],
)
def test_steps(path, name, key):
    """Strings and integers stay as in the file, an attribute has a dot, any other key stands in parentheses."""
    assert dotted(path) == name
    assert json_key(path) == key


def test_a_tensor_as_a_key_is_spelled_as_torch_prints_it():
    """A pickled optimizer keeps its state under the parameters themselves."""
    parameter = tensor(2, values=[1.0, 2.5], parameter=True, requires_grad=True)
    assert json_key((parameter,)) == ["Parameter containing:\ntensor([1.0000, 2.5000], requires_grad=True)"]
    assert dotted(("state", parameter)) == "state[parameter [2]]"


def test_an_enormous_integer_is_cut():
    """A key of a million bits is spelled in a few hundred characters, and quickly."""
    key = json_key((1 << 10**6, -(1 << 10**6)))
    assert all(isinstance(step, str) and len(step) <= 202 for step in key)
    assert key[0].startswith("0x8")
    assert key[1].startswith("-0x8")
    assert json.dumps(key)
    assert len(dotted((1 << 10**6,))) < 250
