"""`--plain`: objects turned into builtins and tensors, so that `torch.load(weights_only=True)` takes the result.

Sources: argparse.Namespace (its attributes are all it has), pathlib (`PurePath.__reduce__` gives the parts), numpy.
"""

import contextlib
import ntpath
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ckpttool.conversion.tally import Changed
from ckpttool.conversion.trees import everything, rewritten
from ckpttool.dtypes import BY_NAME
from ckpttool.keypaths import Way, spelled_path
from ckpttool.limits import Limits
from ckpttool.pickles.trust import trust_of
from ckpttool.values import GlobalRef, NumpyScalar, Opaque, Record, StorageRef, TensorRef, Trust, Value

_PATHS = frozenset(
    "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath".split()  # noqa: SIM905  # as they are listed
)
_KEPT_RECORDS = ("collections.OrderedDict", "collections.Counter")
_ORDERED = "float64 float32 float16 complex128 complex64 int64 int32 int16 uint64 uint32 uint16"
_NATIVE = {BY_NAME[name].numpy: BY_NAME[name] for name in _ORDERED.split()}  # of numpy's numbers of several bytes
_NAMED = 4  # things in a sentence


def plain(root: Value, limits: Limits) -> tuple[Any, list[Changed]]:
    """The tree with builtins in place of what needs a package to be loaded; and each thing that changed.

    numpy scalars become Python numbers and strings, arrays become tensors; dicts, lists and deques of other classes
    become dicts and lists, sets that cannot change become sets, paths become strings, and an object that is nothing but
    its attributes (a Namespace, a dataclass) becomes the dict of them. Any other object is left as it is with all that
    it holds, and can be dropped with `--drop-opaque`.
    """
    return _Plain().run(root, limits)


class _Plain:
    def __init__(self) -> None:
        self._swapped: dict[int, StorageRef] = {}  # of arrays in the other byte order, by id of the original
        self._changes: list[Changed] = []
        self._within: Way | None = None  # the last object that stays: its code wants what it holds as it is

    def run(self, root: Value, limits: Limits) -> tuple[Any, list[Changed]]:
        return rewritten(root, self._change, limits), self._changes

    def _change(self, value: object, path: Way) -> object:
        if self._within is not None and path.leads_from(self._within):
            return value
        new = self._plain(value)
        if new is value and isinstance(value, Opaque) and _is_refused(value):
            self._within = path
        if new is not value:
            self._changes.append(Changed(spelled_path(path), _kind(value), _kind(new)))
        return new

    def _plain(self, value: object) -> object:
        match value:
            case NumpyScalar():
                return _of_scalar(value)
            case TensorRef(kind="ndarray"):
                return self._tensor(value)
            case Record() if str(value.cls) not in _KEPT_RECORDS:
                return _with_plain_keys(dict(value))
            case dict() if not isinstance(value, Record):
                return _with_plain_keys(value)
            case frozenset():
                return set(value)
            case Opaque():
                return _of_object(value)
        return value

    def _tensor(self, array: TensorRef) -> TensorRef:
        """The array as a tensor, where torch has its type; strings, dates and structures stay arrays."""
        swapped = array.dtype.numpy.startswith(">")
        native = _NATIVE.get("<" + array.dtype.numpy[1:]) if swapped else BY_NAME.get(array.dtype.name)
        storage = array.storage
        if native is None or storage is None:
            return array
        if swapped:  # the values are kept, not the bytes
            storage = self._swapped.setdefault(id(storage), replace(storage, big_endian=True, dtype=None))
        return replace(array, dtype=native, kind="strided", made=None, storage=storage)


def _of_scalar(value: NumpyScalar) -> object:
    """Python's number or string; itself where Python has none: dates, `longdouble`."""
    item = value.item()
    if not isinstance(item, bytes):
        return item
    order, kind = value.dtype.numpy[:1], value.dtype.numpy[1:2]
    if kind == "S":
        return item
    if kind == "U":
        with contextlib.suppress(UnicodeDecodeError):
            return item.decode("utf-32-be" if order == ">" else "utf-32-le", "surrogatepass")
    return value


def _with_plain_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    """The dict with numbers and strings for keys of numpy and pathlib; itself where none is, or two would meet."""
    if not _has_odd_keys(value):
        return value
    new = {_plain_key(key): item for key, item in value.items()}
    return new if len(new) == len(value) else value


def _has_odd_keys(value: dict[Any, Any]) -> bool:
    return any(isinstance(key, NumpyScalar | Opaque) for key in value)


def _plain_key(key: object) -> object:
    new = _of_scalar(key) if isinstance(key, NumpyScalar) else _of_path(key) if isinstance(key, Opaque) else None
    return key if new is None else new


def _of_object(value: Opaque) -> object:
    ref = value.cls
    if not isinstance(ref, GlobalRef) or trust_of(ref) is not Trust.REFUSED:
        return value
    path = _of_path(value)
    if path is not None:
        return path
    name = str(ref)
    if name == "collections.deque" and value.state is None and value.entries is None:
        return list(value.items or ())  # pickle adds what it holds one by one
    bare = value.how == "newobj" or name == "types.SimpleNamespace"
    if not bare or value.args or value.kwargs:
        return value
    holds = (value.items is not None, value.entries is not None, value.state is not None)
    match holds:
        case (True, False, False):
            return list(value.items or ())
        case (False, True, False):
            return _with_plain_keys(dict(value.entries or {}))
        case (False, False, True) if value.attributes or value.state == {}:
            return dict(value.attributes)
    return value


def _of_path(value: Opaque) -> str | None:
    """What a path says; None for what is no path."""
    ref = value.cls
    if not isinstance(ref, GlobalRef) or ref.module.split(".")[0] != "pathlib" or ref.name not in _PATHS:
        return None
    parts = value.args if isinstance(value.args, tuple) else ()
    join = ntpath.join if "Windows" in ref.name else posixpath.join
    return join(*parts) if parts and all(isinstance(p, str) for p in parts) else "."


def still_refused(root: Value, limits: Limits) -> str:
    """What `torch.load(weights_only=True)` refuses in a tree all the same, in a sentence; empty where nothing is."""
    found = [f"{_kind(value)} at {spelled_path(path) or 'the top'}" for path, value in _refused(root, limits)]
    if not found:
        return ""
    more = f", and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"torch.load(weights_only=True) still refuses {', '.join(found[:_NAMED])}{more}"


def _refused(root: Value, limits: Limits) -> Iterator[tuple[Way, object]]:
    within: Way | None = None  # the last one that was found; what it is made of goes with it
    for path, value in everything(root, limits):
        if (within is None or not path.leads_from(within)) and _is_refused(value):
            within = path
            yield path, value


def _is_refused(value: object) -> bool:
    match value:
        case Opaque(cls=GlobalRef() as ref) | (GlobalRef() as ref):
            return trust_of(ref) is not Trust.ACCEPTED
        case Record():
            return False
        case dict():
            return _has_odd_keys(value)
    return isinstance(value, Opaque | NumpyScalar) or (isinstance(value, TensorRef) and value.kind == "ndarray")


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
        case GlobalRef():
            return f"the name {value}"
        case dict() if _has_odd_keys(value):
            return "dict with keys of numpy or other classes"
    return type(value).__name__
