"""From the options of `inspect` and a path to a report."""

from typing import TYPE_CHECKING, Any

from ckpttool.blocks import Progress
from ckpttool.commands._inspect.report import InspectReport
from ckpttool.commands._options import HASHES, ORDERS, Options, parts_of, word_of
from ckpttool.errors import UsageError
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Checkpoint, Run
from ckpttool.opening import open_path

if TYPE_CHECKING:
    from ckpttool.commands._inspect.run_report import RunReport


def options(*, sort: str | None, part: str | None, hashed: str | None, **flags: Any) -> Options:
    """Check the words among the options.

    Raises:
        UsageError: an order, a hash or a part that there is not, or a value and something else.
    """
    if flags.get("get") is not None:
        beside = [f"--{name}" for name, given in {**flags, "part": part, "sort": sort, "hash": hashed}.items() if given]
        _require_key(flags["get"], [name.replace("every", "all") for name in beside if name != "--get"])
    return Options(
        sort=word_of(sort or "file", ORDERS, "an order of tensors"),
        parts=parts_of(part),
        hash=word_of(hashed, HASHES, "a hash that is supported") if hashed else "",
        **flags,
    )


def _require_key(key: str, beside: list[str]) -> None:
    if not key:
        raise UsageError("no key is named", hint="write it like --get scaler.scale")
    if beside:
        raise UsageError(f"--get asks for one value, and {' and '.join(beside)} for more", hint="ask one at a time")


def report(
    path: str, wanted: Options, limits: list[str], progress: Progress | None = None
) -> "InspectReport | RunReport":
    """Open what lies at the path.

    Raises:
        CkptError: it cannot be read, or does not hold what is wanted of it.
    """
    if not path:
        raise UsageError("the path is empty", hint="name a checkpoint")
    if path == "-":
        raise UsageError("standard input cannot be read at any place", hint="save it to a file first")
    opened = open_path(path, DEFAULT_LIMITS.raised(limits))
    try:
        return of_run(opened, wanted) if isinstance(opened, Run) else of_checkpoint(opened, wanted, progress)
    except BaseException:
        opened.close()
        raise


def of_checkpoint(checkpoint: Checkpoint, wanted: Options, progress: Progress | None = None) -> InspectReport:
    """Report on a checkpoint.

    Raises:
        NoSuchKey: no tensor is selected, or a wanted part is not there.
    """
    if wanted.parts:
        from ckpttool.commands._inspect.parts import require_parts

        require_parts(checkpoint, wanted.parts)
    if wanted.select or wanted.exclude:
        from ckpttool.commands._inspect.selection import require_some

        require_some(checkpoint, wanted)
    return InspectReport(checkpoint=checkpoint, options=wanted, progress=progress)


def of_run(run: Run, wanted: Options) -> "RunReport":
    """Report on a folder of checkpoints.

    Raises:
        UsageError: what is wanted can only be told of one of them.
    """
    if not wanted.summary and wanted.get is None:
        newest = run.newest_complete
        raise UsageError(
            f"{run.path} holds {len(run.checkpoints):,} checkpoints, and these options are about one",
            hint="name one of them" if newest is None else f"name one, as {run.checkpoints[newest].path}",
        )
    from ckpttool.commands._inspect.run_report import RunReport

    return RunReport(run=run, get=wanted.get)
