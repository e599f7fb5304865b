"""Optimizers whose parts are of another kind than torch computes with, each held against what torch does with them."""

import copy

import pytest
import torch

from ckpttool.blocks import Severity
from ckpttool.rules.optimizer_hparam_missing import OptimizerHparamMissing
from ckpttool.rules.optimizer_hparam_value import OptimizerHparamValue
from ckpttool.rules.optimizer_index_gap import OptimizerIndexGap
from ckpttool.rules.optimizer_moment_dtype import OptimizerMomentDtype
from ckpttool.rules.optimizer_partial_state import OptimizerPartialState
from ckpttool.rules.optimizer_state_kind import OptimizerStateKind
from ckpttool.rules.optimizer_step_value import OptimizerStepValue
from ckpttool.rules.optimizer_structure import OptimizerStructure
from tests.rules.optimizers import failure, judged, load, net, said, step, trained

MAKERS = {
    "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "Adamax": torch.optim.Adamax, "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam, "Adagrad": torch.optim.Adagrad, "Adadelta": torch.optim.Adadelta,
    "ASGD": torch.optim.ASGD, "Rprop": torch.optim.Rprop,
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}  # fmt: skip


def outcome(state, make=torch.optim.AdamW):
    """What becomes of a state: where it raises and what, or `equal` and `differs` from the state as it was."""
    where, kind, _ = failure(state, make)
    return f"{where} {kind}" if where else ""


def same_as(state, whole, make=torch.optim.AdamW):
    """Whether a step from one state is bit for bit the step from another."""
    found = []
    for each in (state, whole):
        model, optimizer = load(each, make)
        step(model, optimizer, 2)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return torch.equal(*found)


# optimizer.structure


def without(key):
    def edit(state):
        del state[key]

    return edit


def setting(key, value):
    def edit(state):
        state[key] = value

    return edit


def in_group(key, value):
    def edit(state):
        state["param_groups"][0][key] = value

    return edit


def of_entry(value):
    def edit(state):
        state["state"][0] = value

    return edit


STRUCTURES = {
    "no groups": (without("param_groups"), "param_groups is absent"),
    "groups None": (setting("param_groups", None), "param_groups is None, no list"),
    "groups empty": (setting("param_groups", []), "param_groups is empty"),
    "groups text": (setting("param_groups", "x"), "param_groups is text, no list"),
    "groups a dict": (lambda s: s.update(param_groups={0: s["param_groups"][0]}), "param_groups is a dict, no list"),
    "group None": (setting("param_groups", [None]), "the group is None, no dict"),
    "group a list": (setting("param_groups", [[1]]), "the group is a list, no dict"),
    "no params": (lambda s: s["param_groups"][0].pop("params"), "params is absent"),
    "params None": (in_group("params", None), "params is None, no list"),
    "params a number": (in_group("params", 7), "params is a number, no list"),
    "params empty": (in_group("params", []), "the groups list no parameter, and 7 states are there"),
    "no state": (without("state"), "state is absent"),
    "state None": (setting("state", None), "state is None, no dict"),
    "state a list": (setting("state", []), "state is a list, no dict"),
    "entry None": (of_entry(None), "the entry is None, no dict"),
    "entry a list": (of_entry([1]), "the entry is a list, no dict"),
    "entry a tensor": (of_entry(torch.zeros(3)), "the entry is a tensor, no dict"),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_damaged_optimizer_raises_what_the_finding_names(tmp_path, name):
    """Torch raises while it loads, and the finding names the class of what it raises."""
    edit, words = STRUCTURES[name]
    content = trained(step=2)
    edit(content["optimizer"])
    where, kind, _ = failure(content["optimizer"])
    assert where == "load_state_dict"
    (finding,) = judged(OptimizerStructure(), content, tmp_path)
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith(words)
    assert kind in finding.message


@pytest.mark.parametrize(
    ("value", "kind"), [(None, "AttributeError"), ([], "TypeError"), ({}, "KeyError"), (True, "AttributeError")]
)
def test_what_is_no_optimizer_at_all(tmp_path, value, kind):
    """Under the key of the optimizer lies something else."""
    content = {**trained(step=2), "optimizer": value}
    assert failure(value)[:2] == ("load_state_dict", kind)
    (finding,) = judged(OptimizerStructure(), content, tmp_path)
    assert (finding.severity, kind in finding.message) == (Severity.ERROR, True)


@pytest.mark.parametrize("deeper", [True, False])
def test_weights_or_a_dict_of_one_optimizer_in_its_place(tmp_path, deeper):
    """Both have no `param_groups`, so that torch raises KeyError."""
    content = trained(step=2)
    content["optimizer"] = {"optimizer": content["optimizer"]} if deeper else content["model"]
    assert failure(content["optimizer"])[:2] == ("load_state_dict", "KeyError")
    (finding,) = judged(OptimizerStructure(), content, tmp_path)
    assert (finding.severity, "KeyError" in finding.message) == (Severity.ERROR, True)


def test_what_a_script_may_keep_under_the_name_of_an_optimizer(tmp_path):
    """Its name, its settings, several of them in a list; None where training had not begun is a warning."""
    content = trained()
    for value in ("adamw", {"lr": 0.1, "name": "adamw"}, [content["optimizer"]], {"g": content["optimizer"]}):
        assert not judged(OptimizerStructure(), {**content, "optimizer": value, "step": 2}, tmp_path)
    (finding,) = judged(OptimizerStructure(), {**content, "optimizer": None}, tmp_path)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("name", MAKERS)
def test_an_optimizer_as_it_was_written_is_clean(tmp_path, name):
    """No rule about kinds, values and structure speaks of it."""
    content = trained(MAKERS[name], steps=3, step=3)
    rules = (OptimizerStructure(), OptimizerStateKind(), OptimizerStepValue(), OptimizerHparamValue())
    for rule in (*rules, OptimizerIndexGap(), OptimizerMomentDtype()):
        assert not judged(rule, content, tmp_path), rule.code


# optimizer.state-kind

KINDS = {
    "None": lambda _: None,
    "a list": lambda t: t.tolist(),
    "a number": lambda _: 0.5,
    "meta": lambda t: t.to("meta"),
    "sparse_coo": lambda t: t.to_sparse(),
    "expand": lambda t: t.flatten()[:1].expand(t.numel()).view(t.shape),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAKERS)
def test_moments_of_another_kind(tmp_path, name, kind):
    """Wherever torch raises the finding names it, for every moment of every class; where it does not there is none."""
    make = MAKERS[name]
    whole = trained(make, step=2)
    keys = [k for k, v in whole["optimizer"]["state"][1].items() if v.shape]
    for key in keys:
        content = copy.deepcopy(whole)
        for entry in content["optimizer"]["state"].values():
            entry[key] = KINDS[kind](entry[key])
        where, raised, _ = failure(content["optimizer"], make)
        found = judged(OptimizerStateKind(), content, tmp_path)
        if not where:
            assert (name, key, kind) == ("SGD", "momentum_buffer", "None")
            assert not found
            continue
        (finding,) = found
        assert finding.severity is Severity.ERROR
        assert raised in finding.message, (name, key, raised, finding.message)
        assert ("load_state_dict raises" in finding.message) is (where == "load_state_dict")


STEPS = {
    "None": None, "text": "7", "a list": [7], "two": torch.tensor([7.0, 7.0]), "none": torch.tensor([]),
    "a bool": torch.tensor(True), "meta": torch.tensor(7.0, device="meta"), "one": torch.tensor([2.0]),
    "an int": torch.tensor(2), "python": 2,
}  # fmt: skip


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", [n for n in MAKERS if n != "SGD"])
def test_step_counts_of_another_kind(tmp_path, name, kind):
    """None, text, lists and tensors that are no single number: named where torch raises, and nowhere else."""
    make = MAKERS[name]
    content = trained(make, step=2)
    for entry in content["optimizer"]["state"].values():
        entry["step"] = copy.deepcopy(STEPS[kind])
    where, raised, _ = failure(content["optimizer"], make)
    found = judged(OptimizerStateKind(), content, tmp_path)
    assert bool(found) is bool(where), (name, kind, where, said(found))
    for finding in found:
        assert (finding.severity, raised in finding.message) == (Severity.ERROR, True)
        assert ("load_state_dict raises" in finding.message) is (where == "load_state_dict")


def test_moments_in_the_memory_of_another(tmp_path):
    """Shared memory is kept by torch.save and torch.load, and an update of one moment changes the other."""
    content = trained(step=2)
    whole = copy.deepcopy(content["optimizer"])
    entry = content["optimizer"]["state"][1]
    entry["exp_avg_sq"] = entry["exp_avg"]
    assert said(judged(OptimizerStateKind(), content, tmp_path)) == [
        (
            "silent",
            (
                "exp_avg_sq of fc1.weight lies in the memory of exp_avg of fc1.weight: torch.load keeps that, and "
                "each update of one changes the other"
            ),
        ),
    ]
    assert not same_as(content["optimizer"], whole)


def test_moments_side_by_side_in_one_storage(tmp_path):
    """Views of one buffer that do not overlap are what some optimizers make, and load rightly."""
    content = trained(step=2)
    entry = content["optimizer"]["state"][1]
    both = torch.stack([entry["exp_avg"], entry["exp_avg_sq"]])
    entry["exp_avg"], entry["exp_avg_sq"] = both[0], both[1]
    assert not judged(OptimizerStateKind(), content, tmp_path)


# optimizer.step-value


@pytest.mark.parametrize("value", [-5.0, -1.0, 7.5, float("inf"), float("nan")])
@pytest.mark.parametrize("name", MAKERS)
def test_step_counts_that_cannot_be(tmp_path, name, value):
    """An error exactly where torch raises, silent where it goes on otherwise, nothing where it goes on the same."""
    make = MAKERS[name]
    content = trained(make, step=2)
    whole = copy.deepcopy(content["optimizer"])
    if "step" not in whole["state"][0]:
        return
    for entry in content["optimizer"]["state"].values():
        entry["step"] = torch.tensor(value)
    where, raised, _ = failure(content["optimizer"], make)
    found = judged(OptimizerStepValue(), content, tmp_path)
    if where:
        (finding,) = found
        assert (finding.severity, raised in finding.message) == (Severity.ERROR, True)
    elif same_as(content["optimizer"], whole, make):
        assert not found or name == "ASGD"  # whose rate changes in the eighth digit
    else:
        assert [f.severity for f in found] == [Severity.SILENT]


def far(param, value, **counters):
    content = trained(steps=7, **counters)
    content["optimizer"]["state"][param]["step"] = torch.tensor(float(value))
    return content


@pytest.mark.parametrize(
    ("param", "value", "severity"),
    [
        (0, 7000, "silent"),  # ahead of the counter
        (0, 0, "silent"),  # a state is made by a step
        (0, 3, "warning"),  # unused for a while
        (1, 3, "warning"),  # frozen for a while
    ],
)
def test_one_step_count_far_from_all_others(tmp_path, param, value, severity):
    """One parameter alone; its updates have another size."""
    content = far(param, value, step=7)
    assert [s for s, _ in said(judged(OptimizerStepValue(), content, tmp_path))] == [severity]
    assert not same_as(content["optimizer"], trained(steps=7)["optimizer"])


def test_a_weight_that_took_more_steps_than_its_bias(tmp_path):
    """Without any counter, the other parameter of the module tells."""
    content = {"model": net().state_dict(), "optimizer": far(5, 900)["optimizer"]}
    assert [f.severity for f in judged(OptimizerStepValue(), content, tmp_path)] == [Severity.SILENT]
    (finding,) = judged(OptimizerStepValue(), {**content, "optimizer": far(5, 9)["optimizer"]}, tmp_path)
    assert finding.severity is Severity.SILENT
    assert "out.bias of the same module among them" in finding.message


def test_groups_that_were_added_later(tmp_path):
    """A head that was trained first has more steps than the rest; that is right."""
    model = net()
    optimizer = torch.optim.AdamW(model.out.parameters())
    step(model, optimizer, 5)
    optimizer.add_param_group({"params": [p for n, p in model.named_parameters() if not n.startswith("out")]})
    step(model, optimizer, 2)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
    assert not judged(OptimizerStepValue(), content, tmp_path)


# optimizer.hparam-value and the switches of optimizer.hparam-missing

ODD = (None, "1e-2", [0.1], (0.9,), (0.9, 0.99, 0.9), ("a", "b"), (None, 0.9), 1j, torch.tensor([0.1, 0.1]))
SPLIT = ("lr", "betas", "eps", "weight_decay", "momentum", "alpha", "rho", "lr_decay", "momentum_decay", "dampening",
         "etas", "step_sizes", "lambd", "t0")  # fmt: skip


@pytest.mark.parametrize("key", SPLIT)
@pytest.mark.parametrize("name", MAKERS)
def test_hyperparameters_of_another_type(tmp_path, name, key):
    """Every value that the first step refuses is an error that names what is raised, and no other value is."""
    make = MAKERS[name]
    whole = trained(make, steps=7, step=7)  # RAdam reads its eps from the sixth step on
    if key not in whole["optimizer"]["param_groups"][0]:
        return
    for value in ODD if name != "ASGD" else [v for v in ODD if not isinstance(v, complex)]:  # which warns and goes on
        content = copy.deepcopy(whole)
        content["optimizer"]["param_groups"][0][key] = value
        where, raised, _ = failure(content["optimizer"], make)
        found = [f for f in judged(OptimizerHparamValue(), content, tmp_path) if f.severity is Severity.ERROR]
        assert bool(found) is bool(where), (name, key, value, where, raised, said(found))
        assert not found or raised in found[0].message, (name, key, value, raised, said(found))


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("lr", -0.01, "lr is below 0 (-0.01)"),
        ("lr", float("nan"), "lr is nan"),
        ("lr", True, "lr is True, which counts as 1"),
        ("betas", (0.9, 1.0), "betas[1] is not from 0 to below 1 (1)"),
        ("betas", (-0.1, 0.99), "betas[0] is not from 0 to below 1 (-0.1)"),
        ("eps", -1e-3, "eps is below 0 (-0.001)"),
        ("weight_decay", -1.0, "weight_decay is below 0 (-1)"),
    ],
)
def test_hyperparameters_out_of_range(tmp_path, key, value, what):
    """The constructor refuses them, `load_state_dict` does not, and training goes on otherwise."""
    content = trained(step=2)
    whole = copy.deepcopy(content["optimizer"])
    content["optimizer"]["param_groups"][0][key] = value
    if value is not True:
        with pytest.raises(ValueError, match="Invalid"):
            torch.optim.AdamW(net().parameters(), **{key: value})
    (finding,) = judged(OptimizerHparamValue(), content, tmp_path)
    assert (finding.severity, finding.message.startswith(what)) == (Severity.SILENT, True)
    assert not same_as(content["optimizer"], whole)


@pytest.mark.parametrize(("betas", "kind"), [((1.0, 0.999), "ZeroDivisionError"), ((0.9, 1.5), "RuntimeError")])
def test_betas_that_adam_cannot_correct_for(tmp_path, betas, kind):
    """A bias correction of 0, or below it."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0]["betas"] = betas
    assert failure(content["optimizer"])[:2] == ("step", kind)
    (finding,) = judged(OptimizerHparamValue(), content, tmp_path)
    assert (finding.severity, kind in finding.message) == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("key", "value"), [("lr", 0.0), ("lr", -1e-19), ("betas", [0.9, 0.999]), ("betas", (0, 0)), ("eps", 0.0),
                       ("lr", torch.tensor(0.001)), ("weight_decay", 0), ("foreach", "x")]
)  # fmt: skip
def test_values_that_do(tmp_path, key, value):
    """Lists for tuples, zeros, tensors of one element, and a rate that rounding brought below 0."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0][key] = value
    assert not judged(OptimizerHparamValue(), content, tmp_path)
    assert outcome(content["optimizer"]) == ""


def test_a_rate_that_its_schedule_brought_below_zero(tmp_path):
    """A linear decay that was not stopped: the run did so itself, which is a warning."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 - n / 2)
    for _ in range(3):
        step(model, optimizer)
        schedule.step()
    content = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict(), "step": 3
    }  # fmt: skip
    (finding,) = judged(OptimizerHparamValue(), content, tmp_path)
    assert (finding.severity, "the schedule made it so" in finding.message) == (Severity.WARNING, True)


def test_a_switch_that_is_text(tmp_path):
    """Python takes `"no"` for true, and Adam asks for the state of amsgrad."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0]["amsgrad"] = "no"
    assert failure(content["optimizer"])[:2] == ("step", "KeyError")
    assert [f.severity for f in judged(OptimizerHparamMissing(), content, tmp_path)] == [Severity.ERROR]


# optimizer.index-gap: order


def test_ids_in_another_order(tmp_path):
    """Torch numbers parameters in order; a list that was turned gives states to others, and the first step raises."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0]["params"].reverse()
    assert failure(content["optimizer"])[:2] == ("step", "RuntimeError")
    (finding,) = judged(OptimizerIndexGap(), content, tmp_path)
    assert (finding.severity, "RuntimeError" in finding.message) == (Severity.ERROR, True)


def test_ids_of_equal_shapes_exchanged(tmp_path):
    """Where the shapes agree nobody says anything, and the states go to other parameters."""
    content = trained(step=2)
    whole = copy.deepcopy(content["optimizer"])
    params = content["optimizer"]["param_groups"][0]["params"]
    params[1], params[3] = params[3], params[1]
    (finding,) = judged(OptimizerIndexGap(), content, tmp_path)
    assert finding.severity is Severity.SILENT
    assert not same_as(content["optimizer"], whole)


def test_states_and_ids_renumbered_together(tmp_path):
    """Groups that were put into the order of another run, with states to match, load rightly."""
    content = trained(step=2)
    whole = copy.deepcopy(content["optimizer"])
    order = [3, 0, 1, 2, 4, 6, 5]
    content["optimizer"]["param_groups"][0]["params"] = order
    content["optimizer"]["state"] = {new: whole["state"][old] for old, new in enumerate(order)}
    assert not judged(OptimizerIndexGap(), content, tmp_path)
    assert same_as(content["optimizer"], whole)


def in_groups(params):
    decayed = [p for p in params if p.ndim > 1]
    return torch.optim.AdamW([{"params": decayed}, {"params": [p for p in params if p.ndim == 1]}])


def test_groups_in_another_order(tmp_path):
    """Groups of other sizes in each other's place raise ValueError."""
    content = trained(lambda params: in_groups(list(params)), step=2)
    content["optimizer"]["param_groups"].reverse()
    assert failure(content["optimizer"], lambda params: in_groups(list(params)))[:2] == (
        "load_state_dict",
        "ValueError",
    )
    (finding,) = judged(OptimizerIndexGap(), content, tmp_path)
    assert (finding.severity, "ValueError" in finding.message) == (Severity.ERROR, True)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
def test_a_parameter_that_its_group_was_given_twice(tmp_path):
    """Torch writes its id twice, and loads it rightly: a note, as the model has one weight fewer than the group."""
    model = net()
    optimizer = torch.optim.AdamW([*model.parameters(), model.emb.weight])
    step(model, optimizer)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    assert [f.severity for f in judged(OptimizerIndexGap(), content, tmp_path)] == [Severity.NOTE]


def test_ids_that_are_none(tmp_path):
    """None is no id; a whole float is the same key as its integer."""
    content = trained(step=2)
    content["optimizer"]["param_groups"][0]["params"] = [float(n) for n in range(7)]
    assert not judged(OptimizerIndexGap(), content, tmp_path)
    content["optimizer"]["param_groups"][0]["params"][0] = None
    assert [f.severity for f in judged(OptimizerIndexGap(), content, tmp_path)] == [Severity.SILENT]


# optimizer.partial-state and optimizer.moment-dtype


def test_the_only_weight_without_a_state_beside_its_bias(tmp_path):
    """A loop may give its optimizer a weight that is frozen, and train the bias alone: a warning."""
    model = net()
    model.out.weight.requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer, 2)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}
    assert [f.severity for f in judged(OptimizerPartialState(), content, tmp_path)] == [Severity.WARNING]


def test_lbfgs_looks_under_its_first_parameter_only(tmp_path):
    """All of its state lies there; under another it takes it, and starts anew."""
    content = trained(torch.optim.LBFGS, step=2)
    assert not judged(OptimizerPartialState(), content, tmp_path)
    content["optimizer"]["state"] = {1: content["optimizer"]["state"][0]}
    assert [f.severity for f in judged(OptimizerPartialState(), content, tmp_path)] == [Severity.SILENT]
    _, optimizer = load(content["optimizer"], torch.optim.LBFGS)
    assert "n_iter" not in optimizer.state[optimizer.param_groups[0]["params"][0]]


@pytest.mark.parametrize(
    ("dtype", "count", "severity"),
    [
        (torch.float16, 1, "silent"),
        (torch.float8_e4m3fn, 1, "silent"),
        (torch.float64, 1, None),
        (torch.float16, 7, "warning"),
    ],
)
def test_a_moment_of_another_type_than_the_other(tmp_path, dtype, count, severity):
    """Torch makes both of the parameter's type; a narrower one lost digits, a wider one nothing."""
    content = trained(step=2)
    whole = copy.deepcopy(content["optimizer"])
    for entry in list(content["optimizer"]["state"].values())[:count]:
        entry["exp_avg"] = entry["exp_avg"].to(dtype)
    found = judged(OptimizerMomentDtype(), content, tmp_path)
    assert [s for s, _ in said(found)] == ([severity] if severity else [])
    assert same_as(content["optimizer"], whole) is (severity is None)
