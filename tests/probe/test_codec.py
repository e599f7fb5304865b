"""The probe's answer is JSON, and is read as what `facts` declares or not at all."""

import contextlib
import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import ProbeFailed
from ckpttool.facts import (
    CounterFact,
    FrameFact,
    GroupFact,
    LoadFact,
    ModuleFact,
    OptimizerFact,
    RaisedFact,
    ScriptFacts,
    TensorFact,
)
from ckpttool.probe.codec import facts_from

FACTS = ScriptFacts(
    stopped="backward",
    exit_code=None,
    raised=RaisedFact(type="KeyError", message="'x'", frames=(FrameFact(file="t.py", line=3, function="main"),)),
    seconds=2.0,
    versions={"torch": "2.13.0"},
    loads=(LoadFact(kind="scheduler", target="o1", value={"base_lrs": [0.1], "$tuple": [1]}, frame=None),),
    modules=(ModuleFact(id="o2", cls="m.M", tensors={"w": TensorFact(shape=(2, 3), dtype="float32", digest="ab")}),),
    optimizers=(OptimizerFact(id="o3", cls="torch.optim.SGD", groups=(GroupFact(names=("w",), shapes=((2, 3),)),)),),
    counters=(CounterFact(name="epoch", value=3, where="t.py:3"), CounterFact(name="best", value=0.5, where="t.py:4")),
)


def test_there_and_back():
    """Tuples are lists and dataclasses objects in JSON; numbers keep their type."""
    facts = facts_from(json.dumps(dataclasses.asdict(FACTS)))
    assert facts == FACTS
    assert [type(c.value) for c in facts.counters] == [int, float]


def test_defaults_may_be_left_out():
    """An answer says what there is to say."""
    assert facts_from("{}") == ScriptFacts()
    assert facts_from('{"stopped": "ended", "seconds": 3}').seconds == 3.0


def test_numbers_that_json_has_no_word_for():
    """They come as `{"$float": …}`."""
    (counter,) = facts_from('{"counters": [{"name": "best", "value": {"$float": "nan"}, "where": ""}]}').counters
    assert math.isnan(counter.value)


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ("", ""),
        ("[]", "answer"),
        ('{"novel": 1}', "answer"),
        ('{"stopped": 1}', "answer.stopped"),
        ('{"seconds": true}', "answer.seconds"),
        ('{"exit_code": "1"}', "answer.exit_code"),
        ('{"modules": [{"id": "o1"}]}', "answer.modules[0]"),
        (
            '{"modules": [{"id": "o1", "cls": "m", "tensors": {"w": {"shape": [2.5], "dtype": ""}}}]}',
            "answer.modules[0].tensors.w.shape[0]",
        ),
        ('{"counters": [{"name": "e", "value": {"$float": "x"}, "where": ""}]}', "answer.counters[0].value"),
        ('{"raised": []}', "answer.raised"),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_something_else(answer, where):
    """It is an error that names the place."""
    with pytest.raises(ProbeFailed) as error:
        facts_from(answer)
    assert error.value.where == where


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(ScriptFacts)]) | st.text(), inner)
        ),
    )
)
def test_nothing_else_comes_out(value):
    """Whatever JSON it is: facts, or the one error."""
    with contextlib.suppress(ProbeFailed):
        assert isinstance(facts_from(json.dumps(value)), ScriptFacts)
