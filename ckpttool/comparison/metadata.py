"""What stands beside the tensors of a state_dict: versions of its modules, and notes of a safetensors file."""

from collections.abc import Mapping, Sequence

from ckpttool.comparison.alignment import Alignment, renaming
from ckpttool.model import Weights
from ckpttool.names import without_wrappers
from ckpttool.values import Value

Notes = dict[str, Value]

# Says how a state_dict was loaded last: `load_state_dict(assign=True)` leaves it there (torch/nn/modules/module.py).
_LOADING = "assign_to_params_buffers"
_FORMAT = "format"  # `pt`, or another framework whose tensors they were


def paired_metadata(
    left: Weights, right: Weights, aligned: Alignment, *, maps: Sequence[str] = (), literal: bool = False
) -> tuple[Notes, Notes]:
    """The metadata of both sides that can be held against each other; empty where a side keeps none.

    Modules (`_metadata`) are named as on the right side. One that a single side names counts where it holds a tensor
    that both have: a layer without tensors is a matter of code. Metadata of safetensors counts between single files,
    without what says only how tensors are stored.

    Args:
        aligned: the tensors, paired.
        maps, literal: as for `align`.

    Raises:
        UsageError: as `align`.
    """
    mine, other = Notes(), Notes()
    if left.modules and right.modules:
        rename = renaming(() if literal else maps)
        ours = {_module(rename(f"{name}.x".lstrip(".")), literal=literal): v for name, v in left.modules.items()}
        theirs = {_module(f"{name}.x".lstrip("."), literal=literal): v for name, v in right.modules.items()}
        counted = {_module(name, literal=literal) for _, name in aligned.pairs} | (ours.keys() & theirs.keys())
        mine["_metadata"], other["_metadata"] = _of(ours, counted), _of(theirs, counted)
    if left.stored is not None and right.stored is not None:
        mine["__metadata__"], other["__metadata__"] = _said(left, left.stored), _said(right, right.stored)
    return mine, other


def _module(name: str, *, literal: bool) -> str:
    """The module that a tensor of this name belongs to; empty for the outermost."""
    return (name if literal else without_wrappers(name)).rpartition(".")[0]


def _of(modules: Mapping[str, Value], names: set[str]) -> Notes:
    """The entries of these modules."""
    return {name: _without_loading(entry) for name, entry in modules.items() if name in names}


def _without_loading(entry: Value) -> Value:
    return {k: v for k, v in entry.items() if k != _LOADING} if isinstance(entry, dict) else entry


def _said(weights: Weights, stored: Mapping[str, Value]) -> Notes:
    """Metadata without the format and without ties: `save_model` notes a name that it drops under the one it keeps."""
    return {
        key: value
        for key, value in stored.items()
        if key != _FORMAT and not (key not in weights.tensors and isinstance(value, str) and value in weights.tensors)
    }
