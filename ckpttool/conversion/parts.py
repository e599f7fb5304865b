"""Parts taken out of a checkpoint: a bare state_dict, the averaged weights, some of several parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckpttool.conversion.options import Options
from ckpttool.conversion.places import holds, value_at
from ckpttool.conversion.tally import Lost, Tally
from ckpttool.conversion.trees import everything
from ckpttool.errors import NoSuchKey
from ckpttool.keypaths import spelled_path
from ckpttool.limits import Limits
from ckpttool.model import At, Checkpoint, Role, Weights
from ckpttool.values import ORDERED_DICT, Attribute, KeyPath, Opaque, Record, TensorRef, Value

_OWN = "__dict__"  # how `Weights.extra` ends the names of what modules say of themselves
PROGRAMS = frozenset({"torchscript", "torch-export", "torch-package"})  # containers that hold more than values
_AVERAGED = "n_averaged"  # of torch.optim.swa_utils.AveragedModel: how many models went into the average


def state_dict_of(checkpoint: Checkpoint, options: Options, tally: Tally) -> Value:
    """The weights alone, as a bare state_dict; of several models a dict of them by name.

    Raises:
        NoSuchKey: there are no weights.
    """
    models = [w for w in checkpoint.weights if w.role is Role.MODEL]
    if not models and (found := _of_program(checkpoint, options.limits)):
        tally.lost.append(Lost("the program", checkpoint.contents[""].container, "--part model"))
        return found
    if not models:
        held = ", ".join(sorted({w.name for w in checkpoint.weights})) or "none"
        raise NoSuchKey("it holds no model's weights", where=checkpoint.path, hint=f"weights there are: {held}")
    if len(models) == 1:
        return _bare(checkpoint, models[0], models[0].tensors)
    return {name: _bare(checkpoint, w, w.tensors) for name, w in _by_name(models)}


def _of_program(checkpoint: Checkpoint, limits: Limits) -> Record | None:
    """The tensors of a saved program under the names that its modules give them; None where the file is no program."""
    contents = checkpoint.contents.get("")
    if contents is None or contents.container not in PROGRAMS:
        return None
    result = Record(ORDERED_DICT)
    for path, value in everything(contents.root, limits):
        if isinstance(value, TensorRef):
            result[".".join(step.name if isinstance(step, Attribute) else str(step) for step in path)] = value
    return result or None


def _by_name(models: Sequence[Weights]) -> Iterator[tuple[str, Weights]]:
    seen: dict[str, int] = {}
    for weights in models:
        count = seen[weights.name] = seen.get(weights.name, -1) + 1
        yield f"{weights.name}_{count}" if count else weights.name, weights


def _bare(checkpoint: Checkpoint, weights: Weights, tensors: Mapping[str, TensorRef]) -> dict[Any, Any]:
    """A state_dict as it lies in the file, or as `Module.state_dict()` would give it."""
    holder = value_at(checkpoint, weights.at)
    if isinstance(holder, dict) and holder.keys() == {*tensors, *weights.extra} and holds(holder, tensors):
        return holder
    result = Record(ORDERED_DICT)
    result.update(tensors)
    result.update({k: v for k, v in weights.extra.items() if not k.endswith(_OWN)})
    if isinstance(holder, Record) and isinstance(holder.state, dict) and "_metadata" in holder.state:
        result.state = {"_metadata": holder.state["_metadata"]}
    return result


def take_average(checkpoint: Checkpoint, tally: Tally) -> None:
    """Make the averaged weights the model, and all that the checkpoint holds.

    Raises:
        NoSuchKey: there are none, or several.
    """
    averages = [w for w in checkpoint.weights if w.role is Role.EMA]
    if len(averages) != 1:
        held = ", ".join(spelled_path(w.at.path) or w.name for w in averages)
        raise NoSuchKey(
            f"it holds {len(averages)} sets of averaged weights, and one is wanted",
            where=checkpoint.path,
            hint=f"they are {held}" if averages else "leave --ema out",
        )
    average = averages[0]
    model = next((w for w in checkpoint.weights if w.role is Role.MODEL), None)
    prefix = average.prefix if model is None or not model.prefix else ""
    tensors = {n.removeprefix(prefix): t for n, t in average.tensors.items() if n != _AVERAGED}
    if model is not None and tensors.keys() & model.tensors.keys():
        filled = {n: t for n, t in model.tensors.items() if n not in tensors}
        if filled:
            tally.notes.append(
                f"{len(filled):,} tensors that were not averaged are the model's: {', '.join([*filled][:3])}"
            )
        tensors = {n: tensors[n] if n in tensors else filled[n] for n in dict.fromkeys((*model.tensors, *tensors))}
    root = _bare(checkpoint, average if model is None else model, dict(tensors))
    _tell_rest(checkpoint, average.at, "--ema", tally)
    contents = checkpoint.contents[average.at.file]
    own = replace(contents, root=root, storages=tuple(s for c in checkpoint.contents.values() for s in c.storages))
    checkpoint.contents = {average.at.file: own}
    at = At(average.at.file)
    checkpoint.weights = (replace(average, at=at, role=Role.MODEL, name="model", tensors=tensors, paths={}, prefix=""),)


def keep_parts(checkpoint: Checkpoint, file: str, roles: Sequence[Role], tally: Tally) -> None:
    """Take everything out of a file's tree that belongs to no kept part.

    Raises:
        NoSuchKey: none of the parts is there.
    """
    kept = [at.path for at, role in checkpoint.roles() if at.file == file and role in roles]
    if not kept:
        raise NoSuchKey(
            f"it holds none of the parts {', '.join(roles)}",
            where=checkpoint.path,
            hint=f"the parts there are: {', '.join(sorted({str(r) for _, r in checkpoint.roles()}))}",
        )
    for path, holder in _outside(checkpoint.contents[file].root, kept):
        tally.lost.append(Lost(spelled_path(path), described(holder.pop(path[-1])), "--part"))


def tell_rest(checkpoint: Checkpoint, why: str, tally: Tally) -> None:
    """Name what a file holds beside its models, which a bare state_dict leaves out."""
    for weights in checkpoint.weights:
        if weights.role is Role.MODEL:
            _tell_rest(checkpoint, weights.at, why, tally)


def _tell_rest(checkpoint: Checkpoint, kept: At, why: str, tally: Tally) -> None:
    contents = checkpoint.contents.get(kept.file)
    for path, holder in _outside(contents.root if contents else None, [kept.path]):
        tally.lost.append(Lost(spelled_path(path), described(holder[path[-1]]), why))


def _outside(root: Value, kept: Sequence[KeyPath]) -> Iterator[tuple[KeyPath, dict[Any, Any]]]:
    """Each entry of nested dicts that neither holds nor belongs to what lies at the kept places, with its dict."""
    pending: list[tuple[KeyPath, Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        if any(path[: len(k)] == k for k in kept) or not isinstance(value, dict):
            continue
        for key in [*value]:
            inner = (*path, key)
            if any(k[: len(inner)] == inner or inner[: len(k)] == k for k in kept):
                pending.append((inner, value[key]))
            else:
                yield inner, value


def described(value: Any) -> str:
    """What was left out, in a few words."""
    match value:
        case TensorRef():
            return f"tensor {value.dtype.name} {list(value.shape)}"
        case Record():
            return value.cls.name
        case Opaque():
            return value.name
    return type(value).__name__
