"""Which tensors are shown: those whose names and parts were asked for."""

from collections.abc import Callable, Iterator
from fnmatch import translate
from itertools import islice
from re import compile as compiled

from ckpttool.commands._inspect.rows import Row, rows
from ckpttool.commands._nearest import nearest
from ckpttool.commands._options import Options
from ckpttool.errors import NoSuchKey
from ckpttool.model import Checkpoint

_SHOWN = 3  # names in a hint


def selected(checkpoint: Checkpoint, options: Options) -> Iterator[Row]:
    """The rows that `--select`, `--exclude` and `--part` leave.

    A pattern is held against the whole name, upper and lower case told apart; `*` also matches dots.
    """
    wanted = _matcher(options.select)
    unwanted = _matcher(options.exclude)
    for row in rows(checkpoint):
        if options.parts and row.part not in options.parts:
            continue
        name = row.name if wanted or unwanted else ""
        if (wanted is None or wanted(name)) and not (unwanted and unwanted(name)):
            yield row


def require_some(checkpoint: Checkpoint, options: Options) -> None:
    """Refuse a selection that leaves nothing, so that a script does not take a wrong pattern for an empty file.

    Raises:
        NoSuchKey: no tensor matches.
    """
    if not (options.select or options.exclude) or next(selected(checkpoint, options), None) is not None:
        return
    names = [row.name for row in islice(rows(checkpoint), 20_000)]
    bare = " ".join(options.select).replace("*", "")
    hint = nearest(bare, names) or (f"the first names are {', '.join(names[:_SHOWN])}" if names else "")
    without = f" without {' '.join(options.exclude)}" if options.exclude else ""
    raise NoSuchKey(f"no tensor matches {' '.join(options.select) or '*'}{without}", where=checkpoint.path, hint=hint)


def _matcher(globs: tuple[str, ...]) -> Callable[[str], object] | None:
    return compiled("|".join(map(translate, globs))).match if globs else None
