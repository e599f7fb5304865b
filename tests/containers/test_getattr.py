"""`getattr` in a pickle: everyday where it spells nested classes and bound methods, dangerous where it reaches for more."""

import io
import pickle

import pytest
import torch

from ckpttool.containers import read
from ckpttool.sources import BytesSource
from ckpttool.values import Trust


def trusts(stream: bytes) -> dict[str, Trust]:
    return {str(use.ref): use.trust for use in read(BytesSource(stream, "x.pkl")).globals}


def call_getattr(first: bytes, name: bytes) -> bytes:
    return b"c__builtin__\ngetattr\n(" + first + b"V" + name + b"\ntR"


def test_a_nested_class_is_the_global_it_spells():
    """Protocol 2 writes `Outer.Inner` as `getattr(Outer, 'Inner')`; both are named, and neither is dangerous."""
    found = trusts(b"\x80\x02" + call_getattr(b"cm\nOuter\n", b"Inner") + b".")
    assert found == {"__builtin__.getattr": Trust.REFUSED, "m.Outer": Trust.REFUSED, "m.Outer.Inner": Trust.REFUSED}


def test_a_way_around_is_found_at_its_end():
    """`getattr(torch.hub, 'load')` is torch.hub.load, however it is spelled."""
    found = trusts(b"\x80\x02" + call_getattr(b"ctorch\nhub\n", b"load") + b".")
    assert found["torch.hub.load"] is Trust.DANGEROUS
    assert (
        trusts(b"\x80\x02" + call_getattr(b"crandom\n_os\n", b"system") + b".")["random._os.system"] is Trust.DANGEROUS
    )


@pytest.mark.parametrize(
    "stream",
    [
        call_getattr(b"cm\nf\n(tR", b"__globals__"),  # a dunder of an object
        call_getattr(b"V1\n", b"x"),  # of a value that is no object of the file
        call_getattr(b"cm\nf\n(tR", b"go") + b"(tR",  # the method is called
        call_getattr(b"cm\nf\n", b"not a name"),
        call_getattr(call_getattr(b"cm\nf\n", b"os"), b"system"),  # a chain
    ],
)  # fmt: skip
def test_any_other_use_is_dangerous(stream):
    """What it reaches cannot be told from the file."""
    assert trusts(b"\x80\x02" + stream + b".")["__builtin__.getattr"] is Trust.DANGEROUS


def test_every_call_is_looked_at():
    """A harmless call in front hides nothing: the second one is followed to its end too."""
    harmless = call_getattr(b"cm\nOuter\n", b"Inner") + b"0"
    assert (
        trusts(b"\x80\x02" + harmless + call_getattr(b"ctorch\nhub\n", b"load") + b".")["torch.hub.load"]
        is Trust.DANGEROUS
    )
    chain = call_getattr(b"V1\n", b"x")
    assert trusts(b"\x80\x02" + harmless + chain + b".")["__builtin__.getattr"] is Trust.DANGEROUS


def test_a_bound_method_of_a_pickled_object_is_no_alarm():
    """A whole pickled CyclicLR holds its scale function as a bound method."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, mode="triangular")
    buffer = io.BytesIO()
    torch.save(schedule, buffer)
    found = {str(u.ref): u.trust for u in read(BytesSource(buffer.getvalue(), "x.pt")).globals}
    assert Trust.DANGEROUS not in found.values()


def test_pickled_tensors_are_read_through_and_no_alarm():
    """`pickle.dump` of tensors calls `torch.storage._load_from_bytes`; what the bytes hold was read here."""
    found = trusts(pickle.dumps({"w": torch.ones(2)}))
    assert found["torch.storage._load_from_bytes"] is Trust.REFUSED
    hidden = b"\x80\x02ctorch.storage\n_load_from_bytes\n(U\x03abctR."
    assert trusts(hidden)["torch.storage._load_from_bytes"] is Trust.DANGEROUS
