"""Fields that differ, as people see them: every difference shows where it is."""

import collections
import datetime as dt

import numpy as np
import pytest
import torch

import ckpttool
from ckpttool.commands._diff.apart import told_apart, typed
from ckpttool.comparison.trees import ABSENT
from ckpttool.values import GlobalRef, Opaque
from tests.commands.test_diff import text


def moment(name, data):
    return Opaque(cls=GlobalRef("datetime", name), args=(data,))


def pickled(value):
    """A date or a time as its pickle spells it."""
    return moment(type(value).__name__, value.__reduce__()[1][0])


LONG = "x" * 5000
WHEN = dt.datetime.fromisoformat("2024-02-29 01:02:03")


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        (1, 2, ("1", "2", "")),
        (1, ABSENT, ("1", "absent", "")),
        (1, 1.0, ("1", "1.0", "")),
        (1.0, True, ("1.0", "True", "")),
        ("a", "b", ("'a'", "'b'", "")),
        (f"{LONG}abc", f"{LONG}abd", ("…'xxxxxxxxxxabc'", "…'xxxxxxxxxxabd'", "first at character 5,002")),
        ("a" * 61, "a" * 60, ("…'aaaaaaaaaaaaa'", "…'aaaaaaaaaaaa'", "first at character 60, 61 against 60")),
        (f"b{LONG}", f"c{LONG}", (f"'b{'x' * 23}'…", f"'c{'x' * 23}'…", "first at character 0")),
        (3**300, 3**300 + 2, ("…39b34e67dc5c2671 (hex)", "…39b34e67dc5c2673 (hex)", "2 apart, of 476 bits")),
        (-(2**90) - 1, -(2**90) - 1 - 2**70, ("-…0000000000000001 (hex)", "-…0000000000000001 (hex)",
                                              "2**70 and more apart, of 91 bits")),
        (b"\x01\x02", b"\x01\x03", ("bytes 01 02", "bytes 01 03", "")),
        (b"a" * 17, b"a" * 16 + b"b", ("bytes of 17 B", "bytes of 17 B", "")),
        (b"a", bytearray(b"a"), ("bytes of 1 B", "bytearray of 1 B", "")),
        ({1}, frozenset({1}), ("{1} (set)", "{1} (frozenset)", "")),
        ([1, 2], (1, 2), ("[1, 2]", "(1, 2)", "")),
        (pickled(WHEN.replace(microsecond=4)), pickled(WHEN),
         ("2024-02-29 01:02:03.000004", "2024-02-29 01:02:03", "")),
        (pickled(dt.date(2024, 2, 29)), pickled(dt.date(1, 1, 1)), ("2024-02-29", "0001-01-01", "")),
        (pickled(dt.time(1, 2, 3)), pickled(dt.time(4)), ("01:02:03", "04:00:00", "")),
        (moment("date", b"\0\0\0\0"), moment("time", bytes([99] * 6)), ("date 00000000", "time 636363636363", "")),
        (Opaque(cls=GlobalRef("torch", "Size"), args=((1, 2),)), (1, 2), ("torch.Size(1, 2)", "(1, 2)", "")),
    ],
)  # fmt: skip
def test_two_values_are_told_apart(left, right, told):
    """In words that show the difference, or beside words that say where it is."""
    assert told_apart(left, right) == told


def test_a_type_is_said_once():
    """Not behind words that begin with it."""
    assert typed([1], "list of 1") == "list of 1"
    assert typed(1, "1") == "1 (int)"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write `a.pt` and `b.pt`."""
    monkeypatch.chdir(tmp_path)

    def write(left, right):
        torch.save(left, "a.pt")
        torch.save(right, "b.pt")

    return write


def test_equal_values_of_two_types_pass_by_value(files):
    """One rule for numbers, lists, dicts and bytes, as for tensors: they are the same values, not the same."""
    left = {"n": 3, "l": [1], "d": {"x": 1}, "f": True, "b": b"ab", "t": torch.tensor(0.5), "s": torch.Size([2])}
    right = {"n": 3.0, "l": (1,), "d": collections.OrderedDict(x=1), "f": 1, "b": bytearray(b"ab"), "t": 0.5, "s": (2,)}
    files({"run": left | {"np": 0.5}}, {"run": right | {"np": np.float64(0.5)}})
    report = ckpttool.diff("a.pt", "b.pt")
    assert (report.verdict, report.exit_code) == ("same values", 1)
    assert ckpttool.diff("a.pt", "b.pt", by_value=True).exit_code == 0
    assert text(report).count("same values") == 8 + 2  # a line each, the answer, and the head of the part
    assert "OrderedDict of 1" in text(report)


def test_fields_within_a_tolerance_are_marked_and_come_last(files):
    """Whole numbers obey the tolerance as floats do; the first lines are those that differ."""
    files({"run": {"a": 1.0, "n": 100, "z": 1.0}}, {"run": {"a": 1.001, "n": 101, "z": 2.0}})
    shown = [line.split() for line in text(ckpttool.diff("a.pt", "b.pt", rtol=0.1)).splitlines()]
    assert [line for line in shown if line[1:] and line[0] in ("a", "n", "z")] == [
        ["z", "1.0", "→", "2.0"],
        ["a", "1.0", "→", "1.001", "within", "tolerance"],
        ["n", "100", "→", "101", "within", "tolerance"],
    ]
    files({"run": {"n": 100}}, {"run": {"n": 101}})
    report = ckpttool.diff("a.pt", "b.pt", rtol=0.1)
    assert (report.verdict, report.exit_code) == ("within tolerance", 0)


def test_every_difference_shows_where_it_is(files):
    """No two columns that read alike without a word of why."""
    left = {"blob": bytes(5056), "when": WHEN, "seq": [*range(50)], "text": LONG, "big": 3**300}
    right = {
        "blob": bytes(17) + b"x" + bytes(5038), "when": WHEN.replace(second=6), "seq": [*range(49), 7],
        "text": f"{LONG}!", "big": 3**300 + 2,
    }  # fmt: skip
    files({"run": left}, {"run": right})
    shown = text(ckpttool.diff("a.pt", "b.pt"))
    for said in (
        "first at byte 17",
        "01:02:06",
        "1 of 50 items differ, first [49]",
        "first at character 5,000",
        "2 apart",
    ):
        assert said in shown
    assert "beyond what is shown" not in shown


def test_libraries_of_two_releases_are_a_note(files):
    """Lightning's version differs, and nothing else: no difference, and said."""
    base = {"state_dict": {"w": torch.ones(2)}, "hparams_name": "kwargs", "epoch": 1}
    files(base | {"pytorch-lightning_version": "2.5"}, base | {"pytorch-lightning_version": "2.6"})
    report = ckpttool.diff("a.pt", "b.pt")
    assert (report.exit_code, report.verdict) == (0, "identical")
    assert "pytorch-lightning_version '2.5' → '2.6': which release wrote it, which is no difference" in text(report)
    (noted,) = [n for part in report.document()["parts"] for n in part["noted"]]
    assert (noted["key"], noted["left"], noted["right"]) == (["pytorch-lightning_version"], "2.5", "2.6")


def test_keys_that_read_alike_stay_apart(files):
    """`1` and `"1"` are two entries of a config."""
    files({"config": {1: "a", "1": "b"}}, {"config": {1: "A", "1": "b"}})
    (change,) = ckpttool.diff("a.pt", "b.pt").parts[-1].changes
    assert (change.path, change.left, change.right) == (("(1)",), "a", "A")


def test_files_of_one_folder_are_noted(tmp_path):
    """Of folders that two trainers wrote, the first few are named."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        torch.save({"w": torch.ones(2)}, tmp_path / name / "pytorch_model.bin")
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "b" / "trainer_state.json").write_text("{}")
    for n in range(6):
        (tmp_path / "b" / f"{n}.txt").write_text("x")
    (tmp_path / "a" / "z.txt").write_text("x")
    report = ckpttool.diff(tmp_path / "a", tmp_path / "b")
    assert report.exit_code == 0
    assert "z.txt is only on the left, which is no difference" in text(report)
    assert "0.txt is only on the right, which is no difference" in text(report)
    assert "and 3 more that are no difference" in text(report)


def test_other_files_are_counted_as_files(tmp_path):
    """A tokenizer that changed."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        torch.save({"w": torch.ones(2)}, tmp_path / name / "pytorch_model.bin")
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "merges.txt").write_text(name)
        (tmp_path / name / "tokenizer.json").write_text(f'{{"a": "{name}", "b": "{name}"}}')
    shown = text(ckpttool.diff(tmp_path / "a", tmp_path / "b"))
    assert "different: other files 2 files" in shown
    assert "merges.txt" in shown
    assert "first at byte 0" in shown
