"""Weights edited on the way: which tensors, under which names, of which type."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ckpttool.conversion.casting import Casting
from ckpttool.conversion.names import Renamed, edited_names, require_effect, spelling
from ckpttool.conversion.options import Options
from ckpttool.conversion.parts import described
from ckpttool.conversion.places import holds, value_at
from ckpttool.conversion.tally import Changed, Lost, Tally
from ckpttool.errors import UsageError
from ckpttool.keypaths import spelled_path
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.values import Record, TensorRef


def edit_weights(checkpoint: Checkpoint, options: Options, tally: Tally) -> None:
    """Choose, rename and cast the tensors of every state_dict that stays, in place.

    Raises:
        NoSuchKey: an option matches nothing.
        UsageError: two tensors would get one name; the names are not the keys of one dict.
    """
    edits: dict[str, Renamed] = {}
    casting = Casting(options.dtype, tally)
    edited: list[Weights] = []
    for weights in checkpoint.weights:
        if options.parts and weights.role not in options.parts:
            edited.append(weights)
            continue
        where = spelled_path((*((weights.at.file,) if weights.at.file else ()), *weights.at.path)) or weights.name
        renamed = edited_names([*weights.tensors], options, where)
        edits[f"{len(edits)} {where}"] = renamed
        edited.append(_edited(checkpoint, weights, renamed, options, casting))
        tally.lost += [Lost(name, described(weights.tensors[name]), _asked(options)) for name in renamed.left_out]
        tally.renamed += [Changed(where, old, new) for old, new in renamed.new.items() if old != new]
    require_effect(edits, options, checkpoint.path)
    checkpoint.weights = tuple(edited)
    if parted := casting.parted(checkpoint, options.limits):
        tally.notes.append(parted)


def _asked(options: Options) -> str:
    return " ".join((["--select"] if options.select else []) + (["--exclude"] if options.exclude else []))


def _edited(
    checkpoint: Checkpoint, weights: Weights, renamed: Renamed, options: Options, casting: "Casting"
) -> Weights:
    """The state_dict after the edits, in the tree too."""
    tensors = {new: casting.of(new, weights.tensors[old]) for old, new in renamed.new.items()}
    holder = value_at(checkpoint, weights.at)
    flat = isinstance(holder, dict) and holds(holder, weights.tensors)
    names_changed = bool(renamed.left_out) or any(old != new for old, new in renamed.new.items())
    spell = spelling([*weights.tensors], options)
    if flat:
        _refill(holder, weights, renamed, tensors, spell)
    elif options.parts != (Role.MODEL,) and (names_changed or options.dtype):
        raise UsageError(
            "the names of these weights are not the keys of one dict, so they cannot be edited where they are",
            where=spelled_path(weights.at.path) or weights.name,
            hint="make a state_dict of them with --part model",
        )
    extra = {spell(name): value for name, value in weights.extra.items()}
    files = {renamed.new[n]: f for n, f in weights.files.items() if n in renamed.new}
    paths = {} if flat else {renamed.new[n]: p for n, p in weights.paths.items() if n in renamed.new}
    return replace(weights, tensors=tensors, extra=extra, files=files, paths=paths, prefix="")


def _refill(
    holder: dict[Any, Any],
    weights: Weights,
    renamed: Renamed,
    tensors: Mapping[str, TensorRef],
    spell: Callable[[str], str],
) -> None:
    """Put the edited tensors where the old ones were, in their order; other entries follow the renames."""
    items = [*holder.items()]
    holder.clear()
    for key, value in items:
        if key not in weights.tensors:
            holder[spell(key) if isinstance(key, str) else key] = value
        elif key in renamed.new:
            holder[renamed.new[key]] = tensors[renamed.new[key]]
    if isinstance(holder, Record) and isinstance(holder.state, dict):
        versions = holder.state.get("_metadata")
        if isinstance(versions, dict):
            _respell_modules(versions, spell)


def _respell_modules(versions: dict[Any, Any], spell: Callable[[str], str]) -> None:
    """Rename modules as their tensors are: `module.fc` by what becomes of `module.fc.`."""
    items = [*versions.items()]
    versions.clear()
    for name, entry in items:
        new = spell(f"{name}.").removesuffix(".") if isinstance(name, str) and name else name
        versions.setdefault(new, entry)
