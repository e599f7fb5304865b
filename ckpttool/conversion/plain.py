"""`--plain`: objects turned into builtins and tensors, so that `torch.load(weights_only=True)` takes the result.

Sources: argparse.Namespace (its attributes are all it has), pathlib (`PurePath.__reduce__` gives the parts), numpy.
"""

import posixpath
from dataclasses import replace
from typing import Any

from ckpttool.conversion.tally import Changed, spelled_path
from ckpttool.conversion.trees import rewritten
from ckpttool.dtypes import BY_NAME
from ckpttool.limits import Limits
from ckpttool.pickles.trust import trust_of
from ckpttool.values import GlobalRef, KeyPath, NumpyScalar, Opaque, Record, TensorRef, Trust, Value

_PATHS = frozenset(
    "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath".split()  # noqa: SIM905  # as they are listed
)
_KEPT_RECORDS = ("collections.OrderedDict", "collections.Counter")


def plain(root: Value, limits: Limits) -> tuple[Any, list[Changed]]:
    """The tree with builtins in place of what needs a package to be loaded; and each thing that changed.

    numpy scalars become Python numbers, arrays become tensors, dicts of other classes become dicts, sets that cannot
    change become sets, paths become strings, and an object that is nothing but its attributes (a Namespace, a
    dataclass) becomes the dict of them. What is left can be dropped with `--drop-opaque`.
    """
    changes: list[Changed] = []

    def change(value: object, path: KeyPath) -> object:
        new = _plain(value)
        if new is not value:
            changes.append(Changed(spelled_path(path), _kind(value), _kind(new)))
        return new

    return rewritten(root, change, limits), changes


def _plain(value: object) -> object:
    match value:
        case NumpyScalar():
            return value.item()
        case TensorRef(kind="ndarray"):
            return _tensor(value)
        case Record() if str(value.cls) not in _KEPT_RECORDS:
            return dict(value)
        case frozenset():
            return set(value)
        case Opaque():
            return _of_object(value)
    return value


def _tensor(array: TensorRef) -> TensorRef:
    """The array as a tensor, where torch has its type; strings, dates and structures stay arrays."""
    native = BY_NAME.get(array.dtype.name.removeprefix(">").removeprefix("<"))
    if native is None or array.storage is None:
        return array
    return replace(array, dtype=native, kind="strided", made=None)


def _of_object(value: Opaque) -> object:
    ref = value.cls
    if not isinstance(ref, GlobalRef) or trust_of(ref) is not Trust.REFUSED:
        return value
    if ref.module.split(".")[0] == "pathlib" and ref.name in _PATHS:
        parts = value.args if isinstance(value.args, tuple) else ()
        return posixpath.join(*parts) if parts and all(isinstance(p, str) for p in parts) else "."
    nothing_else = not value.args and not value.kwargs and value.items is None and value.entries is None
    if value.how == "newobj" and nothing_else and isinstance(value.state, dict):
        return dict(value.state)
    return value


def _kind(value: object) -> str:
    match value:
        case NumpyScalar():
            return f"numpy.{value.dtype.name}"
        case TensorRef():
            return f"{'array' if value.kind == 'ndarray' else 'tensor'} {value.dtype.name} {list(value.shape)}"
        case Opaque():
            return value.name
        case Record():
            return str(value.cls)
    return type(value).__name__
