"""A tensor spelled as torch prints it, for the one place where a file uses tensors as names.

A pickled optimizer keeps its state under the parameters themselves, and what people know such a key by is the text
that `print` shows. Source: torch/_tensor_str.py, torch 2.13, at its default print options.
"""

import math
from typing import TYPE_CHECKING, Any

from ckpttool.dtypes import BY_NAME
from ckpttool.elements.floats import as_floats
from ckpttool.elements.windows import windows
from ckpttool.errors import CkptError
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.values import TensorRef

if TYPE_CHECKING:
    import numpy as np

_PRECISION, _THRESHOLD, _EDGE, _LINE = 4, 1000, 3, 80
_MOST = 64 * 2**20  # bytes read for a name; beyond that the shape has to do
_UNMARKED = (BY_NAME["float32"], BY_NAME["int64"], BY_NAME["bool"])  # torch prints no dtype for its defaults


def torch_text(tensor: TensorRef, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """What `str(tensor)` gives in torch; `<bfloat16 [50257, 768]>` where the values cannot be read as numbers."""
    name = tensor.cls.name if tensor.cls else "tensor"
    try:
        if tensor.dtype.family not in ("float", "int", "uint", "bool") or tensor.nbytes > _MOST:
            return _plain(tensor)
        array = _values(tensor, limits)
    except CkptError:
        return _plain(tensor)
    body = "[]" if array.size == 0 else _body(array, len(name) + 1)
    text = _with_suffixes(f"{name}({body}", tensor, len(name) + 1, empty=array.size == 0)
    return f"Parameter containing:\n{text}" if tensor.parameter else text


def _plain(tensor: TensorRef) -> str:
    return f"<{tensor.dtype.name} {list(tensor.shape)}>"


def _values(tensor: TensorRef, limits: Limits) -> "np.ndarray[Any, Any]":
    import numpy as np  # noqa: PLC0415

    parts = [as_floats(tensor.dtype, array).reshape(-1) for _, array in windows(tensor, limits=limits)]
    flat = np.concatenate(parts) if parts else np.empty(0)
    return flat.reshape(tensor.shape)


def _with_suffixes(text: str, tensor: TensorRef, indent: int, *, empty: bool) -> str:
    suffixes = []
    device = tensor.storage.location if tensor.storage else "meta"
    if device != "cpu":
        suffixes.append(f"device='{device}'")
    if empty and len(tensor.shape) != 1:
        suffixes.append(f"size={tensor.shape}")
    if tensor.dtype not in _UNMARKED or (empty and tensor.dtype.name != "float32"):
        suffixes.append(f"dtype=torch.{tensor.dtype.name}")
    if tensor.requires_grad:
        suffixes.append("requires_grad=True")
    last = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > _LINE:
            text += f",\n{' ' * indent}{suffix}"
            last = indent + len(suffix)
        else:
            text += f", {suffix}"
            last += len(suffix) + 2
    return text + ")"


def _body(array: "np.ndarray[Any, Any]", indent: int) -> str:
    summarize = array.size > _THRESHOLD
    width, spell = _format(_edges(array) if summarize else array)
    return _nested(array, indent, width, spell, summarize=summarize)


def _edges(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """The elements that a summary shows, in any order."""
    import numpy as np  # noqa: PLC0415

    for axis, extent in enumerate(array.shape):
        if extent > 2 * _EDGE:
            array = np.take(array, [*range(_EDGE), *range(extent - _EDGE, extent)], axis=axis)
    return array


def _format(array: "np.ndarray[Any, Any]") -> tuple[int, Any]:
    """Width of an element and the function that spells one, as torch's `_Formatter` chooses them."""
    import numpy as np  # noqa: PLC0415

    flat = array.reshape(-1)
    if array.dtype.kind != "f":
        return max((len(f"{v}") for v in flat.tolist()), default=1), lambda v: f"{v}"
    shown = flat[np.isfinite(flat) & (flat != 0)].astype(np.float64)
    if shown.size == 0:
        return 1, _whole
    low, high = np.abs(shown).min(), np.abs(shown).max()
    scientific = bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)  # noqa: PLR2004  # torch's own numbers
    if scientific:
        return max(len(f"{v:.{_PRECISION}e}") for v in shown), lambda v: f"{v:.{_PRECISION}e}"
    if (shown == np.ceil(shown)).all():
        return max(len(f"{v:.0f}") for v in shown) + 1, _whole
    return max(len(f"{v:.{_PRECISION}f}") for v in shown), lambda v: f"{v:.{_PRECISION}f}"


def _whole(value: float) -> str:
    return f"{value:.0f}" + ("." if math.isfinite(value) else "")


def _nested(array: "np.ndarray[Any, Any]", indent: int, width: int, spell: Any, *, summarize: bool) -> str:
    if array.ndim == 0:
        return f"{spell(array.item()):>{width}}"
    cut = summarize and array.shape[0] > 2 * _EDGE
    rows = [*range(_EDGE), *range(array.shape[0] - _EDGE, array.shape[0])] if cut else range(array.shape[0])
    if array.ndim == 1:
        cells = [f"{spell(array[i].item()):>{width}}" for i in rows]
        cells[_EDGE:_EDGE] = [" ..."] if cut else []
        count = max(1, (_LINE - indent) // (width + 2))
        lines = [", ".join(cells[i : i + count]) for i in range(0, len(cells), count)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    slices = [_nested(array[i], indent + 1, width, spell, summarize=summarize) for i in rows]
    slices[_EDGE:_EDGE] = ["..."] if cut else []
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(slices) + "]"
