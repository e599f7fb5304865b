"""What the globals that a file names mean for the one who loads it."""

import sys
from _compat_pickle import IMPORT_MAPPING
from collections.abc import Iterator

from ckpttool.keypaths import spelled_path
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Contents, GlobalUse
from ckpttool.protocols import Case
from ckpttool.values import GlobalRef, KeyPath, Opaque, TensorRef, Trust, Value, children

PICKLES = ("torch-zip", "torch-legacy", "legacy-tar", "pickle")
_SHOWN = 3
_NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")
# What Accelerate and the Trainer add to torch's list (`TORCH_SAFE_GLOBALS`, `safe_globals`).
NUMPY_GLOBALS = frozenset(
    (*(GlobalRef(module, "_reconstruct") for module in _NUMPY), GlobalRef("numpy", "ndarray"),
     GlobalRef("numpy", "dtype"), GlobalRef("numpy.dtypes", "UInt32DType"))
)  # fmt: skip

_DTYPE = GlobalRef("numpy", "dtype")
_WORD, _SPELLED = ("uint", 32), "u4"  # the one dtype whose class they add, of the words of a random generator


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


def refused_dtypes(contents: Contents) -> Iterator[tuple[KeyPath, str]]:
    """Arrays and dtypes of numpy that Accelerate and the Trainer refuse, though their globals are accepted.

    Each dtype is of a class of its own, and only that of uint32 is on their lists. Sources: accelerate/utils/other.py
    `TORCH_SAFE_GLOBALS`, 1.15; transformers/trainer_pt_utils.py `safe_globals`, 5.24.
    """
    if not any(use.ref == _DTYPE for use in contents.globals):
        return
    pending: list[tuple[KeyPath, Value]] = [((), contents.root)]
    seen: set[int] = set()
    while pending and len(seen) < DEFAULT_LIMITS.nodes:
        path, value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if (named := _dtype_of(value)) is not None:
            yield path, named
        pending.extend(reversed([((*path, step), child) for step, child in children(value)]))


def _dtype_of(value: Value) -> str | None:
    """A value of numpy's of another dtype than uint32, in words; None for any other value."""
    if isinstance(value, TensorRef) and value.kind == "ndarray":
        wanted = (value.dtype.family, value.dtype.bits) == _WORD
        return None if wanted else f"an array of {value.dtype.name}"
    if isinstance(value, Opaque) and value.cls == _DTYPE and value.args:
        spelled = next(iter(value.args)) if isinstance(value.args, tuple | list) else None
        return None if spelled == _SPELLED else f"the dtype {spelled!s}"
    return None
