"""Closed forms, held against torch's own schedulers step by step, also after a state was loaded."""

import math

import pytest
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from ckpttool.rules._learning_rates import follows
from ckpttool.rules._schedules import base_rates, schedule_of

STEPS = 600
MAKERS = {
    "StepLR": lambda o: StepLR(o, 7, 0.8),
    "MultiStepLR": lambda o: MultiStepLR(o, [3, 3, 9, 400], 0.3),
    "ExponentialLR": lambda o: ExponentialLR(o, 0.99),
    "CosineAnnealingLR": lambda o: CosineAnnealingLR(o, 50, 1e-3),  # past its end, up and down again
    "CosineAnnealingLR slow": lambda o: CosineAnnealingLR(o, 5000),
    "LinearLR": lambda o: LinearLR(o, 0.1, 1.0, 20),
    "ConstantLR": lambda o: ConstantLR(o, 0.3, 11),
    "PolynomialLR": lambda o: PolynomialLR(o, 60, 2.0),
    "OneCycleLR": lambda o: OneCycleLR(o, [0.5, 0.7], total_steps=STEPS + 1),
    "OneCycleLR of three": lambda o: OneCycleLR(o, 0.5, total_steps=STEPS + 1, three_phase=True, anneal_strategy="linear"),
    "CyclicLR": lambda o: CyclicLR(o, 0.01, [0.3, 0.2], step_size_up=13, step_size_down=6, mode="triangular2"),
    "CyclicLR plain": lambda o: CyclicLR(o, 0.01, 0.3, step_size_up=13),
    "CyclicLR decaying": lambda o: CyclicLR(o, 0.01, 0.3, step_size_up=13, mode="exp_range", gamma=0.99),
    "CosineAnnealingWarmRestarts": lambda o: CosineAnnealingWarmRestarts(o, 5, 2, 1e-4),
    "SequentialLR": lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, 1, 10), CosineAnnealingLR(o, 60, 1e-5), ExponentialLR(o, 0.9)], [10, 70]
    ),
    "SequentialLR of restarts": lambda o: SequentialLR(
        o, [PolynomialLR(o, 10, 2.0), CosineAnnealingWarmRestarts(o, 7)], [5]
    ),
    "ChainedScheduler": lambda o: ChainedScheduler([ConstantLR(o, 0.3, 11), ExponentialLR(o, 0.99), StepLR(o, 30)]),
    "ChainedScheduler of cosine": lambda o: ChainedScheduler([LinearLR(o, 0.3, 1, 11), CosineAnnealingLR(o, 700)]),
}  # fmt: skip


def optimizer():
    """Two groups of different rates."""
    return torch.optim.SGD(
        [{"params": [torch.zeros(1, requires_grad=True)], "lr": 0.1 * n} for n in (1, 2)], lr=0.1, momentum=0.9
    )


def now(scheduler, sgd):
    """The form's rates where the scheduler stands; None where it has none."""
    state = scheduler.state_dict()
    step = state["last_epoch"] if "last_epoch" in state else state["_schedulers"][0]["last_epoch"]
    schedule = schedule_of(state, sgd.param_groups)
    return schedule and schedule.at(step)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKERS)
def test_form_is_torchs_at_every_step(name):
    """The closed form gives what torch gives, step by step, and goes on so from a loaded state."""
    sgd = optimizer()
    scheduler = MAKERS[name](sgd)
    assert schedule_of(scheduler.state_dict(), sgd.param_groups).name == name.split()[0]
    bases = base_rates(scheduler.state_dict())
    for step in range(STEPS):
        form = now(scheduler, sgd)
        assert form is not None
        assert follows([g["lr"] for g in sgd.param_groups], form, bases), (step, form, scheduler.get_last_lr())
        sgd.step()
        scheduler.step()
        if step == 100:
            again = optimizer()
            resumed = MAKERS[name](again)
            resumed.load_state_dict(scheduler.state_dict())
            again.load_state_dict(sgd.state_dict())
            sgd, scheduler = again, resumed


@pytest.mark.parametrize(
    "make",
    [
        lambda o: LambdaLR(o, lambda step: 0.9**step),
        lambda o: MultiplicativeLR(o, lambda _: 0.9),
        ReduceLROnPlateau,
    ],
)
def test_functions_and_measurements_have_no_form(make):
    """What depends on a function or on a metric is not in the state."""
    sgd = optimizer()
    assert schedule_of(make(sgd).state_dict(), sgd.param_groups) is None


def test_subclass_with_a_key_of_its_own_is_not_taken_for_its_parent():
    """A warm-up multistep schedule has `milestones` and `gamma` too, and other rates."""

    class WarmUp(MultiStepLR):
        def __init__(self, *args):
            self.warm_up = 5
            super().__init__(*args)

    sgd = optimizer()
    assert schedule_of(WarmUp(sgd, [3], 0.1).state_dict(), sgd.param_groups) is None


def test_chain_of_restarts_has_no_form():
    """A chain is a product only where each part multiplies what it finds."""
    sgd = optimizer()
    state = ChainedScheduler([CosineAnnealingWarmRestarts(sgd, 7), ExponentialLR(sgd, 0.9)]).state_dict()
    assert schedule_of(state, sgd.param_groups).at(3) is None


def test_sequence_with_one_cycle_is_uncertain():
    """OneCycleLR gives the groups another `initial_lr`, so what comes before it begins elsewhere than its state says."""
    sgd = optimizer()
    one = SequentialLR(sgd, [ConstantLR(sgd, 0.1, 100), OneCycleLR(sgd, 0.4, total_steps=50)], [10])
    assert not schedule_of(one.state_dict(), sgd.param_groups).certain
    assert schedule_of(StepLR(sgd, 3).state_dict()).certain


def state(**fields):
    """A StepLR's state with some fields changed."""
    return {**StepLR(optimizer(), 3).state_dict(), **fields}


@pytest.mark.parametrize(
    "fields",
    [
        state(step_size=0),
        state(gamma="a tenth"),
        state(gamma=10**400),
        state(gamma=1e300, step_size=1),
        state(base_lrs=[math.nan]),
        state(base_lrs=[10**400]),
        {"_schedulers": [state(), state()], "_milestones": "none", "last_epoch": 1},
        {"_schedulers": [state()], "_milestones": [1, 2, 3], "last_epoch": 1},
        {"_schedulers": [3], "_milestones": [1], "last_epoch": 1},
        {"_schedulers": [state(), 3], "_milestones": [1], "last_epoch": 1},
        {**CyclicLR(optimizer(), 0.01, 0.3).state_dict(), "mode": 7},
        {**OneCycleLR(optimizer(), 0.3, total_steps=9).state_dict(), "_schedule_phases": []},
        CosineAnnealingWarmRestarts(optimizer(), 5).state_dict(),  # which says where it stands, and no more
        {"_schedulers": [state(), 3], "_last_lr": []},
    ],
)
def test_nonsense_gives_no_rate(fields):
    """Numbers that no schedule can use give None, never an exception."""
    schedule = schedule_of(fields)
    assert schedule is None or schedule.at(10) is None


def test_negative_factor_between_steps():
    """A power that would be a complex number is no rate."""
    fields = ExponentialLR(optimizer(), -0.5).state_dict()
    assert schedule_of(fields).at(2) == pytest.approx((0.025, 0.05))
    assert schedule_of(fields).at(2.5) is None


def test_schedulers_inside_each_other_without_end():
    """A state that holds itself is given up after a few turns."""
    fields = {"_milestones": [], "last_epoch": 1}
    fields["_schedulers"] = [fields]
    assert schedule_of(fields).at(1) is None
    assert base_rates(fields) == ()
