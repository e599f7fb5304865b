"""Counters that should agree do not."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.model import Checkpoint, Counter
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import bounded, told, whole
from ckpttool.rules._counts import Counts, accumulated, counts_of
from ckpttool.rules._lightning_progress import disagreements
from ckpttool.rules._loops import Loops, loops_of
from ckpttool.rules._pace import Pace, paces
from ckpttool.rules._places import place

_COUNTS = ("epoch", "global_step", "step", "samples", "completed_epochs")
_OWN_COUNT = ("hf-trainer", "deepspeed")  # trainers whose counter is that of optimizer steps
_ROUNDED = 0.02  # of an epoch


class ProgressInconsistent:
    """The trainer's counter, its loops, the schedule and the folder's name tell of different steps.

    What: the counter against all other witnesses (optimizer, scheduler, name); Lightning's `loops` against `epoch`
    and `global_step` beside them; DeepSpeed's samples against its steps; the Trainer's epoch against its log; counters
    below zero, and past `max_steps`.

    Why: a resume goes by one of them. What it is, and where the data and the schedule go on, differs from what the
    others say, and nothing reports it.

    Example: `trainer_state.json: global_step: global_step is 3; the optimizer took 4 steps, the scheduler stands at
    4, the folder says 4`

    Reference: transformers trainer.py (5.24), `_init_training_state`; lightning checkpoint_connector.py (2.6),
    `dump_checkpoint` ("not relevant for restoration"); transformers#25956, tinker-cookbook#448.
    """

    code: ClassVar[str] = "progress.inconsistent"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """Each disagreement once."""
        counts = counts_of(case)
        loops = loops_of(case.checkpoint)
        yield from self._impossible(case.checkpoint)
        if loops is not None:
            yield from (self._finding(*found) for found in disagreements(case.checkpoint, counts, loops))
        else:
            yield from self._counter(case.checkpoint.layout, counts)
        yield from self._named(case, counts, loops)
        yield from self._schedule(case)
        yield from self._samples(case.checkpoint, counts)
        yield from self._epoch(case.checkpoint, counts)

    def _finding(self, severity: Severity, where: str, message: str, hint: str = "") -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _impossible(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        for counter in checkpoint.counters:
            value = number(counter.value)
            if counter.name in _COUNTS and value is not None and not value >= 0:
                message = f"{counter.key} is {told(value)}, which counts nothing"
                yield self._finding(Severity.WARNING, place(counter.at), message, "start from a counter that is known")
        step, total = _counter(checkpoint, "global_step"), _counter(checkpoint, "max_steps")
        if checkpoint.layout == "hf-trainer" and step and total and (bounded(total.value) or 0) > 0:
            at, end = bounded(step.value), bounded(total.value)
            if at is not None and end is not None and at > end:
                message = f"global_step is {at:,}, max_steps {end:,}: with the same arguments the Trainer ends at once"
                yield self._finding(Severity.WARNING, place(step.at), message, "raise max_steps to go on")

    def _counter(self, layout: str, counts: Counts) -> Iterator[Finding]:
        """The counter is odd where two witnesses or more agree, and not with it."""
        witnesses = [
            *([("the optimizer took {:,} steps", counts.taken)] if counts.taken is not None else []),
            *(("the scheduler stands at {:,}", s.steps) for s in counts.schedulers[:1]),
            *([("the name says {:,}", counts.named)] if counts.named is not None else []),
        ]
        steps = {n for _, n in witnesses}
        if counts.counter is None or counts.step is None or len(witnesses) < 2 or len(steps) != 1:  # noqa: PLR2004
            return
        own, agreed = layout in _OWN_COUNT, max(steps)
        skipped = counts.scaled and counts.named is None and counts.step > agreed
        first = not own and abs(counts.step - agreed) <= 1  # a script may begin to count at 0 or at 1
        batches = not own and accumulated(counts.step, agreed)
        if counts.step - counts.skipped == agreed or skipped or first or batches:
            return
        message = f"{counts.counter.key} is {counts.step:,}; {', '.join(text.format(n) for text, n in witnesses)}"
        hint = f"set {counts.counter.key} to {agreed}, or resume from another checkpoint"
        severity = Severity.SILENT if own else Severity.WARNING
        yield self._finding(severity, place(counts.counter.at), message, hint)

    def _named(self, case: Case, counts: Counts, loops: Loops | None) -> Iterator[Finding]:
        """A folder or file that was renamed, or holds what another one should."""
        named, step = counts.named, loops.steps if loops and loops.steps is not None else counts.step
        if named is None or step is None or named == step or counts.counter is None:
            return
        others = {n for n in (counts.taken, *(s.steps for s in counts.schedulers)) if n is not None}
        if loops is None and others == {named} and counts.step is not None and counts.step - counts.skipped != named:
            return  # the counter is odd, and was told of
        name = PurePath(case.checkpoint.path).name
        message = f"{name} says {named:,}, {counts.counter.key} is {step:,}: the newest is chosen by name"
        yield self._finding(Severity.WARNING, place(counts.counter.at), message, "give it the name of its step")

    def _schedule(self, case: Case) -> Iterator[Finding]:
        """A scheduler that the trainer itself steps, and that stands somewhere else altogether."""
        for paced in paces(case):
            if paced.pace is not Pace.OTHER or not paced.own:
                continue
            message = f"last_epoch is {paced.at:,}, {paced.of}"
            stepped = (bounded(paced.scheduler.fields.get("_step_count")) or 0) > 1
            lost = stepped and not paced.at  # it was stepped, and stands at its beginning
            unsure = case.checkpoint.layout == "lightning" and not lost
            severity = Severity.WARNING if unsure else Severity.SILENT
            hint = "resume from a checkpoint whose scheduler was saved with it"
            yield self._finding(severity, place(paced.scheduler.at, "last_epoch"), message, hint)

    def _samples(self, checkpoint: Checkpoint, counts: Counts) -> Iterator[Finding]:
        """DeepSpeed adds one batch of all ranks for each step.

        Source: deepspeed/runtime/engine.py, `step`
        """
        samples = _counter(checkpoint, "samples")
        total = whole(samples.value) if samples else None
        if checkpoint.layout != "deepspeed" or samples is None or total is None or not counts.step or total < 0:
            return
        if total % counts.step:
            message = f"{samples.key} is {total:,} after {counts.step:,} steps, which is no whole batch for each"
            yield self._finding(Severity.NOTE, place(samples.at), message)

    def _epoch(self, checkpoint: Checkpoint, counts: Counts) -> Iterator[Finding]:
        """The Trainer's epoch is a share of its steps, the same in every line of its log."""
        epoch = _counter(checkpoint, "epoch")
        log = next((c.value for c in checkpoint.custom if c.name == "trainer_state"), None)
        history = log.get("log_history") if isinstance(log, dict) and checkpoint.layout == "hf-trainer" else None
        if epoch is None or counts.epoch is None or not counts.step or not isinstance(history, list):
            return
        pairs = [(bounded(h.get("step")), bounded(h.get("epoch"))) for h in history[-1:] if isinstance(h, dict)]
        for step, logged in pairs:
            if step and logged and step <= counts.step and counts.epoch < logged - _ROUNDED:
                message = f"epoch is {counts.epoch:g}, the log stood at {logged:g} after {step:,} steps"
                yield self._finding(Severity.WARNING, place(epoch.at), message, "epoch is shown, not used to resume")


def _counter(checkpoint: Checkpoint, name: str) -> Counter | None:
    return next((c for c in checkpoint.counters if c.name == name), None)
