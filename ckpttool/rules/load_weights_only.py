"""load.weights-only: a file that torch.load refuses unless it is told to run what the file says."""

import os
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import At, Contents, GlobalUse
from ckpttool.protocols import Case, Needs
from ckpttool.rules._globals import NUMPY_GLOBALS, named, of_files, refused_dtypes
from ckpttool.rules._loaders import Loader, Unpickling, consequence, loader_of
from ckpttool.rules._places import place
from ckpttool.rules._rng_slots import FILES
from ckpttool.values import Trust


def _was_loaded(case: Case, file: str) -> bool:
    """Whether the script that was asked loaded the file all the same."""
    if case.facts is None or not case.facts.stands:
        return False
    path = os.path.realpath(os.path.join(case.checkpoint.path, file) if file else case.checkpoint.path)  # noqa: PTH118
    return any(os.path.realpath(o.path) == path and not o.refused for o in case.facts.opened)


def _holds_random_states(case: Case, file: str) -> bool:
    pattern = FILES.get(case.checkpoint.layout)
    return pattern is not None and pattern.fullmatch(file) is not None


class WeightsOnly:
    """The file names globals that `torch.load(weights_only=True)`, the default since torch 2.6, does not accept.

    What: the globals that each pickle names, against torch's list and what Accelerate and the Trainer add to it; for
    each loader how it loads. Nothing is imported for it. Of numpy they add arrays, and of those dtypes only uint32, of
    random states: any other is refused, too (in random states `rng.unusable` says so). numpy scalars,
    `argparse.Namespace`, paths, `defaultdict`, OmegaConf and classes of one's own are the usual ones.

    Why: the trainer raises `UnpicklingError`. Where the script itself calls `torch.load`, it may pass
    `weights_only=False`, so that is only a warning, unless the file runs code by itself.

    Example: `error: optimizer.pt: _load_optimizer_and_scheduler of the Trainer raises UnpicklingError: torch's list
    lacks numpy.dtype at param_groups[0].lr`

    Reference: torch/_weights_only_unpickler.py, torch 2.13; accelerate/utils/other.py `load`, 1.15;
    transformers/trainer_pt_utils.py `safe_globals`, 5.24; lightning/fabric/utilities/cloud_io.py `_load`, 2.6; issues
    transformers#40500, nerfstudio#3683.
    """

    code: ClassVar[str] = "load.weights-only"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for file, uses in of_files(case):
            contents = case.checkpoint.contents[file]
            loader = loader_of(case, file)
            added = NUMPY_GLOBALS if loader.unpickling is Unpickling.WITH_NUMPY else frozenset()
            refused = [use for use in uses if use.ref not in added]
            dangerous = [use for use in refused if use.trust is Trust.DANGEROUS]
            where = file or contents.name
            if not dangerous and _was_loaded(case, file):
                continue
            if dangerous:
                yield self._dangerous(loader, where, dangerous)
            elif refused and loader.call and loader.unpickling is not Unpickling.ANYTHING:
                yield self._refused(loader, where, refused, pickled=contents.container == "pickle")
            elif added and not _holds_random_states(case, file):
                yield from self._of_numpy(loader, file, contents)

    def _dangerous(self, loader: Loader, where: str, uses: list[GlobalUse]) -> Finding:
        refusing = loader.unpickling in (Unpickling.WEIGHTS_ONLY, Unpickling.WITH_NUMPY) and loader.call
        raises = f"; {loader.call} raises UnpicklingError" if refusing else ""
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=where,
            message=f"loading it the usual way would run code: {named(uses)}{raises}",
            hint="do not load this file with pickle or torch.load(weights_only=False); ask where it comes from",
        )

    def _of_numpy(self, loader: Loader, file: str, contents: Contents) -> Iterator[Finding]:
        """Of dtypes that are refused the first."""
        for path, held in refused_dtypes(contents):
            severity, said = consequence(loader, "UnpicklingError")
            message = f"it is {held}; of numpy's only uint32 is on the list that its torch.load is given; {said}"
            hint = f"ckpt convert {file} OUT.pt --plain makes tensors of arrays; or save them as tensors"
            yield Finding(
                code=self.code, severity=severity, where=place(At(file, path)), message=message, hint=hint
            )  # fmt: skip
            return

    def _refused(self, loader: Loader, where: str, uses: list[GlobalUse], *, pickled: bool) -> Finding:
        lacks = f"torch's list lacks {named(uses)}"
        mended = f"ckpt convert {where} OUT.pt --plain makes builtins and tensors of most of them, or"
        if loader.unpickling is Unpickling.OF_THE_SCRIPT:
            call = (
                "pickle.load imports them"
                if pickled
                else "torch.load raises UnpicklingError without weights_only=False"
            )
            return Finding(
                code=self.code, severity=Severity.WARNING, where=where, message=f"{lacks}; {call}",
                hint=f"{mended} load it with weights_only=False where you trust it",
            )  # fmt: skip
        severity, said = consequence(loader, "UnpicklingError")
        return Finding(
            code=self.code, severity=severity, where=where, message=f"{lacks}; {said}",
            hint=f"{mended} allow them with torch.serialization.add_safe_globals where you trust the file",
        )  # fmt: skip
