"""States and ids that went to other parameters over several groups: `model.own-optimizer`, `optimizer.index-gap`."""

import copy
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from ckpttool.rules.model_own_optimizer import OwnOptimizer
from ckpttool.rules.optimizer_index_gap import OptimizerIndexGap
from tests.rules.held import alone, brief, edited
from tests.rules.optimizers import judged
from tests.validation.resuming import copied, quiet, raised, train_with_trainer, trainer

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
COUNT = 11


class Deep(nn.Module):
    """Eleven parameters; those of the norms and some biases have one shape."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(8, 4)
        self.fc1 = nn.Linear(4, 6)
        self.ln = nn.LayerNorm(6)
        self.fc2 = nn.Linear(6, 4)
        self.bn = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.bn(self.fc2(self.ln(self.fc1(self.emb(x))).relu())))


def whole(model):
    return [{"params": list(model.parameters())}]


def decayed(model):
    flat = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": [p for p in model.parameters() if p.ndim > 1]}, {"params": flat, "weight_decay": 0.0}]


def head_first(model):
    rest = [p for n, p in model.named_parameters() if not n.startswith("out")]
    return [{"params": list(model.out.parameters()), "lr": 0.1}, {"params": rest}]


def by_module(model):
    return [{"params": list(m.parameters())} for m in reversed(list(model.children()))]


SPLITS = (whole, decayed, head_first, by_module)


def run(split):
    torch.manual_seed(0)
    model = Deep()
    return model, torch.optim.AdamW(split(model), lr=0.01)


def go_on(model, optimizer, times=1):
    for _ in range(times):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.arange(8)), torch.arange(8) % 3).backward()
        optimizer.step()


def saved(split):
    model, optimizer = run(split)
    go_on(model, optimizer, 3)
    return {"model": model.state_dict(), "optimizer": copy.deepcopy(optimizer.state_dict()), "step": 3}


def resumed(content, split):
    """The exception of a resume; empty where there is none."""

    def resume():
        model, optimizer = run(split)
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(copy.deepcopy(content["optimizer"]))
        go_on(model, optimizer)

    return raised(resume)[0]


def told(content, tmp_path):
    """What both rules say."""
    return [f for rule in (OwnOptimizer(), OptimizerIndexGap()) for f in judged(rule, content, tmp_path)]


def states(change):
    """A change of the numbers of the states: what lies under each."""

    def edit(content):
        state = content["optimizer"]["state"]
        content["optimizer"]["state"] = {k: v for k, v in ((n, state.get(change(n))) for n in range(COUNT)) if v}

    return edit


MOVED = {
    "up": states(lambda n: (n + 1) % COUNT),
    "down": states(lambda n: (n - 1) % COUNT),
    "down, the last one gone": states(lambda n: n - 1),
    "the first and the last": states(lambda n: {0: COUNT - 1, COUNT - 1: 0}.get(n, n)),
}


# A head whose weight is exchanged with a bias of the body's last layer is a group that a script might have made.
CASES = [(name, split) for name in MOVED for split in SPLITS[: 2 if "first" in name else 3]]


@pytest.mark.parametrize(("name", "split"), CASES)
def test_states_at_other_parameters(tmp_path, name, split):
    """The first step raises, and the shapes tell it before, in whatever groups the parameters are."""
    content = saved(split)
    assert not told(content, tmp_path)
    MOVED[name](content)
    assert resumed(content, split) == "RuntimeError"
    (finding,) = told(content, tmp_path)
    assert (finding.severity.value, "RuntimeError" in finding.message) == ("error", True)


@pytest.mark.parametrize("split", SPLITS)
def test_groups_in_every_usual_order_are_clean(tmp_path, split):
    """Weights with and without decay, the head before the rest, each module by itself."""
    content = saved(split)
    assert not told(content, tmp_path)
    assert not resumed(content, split)


def test_an_order_of_its_own(tmp_path):
    """Parameters that a script sorts by size, or takes from a set, are no fault."""

    def by_size(model):
        return [{"params": sorted(model.parameters(), key=torch.numel)}]

    content = saved(by_size)
    assert not told(content, tmp_path)
    assert not resumed(content, by_size)


IDS = [*range(COUNT)]
LISTS = {
    "the last twice": (whole, [[*IDS, 10]], "ValueError"),
    "one twice in its place": (whole, [[0, 1, 1, *IDS[2:]]], "ValueError"),
    "one in the place of another": (whole, [[0, 1, 1, *IDS[3:]]], "RuntimeError"),
    "one more": (whole, [[*IDS, 11]], "ValueError"),
    "one more in the second group": (decayed, [IDS[:4], [*IDS[4:], 11]], "ValueError"),
    "one in both groups": (decayed, [IDS[:4], IDS[3:]], "ValueError"),
    "one in both groups, another gone": (decayed, [IDS[:4], [3, *IDS[5:]]], "RuntimeError"),
    "exchanged between the groups": (decayed, [[0, 1, 2, 4], [3, *IDS[5:]]], "RuntimeError"),
    "other parameters in the groups": (decayed, [IDS[7:], IDS[:7]], "RuntimeError"),
}


@pytest.mark.parametrize("name", LISTS)
def test_ids_in_other_lists(tmp_path, name):
    """What torch raises is what the finding says."""
    split, lists, exception = LISTS[name]
    content = saved(split)
    for group, ids in zip(content["optimizer"]["param_groups"], lists, strict=True):
        group["params"] = list(ids)
    assert resumed(content, split) == exception
    (finding,) = told(content, tmp_path)
    assert (finding.severity.value, exception in finding.message) == ("error", True)


def test_ids_of_one_shape_exchanged_between_the_groups(tmp_path):
    """Nothing raises, and the states go to other parameters."""

    def halves(model):
        flat = [p for p in model.parameters() if p.ndim < 2]
        return [{"params": flat[:2]}, {"params": [*flat[2:], *(p for p in model.parameters() if p.ndim > 1)]}]

    content = saved(halves)
    one, two = (group["params"] for group in content["optimizer"]["param_groups"])
    one[1], two[0] = two[0], one[1]  # the bias of fc1, or scale and shift of the norm behind it, and one more of 6
    assert not resumed(content, halves)
    (finding,) = told(content, tmp_path)
    assert (finding.severity.value, "says nothing" in finding.message) == ("silent", True)


def test_groups_put_in_another_order_with_their_states(tmp_path):
    """One group made of two, or two of one, by hand and with the states to match, loads rightly."""
    content = saved(whole)
    names = [n for n, _ in Deep().named_parameters()]
    deep = [n for n, p in enumerate(Deep().parameters()) if p.ndim > 1]
    flat = [n for n in range(len(names)) if n not in deep]
    (group,) = content["optimizer"]["param_groups"]
    content["optimizer"]["param_groups"] = [{**group, "params": deep}, {**group, "params": flat}]
    assert not resumed(content, decayed)
    assert not told(content, tmp_path)


@pytest.mark.parametrize("place", [0, 3])
def test_a_parameter_that_its_group_lists_twice(tmp_path, place):
    """Torch numbers it by its last place, which no hand does; it loads rightly."""
    model = Deep()
    params = list(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = torch.optim.AdamW([*params[: place + 1], params[place], *params[place + 1 :]])
    go_on(model, optimizer)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    assert content["optimizer"]["param_groups"][0]["params"][place : place + 2] == [place + 1, place + 1]
    assert [f.severity.value for f in told(content, tmp_path)] == ["note"]


# The Trainer, whose files sort the weights by name


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory):
    """A run of the Trainer: groups of 11 and of 14 parameters. A fused step over such states ends the process."""
    return train_with_trainer(tmp_path_factory.mktemp("bert"), steps=2, optim="adamw_torch")


def rolled(state):
    inner = state["state"]
    state["state"] = {n: inner[(n + 1) % len(inner)] for n in inner}


def exchanged(state):
    inner = state["state"]
    last = len(state["param_groups"][0]["params"])
    inner[0], inner[last] = inner[last], inner[0]


@needs_transformers
@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")  # of the framework about itself
@pytest.mark.parametrize("change", [rolled, exchanged])
def test_states_of_the_trainers_other_group(tmp_path, bert_run, change):
    """The Trainer's groups are known by name: with and without weight decay."""
    folder = copied(bert_run / "checkpoint-2", tmp_path / "checkpoint-2")
    assert alone(OwnOptimizer(), folder) == []
    edited(folder / "optimizer.pt", folder / "optimizer.pt", change)
    assert brief(alone(OwnOptimizer(), folder)) == [("error", "optimizer.pt: state")]

    def resume():
        with quiet():
            made = trainer(tmp_path / "out", 3, seed=9, save_strategy="no", optim="adamw_torch")
            made.train(resume_from_checkpoint=str(folder))

    assert raised(resume)[0] == "RuntimeError"
