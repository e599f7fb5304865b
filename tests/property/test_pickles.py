"""Laws of the pickle machine."""

import math
import pickle
import pickletools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CkptError
from ckpttool.pickles import load
from ckpttool.sources import BytesSource
from tests.pickles.streams import Archive, read

text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text, st.binary(), st.tuples(st.integers(), text),
    st.frozensets(st.integers()),
)  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**2000), 2**2000), st.floats(), st.complex_numbers(), text,
    st.binary(), st.binary().map(bytearray), st.sets(keys), st.frozensets(keys),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.tuples(inner, inner, inner, inner) | st.dictionaries(keys, inner)
    ),
    max_leaves=30,
)
protocols = st.integers(0, 5)


def same(a: Any, b: Any) -> bool:
    """Equal in value, type and order, NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return bool(a == b)


@given(values, protocols)
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    """On data without classes the machine and `pickle.loads` agree, in every protocol."""
    stream = pickle.dumps(value, protocol)
    found = load(stream, where="x")
    assert same(found.value, pickle.loads(stream))
    assert (found.end, found.problems) == (len(stream), [])


@given(values, protocols)
def test_picklers_written_in_python_and_c_are_both_read(value: Any, protocol: int) -> None:
    """The Python implementation frames and memoises in ways of its own."""
    stream = pickle._dumps(value, protocol)  # type: ignore[attr-defined]
    assert same(read(stream), pickle.loads(stream))
    assert same(read(pickletools.optimize(stream)), pickle.loads(stream))


@given(values, protocols, st.binary())
def test_the_place_in_the_buffer_does_not_matter(value: Any, protocol: int, before: bytes) -> None:
    """A pickle in the middle of other bytes reads as one alone, mapped or not, lazy or not."""
    stream = before + pickle.dumps(value, protocol) + b"tail"
    for buffer in (stream, memoryview(stream)):
        found = load(buffer, where="x", start=len(before), source=BytesSource(stream))
        assert same(found.value, pickle.loads(stream[len(before) :]))
        assert found.end == len(stream) - len(b"tail")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), protocols)
def test_sharing_is_identity(picks: list[int], protocol: int) -> None:
    """Objects are the same here exactly where they are the same in the data."""
    pool: list[list[Any]] = [[n] for n in range(6)]
    pool[0].append(pool)  # and a cycle
    found = read(pickle.dumps([pool[n] for n in picks], protocol))
    for a, first in zip(found, picks, strict=True):
        for b, second in zip(found, picks, strict=True):
            assert (a is b) == (first == second)


SEEDS = [
    *(pickle.dumps({"a": [1, 2.5, "x" * 300, (None, True)], "b": {1, 2}, 3: b"y" * 300}, p) for p in range(6)),
    *(pickle.dumps([bytearray(b"q"), frozenset("ab"), 10**40, 2 + 1j, "\ud800"], p) for p in range(6)),
]


@pytest.fixture(scope="module")
def seeds() -> list[bytes]:
    """Valid pickles, of plain data, of torch and of numpy."""
    torch_made = {
        "w": torch.ones(2, 3), "p": torch.nn.Parameter(torch.ones(2)), "m": torch.empty(2, device="meta"),
        "c": torch.ones(2, dtype=torch.complex64).conj(), "u": torch.ones(2, dtype=torch.uint16),
        "s": torch.eye(2).to_sparse(), "o": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1}]},
    }  # fmt: skip
    arrays = [
        np.zeros((2, 3), ">i4"), np.zeros(2, [("a", "i4"), ("b", "U2", (2,))]), np.float32(1), np.array([None, "a"]),
        np.zeros(2, "M8[D]"),
    ]  # fmt: skip
    return [*SEEDS, Archive(torch_made).members["data.pkl"], *(pickle.dumps(arrays, p) for p in (2, 4, 5))]


edit = st.one_of(
    st.tuples(st.just("flip"), st.integers(0), st.integers(0, 255)),
    st.tuples(st.just("cut"), st.integers(0), st.integers(0)),
    st.tuples(st.just("insert"), st.integers(0), st.sampled_from(sorted({o.code for o in pickletools.opcodes}))),
    st.tuples(st.just("repeat"), st.integers(0), st.integers(1, 40)),
    st.tuples(st.just("drop"), st.integers(0), st.integers(1, 20)),
)


def edited(stream: bytes, edits: list[tuple[str, int, Any]]) -> bytes:
    """The stream after some edits."""
    data = bytearray(stream)
    for what, where, how in edits:
        if not data:
            break
        at = where % len(data)
        match what:
            case "flip":
                data[at] = how
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = how.encode("latin-1")
            case "repeat":
                data[at:at] = data[at : at + how]
            case "drop":
                del data[at : at + how]
    return bytes(data)


def failure(stream: bytes, source: BytesSource | None) -> CkptError | None:
    """The error that reading ends in, if any; other exceptions pass through."""
    try:
        load(stream, where="x", source=source)
    except CkptError as e:
        return e
    return None


@settings(max_examples=1500)
@given(st.data(), st.lists(edit, min_size=1, max_size=6))
def test_damaged_bytes_give_a_value_or_one_of_our_errors(seeds: list[bytes], data: Any, edits: list[Any]) -> None:
    """Whatever happens to a pickle, reading it gives a value or a CkptError with a place."""
    stream = edited(data.draw(st.sampled_from(seeds)), edits)
    for source in (None, BytesSource(stream)):
        error = failure(stream, source)
        assert error is None or (error.message and error.where.startswith("x @ byte "))


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_one_of_our_errors(stream: bytes) -> None:
    """Bytes that were never a pickle, too."""
    error = failure(stream, None)
    assert error is None or error.where.startswith("x @ byte ")


def test_every_cut_is_noticed(seeds: list[bytes]) -> None:
    """A pickle cut anywhere is an error, never a shorter value."""
    for stream in seeds:
        for end in range(0, len(stream) - 1, max(1, len(stream) // 400)):
            with pytest.raises(CkptError):
                load(stream[:end], where="x")
