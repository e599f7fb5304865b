"""What `load_state_dict` of torch's schedulers raises over a state, before any step.

Source: torch/optim/lr_scheduler.py of torch 2.13, `load_state_dict` of each class.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ckpttool.layouts import scheduler_classes
from ckpttool.rules._scheduler_fields import shown
from ckpttool.values import Opaque, Value

_MOST_NESTED = 8
_EVERY = frozenset(("base_lrs", "last_epoch", "_step_count", "_last_lr"))  # what all of torch's keep
_LATER = frozenset(("_is_initial", "_get_lr_called_within_step", "verbose"))  # or kept in some releases
_NEEDED = {"LambdaLR": "lr_lambdas", "CyclicLR": "_scale_fn_custom", "SequentialLR": "_schedulers"}


def class_of(fields: Mapping[Any, Value], candidates: tuple[str, ...] = ()) -> str:
    """Torch's class of a state, the likelier of two; empty where it is none of torch's."""
    found = candidates or scheduler_classes(fields)
    if not found and fields.keys() == {"_last_lr"}:
        return "ChainedScheduler"
    if not found and _EVERY <= fields.keys() <= _EVERY | _LATER:
        return "LambdaLR"  # every other class keeps a key of its own
    return found[0] if found else ""


def refused(
    name: str, fields: Mapping[Any, Value], path: tuple[str | int, ...], groups: int | None
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """What `load_state_dict` raises: the place, what is wrong, the exception."""
    key = _NEEDED.get("SequentialLR" if name == "ChainedScheduler" else name, "")
    if key and key not in fields:
        yield (*path, key), f"{key} is absent", f"KeyError: '{key}'"
    elif name == "LambdaLR":
        yield from _functions(fields[key], (*path, key), groups)
    elif name == "CyclicLR" and not isinstance(fields[key], dict | Opaque | None):
        yield (*path, key), f"{key} is {shown(fields[key])} and should be None", "AttributeError"
    elif name == "ReduceLROnPlateau":
        for word, words in (("mode", ("min", "max")), ("threshold_mode", ("rel", "abs"))):
            value = fields.get(word, words[0])
            if value not in words if isinstance(value, str) else word in fields:
                raised = "ValueError" if isinstance(value, str) else "TypeError"
                yield (*path, word), f"{word} is {shown(value)} and should be {' or '.join(words)}", raised
    elif key == "_schedulers":
        yield from _inside(fields, path, groups)


def _functions(kept: Value, at: tuple[str | int, ...], groups: int | None) -> Iterator[tuple[Any, str, str]]:
    """`lr_lambdas`: None for each function, a dict for each object that can be called."""
    if isinstance(kept, str | dict) and kept:
        yield at, f"lr_lambdas is {shown(kept)} and should be a list", "ValueError"
    elif not isinstance(kept, list | tuple | str | dict):
        yield at, f"lr_lambdas is {shown(kept)} and should be a list", "TypeError"
    else:
        for n, item in enumerate(kept if isinstance(kept, list | tuple) else ()):
            if item is not None and groups is not None and n >= groups:
                yield (*at, n), f"there are {groups:,} param groups", "IndexError"
            elif isinstance(item, str) and item:
                yield (*at, n), f"it is {shown(item)} and should be None or a dict", "ValueError"
            elif isinstance(item, bool | int | float):
                yield (*at, n), f"it is {shown(item)} and should be None or a dict", "TypeError"


def _inside(
    fields: Mapping[Any, Value], path: tuple[str | int, ...], groups: int | None
) -> Iterator[tuple[Any, str, str]]:
    parts, milestones = fields["_schedulers"], fields.get("_milestones")
    at = (*path, "_schedulers")
    if not isinstance(parts, list | tuple):
        if not isinstance(parts, str | dict):
            yield at, f"_schedulers is {shown(parts)} and should be a list of states", "TypeError"
        return
    for n, part in enumerate(parts):
        if isinstance(part, dict) and len(path) < 2 * _MOST_NESTED:
            yield from refused(class_of(part), part, (*at, n), groups)
        elif part is None:
            yield (*at, n), "it is None and should be the state of a scheduler", "TypeError"
    if isinstance(milestones, list) and len(parts) > len(milestones) + 1 > 1:
        said = f"there are {len(parts):,} schedulers and {len(milestones):,} milestones"
        yield at, said, "IndexError"
