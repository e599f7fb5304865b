"""What the globals that a file names mean for the one who loads it."""

import sys
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Iterator

from ckpttool.keypaths import spelled_path
from ckpttool.model import GlobalUse
from ckpttool.protocols import Case
from ckpttool.values import GlobalRef, Trust

PICKLES = ("torch-zip", "torch-legacy", "legacy-tar", "pickle")
_SHOWN = 3
_NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")
# What Accelerate and the Trainer add to torch's list (`TORCH_SAFE_GLOBALS`, `safe_globals`).
NUMPY_GLOBALS = frozenset(
    (*(GlobalRef(module, "_reconstruct") for module in _NUMPY), GlobalRef("numpy", "ndarray"),
     GlobalRef("numpy", "dtype"), GlobalRef("numpy.dtypes", "UInt32DType"))
)  # fmt: skip


def of_files(case: Case) -> Iterator[tuple[str, list[GlobalUse]]]:
    """Each pickle that names globals which torch's list does not have, with those."""
    for file, contents in case.checkpoint.contents.items():
        if contents.container not in PICKLES:  # TorchScript's classes are in the file
            continue
        uses = [use for use in contents.globals if use.trust is not Trust.ACCEPTED]
        if uses:
            yield file, uses


def named(uses: list[GlobalUse]) -> str:
    """`argparse.Namespace at args, numpy.dtype and 2 more`."""
    told = list(dict.fromkeys(map(_named, uses)))
    return ", ".join(told[:_SHOWN]) + (f" and {len(told) - _SHOWN:,} more" if len(told) > _SHOWN else "")


def _named(use: GlobalUse) -> str:
    place = spelled_path(use.paths[0]) if use.paths else ""
    return f"{use.ref} at {place}" if place else str(use.ref)


def top_level(ref: GlobalRef) -> str:
    """The package that a global is imported from; empty for one that comes with Python, torch or numpy."""
    top = ref.module.split(".", 1)[0]
    known = top in sys.stdlib_module_names or top in IMPORT_MAPPING or top in ("torch", "numpy", "exceptions")
    return "" if known else top  # Python 2's names are found by their new ones
