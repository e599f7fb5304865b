"""What a tree holds more than once: objects that occur twice, and storages that several tensors look at."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ckpttool.errors import LimitExceeded, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.structures.nodes import Node, node
from ckpttool.values import BytesRef, GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Value

_ALIGNED = 16  # bytes: what lies before the first covered byte is dropped in steps of the widest element
# Of other kinds it does not matter whether two are one object: nothing can change them.
_WITH_IDENTITY = (list, dict, set, frozenset, tuple, bytearray, Record, Opaque, NumpyScalar, TensorRef)


def lies(tensor: TensorRef) -> tuple[StorageRef, int, tuple[int, ...]]:
    """Storage, offset and strides in elements as they were when the tensor was saved.

    Raises:
        UnsupportedFormat: it has no elements of its own.
    """
    storage, offset, stride = tensor.origin
    if storage is None:
        raise UnsupportedFormat(f"a {tensor.kind} tensor has no elements of its own")
    return storage, offset, stride


def sameness(tensor: TensorRef) -> tuple[Any, ...]:
    """What two tensors have in common that are tied; every empty tensor is its own, as nothing is saved by a tie."""
    storage, offset, stride = lies(tensor)
    own = 0 if tensor.numel else id(tensor)
    flags = (tensor.conj, tensor.neg)
    return (id(storage), offset, tensor.shape, stride, tensor.dtype.name, *flags, own)


@dataclass(slots=True)
class Shared:
    """A storage that is looked at in more than one way, or is a value itself, and what is kept of it."""

    storage: StorageRef
    start: int = 0  # first byte that is kept
    nbytes: int = 0
    whole: bool = False  # it is a value itself, so all its bytes are kept as they are


@dataclass(slots=True)
class Survey:
    """What a walk over a tree found."""

    twice: set[int] = field(default_factory=set)  # ids of objects that occur more than once
    shared: dict[int, Shared] = field(default_factory=dict)  # by id of the storage
    views: dict[int, list[TensorRef]] = field(default_factory=dict)  # tensors by id of the storage that they look at


def survey(root: Value, limits: Limits) -> Survey:
    """Walk a tree once.

    Raises:
        LimitExceeded: it holds more values than `limits.nodes`.
    """
    found = Survey()
    values: dict[int, StorageRef] = {}
    held: dict[int, StorageRef] = {}
    for value in _everything(root, found, limits):
        if isinstance(value, StorageRef):
            values[id(value)] = value
        elif isinstance(value, TensorRef) and value.storage is not None:
            storage, _, _ = lies(value)
            held[id(storage)] = storage
            found.views.setdefault(id(storage), []).append(value)
    for key, storage in values.items():
        found.shared[key] = Shared(storage, nbytes=storage.nbytes, whole=True)
    for key, views in found.views.items():
        if key not in values and len({sameness(view) for view in views}) > 1:
            found.shared[key] = _trimmed(views, held[key])
    return found


def _trimmed(views: list[TensorRef], storage: StorageRef) -> Shared:
    spans = [view.covered for view in views if view.covered != (0, 0)]
    start = min((first for first, _ in spans), default=0) // _ALIGNED * _ALIGNED
    return Shared(storage, start, max((end for _, end in spans), default=0) - start)


def _everything(root: Value, found: Survey, limits: Limits) -> Iterator[Value]:
    """Every object once, and plain values never; those met again are noted."""
    seen: set[int] = set()
    pending: list[Value] = [root]
    count = 0
    while pending:
        value = pending.pop()
        count += 1
        if count > limits.nodes:
            raise LimitExceeded(
                f"the tree holds more than {limits.nodes:,} values",
                hint=f"raise it with --limit nodes={10 * limits.nodes}",
            )
        if not has_identity(value) and not isinstance(value, StorageRef | BytesRef):
            continue
        if id(value) in seen:
            found.twice.add(id(value))
            continue
        seen.add(id(value))
        yield value
        inside: Node | None = node(value)
        for group in inside.groups if inside else ():
            pending.extend(group.values)


def has_identity(value: Value) -> bool:
    """Whether it is seen when two of it are one object; of nothing that is empty and cannot change."""
    if isinstance(value, BytesRef):
        return value.mutable
    if isinstance(value, tuple | frozenset) and not value:
        return False
    return isinstance(value, _WITH_IDENTITY) and not isinstance(value, GlobalRef)
