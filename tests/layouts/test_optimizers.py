"""Optimizers and their classes."""

import pytest
import torch

from ckpttool.limits import Limits
from ckpttool.values import GlobalRef
from tests.layouts.trees import parts, parts_in, scalar, tensor, thing

GROUP = {"lr": 0.1, "params": [0, 1]}


def only(found):
    assert len(found.optimizers) == 1
    return found.optimizers[0]


def stepped(name, cls, **options):
    """A real optimizer of torch after two steps."""
    if name == "SparseAdam":
        layer = torch.nn.Embedding(4, 3, sparse=True)
        loss = lambda: layer(torch.tensor([1])).sum()  # noqa: E731
    else:
        layer = torch.nn.Linear(3, 4, bias=name != "Muon")
        loss = lambda: layer(torch.ones(2, 3)).pow(2).sum()  # noqa: E731
    optimizer = cls(layer.parameters(), **options)

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(closure)
    return optimizer


CLASSES = {
    name: cls
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_torch_is_told_by_its_keys(name):
    """State and groups as the installed torch writes them fit one class, and the right one."""
    optimizer = stepped(name, CLASSES[name])
    found = only(parts_in({"anything": optimizer.state_dict()}))
    assert found.candidates == (name,)
    assert found.state_keys == tuple(sorted({k for s in optimizer.state_dict()["state"].values() for k in s}))
    assert found.steps == ((2,) if any("step" in s for s in optimizer.state_dict()["state"].values()) else ())


@pytest.mark.parametrize("name", CLASSES)
def test_a_pickled_optimizer_names_its_class(name):
    """The object's class is in the file, and its ids are the parameters themselves."""
    found = only(parts_in({"opt": stepped(name, CLASSES[name])}))
    assert found.candidates == (name,)
    assert found.groups[0].hyperparameters["lr"] is not None


def test_before_torch_2_7_adam_and_adamw_look_alike():
    """Without `decoupled_weight_decay` both are named."""
    group = {**GROUP, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0, "amsgrad": False}
    state = {"exp_avg": tensor(2), "exp_avg_sq": tensor(2), "step": 3}
    assert only(parts({"state": {0: state}, "param_groups": [group]})).candidates == ("AdamW", "Adam")
    assert only(parts({"state": {}, "param_groups": [group]})).candidates == ("AdamW", "Adam")


@pytest.mark.parametrize(
    ("group", "state", "candidates"),
    [
        ({"betas": 0, "correct_bias": True, "eps": 0}, {"exp_avg": 0, "exp_avg_sq": 0}, ("AdamW (transformers)",)),
        ({"betas": 0, "weight_decay": 0}, {"exp_avg": 0}, ("Lion",)),
        ({"betas": 0, "eps": 0, "bias_correction": 1}, {"exp_avg": 0, "exp_avg_sq": 0}, ("FusedAdam",)),
        ({"betas": 0, "eps": 0, "amsgrad": 0, "bias_correction": 1}, {"exp_avg": 0, "exp_avg_sq": 0}, ("DeepSpeedCPUAdam",)),
        ({"scale_parameter": 1, "clip_threshold": 1}, {"exp_avg_sq_row": 0, "RMS": 0}, ("Adafactor (transformers)",)),
        ({"betas": 0}, {"state1": 0, "state2": 0, "qmap1": 0}, ("AdamW8bit (bitsandbytes)", "Adam8bit (bitsandbytes)", "LAMB8bit (bitsandbytes)")),
        ({"betas": 0}, {"state1": 0}, ("Lion32bit (bitsandbytes)", "SGD32bit (bitsandbytes)", "RMSprop32bit (bitsandbytes)", "Adagrad32bit (bitsandbytes)", "LARS32bit (bitsandbytes)")),
        ({"betas": 0, "rho": 0.1}, {"exp_avg": 0, "hessian": 0}, ("SophiaG",)),
        ({"betas": 0, "eps": 0}, {"exp_avg": 0, "exp_avg_var": 0}, ("AdaBelief",)),
        ({"something": 0}, {"else": 0}, ()),
    ],
)  # fmt: skip
def test_classes_of_others_are_told_too(group, state, candidates):
    """Keys of the common third-party optimizers; an unknown one gets no name."""
    saved = {"state": {0: {k: tensor(2) for k in state}}, "param_groups": [{**GROUP, **group}]}
    assert only(parts(saved)).candidates == candidates


def test_packed_moments_of_torchao_name_their_width():
    """The class of the moments tells what the keys do not."""
    packed = tensor(2, kind="wrapper_subclass", cls=GlobalRef("torchao.optim", "OptimState8bit"))
    group = {**GROUP, "betas": 0, "eps": 0, "amsgrad": False, "weight_decay": 0}
    saved = {"state": {0: {"exp_avg": packed, "exp_avg_sq": packed}}, "param_groups": [group]}
    assert only(parts(saved)).candidates == ("AdamW8bit", "Adam8bit")


def test_composer_names_the_class_by_the_key():
    """`optimizers: {"Adam": {...}}` is certain."""
    group = {**GROUP, "betas": 0, "eps": 0, "amsgrad": False, "weight_decay": 0}
    assert only(parts({"optimizers": {"Adam": {"state": {}, "param_groups": [group]}}})).candidates == ("Adam",)


def test_steps_are_distinct_numbers_of_any_kind():
    """Python ints (torch 1.6), 0-dim tensors (since 1.12), and in the groups (apex); whole ones are integers."""
    state = {0: {"step": 3}, 1: {"step": scalar(4.0)}, 2: {"step": 3.5}, 3: {"step": "x"}, 4: "no entry"}
    found = only(parts({"state": state, "param_groups": [{**GROUP, "step": 9}]}))
    assert found.steps == (3, 3.5, 4, 9)
    assert set(found.state) == {0, 1, 2, 3}


def test_names_are_taken_where_they_are_stored():
    """`param_names` of named_parameters, or FQNs for ids; text of digits is an id."""
    named = only(parts({"state": {}, "param_groups": [{**GROUP, "param_names": ["a", "b"]}]}))
    assert (named.names_from, named.groups[0].names) == ("param_names", ("a", "b"))
    assert "param_names" not in named.groups[0].hyperparameters
    fqn = only(parts({"state": {}, "param_groups": [{"params": ["a.w", "b.w"]}]}))
    assert (fqn.names_from, fqn.groups[0].names) == ("FQN", ("a.w", "b.w"))
    digits = only(parts({"state": {}, "param_groups": [{"params": ["0", "1"]}]}))
    assert (digits.names_from, digits.groups[0].names) == ("", (None, None))
    wrong = only(parts({"state": {}, "param_groups": [{**GROUP, "param_names": ["a"]}]}))
    assert wrong.names_from == ""
    assert not parts({"state": {}, "param_groups": []}).optimizers  # an optimizer has groups


def test_groups_that_are_no_dicts_are_left_out():
    """Whatever the file holds in the place of a group, reading goes on."""
    found = only(parts({"state": {}, "param_groups": [GROUP, 3, None]}))
    assert len(found.groups) == 1
    assert not parts({"state": 3, "param_groups": [GROUP]}).optimizers
    assert not parts({"state": {}, "param_groups": 3}).optimizers


def test_groups_without_state_are_an_optimizer_where_they_name_parameters():
    """DeepSpeed's universal checkpoint keeps the groups alone."""
    assert only(parts({"param_groups": [GROUP]})).state_keys == ()
    assert not parts({"param_groups": [{"lr": 0.1}]}).optimizers
    assert only(parts({"state": {}, "param_groups": [{"lr": 0.1}]})).groups[0].params == ()


def test_flattened_state_is_put_together():
    """`state.<fqn>.exp_avg` and `param_groups.<fqn>.lr` (torch.distributed.checkpoint): equal groups become one."""
    flat = {
        "state.a.w.exp_avg": tensor(2), "state.a.w.step": 3, "state.b.exp_avg": tensor(3),
        "param_groups.a.w.lr": 0.1, "param_groups.b.lr": 0.1, "param_groups.c.lr": scalar(0.25),
        "param_groups.a.w.betas": "x", "param_groups.b.betas": "x",
    }  # fmt: skip
    found = only(parts({"optim": flat}))
    assert [g.names for g in found.groups] == [("a.w", "b"), ("c",)]
    assert found.names_from == "FQN"
    assert found.steps == (3,)


@pytest.mark.parametrize(
    "flat",
    [
        {"state.a.w": tensor(2), "state.a.x": tensor(2)},
        {"param_groups.a.lr": 0.1, "state.b.exp_avg": tensor(2)},
        {"param_groups.a.lr": 0.1, "other": 3},
        {"param_groups.a.lr": 0.1, 3: 3},
    ],
)
def test_other_flat_keys_are_no_optimizer(flat):
    """Every key has to be of that kind, and every state needs a group."""
    assert not parts({"x": flat}).optimizers


def test_what_lies_beside_the_groups_is_found():
    """Wrappers keep master weights and loss scalers in the optimizer's own dict."""
    saved = {"state": {}, "param_groups": [GROUP], "loss_scaler": thing("LossScaler", {"cur_scale": 1.0}), "note": 5}
    found = parts({"optimizer": saved})
    assert len(found.scalers) == 1
    assert [c.name for c in found.custom] == ["optimizer.note"]


def test_a_list_of_ids_that_many_groups_share_is_refused_by_name():
    """Ten groups of a thousand shared ids would be copied ten times."""
    ids = list(range(1_000))
    found = parts({"state": {}, "param_groups": [{"params": ids} for _ in range(10)]}, limits=Limits(nodes=5_000))
    assert not found.optimizers
    assert [f.code for f in found.log.items] == ["optimizer.too-large"]
