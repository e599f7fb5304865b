"""`ckpt convert` against `cp`, and against the script that one would write with torch and safetensors."""

import subprocess
from pathlib import Path

from tests.benchmarks.measuring import CKPT, PYTHON, Row, best_in_turn

MOST_MEMORY = 150_000_000
COPY = 'cp --reflink=never "$1" "$2" && sync "$2"'
COPY_AND_COMPARE = COPY + ' && cmp "$1" "$2"'
WITH_TORCH = """
import sys, torch, safetensors.torch
loaded = torch.load(sys.argv[1], weights_only=True)
flat = dict(loaded.get("model", loaded)) if "optimizer" in loaded else loaded
if "optimizer" in loaded:
    for n, state in loaded["optimizer"]["state"].items():
        flat.update({f"optimizer.{n}.{k}": v for k, v in state.items()})
safetensors.torch.save_file(flat, sys.argv[2])
"""


def conversions(folder: Path) -> list[Row]:
    """Every promise about `ckpt convert`: a model to one file, a training checkpoint to a folder."""
    return [*_rows(folder, "600MB", "model.safetensors"), *_rows(folder, "3GB", "train")]


def _rows(folder: Path, kind: str, target: str) -> list[Row]:
    source, result, copy = folder / f"{kind}.pt", folder / target, folder / "copy"
    subprocess.run([PYTHON, "-m", "tests.benchmarks.making", kind, str(source)], check=True)
    paths = [str(source), str(result)]
    ours = [*CKPT, "convert", *paths]
    written = [result, copy]
    proved, copied = best_in_turn(ours, ["sh", "-c", COPY_AND_COMPARE, "sh", str(source), str(copy)], fresh=written)
    quick, plain = best_in_turn([*ours, "--no-verify"], ["sh", "-c", COPY, "sh", str(source), str(copy)], fresh=written)
    again, torch = best_in_turn(ours, [PYTHON, "-c", WITH_TORCH, str(source), str(copy)], fresh=written)
    copy.unlink()
    source.unlink()
    return [
        Row(f"convert {kind}, verified / cp && sync && cmp", proved, copied, 1.5, MOST_MEMORY),
        Row(f"convert {kind} --no-verify / cp && sync", quick, plain, 1.3, MOST_MEMORY),
        Row(f"convert {kind}, verified / torch.load + save_file", again, torch, 1 / 4, MOST_MEMORY),
    ]
