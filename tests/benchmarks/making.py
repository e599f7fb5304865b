"""Checkpoints to measure on, written by torch: `python -m tests.benchmarks.making KIND PATH`."""

import sys
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
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.save(
        {"model": {n: p.detach() for n, p in parameters.items()}, "optimizer": optimizer.state_dict(), "step": 1}, path
    )


def many(path: Path, count: int) -> None:
    """Tensors of one element, each with a storage of its own."""
    torch.save({f"layers.{n}.scale": torch.full((1,), float(n)) for n in range(count)}, path)


KINDS = {
    "300MB": lambda path: training(path, 0.3),
    "3GB": lambda path: training(path, 3.0),
    "50000": lambda path: many(path, 50_000),
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]))
