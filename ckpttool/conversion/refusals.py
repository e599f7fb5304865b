"""Sources that are refused whatever the options: a result would look whole and not be, or nothing could use it."""

from ckpttool.blocks import Severity
from ckpttool.conversion.options import Options
from ckpttool.conversion.parts import PROGRAMS
from ckpttool.errors import CkptError, UnsupportedFormat, UsageError
from ckpttool.model import Checkpoint, Role, Weights

_SHARE = 3  # a third of the floating tensors: buffers stay whole where ZeRO-3 took the parameters away
_SHOWN = 3  # names in a message
_CUT_UP = {
    "dcp": "`python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR FILE` makes one file of it",
    "megatron": "Megatron's tools/checkpoint/convert.py makes one file of it",
}


class Incomplete(CkptError):
    """The source is damaged or lacks a part, so a result would look whole that is not."""

    code = "incomplete-source"


def require_whole(checkpoint: Checkpoint) -> None:
    """Refuse a source with damage, or whose weights are elsewhere.

    Raises:
        Incomplete: with the first error that was found.
    """
    for problem in checkpoint.all_problems():
        if problem.severity is Severity.ERROR:
            raise Incomplete(
                f"the source is not whole: {problem.message}",
                where=problem.where or checkpoint.path,
                hint=problem.hint or "convert an undamaged copy",
            )
    for contents in checkpoint.contents.values():
        # A program that could not be read in full is named when it is clear what is wanted of it.
        if not contents.complete and contents.container not in PROGRAMS:
            raise Incomplete(
                "a part of the source could not be read",
                where=contents.name or checkpoint.path,
                hint="`ckpt inspect` says which",
            )
    for weights in checkpoint.weights:
        _require_values(weights, checkpoint.path)


def _require_values(weights: Weights, path: str) -> None:
    """Refuse what ZeRO-3 leaves of a model: parameters without elements, their values in the optimizer's partitions.

    Raises:
        Incomplete: the weights are placeholders.
    """
    empty = [name for name, tensor in weights.tensors.items() if tensor.shape == (0,)]
    floating = sum(tensor.dtype.family == "float" for tensor in weights.tensors.values())
    named = any(name.rpartition(".")[2] == "weight" for name in empty)
    if named and len(empty) * _SHARE >= floating:
        raise Incomplete(
            f"{len(empty):,} of {len(weights.tensors):,} weights are empty placeholders: {', '.join(empty[:_SHOWN])}",
            where=weights.at.file or path,
            hint="DeepSpeed ZeRO-3 keeps the values in the *_optim_states.pt files; gather them with its "
            "zero_to_fp32.py and convert what that writes",
        )


def require_readable(checkpoint: Checkpoint, options: Options, *, folder: bool) -> None:
    """Refuse folders of distributed trainers that are not read, or that nothing but their trainer resumes from.

    Args:
        folder: whether the result is a folder of files.

    Raises:
        UnsupportedFormat: it is such a folder.
        UsageError: an option has no meaning for a folder.
    """
    if checkpoint.layout in _CUT_UP:
        raise UnsupportedFormat(
            f"the shards of a {checkpoint.layout} folder are not read yet",
            where=checkpoint.path,
            hint=_CUT_UP[checkpoint.layout],
        )
    if checkpoint.layout == "deepspeed" and (folder or options.parts != (Role.MODEL,)):
        raise UnsupportedFormat(
            "DeepSpeed resumes from its own files alone, so its folder is not converted",
            where=checkpoint.path,
            hint="take the weights alone, into a file: NAME.safetensors --part model",
        )
    if folder and options.ema:
        raise UsageError(
            "--ema gives one set of weights, and the result is a folder of files",
            where=checkpoint.path,
            hint="name a file, such as ema.safetensors",
        )
