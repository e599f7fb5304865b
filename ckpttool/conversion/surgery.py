"""Weights edited on the way: which tensors, under which names, of which type, and which parts beside them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckpttool.conversion.names import Renamed, edited_names, require_effect, spelling
from ckpttool.conversion.options import Options
from ckpttool.conversion.tally import Changed, Harm, Lost, Tally, spelled_path
from ckpttool.conversion.trees import everything
from ckpttool.dtypes import DType
from ckpttool.errors import NoSuchKey, PathNotFound, UsageError
from ckpttool.limits import Limits
from ckpttool.model import At, Checkpoint, Contents, Role, Weights
from ckpttool.opening.files import recognise
from ckpttool.pickles.views import contiguous_stride
from ckpttool.protocols import Found
from ckpttool.values import ORDERED_DICT, Attribute, KeyPath, Opaque, Record, StorageRef, TensorRef, Value, children
from ckpttool.writers.casts import CastSource, cast_report

_OWN = "__dict__"  # how `Weights.extra` ends the names of what modules say of themselves
PROGRAMS = frozenset({"torchscript", "torch-export", "torch-package"})  # containers that hold more than values
_AVERAGED = "n_averaged"  # of torch.optim.swa_utils.AveragedModel: how many models went into the average


def value_at(checkpoint: Checkpoint, at: At) -> Any:
    """What lies at a place of a file; None where it is no longer there."""
    contents = checkpoint.contents.get(at.file)
    value: Any = contents.root if contents else None
    for step in at.path:
        value = next((child for key, child in children(value) if key is step or key == step), None)
    return value


def edit_weights(checkpoint: Checkpoint, options: Options, tally: Tally) -> None:
    """Choose, rename and cast the tensors of every state_dict that stays, in place.

    Raises:
        NoSuchKey: an option matches nothing.
        UsageError: two tensors would get one name; the names are not the keys of one dict.
    """
    edits: dict[str, Renamed] = {}
    casting = _Casting(options.dtype, tally)
    edited: list[Weights] = []
    for weights in checkpoint.weights:
        if options.parts and weights.role not in options.parts:
            edited.append(weights)
            continue
        where = spelled_path((*((weights.at.file,) if weights.at.file else ()), *weights.at.path)) or weights.name
        renamed = edited_names([*weights.tensors], options, where)
        edits[f"{len(edits)} {where}"] = renamed
        edited.append(_edited(checkpoint, weights, renamed, options, casting))
        tally.lost += [Lost(name, _described(weights.tensors[name]), _asked(options)) for name in renamed.left_out]
        tally.renamed += [Changed(where, old, new) for old, new in renamed.new.items() if old != new]
    require_effect(edits, options, checkpoint.path)
    checkpoint.weights = tuple(edited)


def _asked(options: Options) -> str:
    return " ".join((["--select"] if options.select else []) + (["--exclude"] if options.exclude else []))


def _edited(
    checkpoint: Checkpoint, weights: Weights, renamed: Renamed, options: Options, casting: "_Casting"
) -> Weights:
    """The state_dict after the edits, in the tree too."""
    tensors = {new: casting.of(new, weights.tensors[old]) for old, new in renamed.new.items()}
    holder = value_at(checkpoint, weights.at)
    flat = isinstance(holder, dict) and _holds(holder, weights.tensors)
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


def _holds(holder: dict[Any, Any], tensors: Mapping[str, TensorRef]) -> bool:
    return all(holder.get(name) is tensor for name, tensor in tensors.items())


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


class Cast(CastSource):
    """Cast elements that know which storage they are read from."""

    def __init__(self, tensor: TensorRef, read_from: StorageRef, wanted: DType) -> None:
        super().__init__(tensor, wanted)
        self.read_from = read_from


class _Casting:
    """Tensors turned into another floating type as they are read; what is one tensor, or shares memory, stays so."""

    def __init__(self, dtype: DType | None, tally: Tally) -> None:
        self._dtype = dtype
        self._tally = tally
        self._tensors: dict[int, TensorRef] = {}
        self._storages: dict[tuple[Any, ...], StorageRef] = {}

    def of(self, name: str, tensor: TensorRef) -> TensorRef:
        wanted = self._dtype
        if wanted is None or tensor.dtype.family != "float" or tensor.dtype is wanted or tensor.kind != "strided":
            return tensor
        if tensor.storage is None:
            return tensor
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = self._cast(name, tensor, tensor.storage, wanted)
        return self._tensors[id(tensor)]

    def _cast(self, name: str, tensor: TensorRef, old: StorageRef, wanted: DType) -> TensorRef:
        place = (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype)
        storage = self._storages.get(place)
        self._tally.cast.append(Changed(name, tensor.dtype.name, wanted.name))
        if storage is None:
            source = Cast(tensor, old, wanted)
            storage = StorageRef(source, 0, wanted.nbytes(tensor.numel), location=old.location, dtype=wanted)
            self._storages[place] = storage
            report = cast_report(tensor, wanted)
            if report.overflowed or report.underflowed:
                harm = Harm(name, wanted.name, tensor.numel, report.overflowed, report.underflowed)
                self._tally.harmed.append(harm)
        return replace(
            tensor,
            dtype=wanted,
            storage=storage,
            storage_offset=0,
            stride=contiguous_stride(tensor.shape),
            conj=False,
            neg=False,
            placed=None,
        )


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
    if isinstance(holder, dict) and holder.keys() == {*tensors, *weights.extra} and _holds(holder, tensors):
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
        tally.lost.append(Lost(spelled_path(path), _described(holder.pop(path[-1])), "--part"))


def tell_rest(checkpoint: Checkpoint, why: str, tally: Tally) -> None:
    """Name what a file holds beside its models, which a bare state_dict leaves out."""
    for weights in checkpoint.weights:
        if weights.role is Role.MODEL:
            _tell_rest(checkpoint, weights.at, why, tally)


def _tell_rest(checkpoint: Checkpoint, kept: At, why: str, tally: Tally) -> None:
    contents = checkpoint.contents.get(kept.file)
    for path, holder in _outside(contents.root if contents else None, [kept.path]):
        tally.lost.append(Lost(spelled_path(path), _described(holder[path[-1]]), why))


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


def _described(value: Any) -> str:
    match value:
        case TensorRef():
            return f"tensor {value.dtype.name} {list(value.shape)}"
        case Record():
            return value.cls.name
        case Opaque():
            return value.name
    return type(value).__name__


def move_to(root: Value, location: str, limits: Limits) -> int:
    """Give every storage of a tree one device tag; returns how many had another."""
    storages: dict[int, StorageRef] = {}
    for _, value in everything(root, limits):
        held: Sequence[Any] = ()
        if isinstance(value, TensorRef) and value.kind != "ndarray":  # an array is on no device
            held = (value.storage, value.placed.storage if value.placed else None)
        elif isinstance(value, StorageRef):
            held = (value,)
        storages.update((id(s), s) for s in held if s is not None and s.location != location)
    for storage in storages.values():
        storage.location = location
    return len(storages)


def parts_in(checkpoint: Checkpoint, file: str) -> frozenset[Role]:
    """The kinds of parts that a file holds."""
    return frozenset(role for at, role in checkpoint.roles() if at.file == file)


def found_again(weights: Weights, contents: Contents, limits: Limits) -> Weights:
    """The same state_dict in the tree that its file was made from."""
    alone = replace(contents, files={})  # its shards are not looked into again
    found = recognise(Found(path=contents.name, contents=alone, open=_no_files, limits=limits)).weights
    if len(found) != 1:
        return weights
    at = At(weights.at.file, found[0].at.path)
    files = {**contents.files, **weights.files}  # names that a metadata brought back are in the former alone
    return replace(found[0], at=at, role=weights.role, name=weights.name, files=files)


def _no_files(name: str) -> Contents:
    raise PathNotFound("there are no other files", where=name)
