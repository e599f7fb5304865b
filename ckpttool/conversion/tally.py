"""What a conversion did, for its report: every tensor counted, everything that is not as it was named."""

from dataclasses import dataclass, field

_CHOOSING = frozenset({"--part", "--ema", "--select", "--exclude"})


@dataclass(frozen=True, slots=True)
class Lost:
    """Something of the source that the result does not hold."""

    what: str  # key path or name
    kind: str  # `argparse.Namespace`, `tensor float32 [3, 4]`, `1,024 bytes that no tensor looks at`
    why: str  # the option that asked for it, or the reason

    @property
    def asked(self) -> bool:
        """Whether the user chose what stays, and this was not among it."""
        return self.why.split()[0] in _CHOOSING


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that is in the result in another form."""

    what: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Harm:
    """What a cast did to a tensor beyond rounding."""

    name: str
    dtype: str  # the new one
    elements: int
    overflowed: int
    became_zero: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts and lists of one conversion."""

    tensors: int = 0  # written, each name
    nbytes: int = 0  # of their values, tied ones once
    ties: list[Changed] = field(default_factory=list)  # name, and the one whose bytes it shares
    packed: list[Changed] = field(default_factory=list)  # tensors whose elements did not lie side by side
    carried: list[Changed] = field(default_factory=list)  # of a kind that safetensors has no word for
    lost: list[Lost] = field(default_factory=list)
    trimmed_bytes: int = 0  # of storages, that no tensor looks at
    renamed: list[Changed] = field(default_factory=list)
    cast: list[Changed] = field(default_factory=list)
    harmed: list[Harm] = field(default_factory=list)  # casts that overflowed or underflowed
    plain: list[Changed] = field(default_factory=list)  # objects turned into builtins
    settings: list[Changed] = field(default_factory=list)
    opaque: list[Changed] = field(default_factory=list)  # classes written again
    notes: list[str] = field(default_factory=list)
