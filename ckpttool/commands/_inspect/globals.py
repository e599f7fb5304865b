"""What loading a file the usual way would import, and what of that is a reason not to."""

from collections.abc import Iterator, Sequence

from ckpttool.blocks import Block, Cell, Column, Heading, Note, Style, Table, Text
from ckpttool.commands._names import dotted, json_key
from ckpttool.commands._words import listed
from ckpttool.model import GlobalUse
from ckpttool.values import Trust

STYLES: dict[Trust, Style] = {Trust.DANGEROUS: "bad", Trust.REFUSED: "warn", Trust.ACCEPTED: "plain"}
_WORST = (Trust.DANGEROUS, Trust.REFUSED, Trust.ACCEPTED)
_NAMED = 3  # globals or key paths in a line


def names(uses: Sequence[GlobalUse], trust: Trust) -> list[str]:
    """The globals of one kind, each once, in order of appearance."""
    return list(dict.fromkeys(str(use.ref) for use in uses if use.trust is trust))


def globals_line(uses: Sequence[GlobalUse]) -> Cell:
    """`12 accepted by torch.load, 1 refused: argparse.Namespace, 1 dangerous: posix.system`."""
    accepted, refused, dangerous = (names(uses, t) for t in (Trust.ACCEPTED, Trust.REFUSED, Trust.DANGEROUS))
    if not refused and not dangerous:
        return f"{len(accepted):,}, all accepted by torch.load"
    told: list[str | Text] = []
    if dangerous:
        told.append(Text(f"{len(dangerous):,} dangerous: {listed(dangerous, most=_NAMED)}", "bad"))
    if refused:
        told.append(Text(f"{len(refused):,} that torch.load refuses: {listed(refused, most=_NAMED)}"))
    if accepted:
        told.append(f"{len(accepted):,} that it accepts")
    return [piece for n, part in enumerate(told) for piece in ((", ", part) if n else (part,))]


def globals_blocks(uses: Sequence[GlobalUse], path: str) -> Iterator[Block]:
    """Every global, the worst first, with where it was named and where its objects sit.

    Args:
        uses: of all files.
        path: of the checkpoint, which the places need not repeat.
    """
    yield Heading("globals", "what torch.load(weights_only=True) of torch 2.13 makes of each name; none was imported")
    if not uses:
        yield Note("  the files name none", "dim")
        return
    columns = [
        Column("global", shrink=True), Column("trust"), Column("called"), Column("named at", shrink=True),
        Column("objects at", shrink=True),
    ]  # fmt: skip
    ranked = sorted(uses, key=lambda use: _WORST.index(use.trust))
    yield Table(columns, (_row(use, path) for use in ranked))


def _row(use: GlobalUse, path: str) -> tuple[Cell, ...]:
    paths = [dotted(key) or "the root" for key in use.paths]
    more = max(use.places, len(paths)) - _NAMED
    places = ", ".join(paths[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    member = use.file.removeprefix(path).lstrip(":")
    return (
        Text(str(use.ref), "name"), Text(use.trust, STYLES[use.trust]), "yes" if use.called else Text("no", "dim"),
        Text(f"{member} @ byte {use.offset:,}".lstrip(), "dim"), places,
    )  # fmt: skip


def global_document(use: GlobalUse) -> dict[str, object]:
    """As JSON."""
    return {
        "module": use.ref.module, "name": use.ref.name, "trust": str(use.trust), "called": use.called, "file": use.file,
        "offset": use.offset, "keys": [json_key(path) for path in use.paths], "places": max(use.places, len(use.paths)),
    }  # fmt: skip
