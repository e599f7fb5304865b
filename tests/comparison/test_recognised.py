"""What both sides are seen as: parts that lack a key, values that no part speaks for, changes that two parts tell."""

import copy
from argparse import Namespace

import pytest
import torch

from ckpttool.comparison.checkpoints import compare_checkpoints
from ckpttool.comparison.leftovers import leftovers
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.trees import ABSENT
from ckpttool.model import At, Checkpoint, Contents, Counter, CustomObject, LossScale, RngState, Weights
from ckpttool.opening import open_checkpoint
from ckpttool.values import TensorRef
from tests.comparison.made import ref
from tests.conftest import FIXTURES

W = {"w": torch.ones(3)}
MODEL = torch.nn.Linear(2, 2)
STATE = MODEL.state_dict()
SCALER = torch.amp.GradScaler("cpu")
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
SCHEDULE = torch.optim.lr_scheduler.StepLR(OPTIMIZER, 5).state_dict()
AVERAGED = torch.optim.swa_utils.AveragedModel(MODEL).state_dict()


def state(seed):
    """The state of a generator."""
    return torch.Generator().manual_seed(seed).get_state()


def extended(state_dict, **entries):
    """A state_dict with more in it, and its `_metadata`."""
    found = copy.copy(state_dict)
    found.update(entries)
    return found


def without(mapping, *keys):
    """A dict that lost some keys."""
    return {key: value for key, value in mapping.items() if key not in keys}


@pytest.fixture
def differing(tmp_path):
    """Compare two values as torch saves them: what differs, as (role, name, what)."""

    def compare(left, right):
        for name, value in (("l.pt", left), ("r.pt", right)):
            torch.save(value, tmp_path / name)
        with open_checkpoint(tmp_path / "l.pt") as mine, open_checkpoint(tmp_path / "r.pt") as other:
            return found(compare_checkpoints(mine, other, Choices()))

    return compare


def found(parts):
    """What differs, as (role, name, where or on which side)."""
    told = []
    for part in parts:
        if part.side != "both":
            told.append((str(part.role), part.name, f"only {part.side}"))
            continue
        told += [
            (str(part.role), part.name, (*change.path, _plain(change.left), _plain(change.right)))
            for change in part.changes
        ]
        told += [(str(part.role), part.name, f"{name} only left") for name, _ in part.only_left]
        told += [(str(part.role), part.name, f"{name} only right") for name, _ in part.only_right]
        told += [(str(part.role), part.name, f"{row.name} {row.compared.sameness}") for row in part.unlike]
    return told


def _plain(value):
    return "absent" if value is ABSENT else "tensor" if isinstance(value, TensorRef) else value


def scaler_with(**attributes):
    """A GradScaler object with attributes set on it."""
    made = torch.amp.GradScaler("cpu")
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    ("left", "right", "change"),
    [
        (SCALER.state_dict(), SCALER.state_dict() | {"extra": 5}, ("extra", "absent", 5)),
        (SCALER.state_dict(), SCALER.state_dict() | {"scale": 4.0}, ("scale", 65536.0, 4.0)),
        (SCALER.state_dict(), without(SCALER.state_dict(), "growth_interval"), ("growth_interval", 2000, "absent")),
        (SCALER.state_dict(), SCALER.state_dict() | {"scale": "big"}, ("scale", 65536.0, "big")),
        (scaler_with(), scaler_with(extra=5), ("extra", "absent", 5)),
        (scaler_with(), SCALER.state_dict() | {"extra": 5}, ("extra", "absent", 5)),
        (scaler_with(extra=5), SCALER.state_dict(), ("extra", 5, "absent")),
        (scaler_with(), SCALER.state_dict() | {"growth_interval": 7}, ("growth_interval", 2000, 7)),
        (SCALER.state_dict(), {}, ("enabled", True, False)),
    ],
)
def test_every_field_of_a_loss_scale_counts(differing, left, right, change):
    """Those that we have no word for too; a pickled scaler and its state are held against each other in our words."""
    told = differing(W | {"scaler": left}, W | {"scaler": right})
    assert ("scaler", "scaler", change) in told
    assert len(told) == 1 or not right
    assert differing(W | {"scaler": left}, W | {"scaler": left}) == []


def test_a_pickled_scaler_is_its_state(differing):
    """The same numbers in two forms are no difference."""
    assert differing(W | {"scaler": SCALER}, W | {"scaler": SCALER.state_dict()}) == []


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ({"cuda": [state(1)]}, {"cuda": [state(1), 5]}, ("custom", "cuda[1]", "only right")),
        ({"rng": {"cuda": [state(1)]}}, {"rng": {"cuda": [state(1), "x"]}}, ("custom", "rng.cuda[1]", "only right")),
        ({"rng": {"cuda": [state(1), 5]}}, {"rng": {"cuda": [state(1), 6]}}, ("custom", "rng.cuda[1]", (5, 6))),
        ({"rng": {"cuda": [state(1), None]}}, {"rng": {"cuda": [state(1)]}}, ("custom", "rng.cuda[1]", "only left")),
        ({"x": {"rng": state(1)}}, {"x": {"rng": state(1), "n": None}}, ("custom", "x.n", "only right")),
        ({"a": {"b": {"c": {"model": STATE}}}}, {"a": {"b": {"c": {"model": STATE, "n": 3}}}}, ("custom", "a.b.c.n", "only right")),
        ({"o": OPTIMIZER.state_dict()}, {"o": OPTIMIZER.state_dict() | {"defaults": {"lr": 1}}}, ("custom", "o.defaults", "only right")),
        ([STATE, 1], [STATE, 2], ("custom", "[1]", (1, 2))),
    ],
)  # fmt: skip
def test_what_no_part_speaks_for_is_compared(differing, left, right, told):
    """A number or None in a list of states, deep below, or beside an optimizer's own keys."""
    assert differing(left, right) == [told]
    assert differing(left, left) == differing(right, right) == []


def test_a_machine_without_devices_keeps_an_empty_list(differing):
    """The generators that it lacks are said once, and the empty list is no value beside them."""
    told = differing({"r": {"torch_rng": state(1), "cuda": [state(2)]}}, {"r": {"torch_rng": state(1), "cuda": []}})
    assert told == [("rng", "rng", ("torch (r.cuda.0)", "5,056 bytes", "absent"))]


def test_many_leftovers_of_one_place_are_one_object(differing):
    """A list of states with a thousand numbers behind it."""
    left = {"rng": [state(1), *range(1500)]}
    ((role, name, change),) = differing(left, {"rng": [*left["rng"][:-1], 7]})
    assert (role, name, change) == ("custom", "rng", (1500, 1499, 7))
    assert differing([state(1), *range(1500)], [state(1), *range(1499), 7]) == [("custom", "values", (1500, 1499, 7))]


def test_an_object_that_lies_in_a_part_too_is_no_leftover(tmp_path):
    """It was compared there."""
    torch.save({"model": STATE, "x": {"n": 1.5, "rng": state(1), "again": STATE["weight"]}}, tmp_path / "l.pt")
    with open_checkpoint(tmp_path / "l.pt") as side:
        assert [held.name for held in leftovers(side, side)] == []


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ({"rng_a": state(1), "rng_b": state(2)}, {"rng_b": state(2)}, ["torch (rng_a)"]),
        ({"rng_a": state(1), "rng_b": state(2)}, {"rng_b": state(2), "rng_a": state(1)}, []),
        ({"rng_a": state(1), "rng_b": state(2)}, {"rng_a": state(1), "rng_b": state(3)}, ["torch (rng_b)"]),
        ({"rng_a": state(1)}, {"rng_c": state(1)}, []),
        ({"rng_a": state(1), "rng_b": state(2)}, {"rng_c": state(1), "rng_b": state(2)}, []),
        ({"rng": [state(1), state(2)]}, {"rng": [state(1)]}, ["torch (rng.1)"]),
        ({"rng": state(1)}, {"rng": 5}, ["torch"]),
        ({"rng": state(1)}, {"rng": None}, ["torch"]),
    ],
)
def test_generators_are_paired_by_their_keys(differing, left, right, told):
    """Then the only ones left of a kind; several of a kind are told with the file's key."""
    assert [(role, change[0]) for role, _, change in differing(left, right)] == [("rng", key) for key in told]


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ({"step": 1, "a": {"step": 2}}, {"step": 1}, ["step (a.step)"]),
        ({"step": 1, "a": {"step": 2}}, {"step": 5, "a": {"step": 2}}, ["step (step)"]),
        ({"epoch": 3}, {"epoch": "three"}, ["epoch"]),
        ({"epoch": 3}, {"epoch": None}, ["epoch"]),
    ],
)
def test_counters_are_paired_by_their_keys(differing, left, right, told):
    """A second one of a word moves no other, and what became a text is still the counter."""
    found_ = differing(W | left, W | right)
    assert [(role, change[0]) for role, _, change in found_] == [("progress", key) for key in told]


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ({"foo": SCHEDULE}, {"foo": without(SCHEDULE, "last_epoch")}, [("scheduler", "foo", ("last_epoch", 0, "absent"))]),
        ({"foo": SCHEDULE, "bar": SCHEDULE}, {"foo": SCHEDULE, "bar": without(SCHEDULE, "last_epoch")},
         [("scheduler", "bar", ("last_epoch", 0, "absent"))]),
        ({"x": {"foo": SCHEDULE}}, {"foo": {"step_size": 5, "gamma": 0.1}, "x": 1},
         [("scheduler", "x.foo", "only left"), ("custom", "foo", "only right"), ("custom", "x", "only right")]),
        ({"s": SCALER.state_dict()}, {"s": without(SCALER.state_dict(), "scale")}, [("scaler", "s", ("scale", 65536.0, "absent"))]),
        ({"x": {"foo": SCHEDULE, "n": [1], "t": (1,)}}, {"x": {"foo": without(SCHEDULE, "last_epoch"), "n": [1], "t": (1,)}},
         [("scheduler", "x.foo", ("last_epoch", 0, "absent"))]),
        (W, {"v": torch.ones(3), "zz": 5},
         [("model", "model", "only left"), ("custom", "v", "only right"), ("custom", "zz", "only right")]),
        ({"s": SCALER.state_dict()}, {"s": 5}, [("scaler", "s", "only left"), ("custom", "s", "only right")]),
        ({"s": SCALER.state_dict()}, {"s": {"other": 5}}, [("scaler", "s", "only left"), ("custom", "s", "only right")]),
        ({"sampler": {"n": 1}}, {"sampler": {"n": 2}}, [("data", "sampler", ("n", 1, 2))]),
        (dict(STATE), extended(STATE, zz=5), [("custom", "zz", "only right")]),
        (STATE, extended(STATE, zz=5), [("custom", "zz", "only right")]),
        ({"model": STATE}, {"model": extended(STATE, zz=5)}, [("custom", "model.zz", "only right")]),
        (AVERAGED, extended(AVERAGED, zz=5), [("custom", "zz", "only right")]),
        ({"ema": AVERAGED}, {"ema": extended(AVERAGED, zz=5)}, [("custom", "ema.zz", "only right")]),
        ({"w": torch.ones(3), "v": torch.ones(2), "b": None}, {"w": torch.zeros(3), "v": torch.ones(2), "b": None, "zz": 5},
         [("model", "model", "w different"), ("custom", "zz", "only right")]),
        ({"model": {"w": torch.ones(3)}}, {"model": {"w": torch.ones(3), 7: torch.ones(2), "n": 1}},
         [("model", "model", ("n", "absent", 1)), ("model", "model", "7 only right")]),
        ({"model": STATE}, {"model": MODEL}, []),
        ({"model": {"weight": torch.ones(3)}}, {"model": {"weight": torch.ones(3).int(), "n": 1}},
         [("model", "model", ("n", "absent", 1)), ("model", "model", "weight same values")]),
        ({"o": OPTIMIZER.state_dict()}, {"o": without(OPTIMIZER.state_dict(), "state")}, []),
        ({"o": OPTIMIZER.state_dict()}, {"o": {"other": 1}}, [("optimizer", "o", "only left"), ("custom", "o", "only right")]),
        ({"args": {"lr": 1, "wd": 2}}, {"args": {"lr": 3, "wd": torch.ones(3)}},
         [("config", "config", ("lr", 1, 3)), ("config", "config", ("wd", 2, "tensor"))]),
        ({"args": {"lr": 1, "wd": 2}}, {"args": {"other": torch.ones(3)}},
         [("config", "config", "only left"), ("model", "args", "only right")]),
        ({"args": {"lr": 1, "wd": 2}, "m": W}, {"m": W}, [("config", "config", "only left")]),
        ({"args": Namespace(lr=1)}, {"args": 5}, [("config", "config", "only left"), ("custom", "args", "only right")]),
    ],
)  # fmt: skip
def test_a_part_that_lost_a_key_is_still_that_part(differing, left, right, told):
    """Held field by field against the part at its place; what has nothing in common with it is something else."""
    assert sorted(differing(left, right), key=repr) == sorted(told, key=repr)
    mirrored = {(role, name) for role, name, _ in differing(right, left)}
    assert mirrored == {(role, name) for role, name, _ in told}


def test_a_part_of_one_name_is_found_at_another_place():
    """A loss scale in its own file beside a folder, and under a key of one file."""
    whole = LossScale(at=At("", ("scaler",)), name="scaler", scale=1.0, fields={"scale": 1.0, "growth_interval": 5})
    lost = CustomObject(at=At("scaler.pt"), name="scaler", value={"scale": 2.0})
    one = Checkpoint(path="a.pt", layout="plain", scalers=(whole,))
    other = Checkpoint(path="b", layout="plain", custom=(lost,), is_folder=True)
    assert found(compare_checkpoints(one, other, Choices())) == [
        ("scaler", "scaler", ("scale", 1.0, 2.0)), ("scaler", "scaler", ("growth_interval", 5, "absent")),
    ]  # fmt: skip


def test_a_field_of_json_that_is_null_on_one_side():
    """`trainer_state.json` keeps `best_metric`, which is null before the first evaluation: told once, as progress."""
    best = Counter(at=At("s.json", ("best_metric",)), name="best", key="best_metric", value=0.5)
    one = Checkpoint(path="a", layout="hf-trainer", counters=(best,), is_folder=True,
                     custom=(CustomObject(at=At("s.json"), name="s", value={"log": [1]}),))  # fmt: skip
    other = Checkpoint(path="b", layout="hf-trainer", is_folder=True,
                       custom=(CustomObject(at=At("s.json"), name="s", value={"log": [1], "best_metric": None}),))  # fmt: skip
    assert found(compare_checkpoints(one, other, Choices())) == [("progress", "progress", ("best", 0.5, None))]


def test_two_ranks_keep_their_own_generators():
    """In a folder each by its file; against a single file, whose places are others, the first with the first."""

    def rng(file, rank, path=()):
        return RngState(
            at=At(file, path), generator="torch", rank=rank, detail="16 bytes", value=ref(torch.ones(rank + 1))
        )

    folder = Checkpoint(path="a", layout="plain", is_folder=True, rng=(rng("r0", 0), rng("r1", 1)))
    one = Checkpoint(path="b.pt", layout="plain", rng=(rng("", 0, ("x", 0)), rng("", 1, ("x", 1))))
    assert found(compare_checkpoints(folder, folder, Choices())) == []
    assert found(compare_checkpoints(folder, one, Choices())) == []


def test_tensors_of_other_files_are_no_part_of_a_state_dict():
    """Names alike in a folder and a file are at other places."""
    tensor = ref(torch.ones(2))
    one = Checkpoint(path="a.pt", layout="plain", weights=(Weights(at=At(""), tensors={"w": tensor}),))
    other = Checkpoint(
        path="b", layout="plain", is_folder=True, custom=(CustomObject(at=At("w.pt"), name="w", value=tensor),)
    )
    assert found(compare_checkpoints(one, other, Choices())) == [
        ("model", "model", "only left"),
        ("custom", "w", "only right"),
    ]


@pytest.mark.parametrize(
    "place", ["lightning/fp16_scaler", "accelerate/run/checkpoints/checkpoint_0", "deepspeed/zero2_bf16"]
)
def test_parts_in_parts_and_in_many_files(place):
    """Counters in the loops that Lightning keeps, a file for each part, and partitions of an optimizer."""
    for path in sorted((FIXTURES / place).rglob("*")):
        if path.suffix in (".ckpt", ".pt", ".pkl") or path == FIXTURES / place:
            with open_checkpoint(path) as side:
                assert found(compare_checkpoints(side, side, Choices())) == []
    with open_checkpoint(FIXTURES / "accelerate/run/checkpoints/checkpoint_0") as side:
        assert [*leftovers(side, side)] == []


def test_what_else_lies_in_an_object_is_left_over():
    """A null counter of JSON that was read: the object that held it is not told of, what else it holds is compared."""
    best = Counter(at=At("s.json", ("best_metric",)), name="best", key="best_metric", value=0.5)

    def side(root, **parts):
        held = {"s.json": Contents(name="s.json", container="json", source=None, root=root)}
        custom = (CustomObject(at=At("s.json"), name="s", value=root),)
        return Checkpoint(path="a", layout="hf-trainer", is_folder=True, contents=held, custom=custom, **parts)

    one = side({"log": [1], "best_metric": 0.5}, counters=(best,))
    other = side({"log": [2], "best_metric": None})
    told = found(compare_checkpoints(one, other, Choices()))
    assert ("progress", "progress", ("best", 0.5, None)) in told
    assert any("log" in str(part) for part in told)
