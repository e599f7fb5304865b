"""From a path and choices to a report: open, read values, run the rules, close."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from ckpttool.blocks import Finding, Progress
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.installed import installed
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._validate.report import ValidateReport
from ckpttool.errors import NotACheckpoint, UsageError
from ckpttool.model import Checkpoint, Run
from ckpttool.opening import open_checkpoint, open_path
from ckpttool.protocols import Case, Needs, Scan
from ckpttool.rules import counter_table
from ckpttool.validation.judging import judge
from ckpttool.validation.unread import told_of_unread

MOST_READ = 2_000_000_000  # bytes of values that are read without being asked for


def report(path: str, choices: Choices, progress: Progress | None) -> ValidateReport:
    """Judge what lies at a path.

    Raises:
        CkptError: it cannot be read.
    """
    if not path:
        raise UsageError("the path is empty", hint="name a checkpoint")
    with ExitStack() as stack:
        opened = open_path(path, choices.limits)
        stack.callback(opened.close)
        other = stack.enter_context(open_checkpoint(choices.against, choices.limits)) if choices.against else None
        bench = _Bench(choices, other, progress)
        if isinstance(opened, Run):
            return _of_run(opened, bench)
        read = choices.values if choices.values is not None else _bytes(opened) <= MOST_READ
        judged = bench.judged(opened, read=read)
        written = _manifest(opened, choices)
        opened.check_unchanged()
        return ValidateReport(path=path, judged=(judged,), choices=choices, manifest=written)


def _of_run(run: Run, bench: "_Bench") -> ValidateReport:
    choices = bench.choices
    if not run.checkpoints:
        raise NotACheckpoint("the folder holds no checkpoints", where=run.path)
    if choices.manifest or choices.write_manifest:
        hint = "name one of them"
        raise UsageError("a manifest is of one checkpoint, and the folder holds several", where=run.path, hint=hint)
    reads = _affordable(run.checkpoints, choices)
    judged = tuple(bench.judged(c, run=run, read=r) for c, r in zip(run.checkpoints, reads, strict=True))
    good = [j.path for j, whole in zip(judged, run.complete, strict=True) if whole and j.is_good(choices.fail_on)]
    for checkpoint in run.checkpoints:
        checkpoint.check_unchanged()
    return ValidateReport(
        path=run.path,
        judged=judged,
        choices=choices,
        run=True,
        resume_from=good[-1] if good else "",
        problems=run.problems,
    )


def _affordable(checkpoints: Sequence[Checkpoint], choices: Choices) -> list[bool]:
    """Which checkpoints of a run have their values read: from the newest on until `MOST_READ` is used up."""
    if choices.values is not None:
        return [choices.values] * len(checkpoints)
    left, reads = MOST_READ, []
    for checkpoint in reversed(checkpoints):
        left -= _bytes(checkpoint)
        reads.append(left >= 0)
    return reads[::-1]


class _Bench:
    """What every checkpoint of a report is judged with."""

    def __init__(self, choices: Choices, other: Checkpoint | None, progress: Progress | None) -> None:
        self.choices = choices
        self._other = other
        self._progress = progress
        self._installed = installed() if any(Needs.INSTALLED in rule.needs for rule in choices.rules) else {}

    def judged(self, checkpoint: Checkpoint, *, run: Run | None = None, read: bool) -> Judged:
        """Judge one checkpoint; its values are read first."""
        values = self._scanned(checkpoint) if read else None
        case = Case(checkpoint=checkpoint, run=run, other=self._other, installed=self._installed, values=values)
        found, unchecked = told_of_unread(checkpoint, values.unread if values else ())
        judgement = judge(case, self.choices.rules, [*self._held(checkpoint), *found], unchecked)
        counters = counter_table(case)
        if run is not None:  # there may be hundreds, of several files each
            for source in checkpoint.opened:
                source.release()
        steps = dict(zip(map(id, run.checkpoints), run.steps, strict=True)) if run else {}
        return Judged(
            path=checkpoint.path,
            layout=checkpoint.layout,
            judgement=judgement,
            counters=counters,
            step=steps.get(id(checkpoint)),
            read_bytes=_read(values),
        )

    def _scanned(self, checkpoint: Checkpoint) -> Scan:
        from ckpttool.validation.scanning import scan  # it brings threads and their queues

        return scan(checkpoint, figures=self.choices.figures, progress=self._progress)

    def _held(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """What a manifest says against it."""
        if self.choices.manifest:
            from ckpttool.validation.manifest import held_against

            yield from held_against(checkpoint, self.choices.manifest)


def _read(values: Scan | None) -> int | None:
    return values.read_bytes if values is not None else None


def _bytes(checkpoint: Checkpoint) -> int:
    return sum(s.nbytes for c in checkpoint.contents.values() for s in c.storages)


def _manifest(checkpoint: Checkpoint, choices: Choices) -> str:
    if not choices.write_manifest:
        return ""
    from ckpttool.validation.manifest import write_manifest

    write_manifest(checkpoint, choices.write_manifest)
    return choices.write_manifest
