"""From a path and choices to a report: open, read values, run the rules, close."""

from contextlib import ExitStack
from importlib import metadata

from ckpttool.blocks import Finding, Progress
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._validate.report import ValidateReport
from ckpttool.errors import NotACheckpoint, UsageError
from ckpttool.model import Checkpoint, Run
from ckpttool.opening import open_checkpoint, open_path
from ckpttool.protocols import Case, Scan
from ckpttool.rules import counter_table
from ckpttool.validation.judging import Verdict, judge
from ckpttool.validation.scanning import scan

MOST_READ = 2_000_000_000  # bytes of values that are read without being asked for
_LIBRARIES = ("torch", "numpy", "accelerate", "transformers", "lightning", "pytorch-lightning", "deepspeed", "peft")


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
        if isinstance(opened, Run):
            return _of_run(opened, other, choices, progress)
        judged = _judged(opened, None, other, choices, progress)
        written = _manifest(opened, choices)
        opened.check_unchanged()
        return ValidateReport(path=path, judged=(judged,), choices=choices, manifest=written)


def _of_run(run: Run, other: Checkpoint | None, choices: Choices, progress: Progress | None) -> ValidateReport:
    if not run.checkpoints:
        raise NotACheckpoint("the folder holds no checkpoints", where=run.path)
    if choices.manifest or choices.write_manifest:
        raise UsageError(
            "a manifest is of one checkpoint, and the folder holds several", where=run.path, hint="name one of them"
        )
    judged = tuple(_judged(c, run, other, choices, progress) for c in run.checkpoints)
    good = [j for j, whole in zip(judged, run.complete, strict=True) if whole and not j.fails(choices.fail_on)]
    good = [j for j in good if j.judgement.verdict is Verdict.RESUMABLE] or []
    for checkpoint in run.checkpoints:
        checkpoint.check_unchanged()
    return ValidateReport(
        path=run.path, judged=judged, choices=choices, run=True, resume_from=good[-1].path if good else ""
    )


def _judged(
    checkpoint: Checkpoint, run: Run | None, other: Checkpoint | None, choices: Choices, progress: Progress | None
) -> Judged:
    values = _values(checkpoint, choices, progress)
    case = Case(checkpoint=checkpoint, run=run, other=other, installed=_installed(), values=values)
    judgement = judge(case, choices.rules, _held(checkpoint, choices))
    steps = dict(zip(map(id, run.checkpoints), run.steps, strict=True)) if run else {}
    return Judged(
        path=checkpoint.path,
        layout=checkpoint.layout,
        judgement=judgement,
        counters=counter_table(case),
        step=steps.get(id(checkpoint)),
        read_bytes=_bytes(checkpoint) if values is not None else 0,
    )


def _held(checkpoint: Checkpoint, choices: Choices) -> list[Finding]:
    """What a manifest says against it."""
    if not choices.manifest:
        return []
    from ckpttool.validation.manifest import held_against

    return list(held_against(checkpoint, choices.manifest))


def _values(checkpoint: Checkpoint, choices: Choices, progress: Progress | None) -> Scan | None:
    """What reading the values found; None where they are not read."""
    wanted = choices.values if choices.values is not None else _bytes(checkpoint) <= MOST_READ
    return scan(checkpoint, figures=choices.figures, progress=progress) if wanted else None


def _bytes(checkpoint: Checkpoint) -> int:
    return sum(s.nbytes for c in checkpoint.contents.values() for s in c.storages)


def _installed() -> dict[str, str]:
    """Versions of the libraries beside us; nothing is imported for it."""
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _manifest(checkpoint: Checkpoint, choices: Choices) -> str:
    if not choices.write_manifest:
        return ""
    from ckpttool.validation.manifest import write_manifest

    write_manifest(checkpoint, choices.write_manifest)
    return choices.write_manifest
