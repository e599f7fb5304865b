"""Random generators: whether their states were set, or seeded anew, since the checkpoint was opened."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from .record import Record, RngNotes


def rng_facts(record: Record) -> list[dict[str, Any]]:
    """`RngFact` of each generator that the process has."""
    names = ["torch", "python", *(["numpy"] if "numpy.random" in sys.modules else [])]
    names += [name for name in record.rng if name not in names]
    return [{"generator": name, **dataclasses.asdict(record.rng.get(name, RngNotes()))} for name in names]
