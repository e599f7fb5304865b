"""The examining half of the probe's child: what is alive at the boundary, without touching it."""

import argparse
import copy
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from ckpttool.elements import sha256
from ckpttool.opening import open_checkpoint
from ckpttool.probe.asking import ask
from ckpttool.probe.child import counters, loaders, loose, schedules, settings, trial_step
from ckpttool.probe.child.digests import Looks, look
from ckpttool.probe.child.heap import live_objects
from ckpttool.probe.child.modules import find_roots, module_facts
from ckpttool.probe.child.optimizers import inner_optimizers, optimizer_facts, state_tensors, trained_ids
from ckpttool.probe.child.orders import Orders
from ckpttool.probe.child.plain import plain
from ckpttool.probe.child.record import Record
from ckpttool.probe.child.stack import Scope, Stack
from ckpttool.probe.question import Question


@pytest.fixture
def record():
    """A record of nothing yet."""
    return Record(Orders(answer="/nowhere/answer.json", checkpoint="/nowhere/ck.pt"))


def stack(variables=None, function="main", *, library=False, script=None):
    """A stack of one frame with these variables."""
    found = Stack(None, script or {})
    if variables is not None:
        found.scopes.append(Scope(f"train.py:3 {function}", function, library, variables, (), {}))
    return found


def optimizer(lr=0.1, groups=1):
    return torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.ones(2))]} for _ in range(groups)], lr=lr, momentum=0.9
    )


class Own(lr_scheduler.LRScheduler):
    """A user's schedule by position."""

    def get_lr(self):
        return [base / (1 + self.last_epoch) for base in self.base_lrs]


class Chained(lr_scheduler.LRScheduler):
    """A user's schedule that goes on from the rate there is."""

    def get_lr(self):
        return [group["lr"] * 0.9 for group in self.optimizer.param_groups]


class Stepping(Own):
    """A user's schedule that sets the rates in a step of its own."""

    def step(self, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch


SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=6),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 8),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1)),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=12),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=4),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 9)], [4]
    ),
    "Own": Own,
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 4, 7])
def test_rates_are_those_that_the_schedule_gives(name, steps, record):
    """Also after a state was loaded into a new scheduler; nothing of the optimizer is touched."""
    first = optimizer(groups=2)
    schedule = SCHEDULES[name](first)
    for _ in range(steps):
        first.step()
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the order of the first two calls
        second = optimizer(groups=2)
        resumed = SCHEDULES[name](second)
    resumed.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    before = copy.deepcopy(second.state_dict()), copy.deepcopy(resumed.state_dict())
    (fact,) = schedules.scheduler_facts([resumed], Looks(), record, stack({"schedule": resumed}))
    assert fact["rates"] == pytest.approx([group["lr"] for group in first.param_groups])
    assert (fact["name"], fact["rates_unchecked"], fact["fields"]["last_epoch"]) == ("schedule", "", steps)
    assert str((second.state_dict(), resumed.state_dict())) == str(before)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lr_scheduler.ReduceLROnPlateau, "it follows a metric"),
        (lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9), "each of its rates follows from the one before"),
        (Stepping, "its step is the script's own"),
        (Chained, "each of its rates follows from the one before"),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2)], o),
            "several schedulers multiply their rates",
        ),
        (lambda o: lr_scheduler.LambdaLR(o, lambda n: 1 / (n - 0) if n else 1.0), ""),
    ],
)
def test_rates_that_cannot_be_told(make, why, record):
    """It is said why; those inside another scheduler are not shown."""
    one = make(optimizer())
    inside = list(getattr(one, "_schedulers", []))
    (fact,) = schedules.scheduler_facts([*inside, one], Looks(), record, stack())
    assert fact["rates_unchecked"] == why


def test_a_schedule_that_raises(record):
    """The exception is why."""
    one = lr_scheduler.LambdaLR(optimizer(), lambda _: 1.0)
    one.lr_lambdas = [lambda _: 1 / 0]
    (fact,) = schedules.scheduler_facts([one], Looks(), record, stack())
    assert fact["rates_unchecked"] == "its rates cannot be worked out: ZeroDivisionError: division by zero"


def test_loaders(record):
    """Batches, samples, samplers; where the run stands is what was watched."""
    one = DataLoader(TensorDataset(torch.arange(10)), batch_size=4, shuffle=True)
    record.loader_notes(one).given = 2
    (fact,) = loaders.loader_facts([one], record, stack({"loader": one}))
    kept = {k: fact[k] for k in ("name", "batch_size", "batches", "samples", "given", "sampler", "epoch")}
    assert kept == {
        "name": "loader", "batch_size": 4, "batches": 3, "samples": 10, "given": 2,
        "sampler": "torch.utils.data.sampler.RandomSampler", "epoch": None,
    }  # fmt: skip


@dataclass
class State:
    """As trainers have one."""

    global_step: int = 7
    max_steps: int = 100
    name: str = "x"


class Inner:
    def __init__(self):
        self.samples_seen = 9


class Trainer:
    def __init__(self, completed):
        self.completed, self.inner = completed, Inner()


def test_counters():
    """Variables, attributes of objects, tensors of one element; what is set beforehand is none."""
    holder = Trainer(3)
    variables = {
        "epoch": 2,
        "num_epochs": 5,
        "log_every": 10,
        "flag": True,
        "best_acc": torch.tensor(0.5),
        "t": holder,
        "state": State(),
    }
    facts = {
        (f["name"], f["value"], f["where"]) for f in counters.counter_facts(list(counters.numbers_in(stack(variables))))
    }
    assert ("epoch", 2, "train.py:3 main") in facts
    assert ("best_acc", 0.5, "train.py:3 main") in facts
    assert ("completed", 3, "Trainer of main") in facts
    assert any(value == 9 for _, value, _ in facts)
    assert any(name.endswith("global_step") and value == 7 for name, value, _ in facts)
    assert not {name for name, _, _ in facts} & {"num_epochs", "log_every", "flag", "max_steps"}


def test_settings():
    """Arguments by name or kind, constants of the script, configurations of models."""

    class Config:
        def to_dict(self):
            return {"n_head": 4, "function": print}

    model = torch.nn.Linear(2, 2)
    model.config = Config()
    roots = [SimpleNamespace(inside=[model])]
    script = {"__file__": "train.py", "LR": 0.1, "_hidden": 1, "parsed": argparse.Namespace(batch=8, out=None)}
    facts = {f["where"]: f["values"] for f in settings.config_facts(roots, stack({"args": {"seed": 1}}, script=script))}
    assert facts["args of main"] == {"seed": 1}
    assert facts["parsed of train.py"] == {"batch": 8, "out": None}
    assert facts["constants of train.py"]["LR"] == 0.1
    assert facts["config of model Linear"] == {"n_head": 4}


class Average:
    """An average of weights, kept by an object of the user's."""

    def __init__(self, shadow):
        self.shadow = shadow


def test_loose_tensors(record):
    """Those an object holds have reached the run; those in the loaded dict alone have not."""
    model = torch.nn.Linear(3, 2, bias=False)
    loaded = {"model": {"weight": torch.full((2, 3), 1.0)}, "ema": {"weight": torch.full((2, 3), 2.0)}}
    record.roots.put(loaded_ := Root(loaded), "/nowhere/ck.pt")
    own = {"weight": torch.full((2, 3), 3.0)}
    other_shape = torch.zeros(5)
    every = [model.weight, loaded["model"]["weight"], loaded["ema"]["weight"], own["weight"], other_shape]

    def found():
        roots = find_roots([model], set(), record, stack())
        return set(loose.loose_tensors(every, roots, [], Looks(), record, stack({"own": own})))

    digests = [look(tensor).digest for tensor in every]
    assert found() == {digests[3]}
    average = Average(loaded_["ema"])
    assert found() == {digests[2], digests[3]}
    del average


class Root(dict):
    """A dict that can be referred to weakly, as the probe's recording dict is."""


def test_digests_are_those_of_the_reader(tmp_path):
    """Of every dtype and stride: what the child says of a tensor is what `ckpt` says of it in the file."""
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    kinds = [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
    ]
    tensors = {str(kind): base.to(kind) for kind in (*kinds, torch.float8_e4m3fn)}
    tensors |= {"t": base.t(), "step": base[:, ::2], "scalar": torch.tensor(3.0), "empty": torch.empty(0, 3)}
    tensors |= {"expanded": torch.ones(1, 3).expand(4, 3), "offset": base[2:]}
    torch.save(tensors, tmp_path / "t.pt")
    with open_checkpoint(tmp_path / "t.pt") as checkpoint:
        root = checkpoint.contents[""].root
        assert {name: sha256(root[name]) for name in tensors} == {name: look(t).digest for name, t in tensors.items()}


def test_a_tensor_without_plain_elements():
    """There is no digest, and it is said why."""
    assert look(torch.zeros(3, device="meta")) == ("", 0, 0, "it is on the meta device")
    assert look(torch.eye(3).to_sparse()).digest == ""


def test_models_and_optimizers(record):
    """Roots with their tied names and buffers; groups by name, states by position."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    model[2].weight = model[0].weight
    model.register_buffer("transient", torch.ones(1), persistent=False)
    trained = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(4, 3)).sum().backward()
    trained.step()
    heap = live_objects()
    assert any(m is model for m in heap.modules)
    assert any(o is trained for o in heap.optimizers)
    ids, looks = trained_ids([trained]), Looks()
    roots = find_roots(list(model.modules()), ids, record, stack({"net": model}))
    (fact,) = module_facts(roots, ids, looks, record, stack({"net": model}))
    assert (fact["name"], fact["trained"], fact["loaded"]) == ("net", True, False)
    assert set(fact["tensors"]) == {*model.state_dict(), "transient"}
    assert fact["tensors"]["0.weight"]["place"] == fact["tensors"]["2.weight"]["place"]
    assert not fact["tensors"]["transient"]["persistent"]
    assert fact["tensors"]["1.running_mean"]["buffer"]
    (fact,) = optimizer_facts(inner_optimizers([trained]), roots, looks, record, stack())
    assert [name.partition(":")[2] for name in fact["groups"][0]["names"]] == [n for n, _ in model.named_parameters()]
    assert set(fact["state"]) == {"0", "1", "2", "3", "4"}
    assert fact["state"]["0"]["step"]["$tensor"]["value"] == 1.0
    assert fact["next_step"] == ""
    assert len(list(state_tensors([trained]))) == 15


def test_a_trial_step_touches_nothing():
    """It finds what the next step would raise, on copies: parameters, states and generators stay."""
    model = torch.nn.Linear(3, 3)
    good = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    good.step()
    before = copy.deepcopy((good.state_dict(), model.state_dict(), torch.get_rng_state()))
    assert trial_step.trial_step(good) == ("", "")
    assert str((good.state_dict(), model.state_dict(), torch.get_rng_state())) == str(before)
    for param in model.parameters():
        good.state[param] = {"momentum_buffer": torch.ones_like(param)}
    assert trial_step.trial_step(good)[0].startswith("KeyError: ")
    assert trial_step.trial_step(torch.optim.LBFGS(model.parameters()))[1] == "it needs a closure"


class WithAverage(torch.optim.SGD):
    """A user's optimizer that keeps something of its own and writes into it at each step."""

    def __init__(self, model, kept):
        super().__init__(model.parameters(), lr=0.1)
        self.kept = kept

    def step(self, closure=None):
        super().step(closure)
        if isinstance(self.kept, list):
            self.kept.append(1)
        elif isinstance(self.kept, torch.nn.Module):
            torch.nn.init.zeros_(self.kept.weight)
        else:
            self.kept.average.mul_(0.5)


@pytest.mark.parametrize("kind", ["module", "object", "list"])
def test_a_trial_step_of_an_optimizer_with_more_in_it(kind):
    """What it would write into beside its groups and states is refused, or copied where it holds no tensors."""
    model = torch.nn.Linear(3, 3)
    kept = {"module": model, "object": SimpleNamespace(average=torch.ones(3)), "list": []}[kind]
    before = copy.deepcopy((model.state_dict(), kept))
    raised, unchecked = trial_step.trial_step(WithAverage(model, kept))
    assert (raised, unchecked) == ("", "" if kind == "list" else "it keeps tensors of its own, in 'kept'")
    assert str((model.state_dict(), kept)) == str(before)


def test_plain_values():
    """What JSON has no word for is tagged; cycles and what is too long are cut."""
    assert plain({"a": (1, 2.0), 3: float("nan"), "b": b"x"}) == {
        "$pairs": [
            ["a", {"$tuple": [1, 2.0]}],
            [3, {"$float": "nan"}],
            ["b", {"$bytes": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}],
        ]
    }
    loop = []
    loop.append(loop)
    assert "$cut" in str(plain(loop))


def test_all_of_it_in_a_real_script(tmp_path, monkeypatch):
    """A loop with everything in it: each part is found, and nothing could not be examined."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import argparse, copy, torch
        class Counter:
            def __init__(self): self.seen = 0
            def state_dict(self): return {"seen": self.seen}
            def load_state_dict(self, state): self.seen = state["seen"]
        def main():
            parser = argparse.ArgumentParser(); parser.add_argument("--resume"); args = parser.parse_args()
            model = torch.nn.Linear(4, 2); ema = copy.deepcopy(model).requires_grad_(False)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            scaler = torch.amp.GradScaler("cpu"); counter = Counter(); epoch = 0
            if args.resume:
                saved = torch.load(args.resume); model.load_state_dict(saved["model"]); ema.load_state_dict(saved["ema"])
                optimizer.load_state_dict(saved["optimizer"]); scheduler.load_state_dict(saved["scheduler"])
                scaler.load_state_dict(saved["scaler"]); counter.load_state_dict(saved["counter"]); epoch = saved["epoch"] + 1
                torch.set_rng_state(saved["rng"])
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=2)
            for epoch in range(epoch, 3):
                for (x,) in loader:
                    counter.seen += len(x)
                    scaler.scale(model(x).pow(2).mean()).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
                scheduler.step()
                torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict(), "counter": counter.state_dict(),
                    "epoch": epoch, "rng": torch.get_rng_state()}, f"ck{epoch}.pt")
        main()
    """)
    )
    subprocess.run([sys.executable, "train.py"], check=True)
    facts = ask(
        Question(checkpoint="ck0.pt", script="train.py", args=("--resume", "{checkpoint}"), python=sys.executable)
    )
    assert (facts.stopped, facts.unwatched) == ("backward", ())
    assert {m.name: (m.trained, m.loaded) for m in facts.modules} == {"model": (True, True), "ema": (False, True)}
    assert [(o.name, o.loaded, o.next_step) for o in facts.optimizers] == [("optimizer", True, "")]
    assert [(s.name, s.rates, s.optimizer) for s in facts.schedulers] == [("scheduler", (0.1,), facts.optimizers[0].id)]
    assert [(s.name, s.fields["_growth_tracker"]) for s in facts.scalers] == [("scaler", 4)]
    assert [(o.name, o.state) for o in facts.objects] == [("counter", {"seen": 10})]
    assert [(one.name, one.batches, one.given) for one in facts.loaders] == [("loader", 4, 1)]
    assert [r.set_since for r in facts.rng if r.generator == "torch"] == [True]
    assert ("epoch", 1) in {(c.name, c.value) for c in facts.counters}
    assert ("args of main", {"resume": "ck0.pt"}) in [(c.where, dict(c.values)) for c in facts.config]
