"""State_dicts: dicts of tensors, nested ones, and whole pickled modules, which are read without their class."""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from ckpttool.blocks import FindingLog, Severity
from ckpttool.layouts import _words as words
from ckpttool.layouts._rng import is_cpu_state
from ckpttool.layouts._spots import Spot, Verdict, entries_of, items_of, key_text
from ckpttool.model import Role, Weights
from ckpttool.names import leading
from ckpttool.values import Attribute, GlobalRef, KeyPath, Opaque, Record, TensorRef, Value, children

METADATA = Attribute("_metadata")  # the step to what `state_dict()` notes (torch/nn/modules/module.py)
EXTRA_STATE = "_extra_state"  # what `Module.get_extra_state` returned, beside the tensors (torch/nn/modules/module.py)
_MODULE_DEPTH = 200  # a module tree deeper than this is a cycle, or made to exhaust memory
_TREE_DEPTH = 12  # levels of nested dicts that still make one state_dict
_TREE_LEAVES = 20_000  # and tensors in them
_LAYER_TENSORS = 4  # a dict of at most so many undotted tensors is a layer, not a model
_SIMPLE = (int, float, str, type(None))
_SETTINGS = 2000  # values in an object of settings; a config of transformers has about a hundred
_ATTRIBUTES = 64  # of one module are kept; a layer of torch has at most 30
_MODELS = 8  # more dicts of tensors side by side than this are layers of one model


def weights(spot: Spot, found: list[Weights], log: FindingLog) -> Verdict:
    """Recognise a state_dict or a module."""
    if is_module(spot.value):
        found.append(_module_weights(spot, log))
        return Verdict.PART
    entries = entries_of(spot.value)
    if entries is None:
        return _unnamed(spot, found)
    if any(isinstance(child, TensorRef) for child in entries.values()):
        return _direct(spot, entries, found)
    return _nested(spot, entries, found) if entries else Verdict.NO


def is_module(value: Value) -> bool:
    """Whether an object is a `torch.nn.Module`, by the dicts that each of them has."""
    if not isinstance(value, Opaque):
        return False
    attributes = value.attributes
    return all(entries_of(attributes.get(name)) is not None for name in ("_modules", "_parameters", "_buffers"))


def looks_like_weights(tensor: TensorRef) -> bool:
    """Whether a tensor may be a parameter: floating point or packed, with at least one dimension."""
    return bool(tensor.shape) and (
        tensor.dtype.family not in ("int", "uint", "bool", "other") or tensor.kind == "quantized"
    )


def is_own(key: Any, value: Value) -> bool:
    """Whether an entry of a mixed dict belongs to its state_dict: a tensor with an FQN for a key, or extra state.

    So do what `state_dict()` notes of the modules, an attribute, and how many copies were averaged.
    """
    if not isinstance(key, str):
        return isinstance(key, Attribute) and key == METADATA
    if isinstance(value, TensorRef):
        return "." in key or key in ("weight", "bias", "n_averaged")
    return key.endswith(EXTRA_STATE)


def _unnamed(spot: Spot, found: list[Weights]) -> Verdict:
    """A file that is a parameter or a list of them, and `shadow_params`: lists in the order of `parameters()`."""
    if isinstance(spot.value, TensorRef):
        if spot.depth or not looks_like_weights(spot.value):
            return Verdict.NO
        found.append(_named(spot, {"tensor": spot.value}, {"tensor": spot.at.path}, {}))
        return Verdict.PART
    items = items_of(spot.value)
    if not items:
        return Verdict.NO
    tensors = [t for t in items if isinstance(t, TensorRef)]
    whole = not spot.depth and any(map(looks_like_weights, tensors))
    if len(tensors) < len(items) or not (whole or words.is_ema(spot.word)):
        return Verdict.NO
    found.append(_weights(spot, {(n,): t for n, t in enumerate(items) if isinstance(t, TensorRef)}, {}))
    return Verdict.PART


def _direct(spot: Spot, entries: dict[Any, Value], found: list[Weights]) -> Verdict:
    """A dict that holds tensors itself, and perhaps extra state, nested dicts of tensors, or other things."""
    tensors = {k: v for k, v in entries.items() if isinstance(v, TensorRef)}
    rest = {k: v for k, v in entries.items() if k not in tensors} if len(tensors) < len(entries) else {}
    extra = {k: v for k, v in rest.items() if isinstance(k, str) and k.endswith(EXTRA_STATE)}
    bare = not rest and not spot.depth and not spot.role and not _is_rng(spot, tensors.values())
    if not bare and not any(looks_like_weights(t) for t in tensors.values()):
        return Verdict.NO
    if all(v is None or k in extra for k, v in rest.items()):  # a tensor that is None now is there at another time
        found.append(_flat(spot, tensors, rest))
        return Verdict.PART
    nested = _tensor_leaves({k: v for k, v in rest.items() if k not in extra})
    if nested is not None and not (spot.depth == 0 and _are_models(spot, rest, nested)):
        found.append(_weights(spot, {**{(k,): t for k, t in tensors.items()}, **nested}, extra))
        return Verdict.PART
    mine = {k: t for k, t in tensors.items() if is_own(k, t)}
    if not any(looks_like_weights(t) for t in mine.values()):
        return Verdict.NO
    found.append(_flat(spot, mine, extra))
    return Verdict.AMONG


def _is_rng(spot: Spot, tensors: Iterable[TensorRef]) -> bool:
    """Whether bytes alone are generators' states: by the keys above, or by the size that only they have."""
    return any(words.is_rng(word) for word in spot.words) or any(map(is_cpu_state, tensors))


def _nested(spot: Spot, entries: dict[Any, Value], found: list[Weights]) -> Verdict:
    """A dict of dicts: one state_dict in layers, unless its children are models of their own."""
    inner: dict[Any, Value] = (
        entries if spot.depth else {k: v for k, v in entries.items() if not isinstance(v, _SIMPLE)}
    )
    leaves = None if len(inner) <= 1 else _tensor_leaves(inner)
    if leaves is None or not any(looks_like_weights(t) for t in leaves.values()) or _are_models(spot, inner, leaves):
        return Verdict.NO
    found.append(_weights(spot, leaves, {}))
    return Verdict.PART if len(inner) == len(entries) else Verdict.PART_BUT_NUMBERS


def _are_models(spot: Spot, entries: dict[Any, Value], leaves: Iterable[KeyPath]) -> bool:
    """Whether dicts of tensors side by side are several state_dicts rather than the layers of one.

    At the top of a file keys name models, below it layers, unless one says otherwise. `weight` is a name that a
    module gives, so dicts with it at the top are whole models of one layer; flax says `kernel` and nests its layers.
    """
    top = spot.depth == 0
    if any(words.is_ema(key_text(k)) for k in {k for path in leaves for k in path[:-1]}):
        return True
    if top and any(words.is_model(key_text(k)) for k in entries):
        return True
    if len(entries) > _MODELS:
        return False
    children = [e for child in entries.values() if (e := entries_of(child))]
    flat = [c for c in children if all(isinstance(t, TensorRef) for t in c.values())]
    if len(flat) < len(children) or (top and any("weight" in c for c in flat)):
        return top
    return any(len(c) > _LAYER_TENSORS or any("." in key_text(k) for k in c) for c in flat)


def _tensor_leaves(entries: dict[Any, Value]) -> dict[KeyPath, TensorRef] | None:
    """All tensors of nested dicts by path; None as soon as something else is met, or a dict for the second time."""
    leaves: dict[KeyPath, TensorRef] = {}
    seen: set[int] = set()
    stack: list[tuple[KeyPath, Value]] = [((k,), v) for k, v in reversed(entries.items())]
    while stack:
        path, value = stack.pop()
        if isinstance(value, TensorRef):
            leaves[path] = value
            continue
        inner = entries_of(value)
        if not inner or id(inner) in seen or len(path) > _TREE_DEPTH or len(leaves) > _TREE_LEAVES:
            return None
        seen.add(id(inner))
        stack.extend(((*path, k), v) for k, v in reversed(inner.items()))
    return leaves or None


def _flat(spot: Spot, tensors: dict[Any, TensorRef], extra: dict[Any, Value]) -> Weights:
    """Weights of a dict that holds its tensors itself."""
    if not all(isinstance(key, str) for key in tensors):
        return _weights(spot, {(k,): t for k, t in tensors.items()}, extra)
    return _named(spot, tensors, {}, extra)


def _weights(spot: Spot, leaves: dict[KeyPath, TensorRef], extra: dict[Any, Value]) -> Weights:
    """Weights whose names are not the keys of one dict; two paths that spell the same name are told apart."""
    tensors: dict[str, TensorRef] = {}
    paths: dict[str, KeyPath] = {}
    for path, tensor in leaves.items():
        name = ".".join(map(key_text, path))
        while name in tensors:
            name += "'"
        tensors[name] = tensor
        paths[name] = (*spot.at.path, *path)
    return _named(spot, tensors, paths, extra)


def _named(spot: Spot, tensors: dict[str, TensorRef], paths: dict[str, KeyPath], extra: dict[Any, Value]) -> Weights:
    names = [n for n in tensors if n != "n_averaged"] if "n_averaged" in tensors else tensors
    averaged = "n_averaged" in tensors and all(n.startswith("module.") for n in names)
    return Weights(
        at=spot.at,
        role=_role(spot, averaged=averaged),
        name=spot.name or "model",
        tensors=tensors,
        paths=paths,
        extra={key_text(k): v for k, v in extra.items()},
        modules=_modules(spot.value),
        prefix=leading(names),
    )


def _modules(state_dict: Value) -> Mapping[str, Value]:
    """What `state_dict()` notes beside the tensors for each module: its version (torch/nn/modules/module.py)."""
    if not isinstance(state_dict, Record) or not isinstance(state_dict.state, dict):
        return {}
    noted = entries_of(state_dict.state.get("_metadata")) or {}
    return {name: entry for name, entry in noted.items() if isinstance(name, str)}


def _role(spot: Spot, *, averaged: bool) -> Role:
    if averaged or spot.role is Role.EMA:
        return Role.EMA
    keys = spot.words[1:] or spot.words  # a file's stem speaks for its root alone
    return Role.EMA if any(words.is_ema(key) for key in keys) else Role.MODEL


class _Step(NamedTuple):
    """A module on the way through a module tree."""

    module: Value
    prefix: str
    depth: int


def _module_weights(spot: Spot, log: FindingLog) -> Weights:
    """The state_dict that `state_dict()` of this module would return: parameters, buffers, then the children's.

    Source: torch/nn/modules/module.py, `_save_to_state_dict` of torch 2.13
    """
    tensors: dict[str, TensorRef] = {}
    buffers: set[str] = set()
    extra: dict[str, Value] = {}
    told: set[int] = set()
    budget = spot.limits.nodes // 10
    stack = [_Step(spot.value, "", 0)]
    while stack:
        step = stack.pop()
        budget -= 1
        if not isinstance(step.module, Opaque):
            continue
        if step.depth > _MODULE_DEPTH or budget < 0:
            log.add(
                "module.too-deep",
                Severity.WARNING,
                f"the module tree is deeper than {_MODULE_DEPTH:,} or repeats itself; its names are not all listed",
                where=spot.key,
                hint="do not trust this checkpoint",
            )
            break
        attributes = step.module.attributes
        own = _own_tensors(attributes)
        budget -= len(own)
        tensors.update((step.prefix + name, tensor) for name, tensor, _ in own)
        buffers.update(step.prefix + name for name, _, is_buffer in own if is_buffer)
        extra[f"{step.prefix}__dict__"] = kept = _other_state(step.module, told)
        budget -= len(kept)
        children = entries_of(attributes.get("_modules")) or {}
        stack.extend(_Step(c, f"{step.prefix}{key_text(k)}.", step.depth + 1) for k, c in reversed(children.items()))
    paths = {name: (*spot.at.path, name) for name in tensors}
    role = _role(spot, averaged=False)
    return Weights(
        at=spot.at,
        role=role,
        name=spot.name or "model",
        tensors=tensors,
        paths=paths,
        extra=extra,
        buffers=frozenset(buffers),
        prefix=leading(tensors),
    )


def _other_state(module: Opaque, told: set[int]) -> dict[str, Value]:
    """What makes a module act as it does beside its state_dict: class, training flag, settings, other buffers.

    An object of settings that several modules share is told of the first one; `told` holds the `id` of each.
    """
    attributes = module.attributes
    objects = {k: v for k, v in attributes.items() if _is_named(k) and not _is_setting(v) and id(v) not in told}
    configs = {k: v for k, v in objects.items() if _is_config(v)}
    told.update(map(id, configs.values()))
    simple = ((key_text(k), v) for k, v in attributes.items() if _is_setting(v) or k in configs)
    skipped = _hidden(attributes)
    buffers = ((key_text(k), v) for k, v in (entries_of(attributes.get("_buffers")) or {}).items() if k in skipped)
    kept = islice(chain(simple, ((k, v) for k, v in buffers if isinstance(v, TensorRef))), _ATTRIBUTES)
    return {"class": module.name, **dict(kept)}


def _is_setting(value: Value) -> bool:
    """Whether an attribute is a number, a text, a flag, None, or a few of them in a tuple."""
    if isinstance(value, tuple) and not isinstance(value, GlobalRef):
        return len(value) <= _ATTRIBUTES and all(isinstance(item, _SIMPLE) for item in value)
    return isinstance(value, _SIMPLE)


def _is_named(key: Any) -> bool:
    """Whether an attribute is the user's: those of torch, hooks among them, begin with an underscore."""
    return isinstance(key, str) and not key.startswith("_")


def _is_config(value: Value) -> bool:
    """Whether an attribute is an object, a list or a dict of settings: no tensor in it, no module, and not much."""
    stack, seen = [value], 0
    while stack:
        value = stack.pop()
        seen += 1
        if seen > _SETTINGS or isinstance(value, TensorRef) or is_module(value):
            return False
        stack += islice((child for _, child in children(value)), _SETTINGS)
    return True


def _hidden(attributes: Mapping[Any, Value]) -> set[Any] | frozenset[Any]:
    """Names of the buffers that `state_dict()` leaves out."""
    skipped = attributes.get("_non_persistent_buffers_set")
    return skipped if isinstance(skipped, set | frozenset) else frozenset()


def _own_tensors(attributes: Mapping[Any, Value]) -> list[tuple[str, TensorRef, bool]]:
    """A module's own parameters, then its persistent buffers (True), in the order of registration."""
    hidden = _hidden(attributes)
    parameters = entries_of(attributes.get("_parameters")) or {}
    buffers = entries_of(attributes.get("_buffers")) or {}
    own = [(key_text(k), t, False) for k, t in parameters.items() if isinstance(t, TensorRef)]
    kept = ((k, t) for k, t in buffers.items() if k not in hidden)
    return own + [(key_text(k), t, True) for k, t in kept if isinstance(t, TensorRef)]
