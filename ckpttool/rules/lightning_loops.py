"""`lightning.loops`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import At
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import told
from ckpttool.rules._generators import kind
from ckpttool.rules._loop_counters import (
    AUTOMATIC,
    BATCHES,
    EPOCHS,
    MANUAL,
    PARTS,
    SCHEDULERS,
    VALIDATION,
    goes_on_at,
    structure,
    tracker,
)
from ckpttool.rules._loops import LOOPS
from ckpttool.rules._places import place
from ckpttool.rules._releases import release
from ckpttool.values import Value

_FIT = "fit_loop"
_FIRST = (2, 0)  # the release since which the entries have these names; older files are migrated
_RESTORE = "restore_loops of lightning/pytorch/trainer/connectors/checkpoint_connector.py"
_LOAD = "load_state_dict of lightning/pytorch/loops"
_RUN = "lightning/pytorch/loops/progress.py"
_HINT = "resume from another checkpoint, or put in the counters of one"
# Counters of `current` that are added to when an epoch goes on in its middle; all of `total` always are.
_WITHIN: Final = {BATCHES: ("ready", "completed"), EPOCHS: ("ready", "started")}
_LAST: Final = ("completed",)  # of the other entries, whose `ready` is set to `completed` first
_COMPARED: Final = ("processed", "completed")  # of the epochs: with `max_epochs`, before anything is run


class LightningLoops:
    """Counters of Lightning's fit loop that are absent, are no numbers, or make it go on somewhere else.

    What: `loops` and the entries of `fit_loop`: what is looked up and not there, what is no dict or no number, entries
    that are absent, and the epoch and the batch at which the resume goes on by them, against what was processed.

    Why: Lightning goes by these counters alone. A key that it looks up raises; an entry that is absent is passed over,
    and counts from 0 again, so that epochs or batches are trained on twice; counters that contradict each other make it
    skip or repeat batches.

    Example: `loops.fit_loop.epoch_progress: it is not there: Lightning starts at epoch 0 again, and says nothing`

    Reference: lightning/pytorch/loops/loop.py `load_state_dict`, progress.py, fit_loop.py `restarting`,
    training_epoch_loop.py `update_restart_stage`, Lightning 2.6.
    """

    code: ClassVar[str] = "lightning.loops"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        contents = checkpoint.contents.get("")
        root = contents.root if contents is not None and contents.complete else None
        if checkpoint.layout != "lightning" or not isinstance(root, dict) or root.get(LOOPS) is None:
            return  # without loops: progress.missing
        loops = root[LOOPS]
        if not isinstance(loops, dict):
            yield self._error((), f"it is {kind(loops)}, not a dict: {_RESTORE} raises TypeError")
        elif _FIT in loops and _is_recent(root):
            yield from self._fit(loops[_FIT], root.get("epoch"), schedulers=bool(root.get("lr_schedulers")))

    def _fit(self, fit: Value, epoch: Value, *, schedulers: bool) -> Iterator[Finding]:
        if not isinstance(fit, dict | list):
            yield self._error((_FIT,), f"it is {kind(fit)}, not a dict: {_LOAD}/loop.py raises AttributeError")
        elif isinstance(fit, list) or not any(name in fit for name in PARTS):
            message = f"it is {kind(fit)} without any counter of a loop: Lightning starts at epoch 0 and step 0 again"
            yield self._finding(Severity.SILENT, (_FIT,), f"{message}, and says nothing")
        else:
            yield from self._entries(fit, epoch, schedulers=schedulers)

    def _entries(self, fit: Mapping[Any, Value], epoch: Value, *, schedulers: bool) -> Iterator[Finding]:
        faults = list(structure(fit))
        for fault in faults:
            message = f"it {fault.says}: {_LOAD} raises {fault.exception}"
            yield self._error((_FIT, *fault.path), message)
        if faults:
            return
        yield from self._absent(fit)
        odd = list(self._numbers(fit, schedulers=schedulers))
        yield from odd
        if not odd:
            yield from self._position(fit, epoch)

    def _absent(self, fit: Mapping[Any, Value]) -> Iterator[Finding]:
        """Entries that are passed over: `compatibility with old checkpoints`."""
        if EPOCHS not in fit:
            message = "it is not there: Lightning starts at epoch 0 again, and says nothing"
            yield self._finding(Severity.SILENT, (_FIT, EPOCHS), message)
        elif BATCHES not in fit and not tracker(fit, EPOCHS, "current").over:
            message = "it is not there: Lightning trains on the batches of the running epoch again, and says nothing"
            yield self._finding(Severity.SILENT, (_FIT, BATCHES), message)
        if not {AUTOMATIC, MANUAL} <= fit.keys() and not _steps(fit):
            name = AUTOMATIC if AUTOMATIC not in fit else MANUAL
            message = (
                "it is not there: global_step starts at 0 again, from where max_steps and saves by steps are counted"
            )
            yield self._finding(Severity.WARNING, (_FIT, name), message)

    def _numbers(self, fit: Mapping[Any, Value], *, schedulers: bool) -> Iterator[Finding]:
        """Counters that are there and are no numbers, where a resume adds to them or compares them."""
        unused = _unused(fit, schedulers=schedulers)
        for name, parts in PARTS.items():
            if name not in fit or name in unused:
                continue
            read = _read(fit, name)
            for path, keys in parts.items():
                for which, key in ((w, k) for w in ("total", "current") for k in keys):
                    whole = (name, *path, which, key)
                    value = _inside(fit, whole)
                    if value is not _ABSENT and number(value) is None and (which == "total" or key in read):
                        yield self._error((_FIT, *whole), f"it is {kind(value)}, no number: {_RUN} raises TypeError")

    def _position(self, fit: Mapping[Any, Value], epoch: Value) -> Iterator[Finding]:
        """Where the loops go on, against `total`, the batches, and the epoch that was written beside the loops."""
        current, total = tracker(fit, EPOCHS, "current"), tracker(fit, EPOCHS, "total")
        if EPOCHS not in fit:
            return
        moved = current.processed != total.processed
        begun = current.over != total.over
        shifted = moved and current.completed != number(epoch) == total.completed
        cut = begun and current.over and _inside(fit, (BATCHES, "is_last_batch")) is False
        if shifted or cut or ((moved or begun) and not current.agrees):
            counts = [", ".join(f"{k} {told(n)}" for k, n in t._asdict().items()) for t in (current, total)]
            message = f"current and total do not agree ({counts[0]}; {counts[1]}): Lightning goes by current, at epoch "
            message += f"{told(current.processed)}, and skips or repeats batches"
            yield self._finding(Severity.SILENT, (_FIT, EPOCHS), message)
        elif BATCHES in fit:
            yield from self._batch(fit)

    def _batch(self, fit: Mapping[Any, Value]) -> Iterator[Finding]:
        at, batches = goes_on_at(fit), tracker(fit, BATCHES, "current")
        if at is None:
            return
        if at not in (batches.ready, batches.started, batches.processed):
            message = f"Lightning goes on at batch {told(at)} of the running epoch, {told(batches.processed)} were "
            message += "processed: batches are skipped or trained on again"
            yield self._finding(Severity.SILENT, (_FIT, BATCHES), message)
        last = _inside(fit, (BATCHES, "is_last_batch"))
        if last and not isinstance(last, bool):
            message = f"it is {kind(last)}, which Lightning takes for True: it ends the running epoch here"
            yield self._finding(Severity.SILENT, (_FIT, BATCHES, "is_last_batch"), message)

    def _error(self, path: tuple[str, ...], message: str) -> Finding:
        return self._finding(Severity.ERROR, path, message)

    def _finding(self, severity: Severity, path: tuple[str, ...], message: str) -> Finding:
        where = place(At("", (LOOPS, *path)))
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_HINT)


_ABSENT: Final = object()


def _inside(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _read(fit: Mapping[Any, Value], name: str) -> tuple[str, ...]:
    """Counters of `current` that a resume reads: those of a running epoch, and what is never reset."""
    if name == MANUAL:
        return ("ready", "completed")
    within = () if tracker(fit, EPOCHS, "total").over else _WITHIN.get(name, _LAST)
    return (*within, *_COMPARED) if name == EPOCHS else within


def _unused(fit: Mapping[Any, Value], *, schedulers: bool) -> set[str]:
    """Entries that are only counted up where a module trains so: by itself or by hand, with schedulers, with data to
    validate on.
    """
    automatic = number(_inside(fit, (AUTOMATIC, "optimizer", "step", "total", "completed"))) or 0
    by_hand = tracker(fit, MANUAL, "total").completed
    unused = {VALIDATION, *([] if schedulers else [SCHEDULERS])}
    if automatic > 0:
        unused.add(MANUAL)
    elif by_hand > 0:
        unused |= {AUTOMATIC, SCHEDULERS}
    return unused


def _steps(fit: Mapping[Any, Value]) -> bool:
    """Whether one of the two kinds of optimization counted steps; the other is of no use then."""
    automatic = number(_inside(fit, (AUTOMATIC, "optimizer", "step", "total", "completed"))) or 0
    return automatic > 0 or tracker(fit, MANUAL, "total").completed > 0


def _is_recent(root: Mapping[Any, Value]) -> bool:
    version = root.get("pytorch-lightning_version")
    return isinstance(version, str) and release(version)[:2] >= _FIRST
