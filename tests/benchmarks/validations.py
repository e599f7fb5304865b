"""`ckpt validate` against `ckpt inspect`, and against a loop that does nothing but sum."""

import subprocess
from pathlib import Path

from tests.benchmarks.measuring import CKPT, PYTHON, Row, best_in_turn

MOST_MEMORY = 200_000_000
# All bytes of a file through CRC-32, by two threads, with buffers that are used again.
SUM = """
import os, sys, zlib
from concurrent.futures import ThreadPoolExecutor
BLOCK, PART = 2**20, 2**25
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
def part(start):
    buffer, crc = memoryview(bytearray(BLOCK)), 0
    for place in range(start, min(start + PART, size), BLOCK):
        count = os.preadv(file, [buffer[: min(BLOCK, size - place)]], place)
        crc = zlib.crc32(buffer[:count], crc)
    return crc
with ThreadPoolExecutor(2) as pool:
    list(pool.map(part, range(0, size, PART)))
"""


def validations(folder: Path, kind: str = "3GB") -> list[Row]:
    """Every promise about `ckpt validate`."""
    path = str(folder / f"{kind}.pt")
    subprocess.run([PYTHON, "-m", "tests.benchmarks.making", kind, path], check=True)
    judge, loop = [*CKPT, "validate", path], [PYTHON, "-c", SUM, path]
    structure, shown = best_in_turn([*judge, "--no-values"], [*CKPT, "inspect", path])
    sums, plain = best_in_turn([*judge, "--crc"], loop)
    values, again = best_in_turn([*judge, "--values"], loop)
    Path(path).unlink()
    return [
        Row(f"validate {kind} --no-values / inspect", structure, shown, 1.25, MOST_MEMORY),
        Row(f"validate {kind} --crc / two threads of zlib.crc32", sums, plain, 1 / 0.8, MOST_MEMORY),
        Row(f"validate {kind} --values / two threads of zlib.crc32", values, again, 2.5, MOST_MEMORY),
    ]
