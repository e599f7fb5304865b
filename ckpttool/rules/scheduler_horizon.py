"""A schedule ends where training does not."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, SchedulerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._bounded import bounded, whole
from ckpttool.rules._counts import counts_of
from ckpttool.rules._learning_rates import alike, driven_by, follows, last_rates, position, rates_of, said
from ckpttool.rules._places import place
from ckpttool.rules._schedules import base_rates, schedule_of
from ckpttool.rules._trained import siblings
from ckpttool.rules._trainer_schedules import horizon_shown, max_steps, warm_up

_KEYS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max", "PolynomialLR": "total_iters"}


class SchedulerHorizon:
    """The end that the schedule was made for is not where training ends.

    What: a stored horizon (`T_max`, `total_steps`, `total_iters`) that is passed, or that ends before `max_steps`. A
    cosine that is passed rises again, which is how some use it, and a note. Of the Trainer's linear and cosine
    schedules, which store none, the horizon that the learning rate shows is held against `max_steps`. Whether the
    script was given another number of steps is not in the checkpoint.

    Why: torch's classes bring their old horizon with them and ignore the new one, so the rate stays at its end, or
    rises again. LambdaLR stores none, so the rate jumps to where the new horizon puts it.

    Example: `scheduler.bin: total_iters: PolynomialLR stands at step 13 of total_iters 10, and max_steps is 20: nothing
    is learnt at a rate of 0`

    Reference: torch/optim/lr_scheduler.py (2.13), `load_state_dict`; transformers optimization.py (5.24),
    transformers#4383; insightface#2143.
    """

    code: ClassVar[str] = "scheduler.horizon"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """What each scheduler says of its end, and how the Trainer's own changed within a run."""
        for scheduler in case.checkpoint.schedulers:
            if "lr_lambdas" in scheduler.fields:
                yield from self._of_function(case, scheduler)
            else:
                yield from self._stored(case, scheduler)
        yield from self._changed(case)

    def _stored(self, case: Case, scheduler: SchedulerState) -> Iterator[Finding]:
        name = scheduler.candidates[0] if scheduler.candidates else ""
        key, step = _KEYS.get(name, ""), position(scheduler)
        end = bounded(scheduler.fields.get(key)) if key else None
        if end is None or step is None or end <= 0:
            return
        more = _to_come(case)
        where = place(scheduler.at, key)
        stands = f"{name} stands at step {step:,} of {key} {end:,}"
        if name == "OneCycleLR" and step >= end:
            yield self._at_end(case, where, stands, more=more or _never(case, scheduler, step=step, end=end))
        elif name == "CosineAnnealingLR" and step > end:
            yield self._finding(Severity.NOTE, where, f"{stands}: the learning rate rises again, as in cycles")
        elif name == "PolynomialLR" and step >= end and more:
            yield self._finding(Severity.WARNING, where, f"{stands}, and {more}: nothing is learnt at a rate of 0")
        elif more and step == counts_of(case).taken and end < (max_steps(case.checkpoint) or 0):
            yield self._finding(Severity.WARNING, where, f"{stands}, and {more}: the schedule ends before")

    def _at_end(self, case: Case, where: str, stands: str, *, more: str) -> Finding:
        """One step more raises; Accelerate does not take it."""
        if case.checkpoint.layout == "accelerate":
            return self._finding(Severity.NOTE, where, f"{stands}: Accelerate steps it no further")
        raised = "the next scheduler.step() raises ValueError in get_lr of torch/optim/lr_scheduler.py"
        if more:
            return self._finding(Severity.ERROR, where, f"{stands}, and {more}: {raised}")
        return self._finding(Severity.NOTE, where, f"{stands}; to go on from here, {raised}")

    def _of_function(self, case: Case, scheduler: SchedulerState) -> Iterator[Finding | NotChecked]:
        """The Trainer's schedules by the rate they left; any other function is not in the file."""
        checkpoint, step = case.checkpoint, position(scheduler)
        kind, total = checkpoint.config.get("lr_scheduler_type"), max_steps(checkpoint)
        if checkpoint.layout != "hf-trainer" or kind not in ("linear", "cosine") or total is None or step is None:
            why = "LambdaLR stores neither its function nor where it ends"
            yield NotChecked(code=self.code, why=why)
            return
        bases, last = base_rates(scheduler.fields), last_rates(scheduler)
        warm = warm_up(checkpoint.config, total)
        shown = (
            None if checkpoint.config.get("lr_scheduler_kwargs") else horizon_shown(str(kind), last, bases, step, warm)
        )
        if shown is not None and total not in (shown, step):
            yield self._finding(
                Severity.WARNING,
                place(scheduler.at, "_last_lr"),
                f"lr is {said(last)} at step {step:,}, as of a {kind} schedule over {shown:,} steps; max_steps is "
                f"{total:,}, so the rate jumps when training goes on",
            )

    def _changed(self, case: Case) -> Iterator[Finding]:
        """The Trainer rebuilds the schedule for the `max_steps` of today, and the rate jumps there."""
        total, step = max_steps(case.checkpoint), counts_of(case).step
        if case.checkpoint.layout != "hf-trainer" or total is None or step is None or not case.checkpoint.schedulers:
            return
        earlier = [
            (s, t) for s in siblings(case) if (t := max_steps(s)) is not None and t != total and _is_before(s, step)
        ]
        if earlier:
            before, was = earlier[-1]
            yield self._finding(
                Severity.NOTE,
                "trainer_state.json: max_steps",
                f"max_steps is {total:,}, and was {was:,} in {before.path}: the learning rate jumped there",
            )

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        hint = "" if severity is Severity.NOTE else "make the schedule anew for the steps that are left, or end at it"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _to_come(case: Case) -> str:
    """`max_steps is 20` where training goes on after this checkpoint; empty where nothing says so."""
    total, step = max_steps(case.checkpoint), counts_of(case).step
    return f"max_steps is {total:,}" if total is not None and step is not None and step < total else ""


def _never(case: Case, scheduler: SchedulerState, *, step: float, end: float) -> str:
    """Why a OneCycleLR cannot stand there: past its end it raises, and at its end the rate is the last."""
    if step > end:
        return "training never steps it so far"
    driven = driven_by(case.checkpoint, scheduler)
    schedule = schedule_of(scheduler.fields, [g.hyperparameters for g in driven[0].groups]) if driven else None
    form, rates = schedule.at(step) if schedule else None, rates_of(driven[0]) if driven else ()
    off = (
        form is not None
        and not follows(rates, form, base_rates(scheduler.fields))
        and alike(rates, last_rates(scheduler))
    )
    return f"lr is {said(rates)}, which is not that of its end" if off else ""


def _is_before(checkpoint: Checkpoint, step: int) -> bool:
    found = next((whole(c.value) for c in checkpoint.counters if c.name == "global_step"), None)
    return found is not None and found < step
