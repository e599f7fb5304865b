"""From a function that returns a report to a subcommand: the same options, `--format`, and an exit code."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import typer

from ckpttool.blocks import Report
from ckpttool.cli.boundary import exit_code_of
from ckpttool.errors import CkptError, UsageError
from ckpttool.params import AnyFormat, AsJson, Format

FORMATS = ("text", "json")
CI_FORMATS = ("github", "junit", "sarif")  # of reports that judge


def bind(function: Callable[..., Report], *, judges: bool = False) -> Callable[..., None]:
    """The subcommand of a function.

    Args:
        function: its parameters are the command's, each `Annotated` with an option of `params`; its docstring is the
            help page. A parameter `progress` is not offered but supplied: it is told how far reading has come.
        judges: its report has findings and a verdict, so that there are `CI_FORMATS` of it.

    Returns:
        A function for `typer.Typer.command`, with the parameters of the first and `--format` and `--json`.
    """
    signature = inspect.signature(function)
    told = "progress" in signature.parameters
    own = [p for p in signature.parameters.values() if p.name != "progress"]
    formats = (*FORMATS, *CI_FORMATS) if judges else FORMATS
    added = [_keyword("output", AnyFormat if judges else Format, None), _keyword("as_json", AsJson, False)]

    def command(*, output: str | None, as_json: bool, **options: Any) -> None:
        def action() -> int:
            return _run(function, options, _format(output, formats, as_json=as_json), told=told)

        raise typer.Exit(exit_code_of(action))

    shown = inspect.Signature([p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + added)
    command.__signature__ = shown  # type: ignore[attr-defined]  # what inspect.signature reads
    command.__annotations__ = {p.name: p.annotation for p in shown.parameters.values()}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _format(output: str | None, formats: Sequence[str], *, as_json: bool) -> str:
    if as_json and output not in (None, "json"):
        raise UsageError(f"--json and --format {output} ask for two formats", hint="leave one of them out")
    wanted = "json" if as_json else output or "text"
    if wanted not in formats:
        *most, last = formats
        hint = f"the formats are {', '.join(most)} and {last}"
        raise UsageError(f"{wanted!r} is not a format of this report", hint=hint)
    return wanted


def _run(function: Callable[..., Report], options: dict[str, Any], output: str, *, told: bool) -> int:
    from ckpttool.cli.progress import Bar

    write = _writer(output)
    # A stream that cannot say "│" or "×" says "\\u2502" rather than nothing.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    with Bar(sys.stderr, beside_text=write is None) as bar:
        try:
            report = function(**options, **({"progress": bar} if told else {}))
        except CkptError as error:
            if write is not None and output in CI_FORMATS and not isinstance(error, UsageError):
                write({"path": options.get("path", ""), "error": error.told()}, sys.stdout)  # CI reads no stderr
            raise
        if write is None:
            _write_text(report)
        else:
            write(report.document(), sys.stdout)
    report.close()
    return report.exit_code


def _writer(output: str) -> Callable[[Mapping[str, object], TextIO], None] | None:
    """What writes the document of a report; None for text, which is made of blocks.

    Raises:
        UsageError: the format needs a library that is not installed.
    """
    match output:
        case "text":
            return None
        case "github":
            from ckpttool.render import github

            return github.write
        case "junit":
            from ckpttool.render import junit

            return junit.writer()
        case "sarif":
            from ckpttool import __version__
            from ckpttool.render import sarif

            return sarif.writer(__version__)
        case _:
            from ckpttool.render import json

            return json.write


def _write_text(report: Report) -> None:
    from ckpttool.render import text

    text.write(report.blocks(), text.console_for(sys.stdout), columns=text.columns_for(sys.stdout))
