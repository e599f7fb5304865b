"""Measure what the README promises, print it beside the promise, and end with 1 where one is not kept."""

import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.comparisons import comparisons
from tests.benchmarks.conversions import conversions
from tests.benchmarks.measuring import CKPT, PYTHON, RUNS, Row, best_in_turn
from tests.benchmarks.scripts import scripts
from tests.benchmarks.validations import validations

LOAD = "import sys, torch; torch.load(sys.argv[1], mmap=True, weights_only=True)"
MOST_MEMORY = 60_000_000


def inspect(kind: str, folder: Path, most_time: float, most_memory: int | None = None) -> Row:
    """`ckpt inspect` against `torch.load` with mmap on a file of this kind, which is removed afterwards."""
    path = folder / f"{kind}.pt"
    subprocess.run([PYTHON, "-m", "tests.benchmarks.making", kind, str(path)], check=True)
    ours, theirs = best_in_turn([*CKPT, "inspect", str(path)], [PYTHON, "-c", LOAD, str(path)])
    what = f"inspect {kind} ({path.stat().st_size:,} bytes) / torch.load(mmap=True)"
    path.unlink()
    return Row(what, ours, theirs, most_time, most_memory)


def rows(folder: Path) -> list[Row]:
    """Every promise of the README."""
    ours, theirs = best_in_turn([*CKPT, "--help"], [PYTHON, "-c", "import typer, rich"])
    return [
        Row("ckpt --help / import typer, rich", ours, theirs, 1.3),
        inspect("50000", folder, 0.4),
        inspect("300MB", folder, 0.15, MOST_MEMORY),
        inspect("3GB", folder, 0.15, MOST_MEMORY),
        *comparisons(folder),
        *conversions(folder),
        *validations(folder),
        *scripts(folder),
    ]


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(Path(folder))
    table = Table("", title=f"best of {RUNS}, in turn", title_justify="left")
    for title in ("ckpt", "theirs", "ratio", "promised", "memory", "promised", ""):
        table.add_column(title, justify="right")
    for row in measured:
        table.add_row(
            row.what,
            f"{row.ours.seconds * 1000:.0f} ms",
            f"{row.theirs.seconds * 1000:.0f} ms",
            f"{row.ratio:.3f}",
            row.promised,
            f"{row.ours.peak_bytes / 1e6:.1f} MB",
            f"< {row.most_memory / 1e6:.0f} MB" if row.most_memory else "",
            "kept" if row.kept else "BROKEN",
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0 if all(row.kept for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
