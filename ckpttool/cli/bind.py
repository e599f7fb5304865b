"""From a function that returns a report to a subcommand: the same options, `--format`, and an exit code."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import typer

from ckpttool.blocks import Report
from ckpttool.cli.boundary import exit_code_of
from ckpttool.errors import UsageError
from ckpttool.params import AsJson, Format

FORMATS = ("text", "json")


def bind(function: Callable[..., Report]) -> Callable[..., None]:
    """The subcommand of a function.

    Args:
        function: its parameters are the command's, each `Annotated` with an option of `params`; its docstring is the
            help page. A parameter `progress` is not offered but supplied: it is told how far reading has come.

    Returns:
        A function for `typer.Typer.command`, with the parameters of the first and `--format` and `--json`.
    """
    signature = inspect.signature(function)
    told = "progress" in signature.parameters
    own = [p for p in signature.parameters.values() if p.name != "progress"]
    added = [_keyword("output", Format, None), _keyword("as_json", AsJson, False)]

    def command(*, output: str | None, as_json: bool, **options: Any) -> None:
        def action() -> int:
            return _run(function, options, _format(output, as_json=as_json), told=told)

        raise typer.Exit(exit_code_of(action))

    shown = inspect.Signature([p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + added)
    command.__signature__ = shown  # type: ignore[attr-defined]  # what inspect.signature reads
    command.__annotations__ = {p.name: p.annotation for p in shown.parameters.values()}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _format(output: str | None, *, as_json: bool) -> str:
    if as_json and output not in (None, "json"):
        raise UsageError(f"--json and --format {output} ask for two formats", hint="leave one of them out")
    return "json" if as_json else output or "text"


def _run(function: Callable[..., Report], options: dict[str, Any], output: str, *, told: bool) -> int:
    if output not in FORMATS:
        raise UsageError(f"{output!r} is not a format of this report", hint=f"the formats are {' and '.join(FORMATS)}")
    from ckpttool.cli.progress import Bar

    with Bar(sys.stderr, beside_text=output == "text") as bar:
        report = function(**options, **({"progress": bar} if told else {}))
        _write(report, output)
    report.close()
    return report.exit_code


def _write(report: Report, output: str) -> None:
    if output == "json":
        from ckpttool.render import json

        json.write(report.document(), sys.stdout)
    else:
        from ckpttool.render import text

        # A stream that cannot say "│" or "×" says "\\u2502" rather than nothing.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        text.write(report.blocks(), text.console_for(sys.stdout), columns=text.columns_for(sys.stdout))
