"""`container.custom-count`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._trained import siblings

_CUSTOM = re.compile(r"custom_checkpoint_(\d{1,5})\.pkl")
_NUMBERED = {
    "optimizer": re.compile(r"optimizer(?:_(\d{1,5}))?\.bin"),
    "scheduler": re.compile(r"scheduler(?:_(\d{1,5}))?\.bin"),
    "model": re.compile(r"(?:pytorch_)?model(?:_(\d{1,5}))?\.(?:safetensors|bin)"),
}
_LOADER = "accelerate/accelerator.py"
_KEYS = 3  # of an object; with fewer, two objects may be alike by chance


class CustomCount:
    """Numbered files of Accelerate with a gap, or another number of them than there should be.

    What: `custom_checkpoint_N.pkl`, `optimizer_N.bin`, `scheduler_N.bin` and the models: gaps in their numbers, and
    their number against the other checkpoints of the run and against OTHER. In Lightning, `lr_schedulers` against
    OTHER.

    Why: Accelerate counts the files of registered objects and raises where the number is another, after everything
    else was loaded. It takes objects by their number, so an order that was swapped loads into the wrong ones. Of
    optimizers and models it loads as many as the script has, and says nothing of the rest; Lightning pairs schedulers
    off likewise.

    Example: `custom_checkpoint_1.pkl is missing between 0 and 2`

    Reference: accelerate/accelerator.py `load_state`, accelerate 1.15; lightning/pytorch
    `_CheckpointConnector.restore_lr_schedulers`, Lightning 2.6.
    """

    code: ClassVar[str] = "container.custom-count"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        here = case.checkpoint
        if here.layout == "lightning" and case.other is not None and case.other.layout == "lightning":
            yield from self._schedulers(here, case.other)
        if here.layout != "accelerate":
            return
        yield from self._gaps(here)
        counts = {len(_numbers(c, _CUSTOM)) for c in siblings(case)}
        mine = _numbers(here, _CUSTOM)
        if len(counts) == 1 and (theirs := counts.pop()) != len(mine) and not _gap(mine):
            yield self._count(len(mine), theirs, "the other checkpoints of the run")
        if case.other is not None and case.other.layout == "accelerate":
            yield from self._against(case, here, case.other)

    def _gaps(self, here: Checkpoint) -> Iterator[Finding]:
        numbers = _numbers(here, _CUSTOM)
        missing = _gap(numbers)
        if missing:
            files = [f"custom_checkpoint_{n}.pkl" for n in missing]
            are = "is" if len(files) == 1 else "are"
            yield self._finding(
                Severity.ERROR,
                files[0],
                f"{some(files)} {are} missing below custom_checkpoint_{numbers[-1]}.pkl: "
                f"with {numbers[-1] + 1} registered objects load_state raises RuntimeError: Number of custom "
                f"checkpoints in folder … does not match, with {len(numbers)} FileNotFoundError ({_LOADER})",
            )
        for kind, pattern in _NUMBERED.items():
            numbers = _numbers(here, pattern)
            if missing := _gap(numbers):
                file = f"{kind}{f'_{missing[0]}' if missing[0] else ''}"
                yield self._finding(
                    Severity.ERROR,
                    file,
                    f"{file} is missing, and {kind}_{numbers[-1]} is there: a run with {numbers[-1] + 1} of them "
                    "raises FileNotFoundError in load_accelerator_state (accelerate/checkpointing.py)",
                )

    def _count(self, mine: int, theirs: int, whose: str) -> Finding:
        return self._finding(
            Severity.ERROR,
            f"custom_checkpoint_{min(mine, theirs)}.pkl",
            f"{mine} files of registered objects, in {whose} {theirs}: with {theirs} registered objects load_state "
            f"raises RuntimeError: Number of custom checkpoints in folder … does not match ({_LOADER})",
        )

    def _against(self, case: Case, here: Checkpoint, there: Checkpoint) -> Iterator[Finding]:
        mine, theirs = _numbers(here, _CUSTOM), _numbers(there, _CUSTOM)
        if len(mine) != len(theirs):
            if not siblings(case):
                yield self._count(len(mine), len(theirs), "the other checkpoint")
        else:
            yield from self._swapped(here, there)
        for kind, pattern in _NUMBERED.items():
            few, many = len(_numbers(here, pattern)), len(_numbers(there, pattern))
            if few != many and min(few, many):
                raises = few < many
                yield self._finding(
                    Severity.ERROR if raises else Severity.SILENT,
                    f"{kind}_{min(few, many)}",
                    f"{few} files of a {kind}, in the other checkpoint {many}: a run of the other "
                    + (
                        "raises FileNotFoundError in load_accelerator_state"
                        if raises
                        else "loads the first and leaves the rest"
                    )
                    + " (accelerate/checkpointing.py)",
                )

    def _swapped(self, here: Checkpoint, there: Checkpoint) -> Iterator[Finding]:
        mine, theirs = _objects(here), _objects(there)
        for name in sorted(mine.keys() & theirs.keys()):
            keys = mine[name]
            twin = next((n for n in theirs if n != name and theirs[n] == keys and theirs[name] != keys), None)
            if twin is not None and len(keys) >= _KEYS:
                yield self._finding(
                    Severity.SILENT,
                    f"{name}.pkl",
                    f"it holds the keys of {twin} of the other checkpoint ({some(sorted(keys))}): objects are loaded "
                    "by their number, so a run of the other loads it into the wrong one",
                )

    def _schedulers(self, here: Checkpoint, there: Checkpoint) -> Iterator[Finding]:
        mine, theirs = _schedules(here), _schedules(there)
        if mine is not None and theirs is not None and mine != theirs:
            more = mine > theirs
            yield self._finding(
                Severity.SILENT,
                "lr_schedulers",
                f"{mine} schedulers, in the other checkpoint {theirs}: Lightning pairs them off with zip(), so "
                + ("the rest is left" if more else f"{theirs - mine} of a run of the other start afresh"),
            )

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        return Finding(
            code=self.code,
            severity=severity,
            where=where,
            message=message,
            hint="get the files again, or register and prepare the same objects in the same order as when it was saved",
        )


def _numbers(checkpoint: Checkpoint, pattern: re.Pattern[str]) -> Sequence[int]:
    found = {int(m[1] or 0) for f in checkpoint.files if (m := pattern.fullmatch(f.name))}
    return sorted(found)


def _gap(numbers: Sequence[int]) -> list[int]:
    """The numbers below the highest that are not there."""
    there = set(numbers)
    return [n for n in range(numbers[-1]) if n not in there] if numbers else []


def _objects(checkpoint: Checkpoint) -> Mapping[str, frozenset[str]]:
    """The keys of each registered object that is a dict."""
    found: dict[str, frozenset[str]] = {}
    for file, contents in checkpoint.contents.items():
        if _CUSTOM.fullmatch(file) and isinstance(contents.root, dict):
            found[file.removesuffix(".pkl")] = frozenset(k for k in contents.root if isinstance(k, str))
    return found


def _schedules(checkpoint: Checkpoint) -> int | None:
    root = checkpoint.contents[""].root
    found = root.get("lr_schedulers") if isinstance(root, dict) else None
    return len(found) if isinstance(found, list) else None
