"""The one screen: what wrote it, a line for each part, how far it came, and what is odd about it."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ckpttool.blocks import Block, Cell, Column, Finding, Findings, Heading, Severity, Table, Text
from ckpttool.commands._inspect import sentences as say
from ckpttool.commands._inspect.facts import optimizer_facts, total_bytes, weights_facts
from ckpttool.commands._inspect.globals import globals_line
from ckpttool.commands._inspect.storage import storage_use
from ckpttool.commands._inspect.verdict import is_dead
from ckpttool.commands._words import listed, plural, shortened, size
from ckpttool.model import (
    Checkpoint,
    CustomObject,
    DataPosition,
    LossScale,
    OptimizerState,
    Role,
    SchedulerState,
    Weights,
)

_ORDER = tuple(Severity)
_DEVICES = 4  # named in a line
_COUNTERS = 6

Row: TypeAlias = tuple[Cell, Cell, Cell]
_Part: TypeAlias = Weights | OptimizerState | SchedulerState | LossScale | DataPosition | CustomObject


def heading(checkpoint: Checkpoint) -> Heading:
    """`model.pt  nanoGPT, torch-zip, 1.5 GB`."""
    told = [checkpoint.writer or checkpoint.layout]
    if checkpoint.is_folder:
        told.append(plural(len(checkpoint.files), "file"))
    else:
        told += [contents.container for contents in checkpoint.contents.values()]
    return Heading(checkpoint.path, ", ".join([*told, size(total_bytes(checkpoint))]))


def summary(checkpoint: Checkpoint, findings: list[Finding]) -> Iterator[Block]:
    """Everything about a checkpoint that fits a screen."""
    yield heading(checkpoint)
    columns = [Column("part"), Column("holds", shrink=True), Column("size", align="right")]
    yield Table(columns, [*_part_rows(checkpoint), *_other_rows(checkpoint)])
    yield from findings_block(findings)


def findings_block(findings: list[Finding]) -> Iterator[Block]:
    """The findings, worst first, if there are any."""
    if findings:
        yield Findings(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def _row(label: str, holds: Cell, nbytes: int = 0, *, beside: Sequence[str] = ()) -> Row:
    pieces = [holds] if isinstance(holds, str | Text) else [*holds]
    aside = ", ".join(filter(None, beside))
    return (Text(label, "name"), [*pieces, *([Text(f"  {aside}", "dim")] if aside else [])], say.bytes_of(nbytes))


def _part_rows(checkpoint: Checkpoint) -> Iterator[Row]:
    for weights in checkpoint.weights:
        facts = weights_facts(weights)
        label = "ema" if weights.role is Role.EMA else "model"
        prefix = f"names begin with {weights.prefix}" if weights.prefix else ""
        beside = (_own(weights, label), prefix, weights.at.file)
        yield _row(label, say.tensors(facts), facts.nbytes, beside=beside)
    for state in checkpoint.optimizers:
        kept = optimizer_facts(state)
        beside = (_own(state, "optimizer"), "", state.at.file)
        yield _row("optimizer", say.optimizer(state, kept), kept.nbytes, beside=beside)
        for more in (say.hyperparameters(state), say.moments(kept)):
            if more:
                yield ("", Text(more, "dim"), "")
    for schedule in checkpoint.schedulers:
        yield _row(
            "scheduler",
            say.scheduler(schedule),
            beside=(_own(schedule, "scheduler"), schedule.at.file),
        )
    for scale in checkpoint.scalers:
        form = scale.form if scale.form != "state_dict" else ""
        yield _row("loss scale", scale_cell(scale), beside=(_own(scale, "scaler"), form, scale.at.file))
    if checkpoint.rng:
        files = list(dict.fromkeys(state.at.file for state in checkpoint.rng))
        yield _row("rng", say.rng(checkpoint.rng), beside=[listed(files, most=2)])
    for data in checkpoint.data:
        yield _row("data", say.position(data), beside=(_own(data, "data"), data.at.file))
    for custom in checkpoint.custom:
        yield _row("custom", say.custom(custom), beside=(_own(custom, ""), custom.at.file))


def _own(part: _Part, usual: str) -> str:
    """The trainer's own name of a part, where it says more than ours and more than the file's name beside it."""
    said = part.name == usual or (part.at.file and f"{part.at.file}.".startswith(f"{part.name}."))
    return "" if said else shortened(part.name)


def scale_cell(scale: LossScale) -> Cell:
    """The loss scale in words, and in colour where no training comes of it."""
    return Text(say.loss_scale(scale), "bad" if is_dead(scale) else "plain")


def _other_rows(checkpoint: Checkpoint) -> Iterator[Row]:
    if checkpoint.counters:
        yield _row("progress", listed([*map(say.counter, checkpoint.counters)], most=_COUNTERS))
    if checkpoint.config:
        yield _row("config", say.fields(checkpoint.config))
    use = storage_use(checkpoint)
    if use.unused_bytes:
        share = f"{size(use.unused_bytes)} of {size(use.nbytes)} stored belong to no tensor"
        yield _row("storage", Text(share, "warn" if 10 * use.unused_bytes > use.nbytes else "plain"))
    if set(use.devices) - {"cpu"}:
        told = [f"{device} {size(nbytes)}" for device, nbytes in use.devices.most_common()]
        yield _row("devices", listed(told, most=_DEVICES))
    if checkpoint.globals():
        yield _row("globals", globals_line(checkpoint.globals()))
    unread = [file.name for file in checkpoint.files if not file.container]
    if unread:
        yield _row("other files", Text(listed(unread, most=4), "dim"))
