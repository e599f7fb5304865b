"""load.numpy-core: arrays pickled by another numpy than the one that is to load them."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding
from ckpttool.model import GlobalUse
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._globals import NUMPY_GLOBALS, named, of_files
from ckpttool.rules._loaders import Unpickling, consequence, loader_of
from ckpttool.rules._releases import release

_SINCE = (1, 26, 1)  # the first with a `numpy._core` that old pickles' readers find
_RENAMED = 2  # the release that calls `numpy.core` so


class NumpyCore:
    """numpy 2 pickles its arrays by the name `numpy._core`, numpy 1 by `numpy.core`, and the installed one is another.

    What: globals below either against the installed numpy, and how the file is loaded. numpy before 1.26.1 has no
    `numpy._core`. numpy 2 still finds `numpy.core`, and later releases of numpy 1 `numpy._core`, where anything may be
    imported; Accelerate and the Trainer allow `_reconstruct` by the installed numpy's own name alone.

    Why: `ModuleNotFoundError: No module named 'numpy._core'`, or `UnpicklingError`, where the file is loaded, most
    often the random states: the Trainer raises, Accelerate goes on with other random numbers.

    Example: `error: rng_state.pth: it was saved with numpy 1: it names numpy.core.multiarray._reconstruct, and
    torch.load is given the name of the installed numpy 2.4.6 alone; _load_rng_state of the Trainer raises
    UnpicklingError`

    Reference: numpy/_core of numpy 1.26.1 and 2.4; accelerate/utils/other.py `TORCH_SAFE_GLOBALS`, 1.15;
    transformers/trainer_pt_utils.py `safe_globals`, 5.24; torch/_weights_only_unpickler.py
    `_get_user_allowed_globals`, 2.13; issue numpy#28340.
    """

    code: ClassVar[str] = "load.numpy-core"
    needs: ClassVar[Needs] = Needs.INSTALLED

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        numpy = (case.installed or {}).get("numpy", "")
        for file, uses in of_files(case):
            new = [use for use in uses if use.ref.module.startswith("numpy._core")]
            old = [use for use in uses if use.ref.module.startswith("numpy.core")]
            kind = loader_of(case, file).unpickling
            by_name = old + new if kind is Unpickling.WITH_NUMPY else []
            imported = new if kind in (Unpickling.ANYTHING, Unpickling.OF_THE_SCRIPT) else []
            if by_name + imported and not numpy:
                yield NotChecked(code=self.code, why="numpy is not installed here, so its release is not known")
                return
            if imported and release(numpy) < _SINCE:
                message = (
                    f"numpy {numpy} has no numpy._core (it came with 1.26.1), and the file names {named(imported)}"
                )
                yield self._finding(case, file, message, "ModuleNotFoundError", "install numpy 1.26.1 or newer")
            elif other := _other(by_name, numpy):
                saved = "2" if release(numpy) < (_RENAMED,) else "1"
                message = f"it was saved with numpy {saved}: it names {named(other)}, and torch.load is given the name "
                message += f"of the installed numpy {numpy} alone"
                hint = f"resume with numpy {saved}, or save the file again with numpy {numpy}"
                yield self._finding(case, file, message, "UnpicklingError", hint)

    def _finding(self, case: Case, file: str, message: str, exception: str, hint: str) -> Finding:
        severity, said = consequence(loader_of(case, file), exception)
        where = file or case.checkpoint.contents[file].name
        return Finding(code=self.code, severity=severity, where=where, message=f"{message}; {said}", hint=hint)


def _other(uses: list[GlobalUse], numpy: str) -> list[GlobalUse]:
    """Those whose name is not the installed numpy's, of what is allowed by its own name; others are not at all."""
    core = "numpy._core" if release(numpy) >= (_RENAMED,) else "numpy.core"
    return [use for use in uses if use.ref in NUMPY_GLOBALS and not use.ref.module.startswith(core)]
