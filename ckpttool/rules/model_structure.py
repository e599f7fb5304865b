"""`model.structure`."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import key_text, some
from ckpttool.model import At, Checkpoint, Role, Weights
from ckpttool.names import leading, without_wrappers
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, loads_strictly
from ckpttool.rules._kinds import kind_of
from ckpttool.rules._payloads import value_at
from ckpttool.rules._places import count, place, place_of
from ckpttool.rules._trained import is_adapter, resumes
from ckpttool.values import Opaque, TensorRef, Value

_KEYS = ("model", "state_dict", "model_state_dict", "model_state", "net", "network")
_OWN = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")  # names that modules of torch give
_NOT_DENSE = ("meta", "ndarray", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_BATCH_NORM = 2  # the version of torch's batch norm, which counts batches; others keep mean and variance alone
_WEIGHTS = re.compile(r"(?:model|pytorch_model)(?:_\d+)?\.(?:safetensors|bin)")  # of Accelerate and the Trainer
_LOADING = "Module.load_state_dict (torch/nn/modules/module.py)"


class ModelStructure:
    """What should be a state_dict is none, or some of its entries cannot be loaded.

    What: in a script's file that has an optimizer or a schedule, `model` (or `state_dict`, …) that is empty, a list,
    `None`, of keys that are no text, or holds the state_dict one key deeper under the same word; entries named like
    parameters that are no tensors, or tensors without dense elements (`meta`, sparse, arrays). Everywhere: batch norms
    that have a mean and no variance, or the other way round, and those of this version of torch that lack
    `num_batches_tracked`; a wrapper's prefix in front of some names of a module and not of others; a trainer's file of
    weights without any, or of whole numbers alone.

    Why: `load_state_dict` raises on each of these, with `strict=False` too where the value is at fault. The Trainer
    loads with `strict=False`, so that what is missing stays as it was initialised.

    Example: `model: bn.running_var is missing beside bn.running_mean: strict loading raises RuntimeError in
    Module.load_state_dict (torch/nn/modules/module.py): Missing key(s)`

    Reference: torch 2.13 nn/modules/module.py `load_state_dict`, `_load_from_state_dict`, nn/modules/batchnorm.py.
    """

    code: ClassVar[str] = "model.structure"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """At most one finding of each kind, a state_dict."""
        yield from self._payload(case.checkpoint)
        yield from self._file(case.checkpoint)
        for weights in case.checkpoint.weights:
            if weights.role is Role.MODEL and not is_adapter(weights):
                if resumes(case.checkpoint):
                    yield from self._entries(case, weights)
                yield from self._batch_norms(case, weights)
                yield from self._mixed(case, weights)

    def _error(self, where: str, message: str, *, silent: bool = False) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.SILENT if silent else Severity.ERROR,
            where=where,
            message=message,
            hint="resume from a checkpoint whose weights are model.state_dict() as it was returned",
        )

    def _payload(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """A script's key for the model that leads to something else, where no model lies elsewhere."""
        root = value_at(checkpoint, At(""))
        if checkpoint.layout != "plain" or checkpoint.is_folder or not isinstance(root, dict):
            return
        if not resumes(checkpoint):
            return
        for key in _KEYS:
            told = _no_state_dict(key, root[key]) if key in root else None
            others = [w for w in checkpoint.weights if w.role is Role.MODEL and w.at.path[:1] != (key,)]
            if told is not None and not others:
                yield self._error(key, f"{told[0]}: load_state_dict of what is at `{key}` raises {told[1]}")

    def _file(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """The trainer's file of weights that holds none."""
        trainer = checkpoint.layout == "hf-trainer"
        if not (trainer or checkpoint.layout == "accelerate") or not checkpoint.optimizers:
            return
        taken = {w.at.file for w in checkpoint.weights}
        for file, contents in checkpoint.contents.items():
            root = contents.root
            if not _WEIGHTS.fullmatch(file) or file in taken or not contents.complete or not isinstance(root, dict):
                continue
            tensors = [v for v in root.values() if isinstance(v, TensorRef)]
            whole = bool(tensors) and not any(t.dtype.is_floating for t in tensors)
            what = f"all {count(len(tensors), 'tensor')} are of whole numbers" if whole else "it holds no weights"
            if whole:
                then = "load_state_dict casts them to the parameters' type, and what was behind the point is lost"
            elif trainer:
                then = "the Trainer loads with strict=False, so the model stays as it was initialised"
            else:
                then = f"load_state raises {RAISED}: Missing key(s) in state_dict"
            if whole or not tensors:
                yield self._error(file, f"{what}: {then}", silent=whole or trainer)

    def _entries(self, case: Case, weights: Weights) -> Iterator[Finding]:
        odd = [(n, t.kind) for n, t in weights.tensors.items() if t.kind in _NOT_DENSE]
        if odd:
            (name, kind), more = odd[0], f", as are {len(odd) - 1:,} others" if len(odd) > 1 else ""
            what = f"{name} is {'an array' if kind == 'ndarray' else f'a {kind} tensor'}{more}"
            then = f"load_state_dict raises {RAISED}: While copying the parameter named {name}"
            yield self._error(place_of(weights, name), f"{what}: {then}")
        held = value_at(case.checkpoint, weights.at)
        strays = list(_strays(held, weights)) if isinstance(held, dict) else []
        if strays:
            name, value = strays[0]
            more = f", and {count(len(strays) - 1, 'other')} is no tensor either" if len(strays) > 1 else ""
            yield self._error(
                place(weights.at, name),
                f"{name} is {kind_of(value)}, no tensor{more}: load_state_dict raises {RAISED}: While copying the "
                f"parameter named {name}, expected torch.Tensor",
            )

    def _batch_norms(self, case: Case, weights: Weights) -> Iterator[Finding]:
        names = weights.tensors.keys()
        lacking: list[tuple[str, str]] = []
        for here, there in (("running_mean", "running_var"), ("running_var", "running_mean")):
            modules = (n[: -len(here)] for n in names if n.endswith(f".{here}"))
            lacking += [(f"{m}{here}", f"{m}{there}") for m in modules if f"{m}{there}" not in names]
        lacking += [
            (f"{m}running_mean", f"{m}num_batches_tracked")
            for m in (n[: -len("running_mean")] for n in names if n.endswith(".running_mean"))
            if f"{m}running_var" in names and f"{m}num_batches_tracked" not in names and _counts_batches(weights, m)
        ]
        yield from self._norm_shapes(weights)
        # None in its place is another finding, and another exception.
        held = value_at(case.checkpoint, weights.at)
        lacking = [pair for pair in lacking if not isinstance(held, dict) or pair[1] not in held]
        if not lacking:
            return
        beside, name = lacking[0]
        more = f", as {count(len(lacking) - 1, 'other')}" if len(lacking) > 1 else ""
        strictly = loads_strictly(case, weights)
        then = (
            f"strict loading raises {RAISED}: Missing key(s) in state_dict"
            if strictly
            else "the Trainer loads with strict=False, so it stays as it was initialised"
        )
        yield self._error(place(weights.at), f"{name} is missing beside {beside}{more}: {then}", silent=not strictly)

    def _norm_shapes(self, weights: Weights) -> Iterator[Finding]:
        """Mean and variance of a batch norm are of one shape."""
        for name, mean in weights.tensors.items():
            variance = (
                weights.tensors.get(f"{name.removesuffix('mean')}var") if name.endswith(".running_mean") else None
            )
            if variance is not None and variance.shape != mean.shape:
                yield self._error(
                    place_of(weights, name),
                    f"{name} has the shape {list(mean.shape)}, its running_var {list(variance.shape)}: loading raises "
                    f"{RAISED}: size mismatch, with strict=False too",
                )
                return

    def _mixed(self, case: Case, weights: Weights) -> Iterator[Finding]:
        """Some names of a module with a wrapper's prefix, and others of the same module without it."""
        wrapped = {n: without_wrappers(n) for n in weights.tensors if leading([n])}
        plain = [n for n in weights.tensors if n not in wrapped]
        if not wrapped or not plain or set(wrapped.values()) & set(plain):
            return
        if not (_are_torn(weights, wrapped) or _share(wrapped.values(), plain)):
            return
        prefix = leading(list(wrapped)[:1])
        strictly = loads_strictly(case, weights)
        then = (
            f"a model that is wrapped, and one that is not, raises {RAISED}: Missing key(s) in state_dict"
            if strictly
            else "the Trainer loads with strict=False, so those with it never reach the model"
        )
        yield self._error(
            place(weights.at),
            f"{len(wrapped):,} of {count(len(weights.tensors), 'name')} begin with `{prefix}` ({some(list(wrapped))}), "
            f"the others of the same modules do not: {then}",
            silent=not strictly,
        )


def _no_state_dict(key: str, value: Value) -> tuple[str, str] | None:
    """What a value is that is no state_dict, and what loading it raises; None for what may be one."""
    match value:
        case Opaque() | str() | int() | float() if not isinstance(value, bool):
            return None  # a pickled module, or the name of a model
        case dict():
            return _of_dict(key, value)
    what = f"it is {kind_of(value)}, no state_dict"
    return what, f"TypeError ('Expected state_dict to be dict-like') in {_LOADING}"


def _of_dict(key: str, held: Mapping[Any, Value]) -> tuple[str, str] | None:
    if not held:
        return "it is empty", f"{RAISED}: Missing key(s) in state_dict"
    numbers = [k for k, v in held.items() if not isinstance(k, str) and isinstance(v, TensorRef)]
    if numbers:
        what = f"{count(len(numbers), 'tensor')} lie under keys that are no text ({key_text(numbers[0])})"
        return what, f"AttributeError in _load_from_state_dict of {_LOADING}"
    inner = held[key] if held.keys() == {key} else None
    if isinstance(inner, dict) and inner and all(isinstance(v, TensorRef) for v in inner.values()):
        return f"the state_dict lies one key deeper, under `{key}.{key}`", f"{RAISED}: Missing key(s) in state_dict"
    return None


def _strays(held: Mapping[Any, Value], weights: Weights) -> Iterator[tuple[str, Value]]:
    """Entries that are named as parameters of modules are, beside tensors, and are none."""
    modules = {n.rpartition(".")[0] for n in weights.tensors}
    for name, value in held.items():
        if not isinstance(name, str) or isinstance(value, TensorRef | Opaque):
            continue
        module, _, last = name.rpartition(".")
        if module and (last in _OWN or module in modules) and not name.endswith("_extra_state"):
            yield name, value


def _counts_batches(weights: Weights, module: str) -> bool:
    """Whether a batch norm is torch's, by its version; without one loading fills in the count."""
    noted = weights.modules.get(module.rstrip("."))
    return isinstance(noted, dict) and noted.get("version") == _BATCH_NORM


def _are_torn(weights: Weights, wrapped: Mapping[str, str]) -> bool:
    """Whether names with the prefix lie between others: in its order a model has all of one child side by side."""
    if not weights.in_model_order:
        return False
    flags = [name in wrapped for name in weights.tensors]
    return sum(a != b for a, b in pairwise(flags)) > 2  # noqa: PLR2004  # in and out once


def _share(bare: Any, plain: list[str]) -> bool:
    """Whether some name with the prefix is of a module, or of a numbered row of them, that others are of without."""
    outside = {_parent(n) for n in plain}
    return any(_parent(n) in outside for n in bare)


def _parent(name: str) -> str:
    """The module of a name, with its numbers left out."""
    return ".".join("#" if part.isdigit() else part for part in name.split(".")[:-1])
