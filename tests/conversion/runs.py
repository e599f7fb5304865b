"""Models and converted checkpoints for those that read the results: nothing here imports the package itself before a
conversion is asked for, so that a process that only loads can do without it.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).parents[2]
VOCAB, WIDTH = 12, 8


class Net(nn.Module):
    """A language model with dropout (so that training hangs on the RNG) and a buffer; `tied` shares the embedding."""

    def __init__(self, *, tied=False):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.block = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * WIDTH, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.block(x)
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


def loss_of(model, tokens):
    """Cross entropy of the next token."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def sentences(count=24):
    """Random sentences, always the same."""
    return torch.randint(0, VOCAB, (count, 6), generator=torch.Generator().manual_seed(3))


def net(seed=0, *, tied=False):
    """A model with its own start."""
    torch.manual_seed(seed)
    return Net(tied=tied)


def converted(source, target, code=0, **options):
    """Convert, and return where the result stands; the folder that it goes into is made."""
    import ckpttool  # noqa: PLC0415  # a process that only loads does without

    Path(str(target)).parent.mkdir(exist_ok=True)
    assert ckpttool.convert(str(source), str(target), **options).exit_code == code
    return Path(str(target))


def there_and_back(source, between, target, **options):
    """Convert everything to safetensors, that back to torch, and return where the result stands."""
    converted(source, f"{between}/", everything=Path(source).is_dir(), **options)
    return converted(between, target, to="torch")


def load(path, **options):
    """What `torch.load` says, objects of any class included."""
    return torch.load(path, weights_only=False, **options)


def alone(code, *arguments):
    """Run code in a process of its own, where importing the package fails; returns the JSON it prints last."""
    script = f"import sys\nsys.modules['ckpttool'] = None\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
