"""`ckpt diff` against `cmp`, and against the script that one would write with torch."""

import shutil
import subprocess
from pathlib import Path

from tests.benchmarks.measuring import CKPT, PYTHON, Row, best_in_turn

MOST_MEMORY = 250_000_000
# The figures of `ckpt diff`, in float32, tensor by tensor.
WITH_TORCH = """
import sys, torch
left, right = (torch.load(path, mmap=True, weights_only=True) for path in sys.argv[1:])
for name in left:
    x, y = left[name].float(), right[name].float()
    differs = (x != y) & ~(x.isnan() & y.isnan())
    gap = (y - x).abs()
    worst = gap.argmax()
    cosine = torch.nn.functional.cosine_similarity(x.flatten(), y.flatten(), dim=0)
    counts = [int(t.sum()) for t in (differs, x.isnan(), y.isnan(), x.isinf(), y.isinf())]
    place = torch.unravel_index(worst, x.shape)
    print(name, counts, gap.max().item(), gap.mean().item(), (gap.norm() / x.norm()).item(), cosine.item(), place,
          x.flatten()[worst].item(), y.flatten()[worst].item())
"""


def comparisons(folder: Path) -> list[Row]:
    """Every promise about `ckpt diff`."""
    return [_equal(folder, "3GB", 1.3), *_models(folder)]


def _made(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.pt"
    subprocess.run([PYTHON, "-m", "tests.benchmarks.making", kind, str(path)], check=True)
    return path


def _equal(folder: Path, kind: str, most_time: float) -> Row:
    """Two equal training checkpoints against `cmp` on the same two files."""
    left, right = _made(kind, folder), folder / "copy.pt"
    shutil.copyfile(left, right)
    ours, theirs = best_in_turn([*CKPT, "diff", str(left), str(right)], ["cmp", str(left), str(right)])
    left.unlink()
    right.unlink()
    return Row(f"diff of two equal {kind} files / cmp", ours, theirs, most_time, MOST_MEMORY)


def _models(folder: Path) -> list[Row]:
    """A model against one that differs in one tensor, and against one that differs in all."""
    left, one, every = (_made(kind, folder) for kind in ("600MB", "600MB-one", "600MB-all"))
    copy = folder / "copy.pt"
    shutil.copyfile(left, copy)
    some, cmp = best_in_turn([*CKPT, "diff", str(left), str(one)], ["cmp", str(left), str(copy)], codes=[1])
    script = [PYTHON, "-c", WITH_TORCH, str(left), str(every)]
    all_of, torch = best_in_turn([*CKPT, "diff", str(left), str(every)], script, codes=[1])
    for path in (left, one, every, copy):
        path.unlink()
    return [
        Row("diff of 600 MB, one tensor of 163 changed / cmp of a copy", some, cmp, 2.0, MOST_MEMORY),
        Row("diff of 600 MB, all tensors changed / the same with torch", all_of, torch, 1 / 3, MOST_MEMORY),
    ]
