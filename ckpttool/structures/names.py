"""Where a conversion puts what: which subtree has a document of its own, and what each tensor is called.

A tensor's name is its key path below the part that it belongs to, joined by dots: the FQN within a state_dict,
`state.0.exp_avg` in an optimizer. A name that is taken gets `#2`, `#3`, … in the tree's order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ckpttool.structures.documents import MAIN
from ckpttool.values import Attribute, GlobalRef, KeyPath

_LONGEST = 1024  # characters of a name that is put together; a key by itself may be longer
_LONGEST_KEY = 16_384  # characters
_RESERVED = "__metadata__"  # of the safetensors header
_WIDE = 64  # bits of an integer that is spelled in decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A subtree of the original, and the files that it goes to.

    Names are relative to the folder of the result. A `document` that is empty leaves the subtree in the document
    around it. `tensors` that is empty means the safetensors file in whose metadata the document will lie.
    """

    path: KeyPath = ()
    document: str = ""
    tensors: str = ""


WHOLE = (Part(),)  # one safetensors file with the document in its metadata
FOLDER = (Part(document=MAIN, tensors="state.safetensors"),)  # a folder without parts


@dataclass(slots=True)
class Branch:
    """A place on the way to parts: what lies below each step, and the part that begins here."""

    below: "dict[Any, Branch]" = field(default_factory=dict)
    part: Part | None = None


def branches(parts: Iterable[Part]) -> Branch:
    """The parts as a tree of steps; one that leads nowhere in a checkpoint is never met."""
    root = Branch()
    for part in parts:
        branch = root
        for step in part.path:
            branch = branch.below.setdefault(step, Branch())
        branch.part = part
    return root


def step_text(step: Any) -> str:
    """A step of a key path as a part of a name."""
    match step:
        case str():
            text = step
        case Attribute():
            text = step.name
        case GlobalRef():
            text = str(step)
        case int() if step.bit_length() > _WIDE:
            text = hex(step)[:_LONGEST]
        case None | bool() | int() | float():
            text = str(step)
        case _:
            text = type(step).__name__
    return text[:_LONGEST_KEY].encode("utf-8", "replace").decode("utf-8")


def joined(prefix: str, step: Any) -> str:
    """The name of what lies one step below; a long way down the name no longer grows."""
    text = step_text(step)
    if not prefix:
        return text
    return f"{prefix}.{text}" if len(prefix) < _LONGEST else prefix


class Taken:
    """The names that are taken in one safetensors file."""

    def __init__(self) -> None:
        self._names: set[str] = {_RESERVED}
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """The name itself, or with the first number behind it that is free."""
        name = wanted
        while name in self._names:
            number = self._next[wanted] = self._next.get(wanted, 1) + 1
            name = f"{wanted}#{number}"
        self._names.add(name)
        return name
