"""How the report of `diff` reads: the answer first, counts that are right, nothing too long, nothing unsafe."""

import random

import pytest
import torch

import ckpttool
from ckpttool.commands._numbered import ranged_name, varying
from ckpttool.render.text import lines as set_lines

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.quantize_per_tensor", "ignore:Sparse", "ignore:The PyTorch API of nested tensors"
)


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Write two objects and compare them: the report's lines in a pipe, or in so many columns."""
    monkeypatch.chdir(tmp_path)

    def compare(left, right, columns=None, **options):
        torch.save(left, "a.pt")
        torch.save(right, "b.pt")
        report = ckpttool.diff("a.pt", "b.pt", **options)
        return ["".join(s.text for s in line).rstrip() for line in set_lines(report.blocks(), columns)]

    return compare


def layers(count, *, moved=(), dtype=torch.float32):
    """So many layers of two tensors, of which some moved."""
    weights = {f"layers.{n}.weight": torch.ones(2, 2, dtype=dtype) * (1 + (n in moved)) for n in range(count)}
    return {**weights, **{f"layers.{n}.bias": torch.ones(2, dtype=dtype) for n in range(count)}}


def test_the_first_line_answers(compared):
    """Whatever the answer is."""
    one = {"w": torch.tensor([1.0, 0.0])}
    assert compared(one, one)[0] == "identical"
    assert compared(one, {"w": torch.tensor([1.0, -0.0])})[0].startswith("same values, not the same bits: model 1 of 1")
    assert compared(one, {"w": one["w"].double()}, by_value=True)[0] == "same values: model 1 of 1 tensor"
    near = {"w": torch.tensor([1.0 + 1e-6, 0.0])}
    assert compared(one, near, rtol=1e-3)[0] == "within tolerance: model 1 of 1 tensor"
    assert compared(one, near)[0] == "different: model 1 of 1 tensor"


def test_a_long_answer_goes_on_indented(compared):
    """So that its second line is not read as the next one; many parts are counted."""
    left = {"model": layers(1), **{f"note{n:02}": {"n": 1} for n in range(20)}}
    right = {"model": layers(1), **{f"note{n:02}": {"n": 2} for n in range(20)}}
    said = compared(left, right, 80)
    assert said[0].startswith("different: custom note00 1 field;")
    assert said[1].startswith("  ")
    assert "8 parts more" in " ".join(said[:6])


def test_parts_of_one_side_are_told_together(compared):
    """One list for each side, those of one role next to each other."""
    whole = {"model": layers(1), "optimizer": {"state": {}, "param_groups": [{"lr": 0.1, "params": []}]}, "epoch": 3,
             "note1": {"a": 1}, "note2": {"a": 1}}  # fmt: skip
    only = {"model": layers(1)}
    assert compared(whole, only)[0] == "different: optimizer, progress, custom note1, note2 only on the left"
    assert compared(only, whole)[0] == "different: optimizer, progress, custom note1, note2 only on the right"


COMPOSITE = {
    "sparse": lambda x: (x * torch.eye(3)).to_sparse(),
    "csr": lambda x: (x * torch.eye(3)).to_sparse_csr(),
    "nested": lambda x: torch.nested.nested_tensor([torch.ones(2), x * torch.ones(3)]),
    "quantized": lambda x: torch.quantize_per_tensor(x * torch.ones(4), 0.5, 0, torch.qint8),
    "packed": lambda x: torch.full((4,), x, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "strided": lambda x: torch.full((4,), float(x)),
}


@pytest.mark.parametrize("kind", COMPOSITE)
def test_a_composite_tensor_moves_too(compared, kind):
    """One that changed is counted as moved, one that did not as still, though neither has figures."""
    made = COMPOSITE[kind]
    left = {"kept": made(1), "changed": made(1)}
    said = compared(left, {"kept": made(1), "changed": made(2)})
    assert "1 of 2 tensors has not moved: kept" in said


def test_what_has_no_values_has_not_stayed(compared):
    """Tensors without elements, on no device, of another shape; another type is not another value."""
    left = {"moved": torch.ones(2), "empty": torch.ones(0, 2), "meta": torch.ones(2, device="meta"), "cut": torch.ones(4),
            "wide": torch.ones(2), "zero": torch.zeros(2)}  # fmt: skip
    right = {
        **left,
        "moved": torch.ones(2) * 2,
        "cut": torch.ones(2),
        "wide": torch.ones(2).double(),
        "zero": -torch.zeros(2),
    }
    assert "2 of 6 tensors have not moved: wide, zero" in compared(left, right)
    assert "2 of 6 tensors have not moved: wide, zero" in compared(left, right, overlap=True)
    assert not [line for line in compared(left, {**left, "cut": torch.ones(2)}) if "moved:" in line]


def test_frozen_layers_are_named_by_their_numbers(compared):
    """Which layers stood still is what people look for."""
    said = compared(layers(12), layers(12, moved=(4, 5, 6, 7, 8, 9, 10)))
    assert "17 of 24 tensors have not moved: 5x layers.[0–3, 11].weight, 12x layers.[0–11].bias" in said
    many = {name: torch.ones(1) for name in "abcdef"}
    said = compared({**many, "w": torch.ones(1)}, {**many, "w": torch.zeros(1)})
    assert "6 of 7 tensors have not moved: a, b, c, d and 2 more" in said


def test_names_with_numbers():
    """Where several numbers differ, or one is no number of a layer, they are left out."""
    assert ranged_name(["a.0.b", "a.1.b", "a.7.b"]) == "a.[0–1, 7].b"
    assert ranged_name(["a[0].b", "a[2].b"]) == "a[0, 2].b"
    assert ranged_name(["a.0.1", "a.1.2"]) == "a.[N].[N]"
    assert ranged_name(["a.3.1", "a.3.2"]) == "a.3.[1–2]"
    assert ranged_name(["a.1" + "0" * 5000, "a.2"]) == "a.[N]"
    assert ranged_name(["a.5"]) == "a.5"
    assert varying("a.1.b.2", ["a.1.b.2", "a.1.b.3"]) == ["2"]
    assert varying("a.1.b.2", ["a.0.b.2", "a.1.b.3"]) == ["1", "2"]


def test_an_uneven_fold_says_which_changed_most(compared):
    """One layer that runs away is not hidden among forty-eight; even changes are not told apart."""
    right = layers(6, moved=range(6))
    assert not [line for line in compared(layers(6), right) if "most at" in line]
    right["layers.4.weight"] = torch.ones(2, 2) * 9
    (row,) = [line for line in compared(layers(6), right) if "6x layers.[N].weight" in line]
    assert row.endswith("most at N = 4")
    deep = {f"{n}.{m}.w": torch.ones(2) * (1 + n + m) for n in range(2) for m in range(2)}
    (row,) = [line for line in compared(deep, {name: torch.ones(2) * 5 for name in deep}) if "4x [N].[N].w" in line]
    assert row.endswith("most in 0.0.w")


def test_tables_without_figures_have_no_columns_for_them(compared):
    """A conversion to another type reads as one sentence for each kind of layer."""
    said = compared(layers(3), layers(3, dtype=torch.float64))
    assert "  3x layers.[N].weight  same values, float32 against float64" in said
    assert not [line for line in said if "rel. L2" in line]


def test_tensors_of_one_side_are_folded(compared):
    """Repeated layers as one line; with --all each for itself."""
    said = compared(layers(2), layers(12))
    assert "  right        10x layers.[N].weight  float32 [2, 2]  16 B" in said
    assert len([line for line in compared(layers(2), layers(12), all=True) if "  right " in line]) == 21


def test_wrappers_are_said_once(compared):
    """Below the table, not in each row; what --map made of a name stands in its row."""
    left, right = {"w": torch.ones(2), "v": torch.ones(2)}, {"module.w": torch.zeros(2), "module.v": torch.ones(2)}
    said = "\n".join(compared(left, right))
    assert "2 names aligned by wrappers: w is module.w" in said
    assert "on the right" not in said
    assert "on the right u," in "\n".join(compared(left, {"u": torch.zeros(2), "v": torch.ones(2)}, map=["^w$=u"]))


def test_top_0_counts_only(compared):
    """No row of any table, and how many there are; as in each part, so for its fields."""
    left = {"model": layers(3), "config": {"a": 1, "b": 2}}
    said = compared(left, {"model": layers(3, moved=(0, 1)), "config": {"a": 2, "b": 3}}, top=0)
    assert said[4:] == [
        "model  6 tensors: 4 identical, 2 different", "2 tensors not shown: --all or --top 1 shows them",
        "4 of 6 tensors have not moved: layers.2.weight, 3x layers.[0–2].bias", "",
        "config  2 fields: 2 different", "2 fields not shown: --all shows them",
    ]  # fmt: skip


def test_names_are_made_safe_and_short(compared):
    """Wherever a name of a file stands in the report."""
    evil = ["\x1b[2J", "a\nb", "\u202ex", "", "n" * 5000, "[/x]"]
    left = {name: torch.ones(2) for name in evil} | {f"{name}0": torch.ones(2) for name in evil}
    right = {name: torch.ones(2) * 2 for name in evil} | {f"{name}1": torch.ones(2) for name in evil}
    for options in ({}, {"all": True}, {"map": ["1$=0"]}):
        said = compared({"model": left, **{n or "x": {"v": 1} for n in evil}}, {"model": right}, **options)
        assert max(map(len, said)) < 700
        assert all(line.isprintable() for line in said)
        assert any(line.startswith("  ''") for line in said)


ODD = {
    "i64": (torch.tensor([-(2**63), 5]), torch.tensor([2**63 - 1, 5]), 1, 2.0**64),
    "u64": (torch.tensor([-1, -1]).view(torch.uint64), torch.tensor([-1, -2]).view(torch.uint64), 1, 1.0),
    "u64 i64": (torch.tensor([-1]).view(torch.uint64), torch.tensor([-1]), 1, 2.0**64),
    "denormal": (torch.tensor([1e-45, 0.0]), torch.tensor([1e-45, 1e-45]), 1, 2.0**-149),
    "bf16 inf": (torch.tensor([1, torch.inf]).bfloat16(), torch.tensor([2, torch.inf]).bfloat16(), 1, 1.0),
    "bool": (torch.tensor([True, False]), torch.tensor([False, False]), 1, 1.0),
    "e5m2": (torch.ones(3).to(torch.float8_e5m2), torch.tensor([1, 2, 1]).to(torch.float8_e5m2), 1, 1.0),
    "e8m0": (torch.ones(3).to(torch.float8_e8m0fnu), torch.tensor([1, 2, 4.0]).to(torch.float8_e8m0fnu), 2, 3.0),
    "complex": (torch.tensor([3 + 4j]), torch.tensor([0j]), 1, 5.0),
    "0-dim": (torch.tensor(1.0), torch.tensor(3.0), 1, 2.0),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_numbers(tmp_path, name):
    """The ends of every type: no overflow, no rounding to nothing, Inf equal to Inf."""
    left, right, differing, largest = ODD[name]
    torch.save({name: left}, tmp_path / "a.pt")
    torch.save({name: right}, tmp_path / "b.pt")
    for one, other in (("a.pt", "b.pt"), ("b.pt", "a.pt")):
        (part,) = ckpttool.diff(tmp_path / one, tmp_path / other).document()["parts"]
        (row,) = part["tensors"]
        assert (row["figures"]["differing"], row["figures"]["max_abs"]) == (differing, largest)


def test_no_elements_are_no_difference(compared):
    """Two empty tensors are identical, of two types the same values, of two shapes different."""
    assert compared({"w": torch.ones(0, 3)}, {"w": torch.ones(0, 3)})[0] == "identical"
    assert compared({"w": torch.ones(0, 3)}, {"w": torch.ones(0, 3).int()})[0].startswith("same values")
    assert compared({"w": torch.ones(0, 3)}, {"w": torch.ones(3, 0)})[0] == "different: model 1 of 1 tensor"


def test_ten_thousand_tensors_in_another_order(compared):
    """The order of keys is no difference, and a line holds any number of layers."""
    names = [f"l.{n}.{kind}" for n in range(5000) for kind in "wb"]
    left = {name: torch.full((1,), float(len(name))) for name in names}
    shuffled = random.Random(0).sample(names, len(names))
    assert compared(left, {name: left[name] for name in shuffled})[0] == "identical"
    said = compared(left, {name: left[name] + (name[-1] == "w") for name in shuffled})
    assert len(said) < 12
    assert "5,000 of 10,000 tensors have not moved: 5,000x l.[0–4999].b" in said
