"""Help pages as plain text, and options that are taken as they come.

Typer's own pages need rich's markdown, which costs more than all else that `--help` does; and it hands every option
to pydantic, whose import takes longer than reading a checkpoint. Ours are flags and words, which need neither.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from ckpttool.params import PANELS

_WIDEST = 100
_HELP = "show this page and stop"
_LABEL = 24  # columns of the left side of a list


class Page(TyperCommand):
    """A subcommand with its help page."""

    def get_params(self, ctx: Any) -> list[Any]:  # of typer's own click, which has no public name
        """The parameters, each taken as it comes."""
        return _as_they_come(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole page."""
        formatter.write(page(self, ctx, columns=shutil.get_terminal_size().columns))


class Cover(TyperGroup):
    """The command itself, with the page that lists its subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, each taken as it comes."""
        return _as_they_come(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the whole page."""
        formatter.write(page(self, ctx, columns=shutil.get_terminal_size().columns))


def _as_they_come(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            parameter.process_value = _unconverted(parameter)
    return parameters


def _unconverted(parameter: Any) -> Any:
    """`process_value` of a parameter without the conversion; a missing argument is still Typer's to report."""
    checked = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None and getattr(parameter, "is_flag", False):
            value = False
        if parameter.callback is not None or (value is None and parameter.required):
            return checked(ctx, value)  # for a bool this converts nothing
        return value

    return process_value


def page(command: Any, ctx: Any, *, columns: int) -> str:
    """The help page of a command or of the cover, as text."""
    return "\n".join(_lines(command, ctx, min(columns, _WIDEST))) + "\n"


def _lines(command: Any, ctx: Any, columns: int) -> Iterator[str]:
    about, *sections = _sections(command.help or "")
    yield _bold("Usage: ") + _usage(command, ctx)
    for paragraph in "\n".join(about).split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, columns - 2, initial_indent="  ", subsequent_indent="  ")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    if arguments:
        yield ""
        yield from _listed([(p.metavar, p.help or "") for p in arguments], columns)
    if isinstance(command, TyperGroup):
        yield from ("", _bold("Commands"))
        yield from _listed([(n, c.get_short_help_str(columns)) for n, c in command.commands.items()], columns)
    for title, options in _panels(command, ctx).items():
        yield from ("", _bold(title))
        yield from _listed([(_spelled(p), _HELP if p.name == "help" else p.help or "") for p in options], columns)
    for title, *lines in sections:
        yield from ("", _bold(title.rstrip(":")))
        yield from (f"  {line}".rstrip() for line in textwrap.dedent("\n".join(lines)).splitlines())


def _usage(command: Any, ctx: Any) -> str:
    words = [p.metavar for p in command.params if p.param_type_name == "argument"]
    return " ".join([ctx.command_path, "[OPTIONS]", *words, *(["COMMAND"] if isinstance(command, TyperGroup) else [])])


def _panels(command: Any, ctx: Any) -> dict[str, list[Any]]:
    """Options by the panel they are listed in, those of none last."""
    options = [p for p in command.get_params(ctx) if p.param_type_name == "option"]
    panels = {panel: [p for p in options if getattr(p, "rich_help_panel", None) == panel] for panel in PANELS}
    rest = [p for p in options if getattr(p, "rich_help_panel", None) not in PANELS]
    used = {panel: members for panel, members in panels.items() if members}
    return {**used, ("Other" if used else "Options"): rest}


def _sections(text: str) -> list[list[str]]:
    """The text cut before each line that ends in a colon and stands left of the next: `Examples:`."""
    lines = text.splitlines()
    sections: list[list[str]] = [[]]
    for n, line in enumerate(lines):
        title = line.endswith(":") and not line.startswith(" ") and n + 1 < len(lines) and lines[n + 1].startswith(" ")
        if title:
            sections.append([])
        sections[-1].append(line)
    return [_without_blank_end(section) for section in sections]


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _spelled(option: Any) -> str:
    names = ", ".join(option.opts)
    return names if option.is_flag else f"{names} {option.metavar}"


def _listed(rows: list[tuple[str, str]], columns: int) -> Iterator[str]:
    for label, text in rows:
        lines = textwrap.wrap(text, max(columns - _LABEL - 4, 20))
        if len(label) > _LABEL:
            yield f"  {label}"
            label = ""  # noqa: PLW2901  # it has been said
        for n, line in enumerate(lines or [""]):
            yield f"  {label if n == 0 else '':<{_LABEL}}  {line}".rstrip()


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[1m{text}\x1b[0m"
