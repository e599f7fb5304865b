"""States of random generators: Python's, numpy's, torch's on the CPU and on devices.

Sources: CPython Lib/random.py (`getstate`), numpy/random (`get_state`, pickled generators),
aten/src/ATen/CPUGeneratorImpl.cpp (5,056 bytes; 5,048 before torch 1.2) and CUDAGeneratorImpl.cpp (16 bytes; 816 before
torch 1.8).
"""

from collections.abc import Mapping
from typing import Any

from ckpttool.elements import number
from ckpttool.layouts import _words as words
from ckpttool.layouts._spots import Spot, Verdict, class_name, entries_of, fields_of, items_of, key_text
from ckpttool.model import RngState, Role
from ckpttool.values import GlobalRef, Opaque, TensorRef, Value

_CPU_BYTES = (5056, 5048)
_LARGEST = 10_000  # bytes; a longer uint8 tensor under a generator's key is data, not a state
_DEVICES = ("cuda", "xpu", "mps", "hpu", "npu", "mlu", "musa", "sdaa", "neuron", "xla", "xm")
_PYTHON_WORDS = 625  # 624 words of the Mersenne Twister and the position
_NUMPY_OBJECTS = ("__randomstate_ctor", "__generator_ctor", "__bit_generator_ctor")


def rng(spot: Spot, found: list[RngState]) -> Verdict:
    """Recognise the state of one generator."""
    generator, detail = _generator(spot)
    if not generator:
        return Verdict.NO
    found.append(RngState(at=spot.at, generator=generator, rank=spot.rank, detail=detail, value=spot.value))
    return Verdict.PART


def _generator(spot: Spot) -> tuple[str, str]:
    """Which generator, and its state in words; two empty strings for something else."""
    match spot.value:
        case TensorRef() as tensor:
            return _torch(spot, tensor)
        case Opaque() as value if isinstance(value.cls, GlobalRef) and value.items is None and value.entries is None:
            return _numpy_object(value)
    items = items_of(spot.value)
    if items is not None:
        return _python(items) or _numpy_tuple(items) or ("", "")
    entries = entries_of(spot.value)
    return _numpy_dict(entries) if entries else ("", "")


def is_cpu_state(tensor: TensorRef) -> bool:
    """Whether a tensor has type and size of the state of torch's generator on the CPU."""
    return tensor.dtype.name == "uint8" and len(tensor.shape) == 1 and tensor.shape[0] in _CPU_BYTES


def _torch(spot: Spot, tensor: TensorRef) -> tuple[str, str]:
    if is_cpu_state(tensor):
        return "torch", f"{tensor.shape[0]:,} bytes"
    if tensor.dtype.name != "uint8" or len(tensor.shape) != 1 or not 0 < tensor.shape[0] <= _LARGEST:
        return "", ""
    device = next((d for word in reversed(spot.words) for d in _DEVICES if d in word), "")
    known = spot.role is Role.RNG or any(words.is_rng(w) for w in spot.words)
    if not known:
        return "", ""
    step = spot.at.path[-1] if spot.at.path else None
    index = f":{step}" if type(step) is int else ""
    return ("xla" if device == "xm" else device or "torch") + index, f"{tensor.shape[0]:,} bytes"


def _python(items: list[Value] | tuple[Value, ...]) -> tuple[str, str] | None:
    """`random.getstate()`: (3, 625 integers, None or the next gauss)."""
    if len(items) != 3 or type(items[0]) is not int:  # noqa: PLR2004  # the three of `getstate`
        return None
    numbers = items_of(items[1])
    if numbers is None or len(numbers) != _PYTHON_WORDS or not all(isinstance(n, int) for n in numbers):
        return None
    return "python", f"Mersenne Twister, position {number(numbers[-1])}"


def _numpy_tuple(items: list[Value] | tuple[Value, ...]) -> tuple[str, str] | None:
    """`numpy.random.get_state()`: ("MT19937", 624 words, position, has_gauss, cached_gaussian)."""
    if len(items) < 3 or not isinstance(items[0], str) or not items[0].isalnum():  # noqa: PLR2004  # name, words, position
        return None
    words_held = isinstance(items[1], TensorRef) or items_of(items[1]) is not None
    if items[0] != "MT19937" or not words_held or type(items[2]) is not int:
        return None
    return "numpy", f"MT19937, position {items[2]}"


def _numpy_dict(entries: Mapping[Any, Value]) -> tuple[str, str]:
    """`bit_generator.state` of a `numpy.random.Generator`, or `get_state(legacy=False)`."""
    kind = entries.get("bit_generator")
    inner = entries_of(entries.get("state"))
    if not isinstance(kind, str) or inner is None:
        return "", ""
    position = inner.get("pos")
    return "numpy", f"{kind}, position {position}" if isinstance(position, int) else kind


def _numpy_object(value: Opaque) -> tuple[str, str]:
    """A pickled `RandomState` or `Generator`: the bit generator's name is an argument of its constructor."""
    name = class_name(value)
    if name not in _NUMPY_OBJECTS:
        return "", ""
    state = fields_of(value)
    kind = state.get("bit_generator") if state else None
    return "numpy", kind if isinstance(kind, str) else key_text(name).strip("_").removesuffix("_ctor")
