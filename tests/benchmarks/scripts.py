"""`ckpt validate --script` against the script's own time to where training would go on."""

import compileall
import subprocess
from pathlib import Path

from ckpttool import probe
from tests.benchmarks.measuring import CKPT, PYTHON, Row, best_in_turn

MOST_MORE = 1.5  # seconds
# A model of 25 million parameters with Adam: 300 MB of state to load, to hash and to compare.
SCRIPT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(6)))
optimizer = torch.optim.Adam(model.parameters())
if args.resume:
    saved = torch.load(args.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
model(torch.ones(1, WIDTH)).sum().backward()
optimizer.step()
if not args.resume:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ck.pt")
"""
# The same, ended by itself at its first backward.
ALONE = (
    "import os, runpy, sys, torch; torch.autograd.backward = lambda *_, **__: os._exit(0); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


def scripts(folder: Path) -> list[Row]:
    """The promise about scripts, for a small and a large checkpoint."""
    return [_row(folder, width) for width in (64, 2048)]


def _row(folder: Path, width: int) -> Row:
    compileall.compile_dir(str(Path(probe.__file__).parent), quiet=1)  # as pip does where it installs
    script, checkpoint = folder / "train.py", folder / "ck.pt"
    script.write_text(SCRIPT.replace("WIDTH", str(width)))
    subprocess.run([PYTHON, str(script)], cwd=folder, check=True)
    ours, theirs = best_in_turn(
        [*CKPT, "validate", str(checkpoint), "--script", str(script), "--", "--resume", str(checkpoint)],
        [PYTHON, "-c", ALONE, str(script), "--resume", str(checkpoint)],
    )
    what = f"validate --script ({checkpoint.stat().st_size:,} bytes) / the script to its first backward"
    checkpoint.unlink()
    return Row(what, ours, theirs, None, most_more=MOST_MORE)
