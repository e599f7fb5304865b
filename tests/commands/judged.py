"""Judgements made by hand, for what a report says of them."""

from ckpttool.blocks import Finding, Severity
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._validate.report import ValidateReport
from ckpttool.protocols import Needs, NotChecked
from ckpttool.rules import CounterRow
from ckpttool.validation.judging import Judgement, Verdict

EMPTY = Finding(
    code="scaler.empty", severity=Severity.ERROR, where="scaler.pt",
    message="the loss scale is {}; GradScaler.load_state_dict raises RuntimeError in a run with fp16",
    hint="start the loss scale afresh: leave scaler.pt out",
)  # fmt: skip
LOST = Finding(
    code="scheduler.missing", severity=Severity.SILENT, where="checkpoint-4",
    message="optimizer.pt is there and scheduler.pt is not, so Trainer loads neither of them and says nothing",
    hint="resume from checkpoint-2, which has both",
)  # fmt: skip
ODD = Finding(
    code="container.rotation", severity=Severity.WARNING, where="trainer_state.json: best_model_checkpoint",
    message="it names /home/other/run/checkpoint-2, which is not there", hint="the best model cannot be loaded at the end",
)  # fmt: skip
WORTH = Finding(code="model.key-prefix", severity=Severity.NOTE, message="all 40 names begin with module.")


class Empty:
    """The state of the loss scale is empty."""

    code = "scaler.empty"
    needs = Needs.NOTHING


class Position:
    """Training stopped inside an epoch, and its place in the data was not kept."""

    code = "data.position-missing"
    needs = Needs.RUN


UNCHECKED = (
    NotChecked(code="container.bitrot", why="1 of 3 storages has no checksum: a flipped bit there cannot be seen"),
    NotChecked(code="model.shape", why="there is no second checkpoint to hold it against: --against OTHER"),
    NotChecked(code="model.missing-key", why="there is no second checkpoint to hold it against: --against OTHER"),
)
COUNTERS = (
    CounterRow(name="global step", key="global_step", values=(4,), unit="optimizer steps", where="trainer_state.json: global_step"),
    CounterRow(name="optimizer step", key="step", values=(2, 4), unit="optimizer steps", where="optimizer.pt: state", note="the loss scaler skips steps"),
    CounterRow(name="learning rate", key="lr", values=(0.001, 0.001), unit="", where="optimizer.pt: param_groups"),
    CounterRow(name="base learning rate", key="base_lrs", values=(1, 2, 3, 4, 5.5), unit="", where=""),
)  # fmt: skip

VERDICTS = {Severity.ERROR: Verdict.RAISES, Severity.SILENT: Verdict.SILENTLY_WRONG}


def judged(*findings, path="runs/checkpoint-4", verdict=None, **more):
    """A checkpoint with findings, worst first; the verdict follows from them."""
    worst = findings[0].severity if findings else Severity.NOTE
    settings = {"layout": "hf-trainer", "read_bytes": 1_200_000_000, "counters": COUNTERS, **more}
    unchecked = settings.pop("not_checked", UNCHECKED)
    judgement = Judgement(
        verdict=verdict or VERDICTS.get(worst, Verdict.RESUMABLE), findings=findings, not_checked=unchecked
    )
    return Judged(path=path, judgement=judgement, **settings)


def report(*several, fail_on=Severity.SILENT, counters=False, figures=True, **more):
    """A report of one checkpoint, or of a run."""
    choices = Choices(rules=(Empty(), Position()), fail_on=fail_on, counters=counters, figures=figures)
    return ValidateReport(path=more.pop("path", "runs/checkpoint-4"), judged=several, choices=choices, **more)


def run(*several, **more):
    """A report of a run."""
    return report(*several, path="runs", run=True, **more)
