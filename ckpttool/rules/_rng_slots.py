"""Where a trainer, or a script, puts the state of each generator.

Sources: accelerate/checkpointing.py (`save_accelerator_state`) of 1.15, transformers/trainer.py (`_save_rng_state`) of
5.24.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ckpttool.model import At, Checkpoint
from ckpttool.rules._generators import generator_of
from ckpttool.values import KeyPath, Opaque, TensorRef, Value

FILES: Final = {
    "accelerate": re.compile(r"random_states_\d{1,5}\.pkl"),
    "hf-trainer": re.compile(r"rng_state(?:_\d{1,5})?\.pth"),
}
# Generators in the order in which they are restored, by key; those that are always there.
KEYS: Final = {
    "accelerate": {"random_state": "python", "numpy_random_seed": "numpy", "torch_manual_seed": "torch"},
    "hf-trainer": {"python": "python", "numpy": "numpy", "cpu": "torch"},
}
CUDA: Final = {"accelerate": "torch_cuda_manual_seed", "hf-trainer": "cuda"}
_OF_SCRIPTS = ("plain", "nanogpt", "timm", "fairseq")
_RNG = re.compile(r"rng|random_?states?(?:$|_)")
_NAMED = (
    ("cuda", re.compile(r"cuda|gpu")),
    ("numpy", re.compile(r"numpy|(?:^|_)np(?:_|$)")),
    ("python", re.compile(r"python|(?:^|_)py(?:_|$)|^random(?:_|$)")),
    ("torch", re.compile(r"torch|cpu")),
)
_BARE = re.compile(r"(?:^|_)(?:rng|random|generator|gen)(?:_?states?)?$")  # keys that need not name a generator
_MOST_ENTRIES = 64  # of a dict that holds a script's parts, and no weights
_OTHER_DEVICE = re.compile(r"xpu|mps|hpu|npu|mlu|musa|xla|tpu|jax")


class Slot(NamedTuple):
    """A place where the state of one generator is expected."""

    at: At
    generator: str
    value: Value
    sure: bool = True  # False: neither key nor form say that it is a state


def slots(checkpoint: Checkpoint) -> Iterator[Slot]:
    """The states of a script's checkpoint whose keys say of which generator they are, whatever lies there."""
    if checkpoint.layout not in _OF_SCRIPTS:
        return
    parts = {(w.at.file, w.at.path) for w in checkpoint.weights} | {
        (o.at.file, o.at.path) for o in checkpoint.optimizers
    }
    for file, contents in checkpoint.contents.items():
        root = contents.root
        for path, entries in _dicts(root) if isinstance(root, dict) else ():
            if not path or (file, path) not in parts:
                yield from _among(file, path, entries)


def _dicts(root: Mapping[Any, Value]) -> Iterator[tuple[KeyPath, Mapping[Any, Value]]]:
    """The root, and the small dicts in it whose keys do not say that they hold states."""
    yield (), root
    for key, value in root.items():
        if isinstance(value, dict) and isinstance(key, str) and not _RNG.search(key.lower()) and _is_small(value):
            yield (key,), value


def _is_small(entries: Mapping[Any, Value]) -> bool:
    """Whether a dict may hold parts of a script's: few entries, and no names of weights."""
    return len(entries) <= _MOST_ENTRIES and not any(isinstance(key, str) and "." in key for key in entries)


def _among(file: str, path: KeyPath, entries: Mapping[Any, Value]) -> Iterator[Slot]:
    for key, value in entries.items():
        if not isinstance(key, str) or not (_RNG.search(key.lower()) or _BARE.search(key.lower())):
            continue
        at = At(file, (*path, key))
        if not isinstance(value, dict) or not value or "bit_generator" in value:
            yield from _under(at, key, value)
        elif _RNG.search(key.lower()):
            for name, inner in value.items():
                if isinstance(name, str):
                    yield from _under(At(file, (*at.path, name)), name, inner)


def _under(at: At, key: str, value: Value) -> Iterator[Slot]:
    """The slot of a key: of the generator that it names, else of the one whose state a value is by its form."""
    word = key.lower()
    named = _generator(key)
    bare = _BARE.search(word) is not None and not _OTHER_DEVICE.search(word)
    if not bare or (named and not word.startswith("random")):  # `random_state` may hold torch's
        yield from _slot(at, named, value)
    elif generator := generator_of(value):
        yield from _slot(at, generator, value)
    elif word.startswith(("rng", "random_state")) and _may_be_torchs(value):
        yield Slot(at, "torch", value, sure=False)


def _may_be_torchs(value: Value) -> bool:
    """Whether a value of no generator's form stands where torch's is likeliest: None, or something else of its size."""
    whole = isinstance(value, list | bytes) and len(value) > 1 << 12
    return value is None or whole or (isinstance(value, TensorRef) and value.dtype.name == "uint8")


def _slot(at: At, generator: str, value: Value) -> Iterator[Slot]:
    """A slot, or one for each rank; none for a seed, an object of its own, or a device that was not there."""
    named = any("rng" in str(step).lower() for step in at.path)
    seed = isinstance(value, int | str) and not named
    if not generator or isinstance(value, Opaque) or seed or (generator == "cuda" and value in (None, [], ())):
        return
    if isinstance(value, list) and _is_by_rank(generator, value):
        yield from (Slot(At(at.file, (*at.path, rank)), generator, state) for rank, state in enumerate(value))
    else:
        yield Slot(at, generator, value)


def _is_by_rank(generator: str, states: list[Value]) -> bool:
    """Whether there is one state for each rank, of a generator that has one state."""
    if not states or generator == "cuda":
        return False
    if generator == "torch":
        return all(isinstance(state, TensorRef) for state in states)
    return all(isinstance(state, tuple) and len(state) > 1 for state in states)


def _generator(key: str) -> str:
    """The generator that a key names; empty where it names none, or a device of another kind."""
    word = key.lower()
    if _OTHER_DEVICE.search(word):
        return ""
    return next((name for name, pattern in _NAMED if pattern.search(word)), "")
