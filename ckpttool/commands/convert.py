"""`ckpt convert`: pickle to safetensors and back, nothing lost."""

import os
from typing import TYPE_CHECKING

from ckpttool import params
from ckpttool.blocks import Progress

if TYPE_CHECKING:
    from ckpttool.commands._convert.report import ConvertReport


def convert(  # noqa: PLR0913  # one parameter for each option of the command
    source: params.ConvertSource,
    target: params.ConvertTarget,
    *,
    to: params.To = None,
    weights_only: params.WeightsOnly = False,
    everything: params.Everything = False,
    part: params.KeptParts = None,
    ema: params.Ema = False,
    select: params.Select = None,
    exclude: params.Exclude = None,
    rename: params.Renames = None,
    strip_prefix: params.StripPrefix = None,
    dtype: params.CastTo = None,
    set: params.Settings = None,  # noqa: A002  # named as the option is
    map_location: params.MapLocation = None,
    plain: params.Plain = False,
    drop_opaque: params.DropOpaque = False,
    allow_opaque: params.AllowOpaque = None,
    duplicate_ties: params.DuplicateTies = False,
    max_shard_size: params.MaxShardSize = None,
    overwrite: params.Overwrite = False,
    no_verify: params.NoVerify = False,
    checksum: params.Checksum = False,
    dry_run: params.DryRun = False,
    limit: params.RaisedLimits = None,
    progress: Progress | None = None,
) -> "ConvertReport":
    """Turn pickles into safetensors and back, nothing lost, nothing run.

    A file of weights becomes one .safetensors file; a training checkpoint becomes a folder: tensors as safetensors,
    the rest as JSON that one can read. Converting that back gives a file that torch.load reads like the original. A
    trainer's folder keeps its shape and still resumes. The result is read back and compared bit for bit before it
    takes its name; the source is never touched.

    Examples:
      ckpt convert model.pt model.safetensors  weights, safe to share
      ckpt convert train.pt train/             weights, optimizer, RNG, all of it
      ckpt convert train/ train.pt             and back, the same as before
      ckpt convert checkpoint-500/ safe/       a folder that still resumes
      ckpt convert train.pt model.safetensors --part model --dtype bf16
      ckpt convert ddp.pt plain.pt --strip-prefix auto
      ckpt convert model/ sharded/ --max-shard-size 5GB
      ckpt convert old.pt new.pt --map-location cpu --set scaler.scale=65536

    Exit codes:
      0   done and verified
      1   done, but something could not be carried, which an option allowed
      2   refused, nothing was written
      70  a bug of ckpt
    """
    from ckpttool.commands._convert import choices, converting  # `--help` must not pay for it
    from ckpttool.conversion.options import Writing

    options = choices.options(
        to=to, weights_only=weights_only, everything=everything, part=part, ema=ema, select=select, exclude=exclude,
        rename=rename, strip_prefix=strip_prefix, dtype=dtype, settings=set, map_location=map_location, plain=plain,
        drop_opaque=drop_opaque, allow_opaque=allow_opaque, duplicate_ties=duplicate_ties,
        max_shard_size=max_shard_size, limits=limit,
    )  # fmt: skip
    writing = Writing(overwrite=overwrite, verify=not no_verify, checksum=checksum, dry_run=dry_run)
    return converting.report(os.fspath(source), os.fspath(target), options, writing, progress)
