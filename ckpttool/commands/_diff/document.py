"""A comparison as the JSON document `ckpt.diff/1`; docs/json.md says what each field means."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ckpttool.commands._diff.diffed import Diffed
from ckpttool.commands._names import json_key
from ckpttool.commands._values import Trees
from ckpttool.comparison.fields import ABSENT, FieldChange
from ckpttool.comparison.figures import Figures
from ckpttool.comparison.parts import PartComparison, TensorRow
from ckpttool.comparison.sameness import Sameness
from ckpttool.values import TensorRef


def diff_document(report: Diffed) -> dict[str, object]:
    """All that was compared; identical tensors are listed with `--all`, and counted always."""
    choices, tolerance = report.choices, report.choices.tolerance
    return {
        "left": {"path": report.left.path, "layout": report.left.layout, "container": report.left.container},
        "right": {"path": report.right.path, "layout": report.right.layout, "container": report.right.container},
        "verdict": str(report.verdict),
        "different": report.different,
        "choices": {
            "rtol": tolerance.rtol, "atol": tolerance.atol, "ulp": tolerance.ulp, "by_value": choices.by_value,
            "parts": [*map(str, choices.roles)], "select": [*choices.select], "exclude": [*choices.exclude],
            "map": [*choices.maps], "align": not choices.literal, "overlap": choices.overlap,
        },
        "notes": [*report.notes],
        "parts": (_part(part, report) for part in report.parts),
    }  # fmt: skip


def _part(part: PartComparison, report: Diffed) -> dict[str, object]:
    counts = Counter(row.compared.sameness for row in part.tensors)
    aligned, trees = part.alignment, Trees()
    return {
        "part": str(part.role),
        "name": part.name,
        "right_name": part.other,
        "side": part.side,
        "note": part.note or None,
        "verdict": str(part.verdict(report.choices)),
        "different": part.differs(report.choices),
        "matched_by": part.matched_by or None,
        "counts": {str(kind): counts[kind] for kind in Sameness},
        "tensors": [*_rows(part, every=report.shown.every)],
        "only_left": [_only(name, tensor) for name, tensor in part.only_left],
        "only_right": [_only(name, tensor) for name, tensor in part.only_right],
        "changes": [_change(change, trees) for change in part.changes],
        "noted": [_change(change, trees) for change in part.noted],
        "fields": part.fields,
        "renamed": [{"left": r.left, "right": r.right, "by": r.by} for r in aligned.renamed] if aligned else [],
        "tied_left": aligned.tied_left if aligned else {},
        "tied_right": aligned.tied_right if aligned else {},
    }


def _rows(part: PartComparison, *, every: bool) -> Iterator[dict[str, object]]:
    yield from map(_row, part.tensors if every else part.unlike)


def _row(row: TensorRow) -> dict[str, object]:
    compared = row.compared
    return {
        "name": row.name,
        "right_name": row.other,
        "is": str(compared.sameness),
        "left": _tensor(compared.left),
        "right": _tensor(compared.right),
        "by_bits": compared.by_bits,
        "other_strides": compared.other_strides,
        "note": compared.note or None,
        "figures": _figures(compared.figures) if compared.figures else None,
    }


def _tensor(tensor: TensorRef) -> dict[str, object]:
    return {"dtype": tensor.dtype.name, "shape": [*tensor.shape], "bytes": tensor.nbytes}


def _figures(figures: Figures) -> dict[str, object]:
    names = (
        "elements", "differing", "share", "beyond", "max_abs", "mean_abs", "relative_l2", "cosine", "max_ulp",
        "nan_left", "nan_right", "nan_both", "inf_left", "inf_right",
    )  # fmt: skip
    worst = {
        "index": [*figures.worst], "left": _number(figures.worst_left), "right": _number(figures.worst_right),
    }  # fmt: skip
    return {**{name: getattr(figures, name) for name in names}, "worst": worst if figures.differing else None}


def _number(value: Any) -> object:
    return [value.real, value.imag] if isinstance(value, complex) else value


def _only(name: str, tensor: TensorRef) -> dict[str, object]:
    return {"name": name, **_tensor(tensor)}


def _change(change: FieldChange, trees: Trees) -> dict[str, object]:
    told: dict[str, object] = {"key": json_key(change.path), "is": str(change.sameness), "note": change.note or None}
    for side, value in (("left", change.left), ("right", change.right)):
        if value is not ABSENT:
            told[side] = trees.scalar(value)
    if change.tensor is not None:
        told["left_tensor"], told["right_tensor"] = _tensor(change.tensor.left), _tensor(change.tensor.right)
        told["figures"] = _figures(change.tensor.figures) if change.tensor.figures else None
    return told
