"""Where a trainer, or a script, puts the state of each generator.

Sources: accelerate/checkpointing.py (`save_accelerator_state`) of 1.15, transformers/trainer.py (`_save_rng_state`) of
5.24.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ckpttool.model import At, Checkpoint
from ckpttool.values import Opaque, TensorRef, Value

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
_OTHER_DEVICE = re.compile(r"xpu|mps|hpu|npu|mlu|musa|xla|tpu|jax")


class Slot(NamedTuple):
    """A place where the state of one generator is expected."""

    at: At
    generator: str
    value: Value


def slots(checkpoint: Checkpoint) -> Iterator[Slot]:
    """The states of a script's checkpoint whose keys say of which generator they are, whatever lies there."""
    if checkpoint.layout not in _OF_SCRIPTS:
        return
    for file, contents in checkpoint.contents.items():
        root = contents.root
        for key, value in root.items() if isinstance(root, dict) else ():
            if not isinstance(key, str) or not _RNG.search(key.lower()):
                continue
            if isinstance(value, dict) and value and "bit_generator" not in value:
                yield from _inside(file, key, value)
            else:
                yield from _slot(At(file, (key,)), _generator(key), value)


def _inside(file: str, key: str, states: Mapping[Any, Value]) -> Iterator[Slot]:
    for name, value in states.items():
        if isinstance(name, str):
            yield from _slot(At(file, (key, name)), _generator(name), value)


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
