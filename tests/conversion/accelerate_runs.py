"""Runs of Accelerate that save a folder and are loaded from one. Imports nothing of the package under test."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.conversion.runs import loss_of, net, sentences


class Averaged:
    """A registered object: tensors, numbers and text."""

    def __init__(self, model):
        self.decay, self.updates, self.note = 0.9, 0, "größer"
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self, model):
        self.updates += 1
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p.detach(), 1 - self.decay)

    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state):
        self.__dict__.update(state)


class Run:
    """Models with their optimizers and schedulers, a loader, a loss scale and a registered object.

    Args:
        seed: of the weights and of every generator.
        models: how many; the first has tied weights.
    """

    def __init__(self, seed, models=1):
        from accelerate import Accelerator  # noqa: PLC0415
        from accelerate.state import AcceleratorState, GradientState  # noqa: PLC0415
        from accelerate.utils import DataLoaderConfiguration  # noqa: PLC0415

        AcceleratorState._reset_state(reset_partial_state=True)  # one per process
        GradientState._reset_state()
        loading = DataLoaderConfiguration(use_seedable_sampler=True)
        self.accelerator = Accelerator(cpu=True, dataloader_config=loading)
        # On a CPU Accelerate makes none.
        self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        nets = [net(seed + n, tied=n == 0) for n in range(models)]
        adams = [torch.optim.AdamW(model.parameters(), lr=3e-3) for model in nets]
        steps = [torch.optim.lr_scheduler.StepLR(adam, 2, 0.7) for adam in adams]
        loader = DataLoader(TensorDataset(sentences(32)), batch_size=4, shuffle=True)
        prepared = self.accelerator.prepare(*nets, *adams, *steps, loader)
        self.models, self.optimizers = prepared[:models], prepared[models : 2 * models]
        self.schedulers, self.loader = prepared[2 * models : 3 * models], prepared[-1]
        self.averaged = Averaged(self.models[0])
        self.accelerator.register_for_checkpointing(self.averaged)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the generator that Accelerate saves
        torch.manual_seed(seed)

    def train(self, steps):
        """Train, and return the losses."""
        losses = []
        for _, (batch,) in zip(range(steps), self.loader, strict=False):
            for model, optimizer, scheduler in zip(self.models, self.optimizers, self.schedulers, strict=True):
                loss = loss_of(model, batch)
                self.accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses.append(loss.item() + random.random() + np.random.rand())  # noqa: NPY002
            self.averaged.update(self.models[0])
            self.accelerator.step += 1
        return losses

    def save(self, folder):
        """What `save_state` writes when it is told to write no safetensors, and the sampler of a sharded stream."""
        from accelerate.utils import save  # noqa: PLC0415

        self.accelerator.save_state(folder, safe_serialization=False)
        save(self.loader.get_sampler(), f"{folder}/sampler.bin")  # an object of Accelerate, as it saves it elsewhere

    def state(self):
        """All that a folder is to bring back."""
        return {
            "models": [model.state_dict() for model in self.models],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
            "scaler": self.accelerator.scaler.state_dict(),
            "averaged": self.averaged.state_dict(),
            "step": self.accelerator.step,
            "rng": [random.getstate(), np.random.get_state(), torch.get_rng_state()],  # noqa: NPY002
        }


def resumed(folder, models=1, seed=77):
    """A new run that loads a folder: what it then holds, and its next losses. The order of the data is the seed's."""
    run = Run(seed, models)
    run.accelerator.load_state(folder)
    return run.state(), run.train(4)
