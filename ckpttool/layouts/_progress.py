"""How far training came: counters, data positions, and the arguments it was started with."""

from collections.abc import Mapping

from ckpttool.elements import number
from ckpttool.layouts import _words as words
from ckpttool.layouts._spots import Spot, Verdict, class_name, entries_of, fields_of, spelled
from ckpttool.model import Counter, DataPosition, Role
from ckpttool.values import Opaque, TensorRef, Value

_COUNTER_DEPTH = 3  # deeper keys named `step` belong to something else
# Keys of torchdata's StatefulDataLoader; two of them make a loader (torchdata/stateful_dataloader).
_LOADER = frozenset(
    ("_num_yielded", "_sampler_iter_yielded", "_iterator_finished", "_sampler_iter_state", "_dataset_state",
     "_snapshot", "_steps_since_snapshot", "_main_snapshot", "_worker_snapshots", "_index_sampler_state",
     "_num_workers")
)  # fmt: skip
_ARGUMENT_OBJECTS = ("Namespace", "SimpleNamespace", "DictConfig")


def counter(spot: Spot, found: list[Counter]) -> Verdict:
    """Recognise a number that says how far training came."""
    ours = words.counter(spot.key) if 0 < spot.depth <= _COUNTER_DEPTH else ""
    if ours in ("global_step", "step") and any(map(words.is_ema, spot.words[1:-1])):
        ours = "ema_updates"  # how often the average was updated, which says nothing of training
    if not ours or isinstance(spot.value, bool):
        return Verdict.NO
    if number(spot.value) is None:
        return Verdict.NO
    found.append(Counter(at=spot.at, name=ours, key=spot.name or spot.key, value=spot.value))
    return Verdict.PART


def data(spot: Spot, found: list[DataPosition]) -> Verdict:
    """Recognise the state of a data loader, a sampler or an iterator."""
    fields = fields_of(spot.value)
    is_loader = sum(key in fields for key in _LOADER) > 1
    named = spot.role is Role.DATA or (spot.depth > 0 and words.is_data(spot.word))
    if not fields or not (is_loader or named):
        return Verdict.NO
    name = spot.name or class_name(spot.value) or "data"
    found.append(DataPosition(at=spot.at, name=name, fields=spelled(fields)))
    return Verdict.PART


def arguments(spot: Spot) -> Mapping[str, Value] | None:
    """The arguments or hyperparameters at a place by their own keys; None for something else."""
    name = class_name(spot.value)
    known = name in _ARGUMENT_OBJECTS or name.endswith(("Args", "Arguments", "Config"))
    if not known and spot.role is not Role.CONFIG and not (spot.depth and words.is_config(spot.word)):
        return None
    fields = fields_of(spot.value)
    if not fields or any(isinstance(v, TensorRef) for v in fields.values()):
        return None
    return plain_arguments(spot.value)


def plain_arguments(value: Value) -> dict[str, Value]:
    """Attributes or entries by name; OmegaConf keeps both behind `_content` and `_val`.

    Source: omegaconf/basecontainer.py and nodes.py
    """
    fields = fields_of(value)
    content = entries_of(fields.get("_content"))
    return {k: _unwrapped(v) for k, v in spelled(fields if content is None else content).items()}


def _unwrapped(value: Value) -> Value:
    """What an argument stands for: an enum by its value, a node of OmegaConf by what it holds."""
    if not isinstance(value, Opaque) or value.entries is not None or value.items is not None:
        return value
    if "_val" in value.attributes:
        return value.attributes["_val"]
    match value.args:
        case (str() | int() | float() as only,) if value.state is None:
            return only
    return value
