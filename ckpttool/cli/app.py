"""The command `ckpt` and its subcommands."""

from typing import Annotated

import typer

from ckpttool import __version__
from ckpttool.cli.bind import bind
from ckpttool.cli.pages import Cover, Page
from ckpttool.commands.convert import convert
from ckpttool.commands.diff import diff
from ckpttool.commands.inspect import inspect
from ckpttool.commands.rules import rules
from ckpttool.commands.validate import validate

COMMANDS = (inspect, diff, convert, validate, rules)
JUDGES = (validate,)  # their reports have findings and a verdict, for --format github, junit and sarif


def _version(wanted: bool) -> None:  # noqa: FBT001  # Typer calls it with the flag
    if wanted:
        typer.echo(f"ckpt {__version__}")
        raise typer.Exit


def _cover(
    *,
    version: Annotated[  # its callback answers
        bool, typer.Option("--version", help="say the version and stop", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Look into, compare, convert and validate training checkpoints without running anything in them.

    Reads what PyTorch, safetensors, Accelerate, HF Trainer, Lightning and others write. torch is not needed; nothing
    that a file names is imported or called.

    Examples:
      ckpt inspect model.pt                     what it holds, on one screen
      ckpt inspect checkpoints/                 a table of a run's checkpoints
      ckpt inspect model.pt --tensors           every tensor
      ckpt inspect model.pt --get scaler.scale  one value, for a shell
      ckpt diff a.pt b.pt                       the same? else where, and how much
      ckpt convert model.pt model.safetensors   safe to share, nothing lost
      ckpt validate checkpoint-500              whole, and would it resume?
      ckpt inspect --help                       all options

    Exit codes:
      0    fine; no difference; converted; resumable
      1    something is wrong with it; a difference; not all of it could be carried
      2    could not be read or judged, refused, or wrong usage
      70   a bug of ckpt
      130  interrupted
    """


def application() -> typer.Typer:
    """The command with all of `COMMANDS`."""
    app = typer.Typer(
        cls=Cover,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        callback=_cover,
    )
    for function in COMMANDS:
        app.command(function.__name__, cls=Page)(bind(function, judges=function in JUDGES))
    return app
