"""Two optimizers: the state of each parameter, and the hyperparameters group by group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ckpttool.comparison.fields import FieldChange
from ckpttool.comparison.measuring import Measuring
from ckpttool.comparison.optimizers import ParamPair, groups_of, out_of_order, pair_in_order, pair_params
from ckpttool.comparison.parts import PartComparison, TensorRow
from ckpttool.comparison.sameness import Sameness
from ckpttool.comparison.trees import ABSENT, Tally
from ckpttool.model import OptimizerState
from ckpttool.values import Attribute, Opaque, TensorRef, Value

State: TypeAlias = Mapping[Any, Value]

_WIDE = 64  # bits of an integer that is spelled in decimal

_BY_NAME = "FQN"  # of `OptimizerState.names_from`

# Steps of a path behind a parameter's name.
STATE, GROUP, PLACE = Attribute("state"), Attribute("group"), Attribute("place")


def compare_optimizers(
    left: OptimizerState, right: OptimizerState, measuring: Measuring, result: PartComparison
) -> None:
    """Compare two optimizers into `result`: moments as tensors, single numbers and hyperparameters as fields.

    Raises:
        CkptError: from reading; the message says which side.
    """
    choices = measuring.choices
    pairs, result.matched_by = _pairs(left, right, measuring)
    groups_left, groups_right = groups_of(left), groups_of(right)
    for pair in (*pairs, *_without_group(left, right)):
        mine, other = _state(left, pair.left), _state(right, pair.right)
        if choices.wants(pair.label):
            moved = [*_moved(pair, groups_left, groups_right)]
            result.changes += moved
            result.fields += len(moved)
        _compare_state(measuring, pair.label, mine, other, result)
    if choices.select:
        return
    places = [*_displaced(left, right, pairs, (groups_left, groups_right))]
    result.changes += places
    result.fields += len(places)
    tally = Tally()
    for n in range(max(len(left.groups), len(right.groups))):
        result.changes += measuring.values(_settings(left, n), _settings(right, n), ("group", n), tally=tally)
    result.fields += tally.fields


def _pairs(left: OptimizerState, right: OptimizerState, measuring: Measuring) -> tuple[list[ParamPair], str]:
    """Which parameter is which, and how it is known.

    Names that rest on the order of a model are wrong where only the model's keys were put in another order, and the
    optimizer was not. Then all state is the same in the optimizer's own order, and that is what pairs it.
    """
    choices = measuring.choices
    pairs, by = pair_params(left, right, maps=choices.maps, literal=choices.literal)
    if by.startswith("assumed"):
        in_order = pair_in_order(left, right, maps=choices.maps, literal=choices.literal)
        if all(_is_same(measuring, _state(left, pair.left), _state(right, pair.right)) for pair in in_order):
            return in_order, "position"
    return pairs, by


def _is_same(measuring: Measuring, mine: State | None, other: State | None) -> bool:
    """Whether two parameters have the same state, bit for bit; the first tensor that differs ends it."""
    if mine is None or other is None:
        return mine is other
    if mine.keys() != other.keys():
        return False
    for key, a in mine.items():
        b = other[key]
        if isinstance(a, TensorRef) and isinstance(b, TensorRef):
            if measuring.tensors(a, b).sameness is not Sameness.IDENTICAL:
                return False
        elif measuring.values(a, b):
            return False
    return True


def _settings(optimizer: OptimizerState, group: int) -> Any:
    """The hyperparameters of a group; ABSENT where there is no such group."""
    return dict(optimizer.groups[group].hyperparameters) if group < len(optimizer.groups) else ABSENT


def _moved(pair: ParamPair, left: Mapping[int, int], right: Mapping[int, int]) -> Iterator[FieldChange]:
    """A parameter that one side does not have, or has in another group."""
    mine, other = left.get(pair.left_place, ABSENT), right.get(pair.right_place, ABSENT)
    if mine != other:
        yield FieldChange((pair.label, GROUP), mine, other)


def _displaced(
    left: OptimizerState, right: OptimizerState, pairs: Sequence[ParamPair], groups: tuple[Mapping[int, int], ...]
) -> Iterator[FieldChange]:
    """Parameters in another place of their group: a resume gives the states back by place, not by name.

    Not where states are kept under FQNs (by FSDP and DCP), which do give them back by name.
    """
    if _BY_NAME in (left.names_from, right.names_from):
        return
    for pair in out_of_order(pairs):
        if groups[0].get(pair.left_place) == groups[1].get(pair.right_place):  # else that is told
            yield FieldChange((pair.label, PLACE), pair.left_place, pair.right_place)


def _without_group(left: OptimizerState, right: OptimizerState) -> Iterator[ParamPair]:
    """State under ids that no group names."""
    ids: dict[Value, None] = {}
    for optimizer in (left, right):
        named = {_plain(param) for group in optimizer.groups for param in group.params}
        ids.update((key, None) for key in optimizer.state if isinstance(key, int | str) and key not in named)
    for key in ids:
        yield ParamPair(f"state[{_word(key)}]", (key,), (key,))


def _plain(param: Value) -> Value:
    return param if isinstance(param, int | str) else None


def _state(optimizer: OptimizerState, ids: tuple[Value, ...]) -> State | None:
    """The state entry of a parameter; None for one without."""
    for identity in ids:
        if isinstance(identity, int | str | TensorRef | Opaque) and identity in optimizer.state:
            return optimizer.state[identity]
    return None


def _compare_state(
    measuring: Measuring, label: str, mine: State | None, other: State | None, result: PartComparison
) -> None:
    choices, tally = measuring.choices, Tally()
    if mine is None or other is None:
        if mine is not other and choices.wants(label):
            result.changes.append(FieldChange((label, STATE), _held(mine), _held(other)))
            result.fields += 1
        return
    for key in [*mine, *(k for k in other if k not in mine)]:
        if not choices.wants(label, name := f"{label}.{_word(key)}"):
            continue
        a: Any = mine.get(key, ABSENT)
        b: Any = other.get(key, ABSENT)
        if isinstance(a, TensorRef) and isinstance(b, TensorRef) and (a.numel != 1 or b.numel != 1):
            result.tensors.append(TensorRow(name, name, measuring.tensors(a, b)))
        else:
            result.changes += measuring.values(a, b, (label, key), tally=tally)
    result.fields += tally.fields


def _held(state: State | None) -> Any:
    """The names of what is kept for a parameter."""
    return ABSENT if state is None else [*map(_word, state)]


def _word(key: Value) -> str:
    """A key of a state as a word; a file may hold any."""
    plain = isinstance(key, str) or (isinstance(key, int) and key.bit_length() <= _WIDE)
    return str(key) if plain else type(key).__name__
