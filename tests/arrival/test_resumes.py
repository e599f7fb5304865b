"""A checkpoint beside a script that restored all of it, or not all: what reached it, and the verdict."""

import random

import pytest
import torch
from torch import nn

from ckpttool.facts import OpenedFact, RaisedFact, ScriptFacts
from tests.arrival import living
from tests.arrival.living import bad, codes, judged, message_of
from tests.arrival.runs import Net, made, resumed, saved


@pytest.fixture
def path(tmp_path):
    return tmp_path / "last.pt"


def test_all_restored(path):
    """A run that restored everything is resumable, and nothing is held against it."""
    saved(path)
    judgement = judged(path, resumed(path).facts(path))
    assert (judgement.verdict, bad(judgement), codes(judgement, "warning")) == ("resumable", [], [])


def test_the_forward_pass_moves_statistics(path):
    """Batch norm has moved on by the first backward; that is no difference."""
    saved(path)
    run = resumed(path)
    run.model(torch.randn(8, 4))
    assert bad(judged(path, run.facts(path, rng=()))) == []


def test_never_opened(path):
    """A script that trains without opening the checkpoint is silently wrong, and only that is said."""
    saved(path)
    judgement = judged(path, made(seed=3).facts(path, opened=(), rng=living.rng_facts(restored=False)))
    assert (judgement.verdict, bad(judgement)) == ("silently-wrong", ["script.never-opened"])


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("model", "model.not-loaded"),
        ("optimizer", "optimizer.not-restored"),
        ("scheduler", "scheduler.not-restored"),
        ("step", "progress.not-restored"),
        ("rng", "rng.not-restored"),
    ],
)
def test_a_part_that_is_not_restored(path, part, code):
    """Each part that does not reach the run is found, and nothing else is."""
    saved(path)
    fresh, run = made(seed=9), resumed(path)
    more = {}
    if part == "model":
        more["modules"] = (living.module_fact(fresh.model),)
    elif part == "optimizer":
        more["optimizers"] = (living.optimizer_fact(fresh.optimizer, [fresh.model], loaded=False),)
    elif part == "scheduler":
        more["schedulers"] = (living.scheduler_fact(fresh.scheduler, loaded=False),)
    elif part == "step":
        more["counters"] = living.counters(step=0)
    else:
        more["rng"] = living.rng_facts(restored=False)
    judgement = judged(path, run.facts(path, **more))
    found = bad(judgement)
    assert judgement.verdict == "silently-wrong"
    assert code in found
    assert set(found) <= {code, "scheduler.lr-mismatch"}, found


def test_prefix_that_loads_nothing(path):
    """Names with a prefix and strict=False: nothing was loaded, and the prefix is named."""

    def prefixed(state):
        state["model"] = {f"module.{k}": v for k, v in state["model"].items()}

    saved(path, prefixed)
    run = made(seed=4)
    state = torch.load(path, weights_only=False)
    run.model.load_state_dict(state["model"], strict=False)
    run.optimizer.load_state_dict(state["optimizer"])
    run.scheduler.load_state_dict(state["scheduler"])
    run.step = state["step"]
    torch.set_rng_state(state["torch_rng"])
    random.setstate(state["python_rng"])
    assert bad(judged(path, run.facts(path))) == ["model.key-prefix", "model.not-loaded"]


def test_wrapped_model_takes_the_names(path):
    """A model that is wrapped as it was has all of them."""
    saved(path)
    run = resumed(path)
    fact = living.module_fact(nn.DataParallel(run.model))
    assert bad(judged(path, run.facts(path, modules=(fact,)))) == []


def test_partly_loaded(path):
    """A parameter that the file lacks starts afresh."""
    saved(path, lambda state: state["model"].pop("fc2.weight"))
    run = made(seed=4)
    state = torch.load(path, weights_only=False)
    run.model.load_state_dict(state["model"], strict=False)
    run.optimizer.load_state_dict(state["optimizer"])
    run.scheduler.load_state_dict(state["scheduler"])
    run.step = state["step"]
    torch.set_rng_state(state["torch_rng"])
    random.setstate(state["python_rng"])
    judgement = judged(path, run.facts(path))
    assert bad(judgement) == ["model.partly-loaded"]
    assert "fc2.weight of the model start afresh" in message_of(judgement, "model.partly-loaded")


def test_schedule_of_another_horizon(path):
    """LambdaLR stores no function: the rate at the restored step tells."""
    saved(path)
    run = resumed(path, horizon=50)
    fact = living.scheduler_fact(run.scheduler, rates=(0.01 * (1 - 5 / 50),))
    assert bad(judged(path, run.facts(path, schedulers=(fact,)))) == ["scheduler.horizon"]


def test_schedule_of_another_class(path):
    """StepLR takes the state of a LambdaLR and goes on by its own rule."""
    saved(path)
    run = resumed(path)
    fresh = made()
    other = torch.optim.lr_scheduler.StepLR(fresh.optimizer, 2)
    other.load_state_dict(torch.load(path, weights_only=False)["scheduler"])
    facts = run.facts(path, schedulers=(living.scheduler_fact(other),))
    assert "scheduler.class-changed" in bad(judged(path, facts))


def test_nan_that_arrived(path):
    """NaN in the weights reaches the run; where a tied weight overwrote it, it does not."""

    def broken(state):
        state["model"]["fc1.weight"][0, 0] = float("nan")

    saved(path, broken)
    assert bad(judged(path, resumed(path).facts(path))) == ["model.nonfinite"]


class Tied(Net):
    """The second layer's weight is the first's."""

    def __init__(self):
        super().__init__()
        self.fc2.weight = self.fc1.weight


def test_nan_that_a_tied_weight_overwrote(path):
    """What came last stays; the NaN under the first name harms nobody."""

    def broken(state):
        state["model"] = {k: v.clone() for k, v in state["model"].items()}
        state["model"]["fc1.weight"][0, 0] = float("nan")

    saved(path, broken, model=Tied)
    judgement = judged(path, resumed(path, model=Tied).facts(path))
    assert (judgement.verdict, bad(judgement)) == ("resumable", [])


def test_another_number_of_heads(path):
    """Weights that fit and compute something else."""
    saved(path)
    facts = resumed(path).facts(path, config=living.arguments(lr=0.01, batch_size=8, n_head=4))
    assert bad(judged(path, facts)) == ["model.other-function"]


def test_another_batch_size_is_a_wish(path):
    """What the user asked for and got is a note."""
    saved(path)
    judgement = judged(path, resumed(path).facts(path, config=living.arguments(lr=0.01, batch_size=16, n_head=2)))
    assert judgement.verdict == "resumable"
    assert "progress.batch-size" in codes(judgement, "note")


def test_setting_that_the_checkpoint_overrides(path):
    """--weight-decay after load_state_dict: both values are named, as a warning."""
    saved(path)
    run = resumed(path)
    now = living.optimizer_fact(run.optimizer, [run.model])
    made_with = dict(now.groups[0].hyperparameters) | {"weight_decay": 0.5}
    fact = living.optimizer_fact(run.optimizer, [run.model], made={0: made_with})
    judgement = judged(path, run.facts(path, optimizers=(fact,)))
    assert judgement.verdict == "resumable"
    assert "weight_decay of group 0 is 0.01 in the checkpoint" in message_of(judgement, "optimizer.hparam-override")


def test_counter_that_contradicts_the_optimizer(path):
    """Step 0 beside an optimizer of 5 steps."""
    saved(path, lambda state: state.update(step=0))
    assert bad(judged(path, resumed(path).facts(path))) == ["progress.inconsistent"]


def test_next_step_raises(path):
    """A trial step that raises is an error, with its cause."""
    saved(path)
    run = resumed(path)
    fact = living.optimizer_fact(run.optimizer, [run.model], next_step="KeyError: 'momentum'")
    judgement = judged(path, run.facts(path, optimizers=(fact,)))
    assert (judgement.verdict, bad(judgement)) == ("raises", ["optimizer.next-step"])


def test_nothing_left(path):
    """A script that reads the checkpoint and ends."""
    saved(path)
    facts = ScriptFacts(stopped="ended", exit_code=0, opened=(OpenedFact(path=str(path), how="torch.load"),))
    judgement = judged(path, facts)
    assert (judgement.verdict, bad(judgement)) == ("silently-wrong", ["script.nothing-left"])


@pytest.mark.parametrize(
    ("raised", "opened", "verdict"),
    [
        (RaisedFact(type="RuntimeError", message="Error(s) in loading", during="Net.load_state_dict"), True, "raises"),
        (RaisedFact(type="KeyError", message="'optim'"), True, "raises"),
        (RaisedFact(type="FileNotFoundError", message="[Errno 2] …: 'data/train.bin'"), False, "not-judged"),
        (RaisedFact(type="FileNotFoundError", message="[Errno 2] …: 'data/train.bin'"), True, "not-judged"),
        (RaisedFact(type="ModuleNotFoundError", message="No module named 'wandb'"), False, "not-judged"),
    ],
)
def test_exceptions(path, raised, opened, verdict):
    """Those of the checkpoint are errors; those of the script's own give no verdict."""
    saved(path)
    looked = (OpenedFact(path=str(path), how="torch.load"),) if opened else ()
    assert judged(path, ScriptFacts(stopped="raised", raised=raised, opened=looked)).verdict == verdict


@pytest.mark.parametrize("stopped", ["timed out", "killed"])
def test_no_verdict_without_an_answer(path, stopped):
    """A script that was stopped says nothing of the checkpoint."""
    saved(path)
    judgement = judged(path, ScriptFacts(stopped=stopped))
    assert (judgement.verdict, bad(judgement)) == ("not-judged", [])


def test_a_run_of_the_same_seed_that_never_opens_it(path):
    """Biases of zero and norms of one are alike in every model: they are no sign that anything was loaded."""
    saved(path)
    fresh = made(seed=9)
    with torch.no_grad():
        fresh.model.bn.weight.copy_(torch.load(path)["model"]["bn.weight"])
    judgement = judged(path, fresh.facts(path, opened=(), rng=living.rng_facts(restored=False)))
    assert (judgement.verdict, bad(judgement)) == ("silently-wrong", ["script.never-opened"])


def test_a_rate_that_only_the_file_has(path):
    """An optimizer of another step, or edited: its first step is made at a rate that the schedule gives nowhere near."""

    def tenfold(state):
        for group in state["optimizer"]["param_groups"]:
            group["lr"] *= 10

    saved(path, change=tenfold)
    judgement = judged(path, resumed(path).facts(path))
    assert "scheduler.lr-mismatch" in bad(judgement)
    assert "its schedule gives" in message_of(judgement, "scheduler.lr-mismatch")
