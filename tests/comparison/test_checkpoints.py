"""Part by part: which is held against which, and what the whole comes to."""

import pytest
import torch

from ckpttool.comparison.checkpoints import compare_checkpoints, tensor_bytes
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.errors import CkptError
from ckpttool.model import (
    At,
    Checkpoint,
    Counter,
    CustomObject,
    DataPosition,
    LossScale,
    RngState,
    Role,
    SchedulerState,
    Weights,
)
from tests.comparison.made import checkpoint, cut, optimizer, ref, weights


def parts(left, right, **choices):
    """The comparisons, by role and name."""
    wanted = Choices(**choices)
    found = compare_checkpoints(checkpoint(**left), checkpoint(**right), wanted)
    return {(p.role, p.name): p for p in found}


def model(value=1.0, role=Role.MODEL, name="model"):
    return weights(role, name, w=torch.full((3, 2), value), b=torch.ones(2))


def test_parts_pair_by_name_then_in_order():
    """Two optimizers that changed places find each other; other names go in order."""
    g, d = optimizer((0,), lr=1.0), optimizer((0,), lr=2.0)
    object.__setattr__(g, "name", "opt_g"), object.__setattr__(d, "name", "opt_d")
    found = parts({"optimizers": (g, d)}, {"optimizers": (d, g)})
    assert all(not p.changes for p in found.values())
    found = parts({"weights": (model(name="state_dict"),)}, {"weights": (model(name="model"),)})
    (one,) = found.values()
    assert (one.name, one.other, one.verdict(Choices())) == ("state_dict", "model", Sameness.IDENTICAL)
    two = parts({"weights": (model(), model(2.0))}, {"weights": (model(),)})
    assert [p.side for p in two.values()] == ["left"]  # of one name and role: the last is kept by this test


def test_averaged_weights_stand_in_for_a_model():
    """Where each side has only one of the two, and said so; not where a side has both."""
    found = parts({"weights": (model(),)}, {"weights": (model(role=Role.EMA, name="ema"),)})
    assert found[Role.MODEL, "model"].note == "the left model is held against the right side's averaged weights"
    mirrored = parts({"weights": (model(role=Role.EMA, name="ema"),)}, {"weights": (model(),)})
    assert mirrored[Role.MODEL, "ema"].note == "the left side's averaged weights are held against the right model"
    both = parts({"weights": (model(), model(role=Role.EMA, name="ema"))}, {"weights": (model(),)})
    assert both[Role.EMA, "ema"].side == "left"


def test_custom_objects_go_by_name():
    """Those of other names are other objects, unless there is one on each side; several of a name go in order."""

    def custom(*names):
        return {"custom": tuple(CustomObject(at=At(""), name=n, value=v) for n, v in names)}

    found = parts(custom(("a", 1), ("b", 2)), custom(("b", 2), ("c", 3)))
    assert {name: p.side for (_, name), p in found.items()} == {"a": "left", "b": "both", "c": "right"}
    assert parts(custom(("a", 1)), custom(("b", 1)))[Role.CUSTOM, "a"].side == "both"
    same = compare_checkpoints(
        checkpoint(**custom(("a", 1), ("a", 2))), checkpoint(**custom(("a", 1), ("a", 3))), Choices()
    )
    assert [len(p.changes) for p in same] == [0, 1]


def test_fields_of_every_kind_of_part():
    """Schedule, loss scale, data position, counters and config, each at its own path."""

    def side(n):
        return {
            "schedulers": (SchedulerState(at=At(""), fields={"last_epoch": n}),),
            "scalers": (LossScale(at=At(""), scale=2.0**n),),
            "data": (DataPosition(at=At(""), name="loader", fields={"batch": n}),),
            "counters": (Counter(at=At(""), name="step", key="s", value=n), Counter(at=At(""), name="step", key="t", value=1),
                         Counter(at=At(""), name="step", key="t", value=2)),
            "config": {"lr": n},
        }  # fmt: skip

    found = parts(side(1), side(2))
    assert {role: [c.path for c in p.changes] for (role, _), p in found.items()} == {
        Role.SCHEDULER: [("last_epoch",)], Role.SCALER: [("scale",)], Role.DATA: [("batch",)],
        Role.PROGRESS: [("step (s)",)], Role.CONFIG: [("lr",)],
    }  # fmt: skip
    assert found[Role.PROGRESS, "progress"].fields == 3


def generator(name, value, rank=None, detail="16 bytes"):
    return RngState(at=At(""), generator=name, rank=rank, detail=detail, value=value)


def test_random_states_are_told_as_a_whole():
    """One change a generator; ranks are said where a side has several."""
    left = {"rng": (generator("torch", [1, 2, 3]), generator("python", 1, detail=""))}
    right = {"rng": (generator("torch", [1, 5, 6]), generator("cuda:0", 1))}
    changes = parts(left, right)[Role.RNG, "rng"].changes
    assert [(c.path, c.note) for c in changes] == [(("torch",), "other state"), (("python",), ""), (("cuda:0",), "")]
    ranks = {"rng": (generator("torch", 1, rank=0), generator("torch", 2, rank=1))}
    assert [c.path for c in parts(ranks, {"rng": (generator("torch", 1, rank=0),)})[Role.RNG, "rng"].changes] == [
        ("rank 1 torch",)
    ]
    assert parts({"rng": ranks["rng"][:1]}, {"rng": (generator("torch", 1),)})[Role.RNG, "rng"].changes == []
    assert parts({"rng": ranks["rng"][:1]}, {"rng": (generator("torch", 1),)})[Role.RNG, "rng"].fields == 1


def test_tied_weights_are_read_once():
    """A second name of the same pair gets the first one's figures, and progress is told its bytes."""
    shared = ref(torch.ones(4, 4))
    other = ref(torch.zeros(4, 4))
    left, right = weights(Role.MODEL), weights(Role.MODEL)
    left.tensors.update(a=shared, b=shared), right.tensors.update(a=other, b=other)
    told = []
    found = compare_checkpoints(checkpoint(weights=(left,)), checkpoint(weights=(right,)), Choices(), told.append)
    one, two = found[0].tensors
    assert one.compared is two.compared
    assert sum(told) == 2 * 64
    assert compare_checkpoints(checkpoint(weights=(left,)), checkpoint(weights=(right,)), Choices())[0].tensors


def test_overlap_crops_what_was_resized():
    """The same where both have any; packed types, parts and other dimensions are not cropped."""
    small, large = torch.arange(6.0).reshape(2, 3), torch.zeros(4, 3)
    large[:2] = small
    left, right = weights(Role.MODEL, emb=small), weights(Role.MODEL, emb=large)
    one = parts({"weights": (left,)}, {"weights": (right,)}, overlap=True)[Role.MODEL, "model"]
    assert one.verdict(Choices()) is Sameness.OVERLAP
    assert not one.differs(Choices())
    assert one.tensors[0].compared.note == "[2, 3] against [4, 3]"
    assert (
        parts({"weights": (left,)}, {"weights": (right,)})[Role.MODEL, "model"].verdict(Choices()) is Sameness.DIFFERENT
    )
    wide = weights(Role.MODEL, emb=large.double())
    for options, found in (({}, Sameness.DIFFERENT), ({"by_value": True}, Sameness.OVERLAP)):
        (row,) = parts({"weights": (left,)}, {"weights": (wide,)}, overlap=True, **options)[Role.MODEL, "model"].tensors
        assert row.compared.sameness is found
        assert row.compared.note == "[2, 3] against [4, 3], same values where they overlap"
    flat = weights(Role.MODEL, emb=torch.arange(6.0))
    assert parts({"weights": (left,)}, {"weights": (flat,)}, overlap=True)[Role.MODEL, "model"].differs(Choices())


def test_tensors_without_values_are_not_remembered():
    """A meta tensor on both sides."""
    meta = ref(torch.ones(2), storage=None, kind="meta")
    left, right = weights(Role.MODEL), weights(Role.MODEL)
    left.tensors["m"], right.tensors["m"] = meta, meta
    assert not parts({"weights": (left,)}, {"weights": (right,)})[Role.MODEL, "model"].differs(Choices())


def test_roles_and_selection():
    """`roles` name parts; `select` alone means parts that hold tensors."""
    left = {"weights": (model(),), "config": {"a": 1}}
    right = {"weights": (model(2.0),), "config": {"a": 2}}
    assert list(parts(left, right, roles=(Role.CONFIG,))) == [(Role.CONFIG, "config")]
    only = parts(left, right, select=("b",))
    assert list(only) == [(Role.MODEL, "model")]
    assert [r.name for r in only[Role.MODEL, "model"].tensors] == ["b"]
    assert len(parts(left, right, exclude=("w",))) == 2


def test_other_entries_of_a_state_dict_are_fields():
    """`_extra_state` is compared; not with a selection of tensors."""
    left, right = model(), model()
    left = type(left)(at=left.at, tensors=left.tensors, extra={"_extra_state": 1})
    right = type(right)(at=right.at, tensors=right.tensors, extra={"_extra_state": 2})
    assert parts({"weights": (left,)}, {"weights": (right,)})[Role.MODEL, "model"].changes[0].path == ("_extra_state",)
    assert not parts({"weights": (left,)}, {"weights": (right,)}, select=("*",))[Role.MODEL, "model"].changes


def test_verdicts():
    """The least alike that does not pass decides, else the least alike."""
    left = weights(Role.MODEL, a=torch.ones(2), z=torch.zeros(2))
    bits = weights(Role.MODEL, a=torch.ones(2), z=-torch.zeros(2))
    one = parts({"weights": (left,)}, {"weights": (bits,)})[Role.MODEL, "model"]
    assert (one.verdict(Choices()), one.differs(Choices())) == (Sameness.SAME_VALUES, True)
    assert not one.differs(Choices(by_value=True))
    missing = parts({"weights": (left,)}, {"weights": (weights(Role.MODEL, a=torch.ones(2)),)})[Role.MODEL, "model"]
    assert missing.verdict(Choices()) is Sameness.DIFFERENT
    assert not missing.empty
    assert parts({"weights": (weights(Role.MODEL),)}, {"weights": (weights(Role.MODEL),)})[Role.MODEL, "model"].empty


def test_bytes_to_read():
    """Of the tensors that are asked for."""
    whole = checkpoint(weights=(model(),), optimizers=(optimizer((0,), state={0: {"m": ref(torch.ones(4)), "n": 1}}),))
    assert tensor_bytes(whole, Choices()) == 24 + 8 + 16
    assert tensor_bytes(whole, Choices(select=("w",))) == 24 + 16
    assert tensor_bytes(whole, Choices(roles=(Role.MODEL,))) == 32


def test_errors_name_the_side():
    """A file that ends too early."""
    left, right = weights(Role.MODEL, w=torch.ones(1000)), weights(Role.MODEL)
    right.tensors["w"] = cut(left.tensors["w"], 10)
    with pytest.raises(CkptError, match="the right side"):
        parts({"weights": (left,)}, {"weights": (right,)})


def test_what_a_whole_module_says_of_itself_counts_between_whole_modules():
    """Dropout(0.1) against Dropout(0.2) is a difference; a module against its own state_dict is none."""
    one = Weights(at=At(""), extra={"__dict__": {"p": 0.1}})
    two = Weights(at=At(""), extra={"__dict__": {"p": 0.2}})
    bare = Weights(at=At(""))

    def changes(left, right):
        sides = [Checkpoint(path="", layout="plain", weights=(w,)) for w in (left, right)]
        (part,) = compare_checkpoints(*sides, Choices())
        return [(c.path, c.left, c.right) for c in part.changes]

    assert changes(one, two) == [(("__dict__", "p"), 0.1, 0.2)]
    assert changes(one, bare) == changes(bare, one) == []


def test_resized_tensors_are_compared_where_they_overlap_and_told():
    """An embedding that grew has a row even where the overlap is equal; rows of NaN alone come first."""
    nan = torch.tensor([1.0, float("nan")])
    left = checkpoint(weights=(weights(Role.MODEL, emb=torch.ones(3, 2), a=torch.ones(2), n=torch.ones(2)),))
    right = checkpoint(weights=(weights(Role.MODEL, emb=torch.ones(5, 2), a=torch.zeros(2), n=nan),))
    (part,) = compare_checkpoints(left, right, Choices(overlap=True))
    assert part.cropped == 1
    assert [row.name for row in part.unlike] == ["n", "emb", "a"]
    assert next(row for row in part.unlike if row.name == "emb").compared.sameness is Sameness.OVERLAP


def test_a_tolerance_that_lets_another_type_pass_says_so():
    """A tolerance compares by value, so float32 against bfloat16 may pass; the row tells it."""
    left = checkpoint(weights=(weights(Role.MODEL, w=torch.tensor([1.0, 2.0])),))
    right = checkpoint(weights=(weights(Role.MODEL, w=torch.tensor([1.0, 2.0]).bfloat16()),))
    (part,) = compare_checkpoints(left, right, Choices(tolerance=Tolerance(rtol=0.01)))
    assert part.tensors[0].compared.note == "the other type passes, as a tolerance compares by value"
    (strict,) = compare_checkpoints(left, right, Choices())
    assert strict.tensors[0].compared.note == ""
