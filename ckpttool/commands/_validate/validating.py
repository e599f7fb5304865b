"""From a path and choices to a report: open, read values, run the rules, close."""

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckpttool.blocks import Finding, Progress, Severity
from ckpttool.commands._validate.bench import Bench
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.report import ValidateReport
from ckpttool.errors import CkptError, NotACheckpoint, UsageError
from ckpttool.model import Checkpoint, Run
from ckpttool.opening import open_checkpoint, open_path

if TYPE_CHECKING:  # it brings processes and threads
    from ckpttool.probe.pending import Pending


def report(path: str, choices: Choices, progress: Progress | None, pending: "Pending | None" = None) -> ValidateReport:
    """Judge what lies at a path.

    Args:
        pending: a script that is being run meanwhile, to hold it against.

    Raises:
        CkptError: it cannot be read.
    """
    if not path:
        raise UsageError("the path is empty", hint="name a checkpoint")
    with ExitStack() as stack:
        opened = _opened(path, choices)
        stack.callback(opened.close)
        other = stack.enter_context(open_checkpoint(choices.against, choices.limits)) if choices.against else None
        bench = Bench(choices, other, progress)
        if isinstance(opened, Run):
            return _of_run_with_script(opened, bench, pending) if pending is not None else _of_run(opened, bench)
        judged = bench.judged(opened, read=bench.affordable([opened])[0], pending=pending)
        written = _manifest(opened, choices)
        opened.check_unchanged()
        return ValidateReport(path=path, judged=(judged,), choices=choices, manifest=written)


def _opened(path: str, choices: Choices) -> Checkpoint | Run:
    """What lies there; what we cannot read, or is not there, is still given to a script, to see what comes of it."""
    try:
        return open_path(path, choices.limits)
    except UsageError:
        raise
    except CkptError as error:
        if choices.question is None:
            raise
        trouble = Finding(
            code=error.code, severity=Severity.ERROR, where=error.where, message=error.message, hint=error.hint
        )
        return Checkpoint(path=path, layout="", problems=(trouble,))


def _require_one(run: Run, choices: Choices) -> None:
    if not run.checkpoints:
        raise NotACheckpoint("the folder holds no checkpoints", where=run.path)
    if choices.manifest or choices.write_manifest:
        hint = "name one of them"
        raise UsageError("a manifest is of one checkpoint, and the folder holds several", where=run.path, hint=hint)


def _of_run(run: Run, bench: Bench) -> ValidateReport:
    choices = bench.choices
    _require_one(run, choices)
    reads = bench.affordable(run.checkpoints)
    judged = tuple(bench.judged(c, run=run, read=r) for c, r in zip(run.checkpoints, reads, strict=True))
    good = [j for j, whole in zip(judged, run.complete, strict=True) if whole and j.is_good(choices.fail_on)]
    for checkpoint in run.checkpoints:
        checkpoint.check_unchanged()
    return ValidateReport(
        path=run.path,
        judged=judged,
        choices=choices,
        run=True,
        resume_from=good[-1].path if good else "",
        equals=tuple(j.path for j in good[:-1] if j.step is not None and j.step == good[-1].step),
        problems=run.problems,
    )


def _of_run_with_script(run: Run, bench: Bench, pending: "Pending") -> ValidateReport:
    """Of a run, the checkpoint that the script opened; the newest where it opened none."""
    _require_one(run, bench.choices)
    files = {os.path.realpath(o.path) for o in pending.facts().opened}
    own = [c for c in run.checkpoints if any(_is_of(file, os.path.realpath(c.path)) for file in files)]
    checkpoint = own[-1] if own else run.checkpoints[-1]
    judged = bench.judged(checkpoint, run=run, read=bench.affordable([checkpoint])[0], pending=pending)
    checkpoint.check_unchanged()
    return ValidateReport(path=run.path, judged=(judged,), choices=bench.choices)


def _is_of(file: str, checkpoint: str) -> bool:
    return file == checkpoint or file.startswith(checkpoint + os.sep)


def _manifest(checkpoint: Checkpoint, choices: Choices) -> str:
    if not choices.write_manifest:
        return ""
    from ckpttool.validation.manifest import write_manifest

    write_manifest(checkpoint, choices.write_manifest)
    return choices.write_manifest
