"""A little training run: its objects, its checkpoint, and the same objects made anew and restored."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.arrival import living


class Net(nn.Module):
    """With batch norm, and two layers of one shape."""

    def __init__(self, width=4):
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.bn = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x):
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


@dataclass
class Run:
    """What a script holds."""

    model: Any
    optimizer: Any
    scheduler: Any
    epoch: int = 0
    step: int = 0

    def steps(self, count):
        """Take optimizer steps."""
        for _ in range(count):
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.step += 1
        return self

    def state(self):
        """Its checkpoint."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "step": self.step,
            "args": {"lr": 0.01, "batch_size": 8, "n_head": 2},
            "torch_rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
        }

    def facts(self, path, **more):
        """What a probe would say of it before the next backward."""
        said = {
            "modules": (living.module_fact(self.model),),
            "optimizers": (living.optimizer_fact(self.optimizer, [self.model]),),
            "schedulers": (living.scheduler_fact(self.scheduler),),
            "counters": living.counters(step=self.step),
            "config": living.arguments(lr=0.01, batch_size=8, n_head=2),
            "rng": living.rng_facts(restored=True),
        }
        return living.standing(path, **(said | more))


def made(seed=0, optimizer=torch.optim.AdamW, model=Net, horizon=100, **options):
    """Objects as a script makes them."""
    torch.manual_seed(seed)
    net = model()
    options = options or {"lr": 0.01}
    adam = optimizer(net.parameters(), **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda n: max(0.0, 1 - n / horizon))
    return Run(net, adam, schedule)


def saved(path, change=None, **options):
    """A checkpoint after 5 steps; `change` edits what is saved."""
    run = made(**options).steps(5)
    state = run.state()
    if change is not None:
        change(state)
    torch.save(state, path)
    return run


def resumed(path, **options):
    """New objects that load what is saved."""
    run, state = made(seed=7, **options), torch.load(path, weights_only=False)
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.scheduler.load_state_dict(state["scheduler"])
    run.step = state["step"]
    torch.set_rng_state(state["torch_rng"])
    random.setstate(state["python_rng"])
    return run
