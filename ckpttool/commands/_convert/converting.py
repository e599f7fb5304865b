"""From the options of `convert` and two paths to a report."""

from ckpttool.blocks import Progress
from ckpttool.commands._convert.report import ConvertReport
from ckpttool.conversion.converting import converted
from ckpttool.conversion.options import Options, Writing


def report(source: str, target: str, options: Options, writing: Writing, progress: Progress | None) -> ConvertReport:
    """Convert, and say what came of it.

    Raises:
        CkptError: it is refused, and nothing was written.
    """
    return ConvertReport(converted(source, target, options, writing, progress))
