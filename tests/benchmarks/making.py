"""Checkpoints to measure on, written by torch: `python -m tests.benchmarks.making KIND PATH`."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch

LAYERS = 27  # 6 matrices each: with the embedding 163 parameters, so about 500 tensors with both moments and the steps


def training(path: Path, gigabytes: float) -> None:
    """Model in bfloat16 and AdamW after one step: six bytes a parameter, and some scalars."""
    width = int((gigabytes * 1e9 / 6 / (LAYERS * 6 + 1)) ** 0.5)
    names = [
        "embed.weight",
        *(f"layers.{n}.{part}.weight" for n in range(LAYERS) for part in ("q", "k", "v", "o", "up", "down")),
    ]
    parameters = {name: torch.nn.Parameter(torch.zeros(width, width, dtype=torch.bfloat16)) for name in names}
    optimizer = torch.optim.AdamW(parameters.values(), foreach=False)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.save(
        {"model": {n: p.detach() for n, p in parameters.items()}, "optimizer": optimizer.state_dict(), "step": 1}, path
    )


def many(path: Path, count: int) -> None:
    """Tensors of one element, each with a storage of its own."""
    torch.save({f"layers.{n}.scale": torch.full((1,), float(n)) for n in range(count)}, path)


def model(path: Path, gigabytes: float, *, moved: Callable[[int], bool] = lambda _: False) -> None:
    """Weights in bfloat16, drawn anew each time from the same seed; those that `moved` names are a step farther."""
    width = int((gigabytes * 1e9 / 2 / (LAYERS * 6 + 1)) ** 0.5)
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for n in range(LAYERS * 6 + 1):
        drawn = torch.randn(width, width, generator=generator)
        weights[f"layers.{n}.weight"] = (drawn * 1.001 + 1e-3 if moved(n) else drawn).bfloat16()
    torch.save(weights, path)


KINDS = {
    "600MB": lambda path: model(path, 0.6),
    "600MB-one": lambda path: model(path, 0.6, moved=lambda n: n == LAYERS),
    "600MB-all": lambda path: model(path, 0.6, moved=lambda _: True),
    "300MB": lambda path: training(path, 0.3),
    "3GB": lambda path: training(path, 3.0),
    "50000": lambda path: many(path, 50_000),
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]))
