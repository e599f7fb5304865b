"""What was asked of a conversion, checked."""

from dataclasses import dataclass

from ckpttool.dtypes import DType
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `convert`, as its command line names them."""

    to: str = ""  # `safetensors` or `torch`; empty: by the target's name
    everything: bool = False  # of a folder: the files beside the weights too
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()  # `REGEX=NEW`
    strip_prefix: str = ""  # `auto`, or the text
    dtype: DType | None = None
    parts: tuple[Role, ...] = ()  # empty: all
    ema: bool = False  # the averaged weights take the model's place
    settings: tuple[str, ...] = ()  # `scaler.scale=65536`
    map_location: str = ""  # empty: each storage keeps its device tag
    plain: bool = False  # builtins and tensors instead of numpy's and other objects
    drop_opaque: bool = False
    allow_opaque: tuple[str, ...] = ()  # dangerous globals that may be written: `builtins.getattr`
    duplicate_ties: bool = False
    max_shard_bytes: int = 0  # 0: one file
    limits: Limits = DEFAULT_LIMITS

    @property
    def edits_weights(self) -> bool:
        """Whether the tensors of the result are others than those of the source."""
        return bool(
            self.select or self.exclude or self.renames or self.strip_prefix or self.dtype or self.ema or self.parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How the result is written."""

    overwrite: bool = False
    verify: bool = True
    checksum: bool = False
    dry_run: bool = False
