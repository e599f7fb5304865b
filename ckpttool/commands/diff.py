"""`ckpt diff`: what changed between two checkpoints."""

import os
from typing import TYPE_CHECKING

from ckpttool import params
from ckpttool.blocks import Progress

if TYPE_CHECKING:
    from ckpttool.commands._diff.report import DiffReport


def diff(  # noqa: PLR0913  # one parameter for each option of the command
    left: params.LeftCheckpoint,
    right: params.RightCheckpoint,
    *,
    rtol: params.Rtol = 0.0,
    atol: params.Atol = 0.0,
    ulp: params.Ulp = 0,
    by_value: params.ByValue = False,
    part: params.Compared = None,
    select: params.Select = None,
    exclude: params.Exclude = None,
    map: params.Maps = None,  # noqa: A002  # named as the option is
    no_align: params.NoAlign = False,
    overlap: params.Overlap = False,
    stat: params.Stat = False,
    top: params.Top = None,
    all: params.EveryRow = False,  # noqa: A002
    quiet: params.Quiet = False,
    limit: params.RaisedLimits = None,
    progress: Progress | None = None,
) -> "DiffReport":
    """Compare two checkpoints part by part and tensor by tensor.

    Containers, sharding and layouts may differ: models are held against models, optimizers against optimizers, and
    names are aligned through wrappers (module., _orig_mod.) and ties. The left side is the reference: relative
    figures divide by it.

    Examples:
      ckpt diff resumed.pt straight.pt              the same? else where, and how much
      ckpt diff model.pt model.safetensors          across formats
      ckpt diff a/checkpoint-50 b/checkpoint-50 --stat
      ckpt diff a.pt b.pt --part model --rtol 1e-5  near is good enough
      ckpt diff a.pt b.pt --map '^backbone=model'   after a rename
      ckpt diff a.pt b.pt --json                    for programs

    Exit codes:
      0   no difference
      1   a difference
      2   trouble: a side cannot be read, or wrong usage
      70  a bug of ckpt
    """
    from ckpttool.commands._diff import comparing  # `--help` must not pay for it

    choices = comparing.choices(
        rtol=rtol, atol=atol, ulp=ulp, by_value=by_value, part=part, select=tuple(select or ()),
        exclude=tuple(exclude or ()), maps=tuple(map or ()), literal=no_align, overlap=overlap, limits=limit or [],
    )  # fmt: skip
    shown = comparing.shown(stat=stat, top=top, every=all, quiet=quiet)
    return comparing.report(os.fspath(left), os.fspath(right), choices, shown, progress)
