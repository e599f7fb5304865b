"""What each random generator takes as its state, and what it raises on anything else.

Sources: CPython 3.11 Lib/random.py and Modules/_randommodule.c (`setstate`), numpy 2 random/mtrand.pyx (`set_state`),
torch 2.13 torch/random.py (`set_rng_state`), aten/src/ATen/CPUGeneratorImpl.cpp and cuda/CUDAGeneratorImpl.cpp.
"""

import math
import struct
from typing import Any, Final, NamedTuple

from ckpttool.elements import number
from ckpttool.errors import CkptError
from ckpttool.sources import ByteSpan
from ckpttool.values import NumpyScalar, TensorRef, Value

ONLY: Final = "only shuffling and dropout differ"  # where random states are lost
CALLS: Final = {
    "python": "random.setstate",
    "numpy": "np.random.set_state",
    "torch": "torch.set_rng_state",
    "cuda": "torch.cuda.set_rng_state",
}
_CPU_BYTES = 5056
_OLD_CPU_BYTES = 5048  # before torch 1.2
_HEAD_BYTES = 20  # of a state on the CPU, before its words
_CUDA_BYTES = (16, 8)  # 8: without the offset
_WORDS = 624  # of the Mersenne Twister
_NUMPY_NAME = "MT19937"
_NUMPY_LENGTHS = (3, 5)  # name, words, position; and has_gauss, cached_gaussian


class Refusal(NamedTuple):
    """Why a generator does not go on from a value."""

    exception: str  # class; empty where it takes the value and draws other numbers
    says: str  # `it is None, not a tensor of 5,056 bytes`


def generator_of(value: Value) -> str:
    """The generator that a state without a name is for, by its form; empty where that tells nothing.

    A seed, a key of JAX (`uint32`), and 16 bytes, which CUDA's generator has, are of none.
    """
    match value:
        case TensorRef(kind="strided" | "ndarray", numel=count):
            whole = count in (_CPU_BYTES, _OLD_CPU_BYTES)
            short = value.dtype.name == "uint8" and len(value.shape) == 1 and count not in _CUDA_BYTES
            return "torch" if whole or short else ""
        case [TensorRef(), *_]:  # of each rank
            return "torch" if all(generator_of(v) == "torch" for v in value if isinstance(v, TensorRef)) else ""
        case [int(), tuple() | list(), *_] if not isinstance(value[0], bool):
            return "python"
        case [str(), *_]:
            return "numpy" if value[0] == _NUMPY_NAME else ""
        case dict() if "bit_generator" in value:
            return "numpy"
    return ""


def refusal(generator: str, value: Value) -> Refusal | None:
    """What becomes of a state; None where the generator takes it.

    Args:
        generator: `python`, `numpy`, `torch` (on the CPU), `cuda`.
    """
    match generator:
        case "python":
            return _python(value)
        case "numpy":
            return _numpy(value)
        case "torch":
            return _torch(value)
    states = value if isinstance(value, list | tuple) else [value]
    return next((wrong for state in states if (wrong := _cuda(state))), None)


def kind(value: Value) -> str:
    """What a value is, in a word or two: `None`, `an int`, `an int64 tensor of 5,056`."""
    match value:
        case None:
            return "None"
        case TensorRef():
            held = "array" if value.kind == "ndarray" else "tensor"
            return f"{_with_article(value.dtype.name)} {held} of {value.numel:,}"
        case NumpyScalar():
            return f"a numpy {value.dtype.name}"
        case dict():
            return "an empty dict" if not value else "a dict"
        case list() | tuple():
            return f"a {'list' if isinstance(value, list) else 'tuple'} of {len(value):,}"
    name = type(value).__name__
    return "an object" if name == "Opaque" else _with_article(name)


def _with_article(word: str) -> str:
    """`an int64`, `a dict`; `a uint8` is spoken with a consonant."""
    return f"{'an' if word[:1] in 'aeio' else 'a'} {word}"


def _torch(value: Value) -> Refusal | None:
    if not isinstance(value, TensorRef) or value.kind != "strided" or value.dtype.name != "uint8":
        return Refusal("TypeError", f"it is {kind(value)}, not a ByteTensor of {_CPU_BYTES:,} bytes")
    if value.numel != _CPU_BYTES:
        old = " (torch before 1.2 wrote as many)" if value.numel == _OLD_CPU_BYTES else ""
        return Refusal("RuntimeError", f"it has {value.numel:,} bytes{old}, not {_CPU_BYTES:,}")
    if not value.contiguous:
        return Refusal("RuntimeError", "its bytes do not lie side by side")
    return _mersenne(value)


def _mersenne(value: TensorRef) -> Refusal | None:
    """What is told by the numbers before the words: seed (8 bytes), left, whether it was seeded, next."""
    head = _head(value)
    if head is None:
        return None
    if not any(head):
        return Refusal("RuntimeError", "its first bytes are all 0, which no Mersenne Twister that was seeded holds")
    left, seeded, following = struct.unpack_from("<iiI", head, 8)
    if not seeded or not 0 < left <= _WORDS or following > _WORDS:
        return Refusal("RuntimeError", f"its first numbers (left {left}, next {following}) are no Mersenne Twister's")
    return None


def _head(value: TensorRef) -> bytes | None:
    """The first bytes of a tensor; None where they cannot be read, of which the reader tells."""
    storage = value.storage
    if storage is None or storage.nbytes < value.storage_offset + _HEAD_BYTES:
        return None
    start = storage.start + value.storage_offset
    try:
        return storage.source.read(ByteSpan(start, start + _HEAD_BYTES))
    except CkptError:
        return None


def _cuda(value: Value) -> Refusal | None:
    if not isinstance(value, TensorRef) or value.kind != "strided" or value.dtype.name != "uint8":
        return Refusal("TypeError", f"it is {kind(value)}, not a ByteTensor of {_CUDA_BYTES[0]} bytes for each device")
    if value.numel not in _CUDA_BYTES:
        return Refusal("RuntimeError", f"it has {value.numel:,} bytes, not {_CUDA_BYTES[0]}")
    return None


def _python(value: Value) -> Refusal | None:
    """`random.setstate((3, (625 integers), None))`; version 2 is turned into it."""
    match value:
        case list() | tuple():
            pass
        case dict():
            return Refusal("KeyError", "it is a dict, not the tuple of getstate")
        case str():
            return Refusal("ValueError", "it is a str, not the tuple of getstate")
        case _:
            return Refusal("TypeError", f"it is {kind(value)}, not the tuple of getstate")
    if not value:
        return Refusal("IndexError", "it is empty")
    if isinstance(value[0], bool) or value[0] not in (2, 3):
        return Refusal("ValueError", "its version is not 3")
    if len(value) != 3:  # noqa: PLR2004  # version, words, the next gauss
        return Refusal("ValueError", f"it has {len(value):,} items, not 3")
    return _twister(value[1], of_version_2=value[0] != 3)  # noqa: PLR2004


def _twister(words: Value, *, of_version_2: bool) -> Refusal | None:
    if not isinstance(words, tuple) and not (of_version_2 and isinstance(words, list)):
        return Refusal("TypeError", f"its words are {kind(words)}, not a tuple of {_WORDS + 1}")
    if len(words) != _WORDS + 1:
        return Refusal("ValueError", f"it has {len(words):,} words, not {_WORDS + 1}")
    if not all(isinstance(word, int) for word in words):
        return Refusal("TypeError", "its words are not all whole numbers")
    if not of_version_2 and not all(0 <= word < 1 << 64 for word in words[:-1]):
        return Refusal("OverflowError", "its words are not all between 0 and 2**64")
    if not 0 <= words[-1] <= _WORDS:
        return Refusal("ValueError", f"its position is not between 0 and {_WORDS}")
    return None


def _numpy(value: Value) -> Refusal | None:
    match value:
        case dict():
            return _numpy_dict(value)
        case list() | tuple():
            pass
        case _:
            return Refusal("TypeError", f"it is {kind(value)}, not the tuple of get_state")
    if not value:
        return Refusal("IndexError", "it is empty")
    if value[0] != _NUMPY_NAME:
        return Refusal("ValueError", f"its generator is not {_NUMPY_NAME}")
    if len(value) < _NUMPY_LENGTHS[1] and len(value) != _NUMPY_LENGTHS[0]:
        return Refusal("IndexError", f"it has {len(value):,} items, not {_NUMPY_LENGTHS[1]}")
    return _numpy_words(value[1]) or _numpy_numbers(tuple(value[2:5]))


def _numpy_dict(value: dict[Any, Value]) -> Refusal | None:
    if not isinstance(value.get("bit_generator"), str) or not isinstance(value.get("state"), dict):
        return Refusal("ValueError", f"it is {kind(value)} without bit_generator and state")
    return None


def _numpy_words(words: Value) -> Refusal | None:
    match words:
        case TensorRef(shape=(count,)):
            if not _holds_words(words):
                exception = "OverflowError" if words.dtype.family == "int" else ""  # of a negative one
                return Refusal(exception, f"its words are {kind(words)}, not uint32")
        case TensorRef():
            return Refusal("TypeError", f"its words have {len(words.shape)} dimensions, not 1")
        case list() | tuple():
            count = len(words)
        case _:
            return Refusal("TypeError", f"its words are {kind(words)}, not an array of {_WORDS}")
    if count < _WORDS:
        return Refusal("IndexError", f"it has {count:,} words, not {_WORDS}")
    return None


def _holds_words(words: TensorRef) -> bool:
    """Whether 32 bits without a sign fit into the elements."""
    family, bits = words.dtype.family, words.dtype.bits
    return (bits == 64 and family in ("int", "uint", "float")) or (bits == 32 and family == "uint")  # noqa: PLR2004  # bits


def _numpy_numbers(rest: tuple[Value, ...]) -> Refusal | None:
    """Position, has_gauss, cached_gaussian; the last two may be absent together."""
    for name, value in zip(("position", "has_gauss", "cached_gaussian"), rest, strict=False):
        if number(value) is None:
            return Refusal("TypeError", f"its {name} is {kind(value)}")
    position = number(rest[0])
    if position is None or not math.isfinite(position) or not 0 <= position <= _WORDS:
        return Refusal("", f"its position is not between 0 and {_WORDS}, so it draws from beyond its words")
    return None
