"""What the tests about optimizers share: a tiny model, a saved training, a rule's findings, a resume with torch."""

import copy
from pathlib import Path

import torch
from torch import nn

from ckpttool.opening import open_path
from ckpttool.protocols import Case

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Net(nn.Module):
    """The model of fixtures/optimizers: two of the shapes occur once, the square ones twice."""

    def __init__(self, *, vocabulary=8):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, 4)
        self.fc1 = nn.Linear(4, 4)
        self.fc2 = nn.Linear(4, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.fc2(self.fc1(self.emb(x)).relu()).relu())


def net(**arguments):
    """A model of a fixed start."""
    torch.manual_seed(0)
    return Net(**arguments)


def step(model, optimizer, times=1):
    """Some steps on the same batch."""

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.arange(8)), torch.arange(8) % 3)
        loss.backward()
        return loss

    for _ in range(times):
        optimizer.step(closure)


def fixture(name):
    """`{"model", "optimizer"}` of a class, after two steps."""
    return torch.load(FIXTURES / "optimizers" / f"{name}.pt")


def trained(make=torch.optim.AdamW, steps=2, **counters):
    """The same, made here."""
    model = net()
    optimizer = make(model.parameters())
    step(model, optimizer, steps)
    return {"model": model.state_dict(), "optimizer": copy.deepcopy(optimizer.state_dict()), **counters}


def load(state, make=torch.optim.AdamW, params=lambda model: model.parameters(), **arguments):
    """A new model and optimizer that took a state."""
    model = net(**arguments)
    optimizer = make(params(model))
    optimizer.load_state_dict(copy.deepcopy(state))
    return model, optimizer


def failure(state, make=torch.optim.AdamW, **arguments):
    """Where torch gives up on a state, with the class of what it raises and its text."""
    try:
        model, optimizer = load(state, make, **arguments)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return "load_state_dict", type(error).__name__, str(error)
    try:
        step(model, optimizer)
    except Exception as error:  # noqa: BLE001
        return "step", type(error).__name__, str(error)
    return "", "", ""


def judged(rule, content, tmp_path, *, other=None, values=None):
    """What a rule says of a dict that torch saved, or of a path."""
    with opened(content, tmp_path, "this.pt") as checkpoint:
        if other is None:
            return list(rule.check(Case(checkpoint=checkpoint, values=values and values(checkpoint))))
        with opened(other, tmp_path, "other.pt") as held_against:
            return list(rule.check(Case(checkpoint=checkpoint, other=held_against)))


def opened(content, tmp_path, name):
    """A checkpoint: a path, or a dict to save first."""
    if isinstance(content, dict):
        torch.save(content, tmp_path / name)
        content = tmp_path / name
    return open_path(content)


def said(findings):
    """Severities and messages."""
    return [(f.severity.value, f.message) for f in findings]
