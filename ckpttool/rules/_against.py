"""The weights of a checkpoint beside those of the one that it is held against, name by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckpttool.blocks import Severity
from ckpttool.model import Checkpoint, Weights
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case
from ckpttool.rules._trained import is_adapter, resumes
from ckpttool.values import TensorRef

RAISED = "RuntimeError in Module.load_state_dict (torch/nn/modules/module.py)"
_NOTE_KEY = "two state_dicts of a checkpoint and the one beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One state_dict and its counterpart."""

    mine: Weights
    other: Weights
    same: Mapping[str, str] = field(default_factory=dict)  # name here: name there, wrappers and prefix aside
    matched_before: int = 0  # names that are spelled alike
    prefix: str = ""  # what stands before every name on one side only, beside wrappers: `model.`

    @property
    def missing(self) -> list[str]:
        """Names that only the other has."""
        there = set(self.same.values())
        return [n for n in self.other.tensors if n not in there]

    @property
    def unexpected(self) -> list[str]:
        """Names that only this one has."""
        return [n for n in self.mine.tensors if n not in self.same]

    def tensors(self) -> Iterator[tuple[str, TensorRef, TensorRef]]:
        """Tensors that both have, by the name here."""
        for name, there in self.same.items():
            yield name, self.mine.tensors[name], self.other.tensors[there]


def pairs(case: Case) -> tuple[Pair, ...]:
    """State_dicts of the same role and name; where each side has one of a role, its name does not matter."""
    if case.other is None:
        return ()
    known = case.notes.get(_NOTE_KEY)
    if isinstance(known, tuple):
        return known
    found = tuple(_pair(mine, other) for mine, other in _counterparts(case.checkpoint, case.other))
    case.notes[_NOTE_KEY] = found
    return found


def _counterparts(here: Checkpoint, there: Checkpoint) -> Iterator[tuple[Weights, Weights]]:
    for role in dict.fromkeys(w.role for w in here.weights):
        mine = [w for w in here.weights if w.role is role]
        others = [w for w in there.weights if w.role is role]
        if len(mine) == 1 and len(others) == 1:
            yield mine[0], others[0]
            continue
        named = {w.name: w for w in others}
        yield from ((w, named[w.name]) for w in mine if w.name in named)


def _pair(mine: Weights, other: Weights) -> Pair:
    before = len(mine.tensors.keys() & other.tensors.keys())
    here, there = _unwrapped(mine), _unwrapped(other)
    same = {name: there[bare] for bare, name in here.items() if bare in there}
    prefix = "" if same else _one_sided_prefix(list(here), list(there))
    if prefix:
        same = {
            name: there[bare.removeprefix(prefix)] for bare, name in here.items() if bare.removeprefix(prefix) in there
        }
        if not same:
            same = {name: there[prefix + bare] for bare, name in here.items() if prefix + bare in there}
    return Pair(mine=mine, other=other, same=same, matched_before=before, prefix=prefix)


def _unwrapped(weights: Weights) -> dict[str, str]:
    """The names in the file by what they are without wrappers; as they are where two would become one."""
    bare = {without_wrappers(name): name for name in weights.tensors}
    return bare if len(bare) == len(weights.tensors) else {name: name for name in weights.tensors}


def _one_sided_prefix(here: list[str], there: list[str]) -> str:
    """A prefix such as `model.` that every name of one side has before the other's; empty where there is none."""
    for long, short in ((here, there), (there, here)):
        if not short:
            continue
        ends = [n for n in long if n.endswith(f".{short[0]}")]
        for end in ends:
            prefix = end.removesuffix(short[0])
            if all(n.startswith(prefix) for n in long):
                return prefix
    return ""


def loads_strictly(case: Case, weights: Weights) -> bool:
    """Whether the trainer raises where keys are missing or left over.

    The Trainer loads with `strict=False` and logs a warning (transformers/trainer.py, `_load_from_checkpoint`), PEFT
    does the same with adapters (peft/utils/save_and_load.py, `set_peft_model_state_dict`).
    """
    return case.checkpoint.layout != "hf-trainer" and not is_adapter(weights)


def raising(case: Case) -> Severity:
    """ERROR where the same program loads the other; of another program it may be right, so it is a warning."""
    here, there = case.checkpoint, case.other
    alike = there is not None and here.layout == there.layout and resumes(here) == resumes(there)
    return Severity.ERROR if alike else Severity.WARNING
