"""load.numpy-core: arrays pickled by a newer numpy than the one that is to load them."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._globals import named, of_files
from ckpttool.rules._loaders import consequence, loader_of
from ckpttool.rules._releases import release

_SINCE = (1, 26, 1)  # the first with a `numpy._core` that old pickles' readers find


class NumpyCore:
    """numpy 2 pickles its arrays by the name `numpy._core`, which numpy before 1.26.1 does not have.

    What: globals below `numpy._core` against the installed numpy. The other way round is harmless: numpy 2 still
    finds `numpy.core`.

    Why: `ModuleNotFoundError: No module named 'numpy._core'` where the file is loaded, most often the random states.

    Example: `error: rng_state.pth: numpy 1.24.4 has no numpy._core (it came with 1.26.1), and the file names
    numpy._core.multiarray._reconstruct at numpy[1]; _load_rng_state of the Trainer raises ModuleNotFoundError`

    Reference: numpy/_core of numpy 1.26.1 and 2.4; issue numpy#28340.
    """

    code: ClassVar[str] = "load.numpy-core"
    needs: ClassVar[Needs] = Needs.INSTALLED

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        found = [
            (file, [use for use in uses if use.ref.module.startswith("numpy._core")]) for file, uses in of_files(case)
        ]
        found = [(file, uses) for file, uses in found if uses]
        numpy = (case.installed or {}).get("numpy", "")
        if found and not numpy:
            yield NotChecked(code=self.code, why="numpy is not installed here, so its release is not known")
        if not numpy or release(numpy) >= _SINCE:
            return
        for file, uses in found:
            severity, said = consequence(loader_of(case, file), "ModuleNotFoundError")
            yield Finding(
                code=self.code,
                severity=severity,
                where=file or case.checkpoint.contents[file].name,
                message=f"numpy {numpy} has no numpy._core (it came with 1.26.1), and the file "
                f"names {named(uses)}; {said}",
                hint="install numpy 1.26.1 or newer",
            )
