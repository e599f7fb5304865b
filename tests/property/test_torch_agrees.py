"""torch and this reader see the same in a file, whatever bit of it is wrong."""

import hashlib
import io
import warnings

import pytest
import torch

from ckpttool import containers
from ckpttool.elements import sha256
from ckpttool.errors import CkptError
from ckpttool.model import Contents
from ckpttool.sources import BytesSource
from ckpttool.values import Trust
from tests.containers import samples as make

STATE = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(7, dtype=torch.bfloat16)}
FILES = {"as torch writes it": make.saved(STATE), "zipped anew": make.changed(STATE)}
STEP = 5  # of all bits, one in so many is tried


def by_torch(data: bytes):
    """The state_dict, or None where torch refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(data), weights_only=True)
        except Exception:  # noqa: BLE001  # torch has many words for no
            return None


def by_us(data: bytes) -> Contents | None:
    """Contents, or None where the file is refused."""
    try:
        return containers.read(BytesSource(data, "x.pt"))
    except CkptError:
        return None


def digest(tensor: torch.Tensor) -> str:
    """The hash of a tensor's bytes."""
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def same(theirs, ours: Contents) -> bool:
    """Whether names, types, shapes and bytes are the same."""
    if not isinstance(theirs, dict) or not isinstance(ours.root, dict) or list(theirs) != list(ours.root):
        return False
    return all(
        (str(t.dtype), tuple(t.shape), digest(t)) == (f"torch.{o.dtype.name}", o.shape, sha256(o))
        for t, o in zip(theirs.values(), ours.root.values(), strict=True)
    )


@pytest.mark.parametrize("name", FILES)
def test_one_wrong_bit_is_seen_alike(name) -> None:
    """What torch reads, we read the same, or say what is wrong; what we call clean, torch reads."""
    data = FILES[name]
    for bit in range(0, 8 * len(data), STEP):
        changed = data[: bit // 8] + bytes([data[bit // 8] ^ (1 << bit % 8)]) + data[bit // 8 + 1 :]
        theirs, ours = by_torch(changed), by_us(changed)
        if ours is None or ours.problems or any(g.trust is not Trust.ACCEPTED for g in ours.globals):
            continue
        assert theirs is not None, f"bit {bit}: torch refuses what is called clean"
        assert same(theirs, ours), f"bit {bit}: torch reads something else"
