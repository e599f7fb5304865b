"""Tables of tensors: name, type, shape and size, what is unusual about each, and what was measured."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from ckpttool.blocks import Block, Cell, Column, Heading, Note, Table, Text
from ckpttool.commands._inspect.facts import tensor_facts
from ckpttool.commands._inspect.folding import Fold, folded, unfolded
from ckpttool.commands._inspect.measure import Gauge, Measured
from ckpttool.commands._inspect.rows import Row
from ckpttool.commands._options import Options
from ckpttool.commands._words import listed, plural, shortened, size

_STATS = ("finite", "nan", "inf", "min", "max", "mean", "std", "norm")
_NOTES = 4  # in a line
_VIEW = 2  # a storage this many times larger than a tensor on it is worth a word
_ROOT = "(the whole file)"


def tensor_blocks(rows: Iterable[Row], options: Options, gauge: Gauge | None) -> Iterator[Block]:
    """One table for each file and part.

    Args:
        rows: the chosen ones.
        options: `every` and measurements list each tensor for itself.
        gauge: reads values; None to read none.
    """
    folds = (unfolded if options.every or gauge else folded)(rows)
    ties = _ties(folds)
    for (file, part, enclosed), group in groupby(_sorted(folds, options.sort), key=_place):
        lines = list(group)
        facts = tensor_facts(row.tensor for fold in lines for row in fold.rows)
        tied = f"{facts.tied:,} tied, " if facts.tied else ""
        aside = f"{plural(facts.tensors, 'tensor')}, {tied}{size(facts.nbytes)}"
        where = " inside objects whose class decides what becomes of them" if enclosed else ""
        yield Heading(f"{part}{where}", [f"{file}, " if file else "", aside])
        yield Table(_columns(options), (_row(fold, options, gauge, ties) for fold in lines))
    if not folds:
        yield Note("no tensors", "dim")


def _place(fold: Fold) -> tuple[str, str, bool]:
    row = fold.rows[0]
    return row.file or "", str(row.part), row.enclosed


def _sorted(folds: list[Fold], order: str) -> list[Fold]:
    """By place first, places in order of appearance, so that each is one table."""
    places = {place: n for n, place in enumerate(dict.fromkeys(map(_place, folds)))}
    if order == "name":
        folds = sorted(folds, key=lambda fold: fold.name)
    elif order == "size":
        folds = sorted(folds, key=lambda fold: -fold.nbytes)
    return sorted(folds, key=lambda fold: places[_place(fold)])


def _ties(folds: Iterable[Fold]) -> dict[int, str]:
    """The first name of every tensor that is one again, by the `id` of the later `Row`."""
    first: dict[tuple[object, ...], str] = {}
    ties = {}
    for fold in folds:
        for row in fold.rows:
            tensor = row.tensor
            if tensor.storage is None or not tensor.numel:
                continue
            identity = (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype)
            name = row.name
            known = first.setdefault(identity, name)
            if known != name:
                ties[id(row)] = known
    return ties


def _columns(options: Options) -> list[Column]:
    columns = [Column("name", shrink=True), Column("dtype"), Column("shape"), Column("size", align="right")]
    if options.stats:
        columns += [Column(name, align="right") for name in _STATS]
    if options.hash:
        columns.append(Column(options.hash))
    return [*columns, Column("", shrink=True)]


def _row(fold: Fold, options: Options, gauge: Gauge | None, ties: dict[int, str]) -> list[Cell]:
    tensor = fold.rows[0].tensor
    measured = gauge.measure(tensor) if gauge else Measured()
    shown = (shortened(fold.name) or "''") if fold.rows[0].path else _ROOT
    name: Cell = Text(shown, "name")
    if fold.count > 1:
        name = [Text(f"{fold.count:,}x ", "dim"), Text(shown, "name")]
    cells: list[Cell] = [name, tensor.dtype.name, str(list(tensor.shape)), size(fold.nbytes)]
    if options.stats:
        cells += _stats(measured)
    if options.hash:
        cells.append(measured.sha256 or Text("none", "dim"))
    notes = list(dict.fromkeys(note for row in fold.rows for note in _notes(row, ties)))
    if measured.reason:
        notes.append(measured.reason)
    return [*cells, Text(listed(notes, most=_NOTES), "dim")]


def _stats(measured: Measured) -> list[Cell]:
    stats = measured.stats
    if stats is None:
        return [""] * len(_STATS)
    odd = [Text(f"{n:,}", "bad" if n else "dim") for n in (stats.nan, stats.inf)]
    values = (stats.minimum, stats.maximum, stats.mean, stats.std, stats.norm)
    return [f"{stats.finite:,}", *odd, *("" if v is None else _number(v) for v in values)]


def _number(value: complex) -> str:
    """Four digits, which tell one tensor from another; JSON has them all."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _notes(row: Row, ties: dict[int, str]) -> list[str]:
    """What is unusual about a tensor, in a few words each."""
    tensor, notes = row.tensor, list[str]()
    if tensor.kind not in ("strided", "ndarray"):
        notes.append("meta, no data" if tensor.kind == "meta" else tensor.kind)
    if tensor.cls is not None:
        notes.append(str(tensor.cls))
    storage = tensor.storage
    if storage is not None:
        notes += [storage.location] if storage.location != "cpu" else []
        notes += ["big-endian"] if storage.big_endian else []
        if _VIEW * tensor.nbytes < storage.nbytes:
            notes.append(f"a view of {size(storage.nbytes)}")
        notes += [] if tensor.contiguous else [f"strides {list(tensor.stride)}"]
    notes += [flag for flag in ("conj", "neg") if getattr(tensor, flag)]
    notes += [f"is {shortened(ties[id(row)])}"] if id(row) in ties else []
    return notes
