"""The options of `convert`, checked."""

import re
from collections.abc import Sequence

from ckpttool.commands._nearest import nearest
from ckpttool.commands._options import parts_of, word_of
from ckpttool.conversion.options import Options
from ckpttool.conversion.shards import shard_bytes
from ckpttool.dtypes import BY_NAME, DType
from ckpttool.errors import UsageError
from ckpttool.limits import DEFAULT_LIMITS

FORMATS = ("safetensors", "torch")
_CASTS = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "half": "float16",
    "float": "float32", "double": "float64", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip
# As torch spells devices in files. Source: torch/serialization.py, `register_package` and c10/core/DeviceType.cpp.
_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|npu|mtia|xla|ipu|vulkan|meta|privateuseone)(:\d{1,3})?")
_TARGETS = ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")


def options(  # noqa: PLR0913  # one parameter for each option that is checked here
    *,
    to: str | None,
    weights_only: bool,
    everything: bool,
    part: str | None,
    ema: bool,
    select: Sequence[str] | None,
    exclude: Sequence[str] | None,
    rename: Sequence[str] | None,
    strip_prefix: str | None,
    dtype: str | None,
    settings: Sequence[str] | None,
    map_location: str | None,
    plain: bool,
    drop_opaque: bool,
    allow_opaque: Sequence[str] | None,
    duplicate_ties: bool,
    max_shard_size: str | None,
    limits: list[str] | None,
) -> Options:
    """Check what was asked for.

    Raises:
        UsageError: a word, a size or a type that there is not, or two options that contradict each other.
    """
    if weights_only and everything:
        raise UsageError("--weights-only and --everything contradict each other", hint="leave one of them out")
    if ema and part is not None and parts_of(part) != parts_of("model"):
        raise UsageError("--ema gives a bare state_dict, so no other part stays", hint="leave --part out")
    return Options(
        to=word_of(to, FORMATS, "a format to convert to") if to is not None else "",
        everything=everything,
        parts=parts_of("model" if ema else part),
        ema=ema,
        select=tuple(select or ()),
        exclude=tuple(exclude or ()),
        renames=tuple(rename or ()),
        strip_prefix=_filled("--strip-prefix", strip_prefix),
        dtype=None if dtype is None else _type(dtype),
        settings=tuple(settings or ()),
        map_location=_device(map_location),
        plain=plain,
        drop_opaque=drop_opaque,
        allow_opaque=tuple(allow_opaque or ()),
        duplicate_ties=duplicate_ties,
        max_shard_bytes=shard_bytes(max_shard_size) if max_shard_size is not None else 0,
        limits=DEFAULT_LIMITS.raised(limits or []),
    )


def _filled(option: str, text: str | None) -> str:
    if text == "":
        raise UsageError(f"{option} is empty", hint="leave it out, or give it a text")
    return text or ""


def _device(tag: str | None) -> str:
    if not (tag := _filled("--map-location", tag)):
        return ""
    if not _DEVICE.fullmatch(tag):
        raise UsageError(f"{tag!r} is no device that torch can load to", hint="write it like cpu, cuda:0 or mps")
    return tag


def _type(word: str) -> DType:
    name = _CASTS.get(word.lower(), word.lower().removeprefix("torch."))
    if name not in _TARGETS:
        known = [*_CASTS, *_TARGETS]
        raise UsageError(
            f"{word!r} is not a type to cast to", hint=nearest(word, known) or f"the types are {', '.join(_TARGETS)}"
        )
    return BY_NAME[name]
