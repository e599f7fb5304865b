"""Rules about an optimizer's state and groups, each held against what torch does with the very same state."""

import copy

import pytest
import torch

from ckpttool.blocks import Severity
from ckpttool.model import At, RngState
from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules.optimizer_dummy_step import OptimizerDummyStep
from ckpttool.rules.optimizer_empty_state import OptimizerEmptyState
from ckpttool.rules.optimizer_hparam_missing import OptimizerHparamMissing
from ckpttool.rules.optimizer_index_gap import OptimizerIndexGap
from ckpttool.rules.optimizer_moment_dtype import OptimizerMomentDtype
from ckpttool.rules.optimizer_partial_state import OptimizerPartialState
from ckpttool.rules.optimizer_state_shape import OptimizerStateShape
from ckpttool.rules.optimizer_step_device import OptimizerStepDevice
from ckpttool.rules.optimizer_step_dtype import OptimizerStepDtype
from ckpttool.validation.scanning import scan
from tests.rules.optimizers import FIXTURES, Net, failure, fixture, judged, load, net, opened, said, step, trained

SCALE = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
MAKERS = {
    "ASGD": torch.optim.ASGD, "Adadelta": torch.optim.Adadelta, "Adafactor": torch.optim.Adafactor,
    "Adagrad": torch.optim.Adagrad, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "Adamax": torch.optim.Adamax,
    "Adam_amsgrad": torch.optim.Adam, "LBFGS": torch.optim.LBFGS, "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam, "RMSprop": torch.optim.RMSprop, "Rprop": torch.optim.Rprop, "SGD": torch.optim.SGD,
    "SGD_momentum": torch.optim.SGD,
}  # fmt: skip


# optimizer.empty-state


def emptied(**counters):
    content = trained(**counters)
    content["optimizer"]["state"] = {}
    return content


def test_empty_state_after_steps_is_silent(tmp_path):
    """AdamW without any state at step 40 loads without a word, and counts from 1 again."""
    content = emptied(step=40)
    assert said(judged(OptimizerEmptyState(), content, tmp_path)) == [
        (
            "silent",
            (
                "AdamW keeps no state for any of its 7 parameters, yet step 40: load_state_dict takes it silently "
                "and the state starts anew"
            ),
        ),
    ]
    model, optimizer = load(content["optimizer"])
    step(model, optimizer)
    assert {entry["step"].item() for entry in optimizer.state.values()} == {1.0}


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({}, "note"),  # nothing says that steps were taken
        ({"step": 3, "scaler": {**SCALE, "_growth_tracker": 0}}, "warning"),  # all may have been skipped
        ({"step": 3, "scaler": {**SCALE, "_growth_tracker": 2}}, "silent"),  # two were not
    ],
)
def test_empty_state_is_weighed_by_what_says_that_steps_were_taken(tmp_path, more, severity):
    """Without a counter it is a note; where the loss scaler may have skipped all steps, a warning."""
    assert [s for s, _ in said(judged(OptimizerEmptyState(), emptied(**more), tmp_path))] == [severity]


def test_an_optimizer_that_waits_for_its_turn_is_a_warning(tmp_path):
    """Of two optimizers one may not have stepped yet, as in adversarial training."""
    content = {**trained(step=40), "discriminator": emptied()["optimizer"]}
    assert [f.severity for f in judged(OptimizerEmptyState(), content, tmp_path)] == [Severity.WARNING]


def test_plain_sgd_keeps_no_state(tmp_path):
    """SGD without momentum has nothing to keep; with momentum it has."""
    content = {**fixture("SGD"), "step": 40}
    assert not judged(OptimizerEmptyState(), content, tmp_path)
    content["optimizer"]["param_groups"][0]["momentum"] = 0.9
    assert [f.severity for f in judged(OptimizerEmptyState(), content, tmp_path)] == [Severity.SILENT]


# optimizer.partial-state


def test_a_frozen_parameter_without_state_is_a_warning(tmp_path):
    """The embedding of this fixture is frozen, which the file cannot tell from a lost state."""
    assert said(judged(OptimizerPartialState(), FIXTURES / "optimizers" / "AdamW_frozen.pt", tmp_path)) == [
        ("warning", "1 of 7 parameters without state: emb.weight"),
    ]


def test_groups_without_momentum_keep_no_state(tmp_path):
    """SGD with momentum in one group only keeps state for that one; LBFGS keeps all under its first parameter."""
    model = net()
    groups = [{"params": [model.emb.weight]}, {"params": list(model.fc1.parameters()), "momentum": 0.9}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    step(model, optimizer, 2)
    assert set(optimizer.state_dict()["state"]) == {1, 2}
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert not judged(OptimizerPartialState(), content, tmp_path)
    assert not judged(OptimizerPartialState(), FIXTURES / "optimizers" / "LBFGS.pt", tmp_path)


def test_a_state_that_an_earlier_checkpoint_had_is_lost(tmp_path):
    """torch never drops a state: where one is gone since the last checkpoint, it was lost, and nobody says so."""
    for count in (2, 4):
        content = trained(steps=count, global_step=count)
        if count == 4:
            del content["optimizer"]["state"][3], content["optimizer"]["state"][5]
        torch.save(content, tmp_path / f"checkpoint_{count}.pt")
    with open_path(tmp_path) as run:
        findings = list(OptimizerPartialState().check(Case(checkpoint=run.checkpoints[1], run=run)))
        assert not list(OptimizerPartialState().check(Case(checkpoint=run.checkpoints[0], run=run)))
    assert said(findings) == [
        (
            "silent",
            (
                f"2 of 7 parameters without state, of which 2 had one in {tmp_path}/checkpoint_2.pt: fc2.weight, "
                "out.weight; load_state_dict takes it silently, and their moments start anew"
            ),
        ),
    ]
    model, optimizer = load(content["optimizer"])
    step(model, optimizer)
    assert sorted(entry["step"].item() for entry in optimizer.state.values()) == [1.0, 1.0, *[5.0] * 5]


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in ("SGD", "SGD_momentum", "LBFGS")])
def test_a_state_without_a_key_raises_where_the_finding_says(tmp_path, name):
    """For each class and key of its state: the finding is an error exactly where torch raises KeyError."""
    whole = fixture(name)
    for key in whole["optimizer"]["state"][0]:
        content = copy.deepcopy(whole)
        del content["optimizer"]["state"][0][key]
        where, kind, text = failure(content["optimizer"], MAKERS[name])
        switched = key in ("max_exp_avg_sq", "momentum_buffer", "grad_avg")  # `optimizer.hparam-missing` says it
        rule = OptimizerHparamMissing() if switched else OptimizerPartialState()
        errors = [f for f in judged(rule, content, tmp_path) if f.severity is Severity.ERROR]
        if name == "Adafactor" and key != "step":
            assert (kind, errors) == ("AssertionError", [])  # which keys a shape needs is not in the table
            continue
        assert (kind, text) == ("KeyError", repr(key)), key
        at = "load_state_dict" if where == "load_state_dict" else "the first step()"
        assert [f"{at} " in f.message and f"raises KeyError: {text}" in f.message for f in errors] == [True], key


# optimizer.hparam-missing


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_group_without_a_key_raises_where_the_finding_says(tmp_path, name):
    """For each class and key of its groups: the finding is there exactly where the first step raises KeyError."""
    whole = fixture(name)
    told = 0
    for key in [k for k in whole["optimizer"]["param_groups"][0] if k != "params"]:
        content = copy.deepcopy(whole)
        del content["optimizer"]["param_groups"][0][key]
        outcome = failure(content["optimizer"], MAKERS[name])
        results = judged(OptimizerHparamMissing(), content, tmp_path)
        errors = [f for f in results if not isinstance(f, NotChecked)]
        if outcome[0]:
            assert outcome == ("step", "KeyError", repr(key))
            # Without state, or with keys that only this class has, nothing tells which class it was.
            assert errors or any(isinstance(r, NotChecked) for r in results), key
        assert all(f"lacks {key}:" in f.message and f"raises KeyError: {key!r}" in f.message for f in errors), key
        assert not errors or outcome[0], key
        told += bool(errors)
    assert told >= {"LBFGS": 5, "SGD": 2, "SGD_momentum": 2, "Rprop": 1}.get(name, 3)


def test_one_group_short_of_a_key(tmp_path):
    """Groups are looked at one by one."""
    content = fixture("AdamW_two_groups")
    del content["optimizer"]["param_groups"][1]["betas"]
    (finding,) = judged(OptimizerHparamMissing(), content, tmp_path)
    assert (finding.severity, finding.where) == (Severity.ERROR, "optimizer.param_groups[1]")
    assert "param_groups[1] lacks betas: the first step() of AdamW raises KeyError: 'betas'" in finding.message


def test_a_switch_without_its_state(tmp_path):
    """amsgrad that was switched on in the groups has no running maximum: torch raises KeyError in the first step."""
    content = fixture("Adam")
    content["optimizer"]["param_groups"][0]["amsgrad"] = True
    assert said(judged(OptimizerHparamMissing(), content, tmp_path)) == [
        (
            "error",
            (
                "amsgrad is on, and the state of emb.weight has no max_exp_avg_sq: the first step() of Adam raises "
                "KeyError: 'max_exp_avg_sq' (in torch/optim/adam.py)"
            ),
        ),
    ]
    assert failure(content["optimizer"], torch.optim.Adam) == ("step", "KeyError", "'max_exp_avg_sq'")


@pytest.mark.parametrize("release", ["1.0.0", "1.6.0", "1.12.1", "2.4.1", "2.14.1"])
def test_groups_of_older_and_newer_torch_are_whole(tmp_path, release):
    """What older releases did not write yet is filled in on load."""
    assert not judged(OptimizerHparamMissing(), FIXTURES / "old_torch" / release / "checkpoint.pth", tmp_path)


def test_an_unknown_class_is_not_checked(tmp_path):
    """Keys of a class that is not torch's are nobody's to ask for."""
    content = trained()
    for group in content["optimizer"]["param_groups"]:
        group.clear()
        group.update(params=list(range(7)), lr=0.1, cleverness=3)
    (result,) = judged(OptimizerHparamMissing(), content, tmp_path)
    assert isinstance(result, NotChecked)


# optimizer.dummy-step


def placeholder(**counters):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **counters}


def test_a_state_of_a_step_without_gradients_is_silent(tmp_path):
    """The placeholder loads, and the next update is that of step 2: its moments are not corrected as on a first step."""
    content = placeholder(global_step=40)
    assert said(judged(OptimizerDummyStep(), content, tmp_path, values=scan)) == [
        (
            "silent",
            (
                "step 1 and zero moments for all 7 parameters, yet global_step 40: a step without gradients made "
                "this state, and the trained one is lost"
            ),
        ),
    ]
    (warning,) = judged(OptimizerDummyStep(), placeholder(), tmp_path, values=scan)
    assert warning.severity is Severity.WARNING
    model, optimizer = load(content["optimizer"])
    step(model, optimizer)
    assert {entry["step"].item() for entry in optimizer.state.values()} == {2.0}


def test_a_first_step_with_some_zero_moments_is_real(tmp_path):
    """After one real step some moments may be zero (rows and layers without gradient), never all."""
    content = trained(steps=1, global_step=1)
    content["optimizer"]["state"][0]["exp_avg"].zero_()
    assert not judged(OptimizerDummyStep(), content, tmp_path, values=scan)
    assert not judged(OptimizerDummyStep(), trained(steps=2), tmp_path, values=scan)
    (result,) = judged(OptimizerDummyStep(), content, tmp_path)
    assert isinstance(result, NotChecked)


# optimizer.index-gap


def test_states_under_text_never_reach_a_parameter(tmp_path):
    """JSON and other detours make text of ids; torch keeps such states where no parameter finds them."""
    content = trained()
    content["optimizer"]["state"] = {str(k): v for k, v in content["optimizer"]["state"].items()}
    assert said(judged(OptimizerIndexGap(), content, tmp_path)) == [
        (
            "silent",
            (
                "7 states that no group lists: '0', '1', '2' and 4 more; the groups list numbers, and text is no "
                "number; load_state_dict keeps them where no parameter finds them, and says nothing"
            ),
        ),
    ]
    assert not judged(OptimizerEmptyState(), {**content, "step": 40}, tmp_path)  # said once
    _, optimizer = load(content["optimizer"], torch.optim.SGD)
    assert not any(parameter in optimizer.state for parameter in optimizer.param_groups[0]["params"])


def test_a_state_of_a_parameter_that_was_taken_out(tmp_path):
    """A group that lost a parameter leaves a state behind, and a gap in the numbers; the run itself cannot load it."""
    content = trained()
    content["optimizer"]["param_groups"][0]["params"].remove(2)
    assert failure(content["optimizer"])[:2] == ("load_state_dict", "ValueError")
    assert said(judged(OptimizerIndexGap(), content, tmp_path)) == [
        (
            "error",
            (
                "1 state that no group lists: 2; the optimizer that wrote them had 7 parameters, the groups list 6: "
                "load_state_dict raises ValueError ('loaded state dict has a different number of parameter groups', "
                "or '… a parameter group that doesn't match the size of optimizer's group') in torch/optim/optimizer.py"
            ),
        ),
        (
            "warning",
            (
                "ids run from 0 to 6 for 6 parameters, without 2; load_state_dict goes by position, so a parameter "
                "that is still in the model takes the state of the next one"
            ),
        ),
    ]


def test_an_id_that_two_parameters_share(tmp_path):
    """The state goes to the last parameter of the id, and raises where that is of another shape."""
    for at, other, severity, then in ((3, 1, Severity.SILENT, ""), (1, 0, Severity.ERROR, "RuntimeError")):
        content = trained()
        content["optimizer"]["param_groups"][0]["params"][at] = other
        del content["optimizer"]["state"][at]
        (finding,) = judged(OptimizerIndexGap(), content, tmp_path)
        assert (finding.severity, failure(content["optimizer"])[1]) == (severity, then)
        assert finding.message.startswith(f"1 id listed more than once: {other}; ")
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(content["optimizer"])
        assert [n for n, p in enumerate(model.parameters()) if p not in optimizer.state] == [other]


@pytest.mark.parametrize("release", ["1.0.0", "1.4.0"])
def test_memory_addresses_as_ids_are_right(tmp_path, release):
    """torch 1.5 and older number parameters by address; such a state loads."""
    assert not judged(OptimizerIndexGap(), FIXTURES / "old_torch" / release / "checkpoint.pth", tmp_path)


def test_a_state_of_the_whole_optimizer_is_no_orphan(tmp_path):
    """An optimizer of one's own may keep something for all parameters together."""
    content = trained()
    content["optimizer"]["state"]["shared"] = {"damping": torch.ones(())}
    assert not judged(OptimizerIndexGap(), content, tmp_path)


# optimizer.step-device


def on_gpu(checkpoint):
    """The same checkpoint as it would be read had its steps lain on a GPU."""
    for optimizer in checkpoint.optimizers:
        for entry in optimizer.state.values():
            entry["step"].storage.location = "cuda:0"
    return checkpoint


@pytest.mark.parametrize(("flag", "found"), [(None, 1), ("capturable", 0), ("fused", 0)])
def test_steps_on_a_gpu(tmp_path, flag, found):
    """A step on a GPU is right with `capturable` or `fused` alone."""
    content = trained()
    if flag:
        content["optimizer"]["param_groups"][0][flag] = True
    torch.save(content, tmp_path / "a.pt")
    with open_path(tmp_path / "a.pt") as checkpoint:
        findings = list(OptimizerStepDevice().check(Case(checkpoint=on_gpu(checkpoint))))
        old = list(OptimizerStepDevice().check(Case(checkpoint=checkpoint, installed={"torch": "1.12.0+cu113"})))
    assert (
        said(findings)
        == [
            (
                "warning",
                (
                    "7 step counts on cuda:0, while capturable and fused are off: each step then waits for the device, "
                    "and torch 1.12.0 raises AssertionError"
                ),
            ),
        ]
        * found
    )
    assert [f.severity for f in old] == [Severity.ERROR] * found


def test_capturable_with_steps_on_the_cpu(tmp_path):
    """On a CPU the step of a capturable optimizer raises AssertionError, as the finding says."""
    content = trained()
    content["optimizer"]["param_groups"][0]["capturable"] = True
    (finding,) = judged(OptimizerStepDevice(), content, tmp_path)
    assert finding.severity is Severity.ERROR
    where, kind, text = failure(content["optimizer"])
    assert (where, kind) == ("step", "AssertionError")
    assert text.startswith("If capturable=True, params and state_steps must be on supported devices")
    assert "'If capturable=True, params and state_steps must be on supported devices'" in finding.message


def test_capturable_with_steps_on_the_cpu_of_a_run_on_a_gpu(tmp_path):
    """A copy to the CPU may go on on a GPU, so it is a warning; a fused step does not ask where its counts are."""
    content = trained()
    content["optimizer"]["param_groups"][0]["capturable"] = True
    with opened(content, tmp_path, "this.pt") as checkpoint:
        checkpoint.rng = (RngState(at=At("", ("rng",)), generator="cuda:0"),)
        (finding,) = OptimizerStepDevice().check(Case(checkpoint=checkpoint))
    assert (finding.severity, "as the state of cuda:0 says" in finding.message) == (Severity.WARNING, True)
    content["optimizer"]["param_groups"][0]["fused"] = True
    assert not judged(OptimizerStepDevice(), content, tmp_path)
    assert failure(content["optimizer"]) == ("", "", "")


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_steps_where_torch_puts_them_are_right(tmp_path, name):
    """No class of torch.optim is reported for what it wrote itself."""
    for rule in (OptimizerStepDevice(), OptimizerStepDtype(), OptimizerIndexGap(), OptimizerStateShape()):
        assert not judged(rule, FIXTURES / "optimizers" / f"{name}.pt", tmp_path)


# optimizer.step-dtype


def narrow(dtype, value):
    content = trained()
    for entry in content["optimizer"]["state"].values():
        entry["step"] = torch.tensor(value, dtype=dtype)
    return content


@pytest.mark.parametrize(("dtype", "last"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_a_step_count_that_stands_still(tmp_path, dtype, last):
    """In a narrow type the count stops, and the type survives the load."""
    content = narrow(dtype, last)
    assert said(judged(OptimizerStepDtype(), content, tmp_path)) == [
        ("silent", f"7 step counts in {str(dtype)[6:]}, which cannot count past {last:,}; they are at {last}"),
    ]
    model, optimizer = load(content["optimizer"])
    step(model, optimizer, 3)
    assert {entry["step"].item() for entry in optimizer.state.values()} == {float(last)}


def test_a_fused_optimizer_widens_its_steps(tmp_path):
    """With `fused` the count is cast to float32 on load: only one that stands still already is wrong."""
    for value, found in ((100, 0), (256, 1)):
        content = narrow(torch.bfloat16, value)
        content["optimizer"]["param_groups"][0]["fused"] = True
        assert len(judged(OptimizerStepDtype(), content, tmp_path)) == found
        _, optimizer = load(content["optimizer"])
        assert {entry["step"].dtype for entry in optimizer.state.values()} == {torch.float32}


# optimizer.state-shape


def test_a_moment_of_another_shape_than_the_weight(tmp_path):
    """With stored names the weight behind a state is certain: torch loads it and raises in the first step."""
    model = net()
    optimizer = torch.optim.AdamW(model.named_parameters())
    step(model, optimizer, 2)
    grown = Net(vocabulary=10)
    content = {"model": grown.state_dict(), "optimizer": optimizer.state_dict()}
    assert said(judged(OptimizerStateShape(), content, tmp_path)) == [
        (
            "error",
            (
                "exp_avg of emb.weight is 8×4, the weight is 10×4: load_state_dict takes it, and the first step() "
                "raises RuntimeError about sizes that must match (in torch/optim/adam.py)"
            ),
        ),
    ]
    where, kind, text = failure(optimizer.state_dict(), vocabulary=10)
    assert (where, kind) == ("step", "RuntimeError")
    assert "must match the size" in text


def test_moments_of_two_shapes(tmp_path):
    """Moments that disagree need no names."""
    content = trained()
    content["optimizer"]["state"][3]["exp_avg_sq"] = torch.zeros(4, 5)
    (finding,) = judged(OptimizerStateShape(), content, tmp_path)
    assert (finding.severity, finding.where) == (Severity.ERROR, "optimizer.state[3]")
    assert "exp_avg of fc2.weight is 4×4, its exp_avg_sq is 4×5" in finding.message
    assert failure(content["optimizer"])[:2] == ("step", "RuntimeError")


def test_a_shape_that_no_weight_has(tmp_path):
    """Without names, and beside two models, a state of a shape that no weight has may be of one saved elsewhere."""
    content = {**trained(), "model": Net(vocabulary=10).state_dict(), "teacher": Net(vocabulary=10).state_dict()}
    assert said(judged(OptimizerStateShape(), content, tmp_path)) == [
        ("warning", "1 state of shapes that no weight here has: param 0 8×4"),
    ]


# optimizer.moment-dtype


def cast(content, part, dtype):
    """The floating tensors of a part in another type, step counts left out."""
    if part == "model":
        content["model"] = {k: v.to(dtype) for k, v in content["model"].items()}
    else:
        for entry in content["optimizer"]["state"].values():
            entry.update({k: v.to(dtype) for k, v in entry.items() if k != "step"})
    return content


@pytest.mark.parametrize(
    ("part", "dtype", "severity", "words"),
    [
        (
            "optimizer",
            torch.bfloat16,
            "warning",
            "moments are bfloat16 and the weights float32: precision that was lost",
        ),
        ("optimizer", torch.float16, "warning", "squares below 6e-8 are 0"),
        ("model", torch.bfloat16, "note", "moments are float32 and the weights bfloat16: load_state_dict rounds"),
        ("optimizer", torch.uint8, "silent", "14 moments in uint8: load_state_dict casts the integers"),
    ],
)
def test_moments_in_another_type_than_the_weights(tmp_path, part, dtype, severity, words):
    """torch casts moments to the parameter's type and says nothing, whatever they were."""
    content = cast(trained(), part, dtype)
    (finding,) = judged(OptimizerMomentDtype(), content, tmp_path)
    assert finding.severity.value == severity
    assert words in finding.message
    _, optimizer = load(content["optimizer"])
    assert {entry["exp_avg"].dtype for entry in optimizer.state.values()} == {torch.float32}


def test_moments_in_the_weights_type_are_right(tmp_path):
    """Training in bfloat16 makes moments in bfloat16."""
    assert not judged(OptimizerMomentDtype(), trained(), tmp_path)
    model = net().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert not judged(OptimizerMomentDtype(), content, tmp_path)


def test_moments_that_were_cast_since_the_other_checkpoint(tmp_path):
    """Two checkpoints of a run keep their moments in one type."""
    content = cast(cast(trained(), "optimizer", torch.bfloat16), "model", torch.bfloat16)
    findings = judged(OptimizerMomentDtype(), content, tmp_path, other=trained())
    assert said(findings) == [
        (
            "warning",
            (
                "moments are bfloat16, in the other checkpoint float32: load_state_dict casts them to the "
                "parameter's type and says nothing"
            ),
        ),
    ]


def test_packed_states_are_named(tmp_path):
    """bitsandbytes keeps 8-bit states with their scales, which only its own classes can read."""
    group = {"params": [0], "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    entry = {"step": 2, "state1": torch.zeros(8, 4, dtype=torch.uint8), "state2": torch.zeros(8, 4, dtype=torch.uint8),
             "qmap1": torch.zeros(256), "qmap2": torch.zeros(256), "absmax1": torch.zeros(1), "absmax2": torch.zeros(1)}  # fmt: skip
    content = {"model": {"w": torch.zeros(8, 4)}, "optimizer": {"state": {0: entry}, "param_groups": [group]}}
    (finding,) = judged(OptimizerMomentDtype(), content, tmp_path)
    assert (finding.severity, "are packed" in finding.message) == (Severity.NOTE, True)


# what is not looked at, and what nobody wrote honestly


def test_flat_partitions_are_not_checked(tmp_path):
    """ZeRO cuts states in flat pieces, which have no parameters to look at."""
    results = judged(OptimizerStateShape(), FIXTURES / "deepspeed/zero2_bf16/global_step3", tmp_path)
    assert [type(r) for r in results] == [NotChecked]
    assert "flat partitions" in results[0].why


@pytest.mark.parametrize(
    "rule",
    [
        OptimizerDummyStep(), OptimizerEmptyState(), OptimizerHparamMissing(), OptimizerIndexGap(),
        OptimizerMomentDtype(), OptimizerPartialState(), OptimizerStateShape(), OptimizerStepDevice(),
        OptimizerStepDtype(),
    ],
    ids=lambda rule: rule.code,
)  # fmt: skip
def test_a_pickled_optimizer_and_odd_numbers(tmp_path, rule):
    """Ids that are tensors, ids and counters of thousands of digits, and states that are no states end in answers."""
    torch.save({"optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], momentum=0.9)}, tmp_path / "whole.pt")
    assert not [r for r in judged(rule, tmp_path / "whole.pt", tmp_path) if getattr(r, "severity", "") == "error"]
    wide = 10**5000
    content = trained(steps=1, global_step=wide)
    content["optimizer"]["state"] = {wide: content["optimizer"]["state"][0], "x": {"step": None}, 3: {}}
    content["optimizer"]["param_groups"][0]["params"] = [wide, wide, (1,), None, 0.5]
    content["optimizer"]["param_groups"][0]["betas"] = [[wide], [[]]]
    for result in judged(rule, content, tmp_path):
        assert len(result.message if hasattr(result, "message") else result.why) < 500


def test_classes_that_share_a_file(tmp_path):
    """Counters that say nothing, and a state whose first counter is not the one of steps."""
    content = trained(steps=1, epoch=3, global_step=1)
    assert not judged(OptimizerDummyStep(), content, tmp_path, values=scan)
    assert judged(OptimizerDummyStep(), placeholder(epoch=3, global_step=1), tmp_path, values=scan)


def with_keys(keys, entry):
    """An optimizer of one parameter."""
    group = {"params": [0], **dict.fromkeys(keys, 0)}
    return {"model": {"w": torch.ones(2)}, "optimizer": {"state": {0: entry}, "param_groups": [group]}}


@pytest.mark.parametrize("rule", [OptimizerHparamMissing(), OptimizerPartialState(), OptimizerStateShape()])
def test_classes_that_bear_the_name_of_torch_s(tmp_path, rule):
    """Muon was another's before it was torch's, and others count Adam's steps in the group: nothing is an error."""
    muon = ("lr", "momentum", "weight_decay", "nesterov", "ns_steps")
    adam = ("lr", "betas", "eps", "weight_decay", "amsgrad", "step")
    moments = {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    for content in (with_keys(muon, {"momentum_buffer": torch.ones(2)}), with_keys(adam, moments)):
        assert not [r for r in judged(rule, content, tmp_path) if not isinstance(r, NotChecked)]


def test_a_step_that_no_state_has_is_torch_s_to_ask_for(tmp_path):
    """Where the groups have torch's own switches a state without `step` is one that was stripped."""
    content = trained()
    for entry in content["optimizer"]["state"].values():
        del entry["step"]
    (finding,) = judged(OptimizerPartialState(), content, tmp_path)
    assert finding.message == (
        "the state of emb.weight lacks step, as 6 others lack keys: load_state_dict raises KeyError: 'step' (in "
        "torch/optim/adam.py)"
    )
    assert failure(content["optimizer"]) == ("load_state_dict", "KeyError", "'step'")
