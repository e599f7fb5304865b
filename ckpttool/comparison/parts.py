"""What is compared and how strictly, and what came of it for each part of the checkpoints."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ckpttool.comparison.alignment import Alignment
from ckpttool.comparison.fields import FieldChange
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.tensors import TensorComparison
from ckpttool.comparison.tolerance import EXACT, Tolerance
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Role
from ckpttool.values import TensorRef

_OF_TENSORS = (Role.MODEL, Role.EMA, Role.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is compared, and how strictly."""

    tolerance: Tolerance = EXACT
    by_value: bool = False  # another type or another sign of zero is no difference
    maps: tuple[str, ...] = ()
    literal: bool = False  # names are not aligned
    overlap: bool = False  # compare tensors of other shapes where they overlap
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()  # empty: all, and with `select` those that hold tensors
    limits: Limits = DEFAULT_LIMITS

    def wants(self, *names: str) -> bool:
        """Whether a tensor of these names (on the left, on the right, with its parameter's) is asked for."""
        chosen = not self.select or _any_matches(names, self.select)
        return chosen and not _any_matches(names, self.exclude)

    def wants_role(self, role: Role) -> bool:
        """Whether a kind of part is asked for."""
        return role in self.roles if self.roles else not self.select or role in _OF_TENSORS

    def passes(self, sameness: Sameness) -> bool:
        """Whether things this alike are no difference."""
        if sameness is Sameness.SAME_VALUES:
            return self.by_value or bool(self.tolerance)
        return sameness in (Sameness.IDENTICAL, Sameness.WITHIN_TOLERANCE, Sameness.OVERLAP)


def _any_matches(names: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor that both sides hold."""

    name: str  # on the left
    other: str  # on the right
    compared: TensorComparison


@dataclass(slots=True, kw_only=True)
class PartComparison:
    """One part of the left checkpoint held against its like of the right one."""

    role: Role
    name: str  # the trainer's own key
    other: str  # the same on the right
    side: str = "both"  # `left` or `right` where only one has it
    note: str = ""  # why these two were paired, where it is not plain
    tensors: list[TensorRow] = field(default_factory=list)
    changes: list[FieldChange] = field(default_factory=list)
    noted: list[FieldChange] = field(default_factory=list)  # worth knowing and no difference: a library's version
    only_left: list[tuple[str, TensorRef]] = field(default_factory=list)
    only_right: list[tuple[str, TensorRef]] = field(default_factory=list)
    alignment: Alignment | None = None
    matched_by: str = ""  # how an optimizer's parameters were paired: `name`, `position`, `name and position`
    fields: int = 0  # values compared that hold no others, and what differs beside tensors; files of `other`

    @property
    def empty(self) -> bool:
        """Whether nothing of it was compared."""
        return self.side == "both" and not (self.tensors or self.only_left or self.only_right or self.fields)

    @property
    def cropped(self) -> int:
        """How many tensors are of other shapes, and were compared where they overlap."""
        return sum(row.compared.cropped for row in self.tensors)

    @property
    def unlike(self) -> list[TensorRow]:
        """The tensors that are not identical; first those where only NaN or Inf differ."""
        rows = [r for r in self.tensors if r.compared.sameness is not Sameness.IDENTICAL]
        return sorted(rows, key=lambda r: r.compared.figures is None or not r.compared.figures.specials_only)

    def verdict(self, choices: Choices) -> Sameness:
        """How alike the part is as a whole: `different` also for what has no partner or another shape."""
        if self.side != "both" or self.only_left or self.only_right:
            return Sameness.DIFFERENT
        found = [*(row.compared.sameness for row in self.tensors), *(change.sameness for change in self.changes)]
        unlike = [s for s in found if not choices.passes(s)]
        worst = max(unlike or found, key=lambda s: s.rank, default=Sameness.IDENTICAL)
        return min(worst, Sameness.DIFFERENT, key=lambda s: s.rank)

    def differs(self, choices: Choices) -> bool:
        """Whether it makes the exit code 1."""
        return not choices.passes(self.verdict(choices))
