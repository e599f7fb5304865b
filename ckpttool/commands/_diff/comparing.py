"""From the options of `diff` and two paths to a report."""

import math
import os
from collections.abc import Callable
from typing import Any

from ckpttool.blocks import Progress
from ckpttool.commands._diff.diffed import Shown, Side
from ckpttool.commands._diff.opened_sides import lacking, opened_side, programs, require_one_each, unchanged
from ckpttool.commands._diff.report import DiffReport
from ckpttool.commands._diff.suggested import suggested_maps
from ckpttool.commands._diff.undamaged import require_undamaged
from ckpttool.commands._diff.unused import unused_maps
from ckpttool.commands._nearest import nearest
from ckpttool.commands._options import parts_of, whole
from ckpttool.comparison.checkpoints import compare_checkpoints, tensor_bytes
from ckpttool.comparison.parts import Choices, PartComparison
from ckpttool.comparison.tolerance import Tolerance
from ckpttool.errors import CkptError, NoSuchKey, UnsupportedFormat, UsageError
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Checkpoint, Role

_NAMED = 3  # names in a hint
_TOP = 10  # lines of a table that nobody asked for


def choices(  # one parameter for each option that is checked here
    *, rtol: float | str, atol: float | str, ulp: int | str, part: str | None, limits: list[str], **rest: Any
) -> Choices:
    """Check what was asked for; numbers come from a shell as text.

    Raises:
        UsageError: a tolerance that is none, a part or a limit that there is not, a map that is not to be used.
    """
    if rest.get("literal") and rest.get("maps"):
        raise UsageError(
            "--map and --no-align do not go together", hint="--no-align holds names against each other as they are"
        )
    tolerance = Tolerance(rtol=_size("--rtol", rtol), atol=_size("--atol", atol), ulp=whole("--ulp", ulp))
    return Choices(tolerance=tolerance, roles=parts_of(part), limits=DEFAULT_LIMITS.raised(limits), **rest)


def shown(*, stat: bool, top: int | str | None, every: bool, quiet: bool) -> Shown:
    """How much is shown; each option that would leave another without effect is refused.

    Raises:
        UsageError: `top` is no number, or two options contradict each other.
    """
    asked = [word for word, given in (("--stat", stat), ("--top", top is not None), ("--all", every)) if given]
    if len(asked) > 1:
        raise UsageError(
            f"{' and '.join(asked)} do not go together",
            hint="--stat shows one line for each part, --top N so many tensors of it, --all every tensor",
        )
    return Shown(stat=stat, top=_TOP if top is None else whole("--top", top), every=every, quiet=quiet)


def _size(option: str, value: float | str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise UsageError(
            f"{option} {value if str(value) else repr(value)} is no tolerance",
            hint=f"it is a number from 0 on, as {option} 1e-5",
        )
    return number


def report(left: str, right: str, wanted: Choices, shown: Shown, progress: Progress | None = None) -> DiffReport:
    """Open both sides and compare them.

    Raises:
        CkptError: a side cannot be read whole; the message says which.
        NoSuchKey: nothing is left to compare.
    """
    try:
        with opened_side("left", left, wanted.limits) as mine, opened_side("right", right, wanted.limits) as other:
            parts = _compared(mine, other, wanted, progress)
            one_path = os.path.realpath(left) == os.path.realpath(right)
            return DiffReport(
                left=_told(mine), right=_told(other), parts=parts, choices=wanted, shown=shown, one_path=one_path,
                notes=(
                    *unused_maps(mine, other, wanted), *suggested_maps(parts, wanted),
                    *lacking("left", mine), *lacking("right", other),
                    *programs("left", mine), *programs("right", other),
                ),
            )  # fmt: skip
    except UsageError:
        require_one_each(left, right, wanted.limits)
        raise


def _compared(
    left: Checkpoint, right: Checkpoint, wanted: Choices, progress: Progress | None
) -> tuple[PartComparison, ...]:
    try:
        parts = compare_checkpoints(left, right, wanted, _teller(progress, tensor_bytes(left, wanted)))
        require_undamaged(parts)
    except CkptError:
        unchanged(left, right)  # that a file changed says more than that it could not be read
        raise
    unchanged(left, right)
    _require_some(parts, wanted, (left, right))
    return parts


def _told(checkpoint: Checkpoint) -> Side:
    container = "folder" if checkpoint.is_folder else next((c.container for c in checkpoint.contents.values()), "")
    return Side(path=checkpoint.path, layout=checkpoint.layout, container=container)


def _require_some(parts: tuple[PartComparison, ...], wanted: Choices, sides: tuple[Checkpoint, Checkpoint]) -> None:
    """Refuse to answer where nothing was looked at, so that no script takes it for `identical`."""
    present = {part.role for part in parts}
    for role in wanted.roles:
        if role not in present:
            raise NoSuchKey(f"neither side has a part {role!s}", hint=_parts_hint(role, sides))
    if (wanted.select or wanted.exclude) and not any(p.tensors or p.only_left or p.only_right for p in parts):
        raise NoSuchKey(f"no tensor of either side {_pattern(wanted)}", hint=_names_hint(wanted, sides))
    if not parts and any(contents.root for side in sides for contents in side.contents.values()):
        raise UnsupportedFormat("neither side holds a part that can be compared", hint="see ckpt inspect PATH")


def _parts_hint(role: Role, sides: tuple[Checkpoint, Checkpoint]) -> str:
    there = {role for side in sides for _, role in side.roles()}
    names = [str(r) for r in Role if r in there]
    return nearest(role, names) or (f"there are {', '.join(names)}" if names else "")


def _pattern(wanted: Choices) -> str:
    without = f" without {' '.join(wanted.exclude)}" if wanted.exclude else ""
    asked = " ".join(glob or "''" for glob in wanted.select)
    return f"matches {asked or '*'}{without}"


def _names_hint(wanted: Choices, sides: tuple[Checkpoint, Checkpoint]) -> str:
    names = [*dict.fromkeys(name for side in sides for weights in side.weights for name in weights.tensors)]
    bare = " ".join(wanted.select).replace("*", "")
    return nearest(bare, names) or (f"the first names are {', '.join(names[:_NAMED])}" if names else "")


def _teller(progress: Progress | None, total: int) -> Callable[[int], None] | None:
    if progress is None:
        return None
    done = 0

    def told(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress("comparing", min(done, total), total)

    return told
