"""Sane scripts resume without a word, however they keep their counters, averages, samplers and schedules; and what
does not arrive is told."""

import pytest

from tests.arrival.scripts import loud, resumed, said

MODEL = """
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
"""
STEP = "optimizer.zero_grad(); model(torch.randn(8, 4)).square().mean().backward(); optimizer.step()"
MORE = ("--steps", "40")


def loading(extra="pass"):
    """The lines that load, into a variable `ck`."""
    return f"""
step = 0
if args.resume:
    ck = torch.load(args.resume, weights_only=False)
    model.load_state_dict(ck["model"]); optimizer.load_state_dict(ck["optimizer"]); step = ck["step"]
    {extra}
"""


def training(extra="pass", **saved):
    """The loop, and what is saved after it."""
    parts = "".join(f", '{key}': {value}" for key, value in saved.items())
    return f"""
while step < args.steps:
    {STEP}; step += 1
    {extra}
torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step{parts}}}, args.out)
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


IN_A_DICT = f"""
state = {{"iteration": 0}}
if args.resume:
    ck = torch.load(args.resume)
    model.load_state_dict(ck["model"]); optimizer.load_state_dict(ck["optimizer"])
    state["iteration"] = ck["iteration"]
def loop(steps):
    while state["iteration"] < steps:
        {STEP}
        state["iteration"] += 1
loop(args.steps)
torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), **state}}, args.out)
"""
UNDER_ANOTHER_NAME = f"""
class Config:
    iters = 40
    def __init__(self): self.epochs = 3
config = Config()
def train(steps, n):
    while n < steps:
        for it in range(3):
            {STEP}
            n += 1
    return n
first = 0
if args.resume:
    ck = torch.load(args.resume)
    model.load_state_dict(ck["model"]); optimizer.load_state_dict(ck["optimizer"]); first = ck["global_step"]
n = train(args.steps, first)
torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": n}}, args.out)
"""
IN_SLOTS = f"""
class Loop:
    __slots__ = ("global_step", "steps")
    def __init__(self): self.global_step, self.steps = 0, args.steps
    def run(self):
        while self.global_step < self.steps:
            {STEP}
            self.global_step += 1
loop = Loop()
if args.resume:
    ck = torch.load(args.resume)
    model.load_state_dict(ck["model"]); optimizer.load_state_dict(ck["optimizer"])
    loop.global_step = ck["global_step"]
loop.run()
state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": loop.global_step}}
torch.save(state, args.out)
"""


@pytest.mark.parametrize("code", [IN_A_DICT, UNDER_ANOTHER_NAME, IN_SLOTS], ids=["dict", "other name", "slots"])
def test_counters_arrive_wherever_they_are_kept(tmp_path, code):
    """`--steps 40` is a goal, and an index within an epoch is no counter of steps."""
    assert loud(resumed(tmp_path, MODEL + code, *MORE)) == []


@pytest.mark.parametrize(
    ("code", "taken"),
    [(IN_A_DICT, 'state["iteration"] = ck["iteration"]'), (IN_SLOTS, 'loop.global_step = ck["global_step"]')],
    ids=["dict", "slots"],
)
def test_counters_that_do_not_arrive(tmp_path, code, taken):
    """The same scripts without the line that takes the counter."""
    found = said(resumed(tmp_path, MODEL + code.replace(taken, "pass"), *MORE), "progress.not-restored")
    assert len(found) == 1
    assert found[0].startswith("silent")
    assert "is 6 in the checkpoint" in found[0]


FABRIC = """
from lightning.fabric import Fabric
fabric = Fabric(accelerator="cpu", devices=1)
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
data = torch.utils.data.TensorDataset(torch.randn(24, 4))
loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data, batch_size=8))
model, optimizer = fabric.setup(model, optimizer)
state = {"model": model, "optimizer": optimizer, "iteration": 0}
if args.resume:
    fabric.load(args.resume, state)
while state["iteration"] < args.steps:
    for x, in loader:
        optimizer.zero_grad(); fabric.backward(model(x).square().mean()); optimizer.step()
        state["iteration"] += 1
fabric.save(args.out, state)
"""


@pytest.mark.framework
def test_numbers_of_a_library_are_none_of_the_script(tmp_path):
    """Fabric counts the iterators of its loaders."""
    assert loud(resumed(tmp_path, FABRIC, *MORE)) == []


SHADOW = """
class Average:
    def __init__(self, model): self.shadow = {k: v.clone() for k, v in model.state_dict().items()}
    def update(self, model):
        for k, v in model.state_dict().items(): self.shadow[k].mul_(0.9).add_(v, alpha=0.1)
average = Average(model)
"""
UPDATED = training("average.update(model)", ema="average.shadow")
PLAIN_SHADOW = MODEL + "ema = {k: v.detach().clone() for k, v in model.named_parameters()}\n"
PLAIN_UPDATED = training(
    "[ema[k].mul_(0.9).add_(v.detach(), alpha=0.1) for k, v in model.named_parameters()]", ema="ema"
)


@pytest.mark.parametrize(
    "code",
    [
        MODEL + SHADOW + loading("average.shadow = {k: v.clone() for k, v in ck['ema'].items()}") + UPDATED,
        MODEL.replace("(6, 6)", "(6, 1)") + SHADOW + loading("average.shadow = ck['ema']") + UPDATED,
        PLAIN_SHADOW + loading("ema = ck['ema']") + PLAIN_UPDATED,
    ],
    ids=["copied", "taken, with single numbers", "a variable"],
)
def test_an_average_in_a_dict_arrives(tmp_path, code):
    """Its names are those of the model, which holds something else."""
    judgement = resumed(tmp_path, code, *MORE)
    assert said(judgement, "ema.not-restored") == loud(judgement) == []


def test_an_average_that_does_not_arrive(tmp_path):
    """The checkpoint is still held by a variable, and the average is the model's as it was made."""
    found = said(resumed(tmp_path, MODEL + SHADOW + loading() + UPDATED, *MORE), "ema.not-restored")
    assert found == [
        "silent ema.not-restored: 0 of 4 averaged tensors reached the run, whose average goes on from something else"
    ]


BESIDE = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.live, self.kept = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x): return self.live(x)
    @torch.no_grad()
    def update(self):
        for a, b in zip(self.kept.parameters(), self.live.parameters()): a.mul_(0.9).add_(b, alpha=0.1)
model = Both()
optimizer = torch.optim.AdamW(model.live.parameters(), lr=args.lr)
step = 0
if args.resume:
    ck = torch.load(args.resume)
    model.live.load_state_dict(ck["model"]); model.kept.load_state_dict(ck["state_dict_ema"])
    optimizer.load_state_dict(ck["optimizer"]); step = ck["step"]
while step < args.steps:
    optimizer.zero_grad(); model(torch.randn(8, 4)).square().mean().backward(); optimizer.step(); model.update()
    step += 1
torch.save({"model": model.live.state_dict(), "state_dict_ema": model.kept.state_dict(),
            "optimizer": optimizer.state_dict(), "step": step}, args.out)
"""


def test_a_model_beside_its_average_in_one_module(tmp_path):
    """Two prefixes fit as many names, and the contents tell which is which."""
    judgement = resumed(tmp_path, BESIDE, *MORE)
    assert said(judgement, "ema.not-restored", "model.not-loaded", "model.partly-loaded") == loud(judgement) == []


SAMPLER = """
class Sampler(torch.utils.data.Sampler):
    def __init__(self, n): self.n, self.epoch, self.position = n, 0, 0
    def __iter__(self):
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for i in order[self.position:]:
            self.position += 1
            yield i
        self.position = 0; self.epoch += 1
    def __len__(self): return self.n
    def state_dict(self): return {"epoch": self.epoch, "position": self.position}
    def load_state_dict(self, s): self.epoch, self.position = s["epoch"], s["position"]
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
sampler = Sampler(24)
data = torch.utils.data.TensorDataset(torch.randn(24, 4))
loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
"""
SAMPLED = """
while step < args.steps:
    for x, in loader:
        optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step(); step += 1
        if step == args.steps: break
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
            "sampler": sampler.state_dict()}, args.out)
"""


@pytest.mark.parametrize(
    ("taken", "severities"), [("sampler.load_state_dict(ck['sampler'])", []), ("pass", ["silent"])]
)
def test_a_sampler_of_ones_own(tmp_path, taken, severities):
    """Its position moves on with the first batch, after it was loaded."""
    more = "parser.set_defaults(steps=8)"
    found = said(resumed(tmp_path, SAMPLER + loading(taken) + SAMPLED, *MORE, more=more), "data.not-restored")
    assert [one.partition(" ")[0] for one in found] == severities


METER = """
class Meter:
    def __init__(self): self.count, self.goal, self.limits = 0, args.steps, (0, args.steps)
    def state_dict(self): return dict(vars(self))
    def load_state_dict(self, s): vars(self).update(s)
meter = Meter()
"""


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ("meter.load_state_dict(ck['meter']); meter.limits = (0, args.steps)", "warning"),
        ("meter.limits = (0, args.steps)", "silent"),
    ],
    ids=["loaded and then changed", "not loaded"],
)
def test_an_object_with_a_state(tmp_path, taken, told):
    """What the script does with it after it was loaded is its own doing; values are written as Python writes them."""
    code = MODEL + METER + loading(taken) + training("meter.count += 1", meter="meter.state_dict()")
    (found,) = said(resumed(tmp_path, code, *MORE), "custom.not-restored")
    assert found.startswith(f"{told} ")
    assert "limits is (0, 6) saved and (0, 40) in the run" in found


SCHEDULE = """
class Decay:
    def __init__(self, optimizer, total):
        self.optimizer, self.total, self.last_epoch = optimizer, total, 0
        self.base_values = [g["lr"] for g in optimizer.param_groups]
    def state_dict(self): return {k: v for k, v in vars(self).items() if k != "optimizer"}
    def load_state_dict(self, s): vars(self).update(s)
    def step(self):
        self.last_epoch += 1
        for g, b in zip(self.optimizer.param_groups, self.base_values): g["lr"] = b * (1 - self.last_epoch / self.total)
scheduler = Decay(optimizer, 60)
"""


@pytest.mark.parametrize(("taken", "count"), [("scheduler.load_state_dict(ck['scheduler'])", 0), ("pass", 1)])
def test_a_schedule_that_is_none_of_torchs(tmp_path, taken, count):
    """It is found among the objects that have a state."""
    code = MODEL + SCHEDULE + loading(taken) + training("scheduler.step()", scheduler="scheduler.state_dict()")
    judgement = resumed(tmp_path, code, *MORE)
    assert len(said(judgement, "scheduler.not-restored")) == len(loud(judgement)) == count


MADE_FOR_A_STEP = """
for g in optimizer.param_groups: g.setdefault("initial_lr", args.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=step + args.off if args.resume else -1)
"""


@pytest.mark.parametrize(("off", "count"), [("-1", 0), ("23", 1)])
def test_a_schedule_made_for_a_step(tmp_path, off, count):
    """One that is made with `last_epoch=29` stands at 30, whatever the checkpoint says."""
    code = MODEL + loading() + MADE_FOR_A_STEP + training("scheduler.step()")
    more = "parser.add_argument('--off', type=int, default=-1)"
    found = loud(resumed(tmp_path, code, *MORE, "--off", off, more=more))
    assert len(found) == count
    assert all("stands at 30, and the checkpoint says step 6" in one for one in found)


def test_a_random_state_that_was_there_before(tmp_path):
    """The state that is restored may be one that the process once had."""
    code = (
        "before = torch.get_rng_state()\n" + MODEL + loading("torch.set_rng_state(ck['rng'])") + training(rng="before")
    )
    assert said(resumed(tmp_path, code, *MORE), "rng.not-restored") == []


def test_a_load_that_went_through(tmp_path):
    """A file that torch refuses by itself was loaded with weights_only=False: nothing to warn of."""
    judgement = resumed(tmp_path, MODEL + loading() + training(args="args"), *MORE)
    assert said(judgement, "load.weights-only") == []
    assert said(judgement, "script.arguments") == [
        "note script.arguments: steps is 6 in the checkpoint and 40 in the run (args of train.py)"
    ]


def test_arguments_that_differ(tmp_path):
    """A learning rate that the script works out from its constants is no part of any state."""
    head = """
learning_rate, lr_decay_iters, log_interval = (0.001, 100, 5) if args.resume else (0.01, 60, 10)
config = {"learning_rate": learning_rate, "lr_decay_iters": lr_decay_iters, "log_interval": log_interval}
"""
    rate = "optimizer.param_groups[0]['lr'] = learning_rate * max(0.1, 1 - step / lr_decay_iters)"
    judgement = resumed(tmp_path, head + MODEL + loading() + training(rate, config="config"), *MORE)
    (found,) = said(judgement, "script.arguments")
    assert found.startswith("warning script.arguments: learning_rate is 0.01 in the checkpoint and 0.001 in the run")
    assert "lr_decay_iters is 60 in the checkpoint and 100 in the run" in found
    assert "log_interval" not in found
    assert loud(judgement) == []


LBFGS = """
while step < args.steps:
    x = torch.randn(8, 4)
    def closure():
        optimizer.zero_grad(); loss = (model(x) - 1).square().mean(); loss.backward(); return loss
    optimizer.step(closure); step += 1
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, args.out)
"""


def test_lbfgs_keeps_all_under_its_first_parameter(tmp_path):
    """The others have no state of their own."""
    assert loud(resumed(tmp_path, MODEL.replace("AdamW", "LBFGS") + loading() + LBFGS, *MORE)) == []


def test_a_momentum_that_is_none(tmp_path):
    """torch takes it, and begins with the gradient."""

    def without(state):
        state["optimizer"]["state"][1]["momentum_buffer"] = None

    sgd = MODEL.replace("AdamW(model.parameters(), lr=args.lr)", "SGD(model.parameters(), args.lr, momentum=0.9)")
    found = said(resumed(tmp_path, sgd + loading() + training(), *MORE, change=without), "optimizer.partial-state")
    assert found == [
        "silent optimizer.partial-state: 0.bias has no state, and other parameters of the same module have one"
    ]


def test_states_that_go_to_another_parameter(tmp_path):
    """Of one shape, so nothing raises."""
    swap = "st = ck['optimizer']['state']; st[1], st[3] = st[3], st[1]; optimizer.load_state_dict(ck['optimizer'])"
    (found,) = said(resumed(tmp_path, MODEL + loading(swap) + training(), *MORE), "optimizer.not-restored")
    assert found == (
        "silent optimizer.not-restored: 4 of 12 states are others in AdamW: the state of 0.bias is under 2.bias, "
        "the state of 2.bias is under 0.bias"
    )
