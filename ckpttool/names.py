"""Segments that wrappers put into names: data parallel, compile, FSDP, activation checkpointing, PEFT.

Sources: torch/nn/parallel/distributed.py (`module`), torch/_dynamo/eval_frame.py (`_orig_mod`),
lightning/fabric/wrappers.py (`_forward_module`),
torch/distributed/fsdp/_common_utils.py (`_fsdp_wrapped_module`),
torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py (`_checkpoint_wrapped_module`), and peft
(`base_model.model`).
"""

from collections.abc import Iterable

WRAPPERS = ("module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PEFT = ("base_model", "model")


def without_wrappers(name: str) -> str:
    """The name as the unwrapped module spells it; wrapper segments go at any depth and in any order.

    The last segment is the tensor's own name and stays, whatever it is.
    """
    segments = name.split(".")
    kept: list[str] = []
    place = 0
    while place < len(segments) - 1:
        width = _wrapper_at(segments, place)
        if not width:
            kept.append(segments[place])
        place += width or 1
    return ".".join([*kept, segments[-1]])


def _wrapper_at(segments: list[str], start: int) -> int:
    """How many segments a wrapper takes at this place; 0 where there is none."""
    if segments[start] in WRAPPERS:
        return 1
    return 2 if tuple(segments[start : start + 2]) == _PEFT and start + 2 < len(segments) else 0


def leading(names: Iterable[str]) -> str:
    """The wrapper segments in front of every name, with a dot behind each: `_orig_mod.module.`; empty for none."""
    common: list[str] | None = None
    for name in names:
        segments = name.split(".")
        end = 0
        while end < len(segments) - 1 and (width := _wrapper_at(segments, end)):
            end += width
        common = segments[:end] if common is None else _shared(common, segments[:end])
        if not common:
            return ""
    return "".join(f"{s}." for s in common or ())


def _shared(left: list[str], right: list[str]) -> list[str]:
    """The longest common start of both, which are made of whole wrappers."""
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return left[:length]
