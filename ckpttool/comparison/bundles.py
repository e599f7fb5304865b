"""Parts that are compared as one table of fields, and which field of one side is which of the other."""

from collections import Counter as Tally
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ckpttool.comparison.kinds import kind
from ckpttool.comparison.places import NOWHERE, is_told, value_of
from ckpttool.layouts import key_text
from ckpttool.model import At, Checkpoint, CustomObject, DataPosition, LossScale, SchedulerState
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, Value

_SCALE_WORDS = ("enabled", "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")
# Of GradScaler: what the words above say, and what its pickle keeps beside them (torch/amp/grad_scaler.py).
_SAID = (*_SCALE_WORDS, "per_optimizer_states", "device")
_FORMS = ("state_dict", "GradScaler object")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is compared as one table of fields: a schedule, or parts that have names of their own (a counter)."""

    name: str
    fields: Mapping[str, Value]
    details: Mapping[str, str] | None = None  # what is shown instead of a generator's state
    json: bool = False  # some of it comes from JSON, which has fewer types
    classes: Mapping[str, str] = field(default_factory=dict)  # of the objects whose fields they are, by place
    whole: bool = False  # all that the one file of the checkpoint holds


Table: TypeAlias = SchedulerState | DataPosition | CustomObject
Sides: TypeAlias = tuple[list[Bundle], list[Bundle]]  # at most one each


class Entry(NamedTuple):
    """One field of a bundle, and where it is from."""

    at: At
    word: str  # ours for it: `torch`, `rank 1 cuda:0`, `epoch`
    key: str  # the file's own
    value: Value
    detail: str = ""


def bundle(part: Table) -> Bundle:
    """A part that is a table by itself."""
    fields: Mapping[str, Value] = {"": part.value} if isinstance(part, CustomObject) else part.fields
    return Bundle(part.name, fields, json=is_json(part.at), whole=part.at == At(""))


def scale_bundles(left: LossScale, right: LossScale) -> tuple[Bundle, Bundle]:
    """Two loss scales: all their fields where they are of one form; else what both forms say, in our words."""
    if left.form == right.form and left.fields and right.fields:
        return Bundle(left.name, left.fields), Bundle(right.name, right.fields)
    return _in_words(left), _in_words(right)


def _in_words(scale: LossScale) -> Bundle:
    said = {word: getattr(scale, word) for word in _SCALE_WORDS}
    others = scale.fields.items() if scale.form in _FORMS else ()
    return Bundle(scale.name, {**said, **{key: value for key, value in others if _bare(key) not in _SAID}})


def _bare(key: str) -> str:
    return key.removeprefix("_").removeprefix("init_")


def generators(left: Checkpoint, right: Checkpoint) -> Sides:
    """The random generators of each side; ranks are said where a side has several."""
    ranked = any(len({state.rank for state in side.rng}) > 1 for side in (left, right))

    def entries(side: Checkpoint) -> Iterator[Entry]:
        for state in side.rng:
            rank = f"rank {state.rank} " if ranked and state.rank is not None else ""
            word = rank + state.generator
            yield Entry(state.at, word, _key(state.at), state.value, state.detail or kind(state.value))

    return _sides(left, right, [*entries(left)], [*entries(right)], detailed=True)


def counters(left: Checkpoint, right: Checkpoint) -> Sides:
    """How far each side came; what another part tells too, in both, is left to that part.

    So is what lies beside generators in a file that the other folder does not have.
    """

    def entries(side: Checkpoint, other: Checkpoint) -> list[Entry]:
        gone = _missing(side, other).keys() & {state.at.file for state in side.rng if other.counters}
        found = [c for c in side.counters if c.at.file not in gone and not is_told(c.at, side, other)]
        return [Entry(c.at, c.name, c.key, c.value) for c in found]

    return _sides(left, right, entries(left, right), entries(right, left))


def config(left: Checkpoint, right: Checkpoint) -> Sides:
    """Arguments and hyperparameters, with what the trainer notes about itself where both sides have such notes."""
    about = bool(left.about and right.about)

    def entries(side: Checkpoint) -> Iterator[Entry]:
        for key, value in ({**side.about, **side.config} if about else side.config).items():
            file = side.config_files.get(key, "")
            yield Entry(At(file, (key.removeprefix(f"{file}."),)), key, key, value)  # a second one of a key has both

    mine, other = _sides(left, right, [*entries(left)], [*entries(right)], same_key=True)
    return _classed(mine, left), _classed(other, right)


def _classed(found: list[Bundle], side: Checkpoint) -> list[Bundle]:
    """With the class of arguments: whether they are a dict, a `Namespace` or another object."""
    in_json = any(map(is_json, side.config_at.values()))
    return [Bundle(b.name, b.fields, json=in_json, classes=dict(_classes(side))) for b in found]


def _classes(side: Checkpoint) -> Iterator[tuple[str, str]]:
    for name, at in side.config_at.items():
        value = value_of(side, at)
        if value is not NOWHERE:
            yield name, kind(value)


def is_json(at: At) -> bool:
    """Whether a part comes from a JSON file."""
    return at.file.endswith(".json")


def _key(at: At) -> str:
    """The last steps of a place: `rng_a`, `cuda.0`."""
    return ".".join(map(key_text, at.path)) or at.file


def _sides(  # noqa: PLR0913  # two sides with their entries
    left: Checkpoint,
    right: Checkpoint,
    mine: list[Entry],
    other: list[Entry],
    *,
    detailed: bool = False,
    same_key: bool = False,
) -> Sides:
    """Both sides as bundles whose fields are called alike where they are the same thing.

    Those at the same place are, then those of one word and key, then the only ones left of a word. All that is from a
    file which the other side does not have is one field, named as the file.

    Args:
        detailed: the fields are shown by their details.
        same_key: a field without its like of the same key has none, whatever its word.
    """
    partner = _partners(mine, other, same_key=same_key)
    mine_only = [n for n in range(len(mine)) if n not in partner]
    other_only = [n for n in range(len(other)) if n not in set(partner.values())]
    words = Tally[str]()
    for entries in (mine, other):
        words |= Tally(entry.word for entry in entries)

    def called(entry: Entry) -> str:
        return entry.word if words[entry.word] == 1 else f"{entry.word} ({entry.key})"

    labels = numbered([*(called(mine[n]) for n in partner), *(called(mine[n]) for n in mine_only)])
    left_names = dict(zip([*partner, *mine_only], labels, strict=True))
    right_names = {theirs: left_names[ours] for ours, theirs in partner.items()}
    spare = numbered([*labels, *(called(other[n]) for n in other_only)])[len(labels) :]
    right_names.update(zip(other_only, spare, strict=True))
    return (
        _bundled(mine, left_names, {*mine_only}, _missing(left, right), detailed=detailed),
        _bundled(other, right_names, {*other_only}, _missing(right, left), detailed=detailed),
    )


def _partners(mine: list[Entry], other: list[Entry], *, same_key: bool) -> dict[int, int]:
    """The entry of the other side that each entry is; in the order of the entries."""
    ways: list[Callable[[Entry], Hashable]] = [lambda e: e.at, lambda e: (e.word, e.key), lambda e: e.word]
    found: dict[int, int] = {}
    for way in ways[:2] if same_key else ways:
        rest = [n for n in range(len(mine)) if n not in found]
        taken = set(found.values())
        theirs = _only(other, [n for n in range(len(other)) if n not in taken], way)
        found.update({n: theirs[told] for told, n in _only(mine, rest, way).items() if told in theirs})
    found.update(_in_order(mine, other, found))
    return dict(sorted(found.items()))


def _in_order(mine: list[Entry], other: list[Entry], found: Mapping[int, int]) -> list[tuple[int, int]]:
    """Pairs of the rest that share word and key, as the files of several ranks do: the first with the first."""
    taken = set(found.values())
    waiting: dict[Hashable, list[int]] = {}
    for n in reversed(range(len(other))):
        if n not in taken:
            waiting.setdefault(other[n][1:3], []).append(n)
    rest = (n for n in range(len(mine)) if n not in found)
    return [(n, waiting[mine[n][1:3]].pop()) for n in rest if waiting.get(mine[n][1:3])]


def _only(entries: list[Entry], numbers: list[int], way: Callable[[Entry], Hashable]) -> dict[Hashable, int]:
    """The entries by what identifies them, without those that share it."""
    count = Tally(way(entries[n]) for n in numbers)
    return {way(entries[n]): n for n in numbers if count[way(entries[n])] == 1}


def _missing(side: Checkpoint, other: Checkpoint) -> dict[str, int]:
    """Sizes of the files that the other folder does not have; none where one side is no folder."""
    if not (side.is_folder and other.is_folder):
        return {}
    there = {file.name for file in other.files}
    return {file.name: file.size for file in side.files if file.name not in there}


def _bundled(
    entries: list[Entry], names: dict[int, str], alone: set[int], missing: dict[str, int], *, detailed: bool
) -> list[Bundle]:
    fields: dict[str, Value] = {}
    details: dict[str, str] = {}
    for n, entry in enumerate(entries):
        size = missing.get(entry.at.file) if n in alone else None
        if size is None:
            fields[names[n]], details[names[n]] = entry.value, entry.detail
        else:
            fields[entry.at.file] = BytesRef(BytesSource(b"", entry.at.file), 0, size)
            details[entry.at.file] = f"a file of {size:,} bytes"
    in_json = any(is_json(entry.at) for entry in entries)
    return [Bundle("", fields, details if detailed else None, json=in_json)] if fields else []


def numbered(words: Sequence[str]) -> list[str]:
    """The words, numbered from the second on where one occurs again."""
    seen: Tally[str] = Tally()
    found = []
    for word in words:
        seen[word] += 1
        found.append(word if seen[word] == 1 else f"{word} #{seen[word]}")
    return found
