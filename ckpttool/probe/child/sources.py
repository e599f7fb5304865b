"""Words in the source of the user's program."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from .frames import is_library

_ACCUMULATION = re.compile(r"accum|micro_?batch|no_sync|update_freq|grad_steps|virtual_batch", re.IGNORECASE)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MOST_FILES = 300
_MOST_CHARACTERS = 1_000_000  # of one file


def speaks_of_accumulation(script: dict[str, Any]) -> bool:
    """Whether the program may take one optimizer step for several batches; also where a file could not be read."""
    try:
        return any(_ACCUMULATION.search(text) for text in _sources(script))
    except OSError:
        return True


def _sources(script: dict[str, Any]) -> Iterator[str]:
    """The script and the modules that it brought along."""
    files = [script.get("__file__"), *(getattr(module, "__file__", None) for module in list(sys.modules.values()))]
    written = (f for f in files if isinstance(f, str) and f.endswith(".py") and not f.startswith(_HERE))
    # `torch.ops` and its like name a file that is not there.
    own = dict.fromkeys(f for f in written if not is_library(f) and os.path.isfile(f))
    for file in list(own)[:_MOST_FILES]:
        with open(file, encoding="utf-8", errors="replace") as opened:
            yield opened.read(_MOST_CHARACTERS)
