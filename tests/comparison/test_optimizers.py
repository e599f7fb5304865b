"""Parameters of two optimizers: which is which, and what their state says."""

from dataclasses import replace

import pytest
import torch

from ckpttool.comparison.measuring import Measuring
from ckpttool.comparison.optimizers import NOWHERE, ParamPair, out_of_order, pair_params
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.states import GROUP, PLACE, STATE, compare_optimizers
from ckpttool.comparison.trees import ABSENT
from ckpttool.model import Role
from tests.comparison.made import optimizer, ref


def pairs(left, right, **settings):
    """(label, left ids, right ids) of each pair, and how they were paired."""
    found, by = pair_params(left, right, **settings)
    return [(p.label, p.left, p.right) for p in found], by


def test_names_pair_in_any_order():
    """Wrapper segments are left out, and a map is applied to the left side."""
    left = optimizer((0, 1), names={0: "module.a.w", 1: "b.w"})
    right = optimizer((0,), (1,), names={0: "b.w", 1: "a.w"})
    assert pairs(left, right) == ([("a.w", (0,), (1,)), ("b.w", (1,), (0,))], "name")
    renamed = optimizer((0,), names={0: "x.w"})
    assert pairs(renamed, optimizer((5,), names={5: "a.w"}), maps=["x=a"]) == ([("a.w", (0,), (5,))], "name")
    literal = pairs(left, right, literal=True)
    assert literal == ([("module.a.w", (0,), ()), ("b.w", (1,), (0,)), ("a.w", (), (1,))], "name")


def test_position_pairs_what_has_no_name():
    """With the names of the side that knows them; numbers where none does."""
    named, bare = optimizer((0, 1), names={0: "a", 1: "b"}), optimizer((7, 8))
    assert pairs(named, bare) == ([("a", (0,), (7,)), ("b", (1,), (8,))], "position")
    assert pairs(bare, named)[0][0] == ("a", (7,), (0,))
    assert pairs(bare, bare)[0][1] == ("param 1", (8,), (8,))
    assert pairs(bare, optimizer((1,))) == ([("param 0", (7,), (1,)), ("param 1", (8,), ())], "position")
    assert pairs(optimizer(), bare) == ([("param 0", (), (7,)), ("param 1", (), (8,))], "")


def test_some_names_are_known():
    """Those pair by name, the rest in order; a name that two parameters have is none."""
    left = optimizer((0, 1, 2), names={1: "b", 2: "c"})
    right = optimizer((0, 1, 2), names={0: "b"})
    assert pairs(left, right)[1] == "name and position"
    assert pairs(left, right)[0] == [("param 0", (0,), (1,)), ("b", (1,), (0,)), ("c", (2,), (2,))]
    twice = optimizer((0, 1), names={0: "a", 1: "a"})
    assert pairs(twice, twice)[1] == "position"
    assert pairs(optimizer((0,), names={0: "a"}), optimizer((0,), names={0: "b"}))[1] == ""


def compared(left, right, **choices):
    """The part that comes of two optimizers."""
    result = PartComparison(role=Role.OPTIMIZER, name="optimizer", other="optimizer")
    compare_optimizers(left, right, Measuring(Choices(**choices)), result)
    return result


def entry(step, *moment):
    return {"step": ref(torch.tensor(float(step))), "exp_avg": ref(torch.tensor(moment))}


def test_moments_are_tensors_and_steps_are_fields():
    """One row a moment, one change a step, and a change for each hyperparameter of each group."""
    left = optimizer((0, 1), state={0: entry(1, 1.0, 2.0), 1: entry(1, 5.0, 6.0)}, names={0: "a", 1: "b"})
    right = optimizer((0, 1), state={0: entry(2, 1.0, 2.5), 1: entry(1, 5.0, 6.0)}, names={0: "a", 1: "b"}, lr=0.2)
    found = compared(left, right)
    assert [(r.name, r.compared.sameness) for r in found.tensors] == [
        ("a.exp_avg", Sameness.DIFFERENT), ("b.exp_avg", Sameness.IDENTICAL),
    ]  # fmt: skip
    assert [c.path for c in found.changes] == [("a", "step"), ("group", 0, "lr")]
    assert (found.changes[1].left, found.changes[1].right) == (0.1, 0.2)
    assert found.fields == 3


def test_selection_is_by_parameter_or_by_row():
    """`a` selects all of a parameter, `*.exp_avg` one kind of state; settings are left out."""
    state = {0: entry(1, 1.0, 2.0), 1: entry(1, 5.0, 6.0)}
    left = optimizer((0, 1), state=state, names={0: "a", 1: "b"})
    right = optimizer((0, 1), state={0: entry(2, 1.0, 2.5), 1: entry(2, 5.0, 6.0)}, names={0: "a", 1: "b"}, lr=0.2)
    one = compared(left, right, select=("a",))
    assert ([r.name for r in one.tensors], [c.path for c in one.changes]) == (["a.exp_avg"], [("a", "step")])
    kind = compared(left, right, select=("*.exp_avg",))
    assert ([r.name for r in kind.tensors], kind.changes) == (["a.exp_avg", "b.exp_avg"], [])
    rest = compared(left, right, exclude=("*.exp_avg", "b*"))
    assert ([r.name for r in rest.tensors], len(rest.changes)) == ([], 2)
    gone = compared(left, optimizer((0, 1), names={0: "a", 1: "b"}), select=("b",))
    assert [c.path for c in gone.changes] == [("b", STATE)]


def test_gained_lost_and_moved_parameters():
    """State that one side lacks, a parameter that one side lacks, and one that went to another group."""
    left = optimizer((0, 1), state={0: entry(1, 1.0, 2.0)}, names={0: "a", 1: "b"})
    right = optimizer((1,), (0, 2), state={1: {}, 2: {3: 1}}, names={0: "a", 1: "b", 2: "c"})
    found = {c.path: (c.left, c.right) for c in compared(left, right).changes}
    assert found["a", GROUP] == (0, 1)
    assert found["a", STATE] == (["step", "exp_avg"], ABSENT)
    assert found["b", STATE] == (ABSENT, [])
    assert found["c", GROUP] == (ABSENT, 1)
    assert found["c", STATE] == (ABSENT, ["3"])
    assert found["group", 1] == (ABSENT, {"lr": 0.1})


def test_odd_states():
    """Keys of any kind, state that no group names, values that are no tensors."""
    huge = 10**6000
    left = optimizer((0, [1]), state={0: {"a": 1, huge: 2, None: 3}, "orphan": {"x": 1}, huge: {"y": 1}})
    right = optimizer((0, [1]), state={0: {"a": 1, huge: 5}, "orphan": {"x": 2}})
    found = [(c.path[0], c.path[-1], c.left) for c in compared(left, right).changes]
    assert found == [
        ("param 0", huge, 2),
        ("param 0", None, 3),
        ("state[orphan]", "x", 1),
        ("state[int]", STATE, ["y"]),
    ]


def ordered(optimizer_, source="order"):
    return replace(optimizer_, names_from=source)


def test_names_that_rest_on_the_models_order_are_assumed():
    """Only where they pair other places than the order would is there anything to assume."""
    left = ordered(optimizer((0, 1), names={0: "a", 1: "b"}))
    turned = optimizer((0, 1), names={0: "b", 1: "a"})
    assert pairs(left, ordered(turned)) == ([("a", (0,), (1,)), ("b", (1,), (0,))], "assumed name")
    assert pairs(left, turned)[1] == pairs(turned, left)[1] == "assumed name"
    assert pairs(left, left)[1] == "name"
    assert pairs(ordered(left, "shapes"), ordered(turned, "FQN"))[1] == "name"
    some = ordered(optimizer((0, 1, 2), names={0: "b"}))
    assert pairs(ordered(optimizer((0, 1), names={1: "b"})), some)[1] == "assumed name and position"


def test_a_reordered_model_is_matched_by_its_names():
    """State moved along with its parameter, so by name only the places differ, by which torch gives states back."""
    one, two = entry(1, 1.0, 2.0), entry(1, 5.0, 6.0)
    left = ordered(optimizer((0, 1), state={0: one, 1: two}, names={0: "a", 1: "b"}))
    right = ordered(optimizer((0, 1), state={0: two, 1: one}, names={0: "b", 1: "a"}))
    found = compared(left, right)
    assert found.matched_by == "assumed name"
    assert [(c.path, c.left, c.right) for c in found.changes] == [(("a", PLACE), 0, 1), (("b", PLACE), 1, 0)]


def places(*pairs):
    return [ParamPair(f"p{n}", (), (), *pair) for n, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "moved"),
    [
        ([(0, 0), (1, 1)], []),
        ([(0, 2), (1, 1), (2, 0)], ["p0", "p2"]),
        ([(0, NOWHERE), (1, 0), (2, 1)], []),  # one is gone, the rest is in order
        ([(0, 1), (1, 2), (NOWHERE, 0)], []),
        ([(0, NOWHERE), (1, 1), (2, 0), (3, 2)], ["p1"]),
    ],
)
def test_places(pairs, moved):
    """Parameters in another place are found; those that only move up because one is gone are not."""
    assert [pair.label for pair in out_of_order(places(*pairs))] == moved


def test_names_that_differ_by_a_prefix():
    """An optimizer beside `model.a` is paired with one beside `a`, whichever side has the prefix."""
    state = {0: entry(1, 1.0, 2.0), 1: entry(1, 5.0, 6.0)}
    bare = optimizer((0, 1), state=state, names={0: "a", 1: "b"})
    longer = optimizer((0, 1), state=state, names={0: "model.a", 1: "model.b"})
    other = optimizer((0, 1), state=state, names={0: "model.a", 1: "c"})
    for left, right in ((bare, longer), (longer, bare)):
        found = compared(left, right)
        assert (found.matched_by, found.changes) == ("name", [])
    assert compared(bare, other).changes


def test_states_under_names_have_no_place():
    """What FSDP and DCP keep under FQNs is given back by name."""
    state = {"a": entry(1, 1.0, 2.0), "b": entry(1, 5.0, 6.0)}
    left = replace(optimizer(("a", "b"), state=state, names={"a": "a", "b": "b"}), names_from="FQN")
    right = replace(optimizer(("b", "a"), state=state, names={"a": "a", "b": "b"}), names_from="FQN")
    assert compared(left, right).changes == []


def test_reordered_keys_do_not_move_the_optimizer():
    """Where all state is the same in the optimizer's own order, only the model's keys were put in another one."""
    state = {0: {**entry(1, 1.0, 2.0), "note": "x"}, 1: {**entry(1, 5.0, 6.0), "note": "y"}}
    left = ordered(optimizer((0, 1, 2), state=state, names={0: "a", 1: "b", 2: "c"}))
    right = ordered(optimizer((0, 1, 2), state=state, names={0: "b", 1: "a", 2: "c"}))
    found = compared(left, right)
    assert found.matched_by == "position"
    assert found.verdict(Choices()) is Sameness.IDENTICAL


@pytest.mark.parametrize(
    "change",
    [{"note": "z"}, {"exp_avg": ref(torch.tensor([9.0, 9.0]))}, {"more": 1}, None],
    ids=["number", "tensor", "key", "none"],
)
def test_one_parameter_with_other_state_leaves_the_names(change):
    """A number, a tensor, a further key, or no state at all."""
    state = {0: {**entry(1, 1.0, 2.0), "note": "x"}, 1: {**entry(1, 5.0, 6.0), "note": "y"}}
    other = dict(state)
    if change is None:
        del other[1]
    else:
        other[1] = {**state[1], **change}
    left = ordered(optimizer((0, 1), state=state, names={0: "a", 1: "b"}))
    right = ordered(optimizer((0, 1), state=other, names={0: "b", 1: "a"}))
    assert compared(left, right).matched_by == "assumed name"
