"""From the options of `convert` and two paths to a report."""

from ckpttool.blocks import Progress
from ckpttool.commands._convert.choices import Writing
from ckpttool.commands._convert.report import ConvertReport
from ckpttool.conversion.converting import converted
from ckpttool.conversion.options import Options


def report(source: str, target: str, options: Options, writing: Writing, progress: Progress | None) -> ConvertReport:
    """Convert, and say what came of it.

    Raises:
        CkptError: it is refused, and nothing was written.
    """
    outcome = converted(
        source,
        target,
        options,
        overwrite=writing.overwrite,
        verify=writing.verify,
        checksum=writing.checksum,
        dry_run=writing.dry_run,
        progress=progress,
    )
    return ConvertReport(outcome)
