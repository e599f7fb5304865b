"""Numbers about the parts of a checkpoint, counted once for the text and for JSON."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ckpttool.commands._names import label
from ckpttool.dtypes import DType
from ckpttool.elements import number
from ckpttool.model import Checkpoint, LossScale, OptimizerState, Weights
from ckpttool.values import TensorRef, Value

_WHOLE = ("int", "uint", "bool")


@dataclass(slots=True)
class TensorFacts:
    """Of a group of tensors; elements that two of them share count once."""

    tensors: int = 0
    tied: int = 0  # tensors that are another one under a second name
    parameters: int = 0  # elements, without counters of one integer (`num_batches_tracked`)
    nbytes: int = 0  # of the values that are stored
    meta: int = 0  # tensors on the meta device, which have no values
    dtypes: Counter[str] = field(default_factory=Counter)  # elements by type
    counters: Counter[str] = field(default_factory=Counter)  # tensors of one integer, by type


def tensor_facts(tensors: Iterable[TensorRef]) -> TensorFacts:
    """Count tensors."""
    facts = TensorFacts()
    met: set[tuple[object, ...]] = set()
    elements: dict[DType, int] = {}
    for tensor in tensors:
        facts.tensors += 1
        dtype, shape = tensor.dtype, tensor.shape
        if tensor.storage is not None:
            identity = (id(tensor.storage), tensor.storage_offset, shape, tensor.stride)
            if identity in met:
                facts.tied += 1
                continue
            met.add(identity)
        numel = tensor.numel
        if tensor.kind == "meta":
            facts.meta += 1
        else:
            facts.nbytes += tensor.nbytes if tensor.parts else dtype.nbytes(numel)
        elements[dtype] = elements.get(dtype, 0) + numel
        if shape or dtype.family not in _WHOLE:
            facts.parameters += numel
        else:
            facts.counters[dtype.name] += 1
    facts.dtypes.update({dtype.name: count for dtype, count in elements.items()})
    return facts


def stored_bytes(tensor: TensorRef) -> int:
    """Bytes of a tensor's values; a tensor on the meta device has a shape and no values."""
    return 0 if tensor.kind == "meta" else tensor.nbytes


def weights_facts(weights: Weights) -> TensorFacts:
    """Count the tensors of a state_dict."""
    return tensor_facts(weights.tensors.values())


@dataclass(slots=True)
class OptimizerFacts:
    """How much of an optimizer there is."""

    parameters: int = 0
    with_state: int = 0
    without_state: list[str] = field(default_factory=list)  # names, or ids as text
    moments: dict[str, Counter[str]] = field(default_factory=dict)  # bytes by type, by state key; scalars left out
    nbytes: int = 0


def optimizer_facts(optimizer: OptimizerState) -> OptimizerFacts:
    """Count parameters and the tensors kept for each."""
    facts = OptimizerFacts()
    stated = {_identity(key) for key in optimizer.state}
    for group in optimizer.groups:
        for parameter, name in zip(group.params, group.names, strict=False):
            facts.parameters += 1
            if _identity(parameter) in stated:
                facts.with_state += 1
            else:
                facts.without_state.append(name or _label(parameter))
    for entry in optimizer.state.values():
        for key, value in entry.items():
            for tensor in _tensors(value):
                facts.nbytes += stored_bytes(tensor)
                if tensor.shape:
                    facts.moments.setdefault(label(key), Counter())[tensor.dtype.name] += stored_bytes(tensor)
    return facts


def _identity(key: Value) -> object:
    """What tells one parameter from another: an id or a name, or the tensor itself in a pickled optimizer."""
    return key if isinstance(key, int | str) else id(key)


def _label(key: Value) -> str:
    return label(key) if isinstance(key, int | str) else "a parameter without a name"


def _tensors(value: Value) -> Iterator[TensorRef]:
    match value:
        case TensorRef():
            yield value
        case list():
            yield from (v for v in value if isinstance(v, TensorRef))


def learning_rates(optimizer: OptimizerState) -> list[float]:
    """The learning rate of each group that has one, as a number."""
    rates = (number(group.hyperparameters.get("lr")) for group in optimizer.groups)
    return [rate for rate in rates if rate is not None]


def first_rate(checkpoint: Checkpoint) -> float | None:
    """The learning rate of the first group of the first optimizer."""
    return next((rate for optimizer in checkpoint.optimizers for rate in learning_rates(optimizer)), None)


def only_scale(checkpoint: Checkpoint) -> LossScale | None:
    """The loss scale, where there is one and not several."""
    return checkpoint.scalers[0] if len(checkpoint.scalers) == 1 else None


def total_bytes(checkpoint: Checkpoint) -> int:
    """Of all files."""
    if checkpoint.files:
        return sum(file.size for file in checkpoint.files)
    if checkpoint.contents:
        return sum(contents.source.size for contents in checkpoint.contents.values())
    return _size_on_disk(Path(checkpoint.path))


def _size_on_disk(path: Path) -> int:
    """Of a file or folder that could not be opened; links are not followed."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum((Path(at) / name).lstat().st_size for at, _, names in os.walk(path) for name in names)
    except OSError:  # not even its size can be found out
        return 0
