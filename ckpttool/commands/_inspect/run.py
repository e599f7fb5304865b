"""A folder of checkpoints: one line each, in step order, and the curves of scale and learning rate."""

from collections.abc import Iterator
from pathlib import PurePath

from ckpttool.blocks import Block, Cell, Column, Fields, Finding, Heading, Table, Text
from ckpttool.commands._inspect.document import checkpoint_document, findings_document
from ckpttool.commands._inspect.facts import first_rate, only_scale, total_bytes
from ckpttool.commands._inspect.summary import findings_block
from ckpttool.commands._inspect.verdict import findings_of
from ckpttool.commands._values import Trees
from ckpttool.commands._words import figure, plural, size, sparkline
from ckpttool.model import Checkpoint, Run


def run_blocks(run: Run, findings: list[Finding]) -> Iterator[Block]:
    """A table of the checkpoints, and which is the newest that one can resume from."""
    total = size(sum(map(total_bytes, run.checkpoints)))
    yield Heading(run.path, f"{run.layout}, {plural(len(run.checkpoints), 'checkpoint')}, {total}")
    columns: dict[Column, list[Cell]] = {
        Column("checkpoint", shrink=True): [Text(name_in(run, c), "name") for c in run.checkpoints],
        Column("step", align="right"): [_figure(step) for step in run.steps],
        Column("lr", align="right"): [_figure(first_rate(c)) for c in run.checkpoints],
        Column("scale", align="right"): [_figure(_scale(c)) for c in run.checkpoints],
        Column("size", align="right"): [size(total_bytes(c)) for c in run.checkpoints],
        Column(""): [Text("complete", "dim") if whole else Text("incomplete", "warn") for whole in run.complete],
    }
    told = {column: cells for column, cells in columns.items() if any(cells)}
    yield Table([*told], zip(*told.values(), strict=True))
    newest = run.newest_complete
    best = Text("none", "bad") if newest is None else Text(name_in(run, run.checkpoints[newest]), "good")
    yield Fields([*_curves(run), ("newest complete", best)])
    yield from findings_block(findings)


def _figure(number: float | None) -> str:
    return "" if number is None else figure(number)


def name_in(run: Run, checkpoint: Checkpoint) -> str:
    """The checkpoint's path as seen from the run's folder."""
    path, folder = PurePath(checkpoint.path), PurePath(run.path)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else checkpoint.path


def _scale(checkpoint: Checkpoint) -> float | None:
    scale = only_scale(checkpoint)
    return scale.scale if scale else None


def _curves(run: Run) -> list[tuple[str, Cell]]:
    """`lr ▁▃▅▇█▇▅`, where something changes."""
    curves: list[tuple[str, Cell]] = []
    for label, logarithmic, values in (
        ("lr", False, [first_rate(c) for c in run.checkpoints]),
        ("scale", True, [_scale(c) for c in run.checkpoints]),
    ):
        known = [value for value in values if value is not None]
        if len(set(known)) > 1:
            line: Cell = [
                sparkline(values, logarithmic=logarithmic), Text(f"  {figure(known[0])} to {figure(known[-1])}", "dim"),
            ]  # fmt: skip
            curves.append((label, line))
    return curves


def run_document(run: Run, findings: list[Finding], trees: Trees | None = None) -> dict[str, object]:
    """As JSON: the folder, and each checkpoint as it would be told alone, without its tensors."""
    newest = run.newest_complete
    return {
        "path": run.path,
        "layout": run.layout,
        "container": "folder",
        "newest_complete": None if newest is None else name_in(run, run.checkpoints[newest]),
        "findings": findings_document(findings),
        "checkpoints": [
            {
                "name": name_in(run, checkpoint), "step": run.steps[n], "complete": run.complete[n],
                "lr": first_rate(checkpoint), "scale": _scale(checkpoint),
                "findings": [*findings_document(findings_of(checkpoint))],
                **{k: v for k, v in checkpoint_document(checkpoint, trees).items() if k != "complete"},
            }
            for n, checkpoint in enumerate(run.checkpoints)
        ],
    }  # fmt: skip
