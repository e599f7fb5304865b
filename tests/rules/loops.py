"""Training by hand with torch alone, and checkpoints of it as scripts save them."""

import torch
from torch.optim.lr_scheduler import StepLR

from ckpttool.rules import RULES
from tests.rules.asking import asked, short


def rule(code):
    """The rule of a code, as it is registered."""
    return next(r for r in RULES if r.code == code)


def said(code, path):
    """What one rule says of one checkpoint, in short."""
    return short(asked(rule(code), path))


class Loop:
    """A model of one layer with Adam and a scheduler.

    Args:
        make: the scheduler of an optimizer; None for none.
    """

    def __init__(self, make=lambda adam: StepLR(adam, 2, 0.1), lr=1e-3):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scheduler = make(self.adam) if make else None

    def train(self, steps, each=1):
        """Optimizer steps, and a step of the scheduler after every `each` of them; returns the rates they used."""
        used = []
        for step in range(1, steps + 1):
            self.adam.zero_grad()
            self.model(torch.ones(1, 3)).sum().backward()
            used.append(self.adam.param_groups[0]["lr"])
            self.adam.step()
            if self.scheduler and step % each == 0:
                self.scheduler.step()
        return used

    def content(self, **more):
        """What a script would save."""
        kept = {"model": self.model.state_dict(), "optimizer": self.adam.state_dict(), **more}
        return {**kept, "scheduler": self.scheduler.state_dict()} if self.scheduler else kept

    def load(self, content):
        """What a script does to go on."""
        self.model.load_state_dict(content["model"])
        self.adam.load_state_dict(content["optimizer"])
        if "scheduler" in content:
            self.scheduler.load_state_dict(content["scheduler"])
        return self


def saved(content, folder, name="state.pt"):
    """The path of a saved checkpoint."""
    torch.save(content, folder / name)
    return folder / name
