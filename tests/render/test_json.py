"""JSON is written as it comes, in ASCII, with names for what JSON has no number for."""

import io
import json
import math

import pytest

from ckpttool.errors import TruncatedFile
from ckpttool.render.json import encode, write


def written(document):
    stream = io.StringIO()
    write(document, stream)
    return stream.getvalue()


def test_a_document_is_one_object(snapshot):
    """Members and elements of long lists have a line each."""
    document = {
        "schema": "ckpt.inspect/1",
        "empty": [],
        "none": iter(()),
        "numbers": [1, 2.5, None, True],
        "objects": [{"a": 1}, {"b": [1, {"c": 2}]}],
        "stream": ({"n": n} for n in range(3)),
    }
    assert written(document) == snapshot


def test_it_reads_back():
    """What went in comes out, iterators as lists."""
    document = {"a": iter([1, {"b": None}]), "c": {"d": [[]]}, "é\ud800": "\x1b\u2028"}
    assert json.loads(written(document)) == {"a": [1, {"b": None}], "c": {"d": [[]]}, "é\ud800": "\x1b\u2028"}


def test_text_is_ascii():
    """Lone surrogates and controls are escaped, so that any pipe takes them."""
    text = written({"k\udc80": "\x9b日"})
    assert text.isascii()
    assert r'"k\udc80": "\x9b日"'.encode("ascii", "backslashreplace") != text
    assert r"\udc80" in text


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_special_floats_are_strings(value, shown):
    """NaN and the infinities, which JSON does not have, wherever they stand."""
    assert json.loads(encode({"a": [value, (value,)], "b": 1.5})) == {"a": [shown, [shown]], "b": 1.5}
    assert json.loads(encode(value)) == shown


def test_wide_integers_stay_exact():
    """64-bit integers are plain numbers."""
    assert encode([2**64 - 1, -(2**63)]) == "[18446744073709551615, -9223372036854775808]"


def test_elements_are_written_before_the_next_is_made():
    """A long list is never held: each element is on the stream when the next one is asked for."""
    stream = io.StringIO()

    def elements():
        yield {"n": 1}
        assert '{"n": 1}' in stream.getvalue()
        yield {"n": 2}

    write({"tensors": elements()}, stream)
    assert json.loads(stream.getvalue()) == {"tensors": [{"n": 1}, {"n": 2}]}


@pytest.mark.parametrize("before", [0, 2])
def test_a_document_that_breaks_off_is_closed(before):
    """A failure midway is the last member, behind all that was read till then."""
    stream = io.StringIO()

    def elements():
        yield from [{"n": 1}] * before
        raise TruncatedFile("cut \x1b", where="m.pt", hint="again")

    with pytest.raises(TruncatedFile):
        write({"a": 1, "tensors": elements(), "findings": []}, stream)
    assert json.loads(stream.getvalue()) == {
        "a": 1,
        "tensors": [{"n": 1}] * before,
        "error": {"code": "truncated", "message": "cut \x1b", "where": "m.pt", "hint": "again"},
    }
