"""The options of the command line, each said once: a type, its names, its help and the panel it is listed in.

Every option is a flag, a word or a list of words: the commands check words themselves, so that a wrong one gets the
same answer from Python as from a shell.
"""

from typing import Annotated

import typer

SHOW = "What to show"
CHECKS = "What to check"
SCRIPT = "With a script (runs your code, in a sandbox)"
WHAT = "What to convert"
WHICH = "Which tensors"
OUTPUT = "Output"
READING = "Reading"
COMPARING = "How strictly"
PANELS = (SHOW, CHECKS, SCRIPT, WHAT, COMPARING, WHICH, OUTPUT, READING)  # in the order of a help page

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
AnyFormat = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="text, json, or for CI github, junit or sarif", rich_help_panel=OUTPUT
    ),
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
        "--rtol",
        metavar="X",
        help="near if |right - left| <= atol + rtol * |left|; a tolerance implies --by-value",
        rich_help_panel=COMPARING,
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
        "--by-value",
        help="equal values are no difference: another dtype, -0.0 for 0.0; implied by a tolerance",
        rich_help_panel=COMPARING,
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
    bool,
    typer.Option(
        "--overlap", help="compare resized tensors where they overlap, as if that were all", rich_help_panel=WHICH
    ),
]
Stat = Annotated[
    bool,
    typer.Option("--stat", help="one line for each part, and no tables: not with --top or --all", rich_help_panel=SHOW),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        help="lines of tensors for each part, twice as many of fields; 10 if not given, 0 to count only",
        rich_help_panel=SHOW,
    ),
]
EveryRow = Annotated[bool, typer.Option("--all", help="every tensor and field, nothing folded", rich_help_panel=SHOW)]
Quiet = Annotated[bool, typer.Option("--quiet", help="no report as text, only the exit code", rich_help_panel=OUTPUT)]

ConvertSource = Annotated[
    str, typer.Argument(metavar="SRC", help="a checkpoint file, a checkpoint folder, or an index of shards")
]
ConvertTarget = Annotated[
    str, typer.Argument(metavar="DST", help="the file or folder to write; its name says the format, or --to does")
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="FORMAT", help="safetensors or torch; else by DST's name", rich_help_panel=OUTPUT),
]
WeightsOnly = Annotated[
    bool,
    typer.Option(
        "--weights-only",
        help="of a trainer's folder: its weights, the other files as they are (the default)",
        rich_help_panel=WHAT,
    ),
]
Everything = Annotated[
    bool,
    typer.Option("--everything", help="of a trainer's folder: optimizer, RNG and the rest too", rich_help_panel=WHAT),
]
KeptParts = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="NAME[,NAME]",
        help="keep only these parts: model, ema, optimizer, scheduler, scaler, rng, data, custom, progress, config; "
        "model alone gives a bare state_dict",
        rich_help_panel=WHAT,
    ),
]
Ema = Annotated[bool, typer.Option("--ema", help="the averaged weights as a bare state_dict", rich_help_panel=WHAT)]
Renames = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="REGEX=NEW",
        help="change the names of weights; may be repeated, and is refused where two become one",
        rich_help_panel=WHICH,
    ),
]
StripPrefix = Annotated[
    str | None,
    typer.Option(
        "--strip-prefix",
        metavar="auto|TEXT",
        help="take a prefix off the names of weights; auto: the wrappers' (module., _orig_mod. …)",
        rich_help_panel=WHICH,
    ),
]
CastTo = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="cast floating weights: bf16, fp16, fp32, fp64, fp8_e4m3, fp8_e5m2; never integers, moments, steps or RNG",
        rich_help_panel=WHAT,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="change one number or word: scaler.scale=65536; may be repeated",
        rich_help_panel=WHAT,
    ),
]
MapLocation = Annotated[
    str | None,
    typer.Option(
        "--map-location", metavar="DEVICE", help="the device tag of every tensor: cpu, cuda:0", rich_help_panel=WHAT
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="numpy scalars and arrays, Namespaces, paths become builtins and tensors, for weights_only=True",
        rich_help_panel=WHAT,
    ),
]
DropOpaque = Annotated[
    bool,
    typer.Option(
        "--drop-opaque", help="leave out, and list, objects that only their own code can build", rich_help_panel=WHAT
    ),
]
AllowOpaque = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-opaque",
        metavar="MODULE.NAME",
        help="write this dangerous global again; may be repeated",
        rich_help_panel=WHAT,
    ),
]
DuplicateTies = Annotated[
    bool,
    typer.Option(
        "--duplicate-ties", help="write tied tensors under each of their names, not once", rich_help_panel=OUTPUT
    ),
]
MaxShardSize = Annotated[
    str | None,
    typer.Option(
        "--max-shard-size", metavar="SIZE", help="cut weights into files of at most 5GB, say", rich_help_panel=OUTPUT
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace DST if it is there", rich_help_panel=OUTPUT)]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="do not read the result back", rich_help_panel=OUTPUT)]
Checksum = Annotated[
    bool, typer.Option("--checksum", help="the SHA-256 of every file read and written", rich_help_panel=OUTPUT)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be written", rich_help_panel=OUTPUT)]

Values = Annotated[
    bool,
    typer.Option(
        "--values", help="read the data: checksums, NaN and Inf, zeros; else up to 2 GB only", rich_help_panel=CHECKS
    ),
]
NoValues = Annotated[bool, typer.Option("--no-values", help="do not read the data", rich_help_panel=CHECKS)]
CrcOnly = Annotated[bool, typer.Option("--crc", help="read the data for its checksums alone", rich_help_panel=CHECKS)]
Counters = Annotated[
    bool, typer.Option("--counters", help="print every counter and learning rate, side by side", rich_help_panel=SHOW)
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against", metavar="OTHER", help="hold it against another checkpoint: keys, shapes, groups, drift",
        rich_help_panel=CHECKS,
    ),
]  # fmt: skip
Manifest = Annotated[
    str | None,
    typer.Option(
        "--manifest", metavar="FILE", help="hold one checkpoint, no run folder, against the SHA-256 kept there",
        rich_help_panel=CHECKS,
    ),
]  # fmt: skip
WriteManifest = Annotated[
    str | None,
    typer.Option(
        "--write-manifest",
        metavar="FILE",
        help="keep the SHA-256 of every file and tensor of one checkpoint",
        rich_help_panel=OUTPUT,
    ),
]
OnlyRules = Annotated[
    str | None,
    typer.Option(
        "--rules", metavar="ID[,ID]", help="only these rules: scaler.empty, scheduler.*", rich_help_panel=CHECKS
    ),
]
SkipRules = Annotated[
    str | None, typer.Option("--skip-rules", metavar="ID[,ID]", help="not these rules", rich_help_panel=CHECKS)
]
Strict = Annotated[bool, typer.Option("--strict", help="warnings fail, too", rich_help_panel=OUTPUT)]
FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on", metavar="SEVERITY", help="exit 1 from here on: error, or silent (the default)",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
RuleId = Annotated[str | None, typer.Argument(metavar="[ID]", help="a rule to explain, as scaler.empty")]

Script = Annotated[
    str | None,
    typer.Option(
        "--script",
        metavar="FILE",
        help="your training script: it is run up to where training would go on; ARGS follow --",
        rich_help_panel=SCRIPT,
    ),
]
Module = Annotated[
    str | None,
    typer.Option("--module", metavar="NAME", help="what you run as python -m NAME", rich_help_panel=SCRIPT),
]
ScriptArgs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- ARGS", help="of the script, as you would resume with them; {checkpoint} stands for PATH"
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="interpreter for the script; else that of the active environment",
        rich_help_panel=SCRIPT,
    ),
]
Steps = Annotated[
    int,
    typer.Option("--steps", metavar="N", help="really make N optimizer steps beyond that", rich_help_panel=SCRIPT),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="how long it may take", rich_help_panel=SCRIPT)
]
Online = Annotated[
    bool, typer.Option("--online", help="let the script ask model and data hubs", rich_help_panel=SCRIPT)
]
