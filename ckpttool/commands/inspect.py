"""`ckpt inspect`: what a checkpoint holds."""

import os
from typing import TYPE_CHECKING

from ckpttool import params
from ckpttool.blocks import Progress

if TYPE_CHECKING:
    from ckpttool.commands._inspect.report import InspectReport
    from ckpttool.commands._inspect.run_report import RunReport


def inspect(  # noqa: PLR0913  # one parameter for each option of the command
    path: params.CheckpointPath,
    *,
    tensors: params.Tensors = False,
    tree: params.Tree = False,
    part: params.Parts = None,
    stats: params.Stats = False,
    hash: params.Hash = None,  # noqa: A002  # named as the option is
    globals: params.Globals = False,  # noqa: A002
    get: params.Get = None,
    all: params.All = False,  # noqa: A002
    select: params.Select = None,
    exclude: params.Exclude = None,
    sort: params.Sort = None,
    limit: params.RaisedLimits = None,
    progress: Progress | None = None,
) -> "InspectReport | RunReport":
    """Show what a checkpoint holds, without running anything in it.

    Reads a file or folder of PyTorch, safetensors, Accelerate, HF Trainer, Lightning and others: weights, optimizer,
    LR scheduler, loss scale, RNG, data position, custom objects, progress. A folder of checkpoints is shown as a
    table in step order.

    Examples:
      ckpt inspect model.pt                          one screen
      ckpt inspect model.pt --tensors --sort size    every tensor, largest first
      ckpt inspect model.pt --select '*.bias'        those whose names match
      ckpt inspect model.pt --part optimizer,scaler  two parts in full
      ckpt inspect model.pt --stats                  NaN, Inf, mean, norm of each
      ckpt inspect model.pt --get scaler.scale       one value, for a shell
      ckpt inspect model.pt --json                   for programs

    Exit codes:
      0   read, and fine
      1   read, but something is wrong with it: a damaged member, a missing
          shard, a dangerous global; of several checkpoints: with the newest
      2   could not be read, or wrong usage, or nothing is what was asked for
      70  a bug of ckpt
    """
    from ckpttool.commands._inspect import inspection

    options = inspection.options(
        tensors=tensors, every=all, select=tuple(select or ()), exclude=tuple(exclude or ()), sort=sort, tree=tree,
        part=part, stats=stats, hashed=hash, globals=globals, get=get,
    )  # fmt: skip
    return inspection.report(os.fspath(path), options, limit or [], progress)
