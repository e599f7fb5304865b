"""A conversion for people: the answer, what went wrong with it, what was written, and what is not as it was."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ckpttool.blocks import Block, Cell, Column, Fields, Heading, Note, Style, Table, Text
from ckpttool.commands._words import listed, plural, shortened, size
from ckpttool.conversion.outcome import Outcome, WrittenFile
from ckpttool.conversion.tally import Changed, Harm, Lost, Tally

_T = TypeVar("_T")

_FILES = 12  # rows of the table of files
_ROWS = 5  # of a list; the rest is in --json


def convert_blocks(outcome: Outcome) -> Iterator[Block]:
    """The answer in one line, then warnings, then the files, then what is not as it was."""
    yield Heading(_answer(outcome))
    yield Fields([("from", _from(outcome)), ("to", _to(outcome)), *_proof(outcome), *_in_all(outcome.tally)])
    yield from _warnings(outcome.tally)
    if len(outcome.files) > 1:
        yield _files(outcome.files)
    yield from _changes(outcome.tally)
    yield from (Note(note, "dim") for note in outcome.tally.notes)
    yield from _checksums(outcome)


def _answer(outcome: Outcome) -> Cell:
    style: Style = "good" if outcome.verified else "warn"
    if outcome.dry_run:
        told, style = "would convert", "strong"
    elif outcome.incomplete:
        told, style = "converted, with losses", "warn"
    else:
        told = "converted and verified" if outcome.verified else "converted, not verified"
    return [Text(told, style), f": {_shortfall(outcome) or _extent(outcome)}"]


def _shortfall(outcome: Outcome) -> str:
    """What is missing from the result, or from what a dry run would write."""
    lost = [lost for lost in outcome.tally.lost if not lost.asked]
    over = sum(harm.overflowed > 0 for harm in outcome.tally.harmed)
    told = [f"{len(lost):,} left out"] if lost else []
    if over:
        told.append(f"{plural(over, 'tensor')} overflowed")
    return ", ".join([*told, _extent(outcome)] if told else [])


def _extent(outcome: Outcome) -> str:
    files = plural(len(outcome.files), "file")
    return f"{plural(outcome.tally.tensors, 'tensor')}, {files} of {_bytes(outcome.files)}"


def _bytes(files: Sequence[WrittenFile]) -> str:
    return size(sum(f.nbytes for f in files))


def _from(outcome: Outcome) -> Cell:
    return [Text(outcome.source, "name"), Text(f"  {outcome.source_kind}", "dim")]


def _to(outcome: Outcome) -> Cell:
    return [Text(outcome.target, "name"), Text(f"  {outcome.target_kind}", "dim")]


def _proof(outcome: Outcome) -> Iterator[tuple[str, Cell]]:
    """How it was proved, where the first line does not say it."""
    if outcome.dry_run:
        yield "proof", Text("none: --dry-run writes nothing", "dim")
    elif not outcome.verified:
        yield "proof", Text("none: --no-verify reads nothing back", "warn")
    elif outcome.incomplete:
        yield "proof", "what was written is verified, bit for bit"


def _in_all(tally: Tally) -> Iterator[tuple[str, Cell]]:
    """What happened to many tensors alike."""
    kinds: dict[tuple[str, str], int] = {}
    for cast in tally.cast:
        kinds[cast.old, cast.new] = kinds.get((cast.old, cast.new), 0) + 1
    if kinds:
        yield "cast", listed([f"{plural(n, 'tensor')} {old} → {new}" for (old, new), n in kinds.items()])
    if tally.trimmed_bytes:
        yield "trimmed", f"{size(tally.trimmed_bytes)} that no tensor looks at"


def _files(files: Sequence[WrittenFile]) -> Table:
    def row(file: WrittenFile) -> list[Cell]:
        tensors = plural(file.tensors, "tensor") if file.tensors else ""
        return [Text(file.name, "name"), Text(file.kind, "dim"), tensors, Text(size(file.nbytes), "number")]

    rows = [row(f) for f in files[:_FILES]]
    if len(files) > _FILES:
        rest = files[_FILES:]
        rows.append([Text(f"{len(rest):,} more", "dim"), "", "", Text(_bytes(rest), "number")])
    return Table([Column("file", shrink=True), Column("as"), Column("holds"), Column("size", "right")], rows)


def _warnings(tally: Tally) -> Iterator[Block]:
    missing = [lost for lost in tally.lost if not lost.asked]
    yield from _several("not in the result", missing, _lost, "warn")
    over = [harm for harm in tally.harmed if harm.overflowed]
    yield from _several("overflowed", over, _harm, "bad")
    under = [harm for harm in tally.harmed if not harm.overflowed]
    yield from _several("became zero", under, _harm, "warn")


def _changes(tally: Tally) -> Iterator[Block]:
    asked = [lost for lost in tally.lost if lost.asked]
    yield from _several("left out, as asked", asked, _lost)
    yield from _several("set", tally.settings, _arrow)
    yield from _several("renamed", tally.renamed, lambda c: f"{shortened(c.old)} → {shortened(c.new)}")
    yield from _several("turned into builtins", tally.plain, _arrow)
    yield from _several("written again without being built", tally.opaque, _opaque)
    yield from _several("tied", tally.ties, lambda c: f"{shortened(c.what)} is {shortened(c.new)}")
    yield from _several("in another form", tally.carried, _arrow)
    yield from _several("packed", tally.packed, _arrow)


def _lost(lost: Lost) -> str:
    return f"{shortened(lost.what)}: {lost.kind} ({lost.why})"


def _harm(harm: Harm) -> str:
    over = [f"{harm.overflowed:,} too large for {harm.dtype}"] if harm.overflowed else []
    under = [f"{harm.became_zero:,} became zero"] if harm.became_zero else []
    return f"{shortened(harm.name)}: of {plural(harm.elements, 'element')} {', '.join([*over, *under])}"


def _opaque(kept: Changed) -> str:
    return f"{shortened(kept.what)} at {shortened(kept.new)}" + (f", {kept.old} times" if kept.old != "1" else "")


def _arrow(change: Changed) -> str:
    return f"{shortened(change.what)}: {shortened(change.old)} → {shortened(change.new)}"


def _checksums(outcome: Outcome) -> Iterator[Block]:
    """As `sha256sum` writes them."""
    written = [(f.sha256, f.name) for f in outcome.files if f.sha256]
    read = [(digest, name) for name, digest in outcome.source_sha256.items()]
    for title, sums in (("sha256 of the source", read), ("sha256 of the result", written)):
        if sums:
            yield Heading(title)
            yield from (Note(f"{digest}  {name}") for digest, name in sums)


def _several(title: str, items: Sequence[_T], spell: Callable[[_T], str], style: Style = "plain") -> Iterator[Block]:
    """A heading with the count and the first few lines."""
    if not items:
        return
    yield Heading(Text(title, style), f"{len(items):,}")
    yield from (Note(f"  {spell(item)}") for item in items[:_ROWS])
    if len(items) > _ROWS:
        yield Note(f"  {len(items) - _ROWS:,} more, all of them with --json", "dim")
