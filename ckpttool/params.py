"""The options of the command line, each said once: a type, its names, its help and the panel it is listed in.

Every option is a flag, a word or a list of words: the commands check words themselves, so that a wrong one gets the
same answer from Python as from a shell.
"""

from typing import Annotated

import typer

SHOW = "What to show"
WHICH = "Which tensors"
OUTPUT = "Output"
READING = "Reading"
COMPARING = "How strictly"
PANELS = (SHOW, COMPARING, WHICH, OUTPUT, READING)  # in the order of a help page

CheckpointPath = Annotated[
    str, typer.Argument(metavar="PATH", help="a checkpoint file, a checkpoint folder, or a folder of checkpoints")
]

Tensors = Annotated[
    bool,
    typer.Option(
        "--tensors", help="every tensor: name, dtype, shape, size; repeated layers folded", rich_help_panel=SHOW
    ),
]
Tree = Annotated[
    bool, typer.Option("--tree", help="the value tree, long lists and dicts cut unless --all", rich_help_panel=SHOW)
]
Parts = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="NAME[,NAME]",
        help="parts in full: model, ema, optimizer, scheduler, scaler, rng, data, custom, progress, config, other; "
        "with --tensors, only tensors of these parts",
        rich_help_panel=SHOW,
    ),
]
Stats = Annotated[
    bool,
    typer.Option(
        "--stats",
        help="of each tensor's values: finite, NaN, Inf, min, max, mean, std, norm; reads the data",
        rich_help_panel=SHOW,
    ),
]
Hash = Annotated[
    str | None,
    typer.Option(
        "--hash",
        metavar="sha256",
        help="of each tensor's values as contiguous little-endian bytes; reads the data",
        rich_help_panel=SHOW,
    ),
]
Globals = Annotated[
    bool, typer.Option("--globals", help="every global the files name, and where its objects sit", rich_help_panel=SHOW)
]
Get = Annotated[
    str | None,
    typer.Option(
        "--get",
        metavar="KEY",
        help="one raw value: scaler.scale, optimizer.groups[0].lr, or a key path of the file",
        rich_help_panel=SHOW,
    ),
]

All = Annotated[bool, typer.Option("--all", help="fold and cut nothing", rich_help_panel=WHICH)]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", metavar="GLOB", help="only tensors whose name matches; may be repeated", rich_help_panel=WHICH
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="GLOB", help="no tensors whose name matches; may be repeated", rich_help_panel=WHICH
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort", metavar="name|size|file", help="order of the tensors; else that of the file", rich_help_panel=WHICH
    ),
]

Format = Annotated[
    str | None, typer.Option("--format", metavar="text|json", help="for people or for programs", rich_help_panel=OUTPUT)
]
AsJson = Annotated[bool, typer.Option("--json", help="short for --format json", rich_help_panel=OUTPUT)]

RaisedLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        help="how much a file may ask for: pickle=200MB, header, opcodes, depth, text, members, inflated, memory, "
        "expanded, nodes, repeats, files; may be repeated",
        rich_help_panel=READING,
    ),
]

LeftCheckpoint = Annotated[
    str, typer.Argument(metavar="LEFT", help="the reference: a checkpoint file or a checkpoint folder")
]
RightCheckpoint = Annotated[str, typer.Argument(metavar="RIGHT", help="what is held against it")]
Rtol = Annotated[
    float,
    typer.Option(
        "--rtol", metavar="X", help="near if |right - left| <= atol + rtol * |left|", rich_help_panel=COMPARING
    ),
]
Atol = Annotated[float, typer.Option("--atol", metavar="X", help="the same", rich_help_panel=COMPARING)]
Ulp = Annotated[
    int,
    typer.Option("--ulp", metavar="N", help="near if at most N representable values apart", rich_help_panel=COMPARING),
]
ByValue = Annotated[
    bool,
    typer.Option(
        "--by-value", help="equal values are no difference: another dtype, -0.0 for 0.0", rich_help_panel=COMPARING
    ),
]
Compared = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="NAME[,NAME]",
        help="only these parts: model, ema, optimizer, scheduler, scaler, rng, data, custom, progress, config",
        rich_help_panel=WHICH,
    ),
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="a regular expression for names of the left side, and what they are on the right; may be repeated",
        rich_help_panel=WHICH,
    ),
]
NoAlign = Annotated[
    bool, typer.Option("--no-align", help="names must be the same, wrappers and ties included", rich_help_panel=WHICH)
]
Overlap = Annotated[
    bool, typer.Option("--overlap", help="compare resized tensors where they overlap", rich_help_panel=WHICH)
]
Stat = Annotated[bool, typer.Option("--stat", help="one line for each part", rich_help_panel=SHOW)]
Top = Annotated[int, typer.Option("--top", metavar="N", help="lines for each part", rich_help_panel=SHOW)]
EveryRow = Annotated[bool, typer.Option("--all", help="every tensor and field, nothing folded", rich_help_panel=SHOW)]
Quiet = Annotated[bool, typer.Option("--quiet", help="no report as text, only the exit code", rich_help_panel=OUTPUT)]
