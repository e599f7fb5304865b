"""`scheduler.fields` and `scheduler.position`: states with one thing changed, said and really resumed with torch."""

import copy
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
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.optim.swa_utils import SWALR

from tests.rules.loops import Loop, said, saved

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about the order of steps

STEPS = 10  # before the save
ONWARD = 25  # after it

MAKE = {
    "step": lambda adam: StepLR(adam, 4, 0.5),
    "multi-step": lambda adam: MultiStepLR(adam, [3, 14], 0.3),
    "constant": lambda adam: ConstantLR(adam, 0.5, 12),
    "linear": lambda adam: LinearLR(adam, 0.1, 1.0, 20),
    "exponential": lambda adam: ExponentialLR(adam, 0.9),
    "polynomial": lambda adam: PolynomialLR(adam, 40, 2.0),
    "cosine": lambda adam: CosineAnnealingLR(adam, 30, 1e-5),
    "restarts": lambda adam: CosineAnnealingWarmRestarts(adam, 4, 2, 1e-5),
    "cyclic": lambda adam: CyclicLR(adam, 1e-4, 1e-3, 6, mode="triangular2"),
    "one-cycle": lambda adam: OneCycleLR(adam, 1e-2, total_steps=40),
    "function": lambda adam: LambdaLR(adam, lambda step: 0.95**step),
    "plateau": lambda adam: ReduceLROnPlateau(adam, patience=1, factor=0.5, cooldown=1),
    "swa": lambda adam: SWALR(adam, swa_lr=1e-4, anneal_epochs=20),
    "early": lambda adam: SequentialLR(adam, [LinearLR(adam, 0.1, 1.0, 6), CosineAnnealingLR(adam, 30)], [6]),
    "late": lambda adam: SequentialLR(adam, [LinearLR(adam, 0.1, 1.0, 16), ExponentialLR(adam, 0.9)], [16]),
    "chained": lambda adam: ChainedScheduler([ConstantLR(adam, 0.5, 12), ExponentialLR(adam, 0.9)]),
}
CODES = ("scheduler.fields", "scheduler.position", "scheduler.lr-mismatch", "scheduler.off-by-one", "scheduler.horizon")


class Run(Loop):
    """A loop that steps a plateau with a loss that gets no better."""

    def train(self, steps, each=1):
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            return super().train(steps, each)
        kept, self.scheduler, used = self.scheduler, None, []
        for _ in range(steps):
            used += super().train(1)
            kept.step(1.0)
        self.scheduler = kept
        return used


def content_of(name, steps=STEPS):
    """What a script saves after some steps."""
    run = Run(MAKE[name])
    run.train(steps)
    return copy.deepcopy(run.content(step=steps))


def changed(content, path, value):
    """The content with one field of the scheduler set; `...` takes it away."""
    content = copy.deepcopy(content)
    inner = content["scheduler"]
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


def resumed(name, content):
    """The rates of the steps after a resume, or the name of what it raises."""
    try:
        return Run(MAKE[name]).load(copy.deepcopy(content)).train(ONWARD)
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return type(error).__name__


def worst(path):
    """The worst that the rules about schedules say, and what they say."""
    found = [f for code in CODES for f in said(code, path)]
    order = ["error", "silent", "warning", "note"]
    return min((f[0] for f in found), key=order.index, default="note"), " ".join(f[2] for f in found)


RAISES = [
    ("step", ("step_size",), None, "TypeError"),
    ("step", ("step_size",), 0, "ZeroDivisionError"),
    ("step", ("gamma",), "x", "TypeError"),
    ("step", ("last_epoch",), None, "TypeError"),
    ("step", ("_step_count",), "x", "TypeError"),
    ("multi-step", ("milestones",), None, "TypeError"),
    ("constant", ("factor",), 0, "ZeroDivisionError"),
    ("linear", ("total_iters",), "x", "TypeError"),
    ("linear", ("start_factor",), 10**400, "OverflowError"),
    ("polynomial", ("total_iters",), None, "TypeError"),
    ("cosine", ("T_max",), 0, "ZeroDivisionError"),
    ("cosine", ("base_lrs",), None, "TypeError"),  # where it begins to rise
    ("restarts", ("T_cur",), None, "TypeError"),
    ("restarts", ("base_lrs",), [], "ValueError"),
    ("restarts", ("base_lrs",), [1e-3, 1e-3], "ValueError"),
    ("cyclic", ("max_lrs",), None, "TypeError"),
    ("cyclic", ("total_size",), 0, "ZeroDivisionError"),
    ("cyclic", ("_scale_fn_custom",), ..., "KeyError"),
    ("cyclic", ("_scale_fn_custom",), 1, "AttributeError"),
    ("one-cycle", ("_schedule_phases",), None, "TypeError"),
    ("one-cycle", ("_anneal_func_type",), "x", "ValueError"),
    ("one-cycle", ("total_steps",), 5, "ValueError"),
    ("function", ("lr_lambdas",), ..., "KeyError"),
    ("function", ("lr_lambdas",), None, "TypeError"),
    ("function", ("lr_lambdas",), ["x"], "ValueError"),
    ("function", ("base_lrs",), [], "ValueError"),
    ("function", ("base_lrs",), [None], "TypeError"),
    ("plateau", ("mode",), "x", "ValueError"),
    ("plateau", ("threshold_mode",), None, "TypeError"),
    ("plateau", ("patience",), None, "TypeError"),
    ("plateau", ("cooldown",), "x", "TypeError"),
    ("swa", ("_step_count",), None, "TypeError"),
    ("early", ("_milestones",), None, "TypeError"),
    ("late", ("_milestones",), [16, 16], "IndexError"),
    ("late", ("_schedulers", 0, "end_factor"), None, "TypeError"),
    ("late", ("_schedulers", 1, "base_lrs"), [], "ValueError"),  # at its milestone
    ("late", ("_schedulers",), ..., "KeyError"),
    ("late", ("_schedulers",), None, "TypeError"),
    ("chained", ("_schedulers", 1, "gamma"), None, "TypeError"),
]
SILENT = [
    ("step", ("step_size",), -1),
    ("step", ("gamma",), math.nan),
    ("step", ("last_epoch",), ...),
    ("step", ("last_epoch",), 0),
    ("multi-step", ("last_epoch",), ...),
    ("constant", ("total_iters",), None),
    ("linear", ("end_factor",), math.inf),
    ("exponential", ("gamma",), 0.8),
    ("polynomial", ("power",), 4.0),
    ("cosine", ("T_max",), 60),
    ("cosine", ("_is_initial",), True),
    ("restarts", ("T_cur",), ...),
    ("restarts", ("T_i",), ...),
    ("restarts", ("T_cur",), 2),
    ("restarts", ("T_i",), 12),
    ("restarts", ("base_lrs",), [2e-3]),
    ("restarts", ("last_epoch",), -1),
    ("cyclic", ("base_momentums",), [0.2]),
    ("cyclic", ("last_epoch",), 3),
    ("one-cycle", ("cycle_momentum",), None),
    ("function", ("last_epoch",), ...),
    ("function", ("last_epoch",), 0),
    ("function", ("last_epoch",), 13),
    ("function", ("base_lrs",), [math.nan]),
    ("plateau", ("best",), ...),
    ("plateau", ("best",), math.inf),
    ("plateau", ("num_bad_epochs",), 4),
    ("plateau", ("cooldown_counter",), 5),
    ("swa", ("_step_count",), 4),
    ("early", ("_schedulers", 1, "last_epoch"), 0),
    ("early", ("last_epoch",), 0),
    ("late", ("last_epoch",), 20),
    ("late", ("last_epoch",), ...),
    ("late", ("_schedulers", 0, "last_epoch"), 3),
    ("chained", ("_schedulers", 0, "last_epoch"), 0),
]
OPEN = [  # which may as well be a rate that was set by hand
    ("step", ("step_size",), 8),
    ("function", ("base_lrs",), [2e-3]),
]
HARMLESS = [
    ("step", ("_last_lr",), [0.5]),
    ("function", ("_last_lr",), [2e-3]),
    ("function", ("_last_lr",), [math.nan]),
    ("plateau", ("_last_lr",), [0.5]),
    ("step", ("base_lrs",), [2e-3]),
    ("step", ("_step_count",), -3),
    ("exponential", ("last_epoch",), 3),
    ("restarts", ("last_epoch",), 3),
    ("restarts", ("T_0",), 7),
    ("cyclic", ("gamma",), None),
    ("plateau", ("last_epoch",), 0),
    ("early", ("last_epoch",), 20),
    ("early", ("_schedulers", 0, "start_factor"), None),
    ("late", ("_schedulers", 1, "last_epoch"), None),
    ("chained", ("_schedulers", 1, "last_epoch"), 3),
]


def spelled(case):
    return f"{case[0]}-{'.'.join(map(str, case[1]))}-{str(case[2])[:6]}"


@pytest.mark.parametrize("case", RAISES, ids=spelled)
def test_what_a_step_cannot_use_raises(tmp_path, case):
    """The exception that the finding names is the one that torch raises, at the load or at a later step."""
    name, path, value, raised = case
    content = changed(content_of(name), path, value)
    assert resumed(name, content) == raised
    severity, words = worst(saved(content, tmp_path))
    assert severity == "error"
    assert raised in words


@pytest.mark.parametrize("case", SILENT, ids=spelled)
def test_what_makes_the_schedule_another_is_silent(tmp_path, case):
    """torch takes it and goes on at other rates, or with other momentums."""
    name, path, value = case
    content = changed(content_of(name), path, value)
    if path[0] not in ("base_momentums", "cycle_momentum"):
        assert resumed(name, content) != resumed(name, content_of(name))
    assert worst(saved(content, tmp_path))[0] == "silent"


@pytest.mark.parametrize("case", OPEN, ids=spelled)
def test_what_a_person_may_have_done_is_a_warning(tmp_path, case):
    """Rates go on otherwise than before the edit, and just so where a rate or a base was set by hand in training."""
    name, path, value = case
    content = changed(content_of(name), path, value)
    assert resumed(name, content) != resumed(name, content_of(name))
    assert worst(saved(content, tmp_path))[0] == "warning"


@pytest.mark.parametrize("case", HARMLESS, ids=spelled)
def test_what_no_step_reads_is_no_fault(tmp_path, case):
    """The rates after the resume are those of the state as it was, and nothing worse than a note is said."""
    name, path, value = case
    content = changed(content_of(name), path, value)
    assert resumed(name, content) == resumed(name, content_of(name))
    assert worst(saved(content, tmp_path))[0] == "note"


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 7, 12, 16, 17, 35])
@pytest.mark.parametrize("name", MAKE)
def test_states_as_torch_wrote_them(tmp_path, name, steps):
    """At whatever step, no schedule is said to be odd."""
    assert worst(saved(content_of(name, steps), tmp_path))[0] == "note"


@pytest.mark.parametrize(("name", "raised", "severity"), [
    ("step", None, "note"), ("exponential", None, "note"), ("plateau", None, "note"), ("cosine", None, "warning"),
    ("function", "ValueError", "error"), ("restarts", "ValueError", "error"), ("cyclic", "ValueError", "error"),
    ("one-cycle", "KeyError", "error"), ("swa", "KeyError", "error"),
])  # fmt: skip
def test_group_that_was_added(tmp_path, name, raised, severity):
    """Some schedules step a group that was added after them, others raise: torch decides."""
    run = Run(MAKE[name])
    run.train(5)
    run.adam.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    path = saved(run.content(step=5), tmp_path)
    if raised is not None:
        with pytest.raises(Exception, match="") as caught:  # noqa: PT011  # its class is compared
            run.train(3)
        assert caught.type.__name__ == raised
    else:
        run.train(3)
        assert worst(saved(run.content(step=8), tmp_path, "later.pt"))[0] == severity
    assert worst(path)[0] == severity


def test_scheduler_without_its_optimizer(tmp_path):
    """The rates that it set last stand for the groups."""
    content = changed(content_of("step"), ("gamma",), None)
    path = saved({"scheduler": content["scheduler"]}, tmp_path)
    assert [(s, w) for s, w, _ in said("scheduler.fields", path)] == [("error", "scheduler.gamma")]
    assert said("scheduler.fields", saved({"scheduler": content_of("one-cycle")["scheduler"]}, tmp_path)) == []


def test_rate_that_departs_in_the_whole_run(tmp_path):
    """A rate that was set by hand in training departs from the schedule by one factor in all checkpoints."""
    from tests.rules.asking import of_run, short  # noqa: PLC0415
    from tests.rules.loops import rule  # noqa: PLC0415

    run = Run(MAKE["exponential"])
    run.train(3)
    run.adam.param_groups[0]["lr"] *= 0.7
    folder = tmp_path / "run"
    folder.mkdir()
    for step in (6, 9):
        run.train(3)
        saved(run.content(step=step), folder, f"step_{step}.pt")
    (found,) = short(of_run(rule("scheduler.lr-mismatch"), folder, "step_9.pt"))
    assert found[0] == "warning"
    assert [s for s, _, _ in said("scheduler.lr-mismatch", folder / "step_9.pt")] == ["warning"]


def test_steps_within_a_cosine_to_an_epoch(tmp_path):
    """`step(epoch)` leaves `_step_count` elsewhere, and the counter of epochs agrees with `last_epoch`."""
    run = Run(MAKE["function"])
    kept, run.scheduler = run.scheduler, None
    for epoch in range(1, 4):
        run.train(3)
        kept.step(epoch)
        kept.step(epoch)
    run.scheduler = kept
    assert worst(saved(run.content(epoch=3), tmp_path))[0] == "note"


HUGE = 10**5000
STRANGE = [
    HUGE, -HUGE, math.nan, math.inf, "x" * 10_000, [[1]], {"a": {}}, None, (1,), b"x", {1, 2}, True, 2**62, [HUGE], ["x"],
    [None] * 3, {"x": "y"}, torch.tensor([1.0, 2.0]), torch.tensor(3), complex(1), [{"end_step": HUGE}], [{}],
]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize("name", MAKE)
def test_values_that_no_scheduler_writes(tmp_path, name, value):
    """Whatever stands in a field, the rules answer."""
    content = content_of(name, 3)
    path = tmp_path / "state.pt"
    keys = [(key,) for key in content["scheduler"]]
    inner = content["scheduler"].get("_schedulers", [])
    keys += [("_schedulers", n, key) for n, part in enumerate(inner) for key in part]
    for key in keys:
        torch.save(changed(content, key, value), path)
        assert worst(path)[1].isprintable()


def test_many_schedulers_and_groups(tmp_path):
    """Thousands of groups and of schedulers inside take no time to speak of."""
    content = content_of("chained", 3)
    part = {**content["scheduler"]["_schedulers"][1], "gamma": math.nan}
    content["scheduler"]["_schedulers"] = [dict(part) for _ in range(5_000)]
    assert worst(saved(content, tmp_path))[1].isprintable()
    content = changed(content_of("exponential", 3), ("gamma",), math.nan)
    content["optimizer"]["param_groups"] *= 5_000
    assert worst(saved(content, tmp_path))[0] == "silent"
