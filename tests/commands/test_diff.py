"""`diff` from Python: real files in, a report out."""

import json
import math
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ckpttool
from ckpttool.blocks import Note
from ckpttool.commands._diff import comparing
from ckpttool.comparison.sameness import Sameness
from ckpttool.errors import (
    CkptError,
    DamagedFile,
    FileChanged,
    NoSuchKey,
    PathNotFound,
    UnsupportedFormat,
    UsageError,
)
from ckpttool.opening import open_checkpoint
from ckpttool.opening.paths import open_path
from ckpttool.render.text import lines as set_lines
from tests.conftest import FIXTURES


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write `a.pt` and `b.pt` into the current folder; returns the function that does it."""
    monkeypatch.chdir(tmp_path)

    def write(left, right, **settings):
        torch.save(left, "a.pt", **settings)
        torch.save(right, "b.pt", **settings)

    return write


def lines(report):
    """The report as a pipe gets it."""
    return ["".join(segment.text for segment in line).rstrip() for line in set_lines(report.blocks(), None)]


def text(report):
    return "\n".join(lines(report))


def verdict(left="a.pt", right="b.pt", **options):
    return ckpttool.diff(left, right, **options).verdict


def readable():
    """Every fixture that opens as one whole checkpoint, and the members of every run."""
    places = [
        p for p in FIXTURES.rglob("*") if "scripts" not in p.parts and p.suffix not in (".json", ".md", ".py", ".txt")
    ]
    for place in sorted(places):
        try:
            opened = open_path(place)
        except CkptError:
            continue
        with opened:
            found = getattr(opened, "checkpoints", (opened,))
            whole = [
                c
                for c in found
                if not any(f.severity == "error" or f.code == "layout.not-yet" for f in c.all_problems())
            ]
            yield from (c.path for c in whole if all(f.complete for f in c.contents.values()))


@pytest.mark.parametrize("path", sorted(set(readable())), ids=lambda p: str(p).removeprefix(str(FIXTURES)))
def test_everything_is_identical_to_itself(path):
    """Opened twice, every part of every fixture is read and is the same."""
    report = ckpttool.diff(path, path)
    assert (report.verdict, report.different, report.exit_code) == (Sameness.IDENTICAL, False, 0)
    assert lines(report)[0] == "identical (both sides are one path)"
    list(report.document()["parts"])


MODEL = {"fc.weight": torch.arange(12.0).reshape(3, 4), "fc.bias": torch.ones(3), "head.weight": torch.ones(2, 3)}


def formats(folder):
    """The same model in every format that one file or folder can have."""
    torch.save(MODEL, folder / "zip.pt")
    torch.save(MODEL, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": MODEL}, folder / "nested.pt")
    torch.save({f"module.{k}": v for k, v in MODEL.items()}, folder / "wrapped.pt")
    torch.save(dict(reversed(MODEL.items())), folder / "reordered.pt")
    save_file(MODEL, folder / "model.safetensors")
    sharded = folder / "sharded"
    sharded.mkdir()
    names = list(MODEL)
    save_file({n: MODEL[n] for n in names[:2]}, sharded / "model-00001-of-00002.safetensors")
    save_file({n: MODEL[n] for n in names[2:]}, sharded / "model-00002-of-00002.safetensors")
    where = {n: f"model-0000{1 + (n == names[2])}-of-00002.safetensors" for n in names}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return ["zip.pt", "legacy.pt", "nested.pt", "wrapped.pt", "reordered.pt", "model.safetensors", "sharded"]


def test_one_model_in_every_format_is_identical(tmp_path):
    """Containers, sharding, wrappers and the order of keys are no difference."""
    made = formats(tmp_path)
    for left in made:
        for right in made:
            assert ckpttool.diff(tmp_path / left, tmp_path / right).verdict is Sameness.IDENTICAL, (left, right)


def test_tied_weights_may_be_spelled_once(files, tmp_path):
    """As safetensors drops the second name; with --no-align it is missing."""
    shared = torch.ones(3, 3)
    files({"emb.weight": shared, "head.weight": shared}, {})
    save_file({"emb.weight": shared}, tmp_path / "m.safetensors")
    report = ckpttool.diff("a.pt", "m.safetensors")
    assert report.exit_code == 0
    assert "only the left side spells out tied names: head.weight (= emb.weight)" in text(report)
    assert ckpttool.diff("a.pt", "m.safetensors", no_align=True).exit_code == 1


def test_edits_are_found_and_named(files):
    """A bit, an element, a NaN, a type, a transposed view, keys in another order."""
    base = {"a": torch.zeros(8), "b": torch.ones(4, 4), "c": torch.arange(5)}

    def edited(**changes):
        files(base, {**base, **changes})
        report = ckpttool.diff("a.pt", "b.pt")
        rows = [r.name for p in report.parts for r in p.tensors if r.compared.sameness is not Sameness.IDENTICAL]
        return report.verdict, rows, text(report)

    bit = base["b"].clone()
    bit.view(torch.int32)[3, 3] ^= 1
    assert edited(b=bit)[:2] == (Sameness.DIFFERENT, ["b"])
    element = base["a"].clone()
    element[5] = 1e-3
    found = edited(a=element)
    assert found[:2] == (Sameness.DIFFERENT, ["a"])
    assert "0 → 0.001 at [5]" in found[2]
    nan = base["a"].clone()
    nan[2] = math.nan
    assert "0 NaN left, 1 right" in edited(a=nan)[2]
    assert edited(b=base["b"].double())[0] is Sameness.SAME_VALUES
    strided = edited(b=base["b"].t())
    assert strided[:2] == (Sameness.IDENTICAL, [])
    files({"b": torch.ones(2, 3)}, {"b": torch.ones(3, 2).t()})
    assert "1 tensor with other strides, which is no difference" in text(ckpttool.diff("a.pt", "b.pt"))
    files(base, dict(reversed(base.items())))
    assert verdict() is Sameness.IDENTICAL


def test_by_value_and_tolerances_let_pass(files):
    """What is the same in value, or near."""
    files({"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([1.0, -0.0])})
    assert ckpttool.diff("a.pt", "b.pt").exit_code == 1
    assert "same values, not the same bits: model 1 of 1 tensor" in text(ckpttool.diff("a.pt", "b.pt"))
    assert "other signs of zero" in text(ckpttool.diff("a.pt", "b.pt"))
    assert ckpttool.diff("a.pt", "b.pt", by_value=True).exit_code == 0
    files({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.0, 2.0 + 2**-20])})
    assert verdict(rtol=1e-5) is Sameness.WITHIN_TOLERANCE
    assert verdict(atol=1e-5) is Sameness.WITHIN_TOLERANCE
    assert verdict(ulp=4) is Sameness.WITHIN_TOLERANCE
    assert verdict(ulp=3) is Sameness.DIFFERENT
    assert ckpttool.diff("a.pt", "b.pt", ulp=4).exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rtol": -1}, "--rtol -1 is no tolerance"), ({"atol": "x"}, "--atol x is no tolerance"),
        ({"rtol": math.nan}, "no tolerance"), ({"ulp": 1.5}, "--ulp 1.5 is not a whole number"),
        ({"top": -1}, "--top -1 is not"), ({"top": "9" * 30}, "--top is a number of 30 digits"), ({"top": ""}, "--top '' is not"),
        ({"part": "optimiser"}, "is not a part"), ({"map": ["x"]}, "is not a mapping"), ({"limit": ["x"]}, "no limit"),
    ],
)  # fmt: skip
def test_wrong_options(files, options, said):
    """Named, as from the shell."""
    files(MODEL, MODEL)
    with pytest.raises(UsageError, match=said):
        ckpttool.diff("a.pt", "b.pt", **options)


def test_nothing_to_compare_is_an_error(files):
    """A wrong pattern or part must not read as `identical`."""
    files({"model": MODEL, "epoch": 1}, {"model": MODEL, "epoch": 1})
    with pytest.raises(NoSuchKey, match=r"no tensor of either side matches fc\.wieght") as wrong:
        ckpttool.diff("a.pt", "b.pt", select=["fc.wieght"])
    assert "did you mean fc.weight" in wrong.value.hint
    with pytest.raises(NoSuchKey, match=r"matches \* without \*") as every:
        ckpttool.diff("a.pt", "b.pt", exclude=["*"])
    assert every.value.hint == "the first names are fc.weight, fc.bias, head.weight"
    with pytest.raises(NoSuchKey, match="neither side has a part ema") as part:
        ckpttool.diff("a.pt", "b.pt", part="model,ema")
    assert part.value.hint == "there are model, progress"
    files({}, {})
    assert lines(ckpttool.diff("a.pt", "b.pt"))[0] == "identical: both are empty"
    with pytest.raises(NoSuchKey):
        ckpttool.diff("a.pt", "b.pt", select=["x"])
    with pytest.raises(NoSuchKey):
        ckpttool.diff("a.pt", "b.pt", part="ema")


@pytest.mark.parametrize("side", ["left", "right"])
def test_damaged_input_names_its_side(files, tmp_path, side):
    """Cut short, missing, not whole, a program, not read yet."""

    def refused(bad, error, said):
        pair = (bad, "a.pt") if side == "left" else ("a.pt", bad)
        with pytest.raises(error, match=f"the {side} side.*{said}"):
            ckpttool.diff(*pair)

    files(MODEL, MODEL)
    (tmp_path / "cut.pt").write_bytes((tmp_path / "b.pt").read_bytes()[:700])
    refused("cut.pt", CkptError, "")
    refused("nowhere.pt", PathNotFound, "")
    refused(FIXTURES / "programs/exported.pt2", UnsupportedFormat, "torch.export")
    refused(FIXTURES / "programs/package.pt", UnsupportedFormat, "torch.package")
    refused(FIXTURES / "dcp/single", UnsupportedFormat, "not supported yet")
    folder = tmp_path / "sharded"
    shutil.copytree(FIXTURES / "accelerate/sharded_safetensors", folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, DamagedFile, "not whole")


def test_places_of_a_folder_begin_with_the_folder(files, tmp_path):
    """Two folders may hold files of one name."""
    files(MODEL, MODEL)
    folder = tmp_path / "sharded"
    shutil.copytree(FIXTURES / "accelerate/sharded_safetensors", folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DamagedFile) as wrong:
        ckpttool.diff("a.pt", folder)
    assert wrong.value.where == f"{folder}/model.safetensors.index.json"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_file_that_changes_meanwhile(files, tmp_path, monkeypatch, side):
    """Whether reading it fails or not, that it changed is what is said."""
    files({"w": torch.zeros(100_000)}, {"w": torch.zeros(100_000)})
    real = comparing.compare_checkpoints
    path = tmp_path / ("a.pt" if side == "left" else "b.pt")

    def touched(*arguments):
        result = real(*arguments)
        path.write_bytes(path.read_bytes() + b"x")
        return result

    def cut(*arguments):
        path.write_bytes(path.read_bytes()[:2000])
        return real(*arguments)

    for change in (touched, cut):
        files({"w": torch.zeros(100_000)}, {"w": torch.zeros(100_000)})
        monkeypatch.setattr(comparing, "compare_checkpoints", change)
        with pytest.raises(FileChanged, match=f"the {side} side"):
            ckpttool.diff("a.pt", "b.pt")


def test_an_error_while_comparing_is_passed_on(files, monkeypatch):
    """Where no file changed."""
    files(MODEL, MODEL)

    def failing(*_):
        raise DamagedFile("the left side: the disk does not give the bytes")

    monkeypatch.setattr(comparing, "compare_checkpoints", failing)
    with pytest.raises(DamagedFile):
        ckpttool.diff("a.pt", "b.pt")


def test_runs_are_asked_which(files):
    """A folder of several checkpoints, on one side or both, with what to type."""
    files(MODEL, MODEL)
    run, other = FIXTURES / "lightning/ema", FIXTURES / "timm"
    with pytest.raises(UsageError, match=r"the left side holds 3 checkpoints, and one is wanted") as left:
        ckpttool.diff(run, "a.pt")
    assert left.value.hint == f"name one, as ckpt diff {run}/last.ckpt a.pt"
    with pytest.raises(UsageError, match="the left side holds 3 checkpoints and the right side holds 4") as both:
        ckpttool.diff(run, other)
    assert both.value.hint.endswith(f"{run}/last.ckpt {other}/last.pth.tar")
    with pytest.raises(UsageError) as right:
        ckpttool.diff("a.pt", run)
    assert right.value.where == str(run)
    with pytest.raises(UsageError):
        ckpttool.diff(run, FIXTURES / "no such folder")


def test_a_run_without_a_whole_checkpoint(files, tmp_path):
    """There is none to name."""
    files(MODEL, MODEL)
    for step in (1, 2):
        folder = tmp_path / f"run/checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UsageError) as wrong:
        ckpttool.diff("run", "a.pt")
    assert wrong.value.hint == "none of the left side is complete"


def test_a_map_and_overlap(files):
    """Renamed names and resized embeddings."""
    files({"backbone.w": torch.ones(3, 2)}, {"model.w": torch.ones(5, 2)})
    assert "model 1 only on the left, 1 only on the right" in text(ckpttool.diff("a.pt", "b.pt"))
    mapped = ckpttool.diff("a.pt", "b.pt", map=["^backbone=model"])
    assert "[3, 2] against [5, 2]" in text(mapped)
    report = ckpttool.diff("a.pt", "b.pt", map=["^backbone=model"], overlap=True)
    assert report.exit_code == 0
    assert "1 name aligned by --map: backbone.w is model.w" in text(report)


def test_progress_is_told(files):
    """In bytes of the left side, never more than all."""
    files({"w": torch.zeros(200_000)}, {"w": torch.ones(200_000)})
    told = []
    ckpttool.diff("a.pt", "b.pt", progress=lambda *step: told.append(step))
    assert told[-1] == ("comparing", 800_000, 800_000)


def test_the_files_are_closed(files):
    """The report is written from what was read; a step has its number."""
    files({"optimizer": {"state": {0: {"step": torch.tensor(5.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}},
          {"optimizer": {"state": {0: {"step": torch.tensor(6.0)}}, "param_groups": [{"lr": 0.05, "params": [0]}]}})  # fmt: skip
    report = ckpttool.diff("a.pt", "b.pt")
    shutil.rmtree(".", ignore_errors=True)
    assert "param 0.step  5     →  6" in text(report)
    (part,) = report.document()["parts"]
    assert [(c["key"], c["left"], c["right"]) for c in part["changes"]] == [
        (["param 0", "step"], 5.0, 6.0), (["group", 0, "lr"], 0.1, 0.05),
    ]  # fmt: skip
    report.close()


def test_quiet_says_nothing(files):
    """Only the exit code."""
    files(MODEL, MODEL)
    assert list(ckpttool.diff("a.pt", "b.pt", quiet=True).blocks()) == []


def test_long_tables_are_cut(files):
    """Of each part --top rows, and how many there are beyond; --all shows them."""
    files({f"{c}.w": torch.ones(2) for c in "abcdefgh"} | {"only": torch.ones(1), "only2": torch.ones(1)},
          {f"{c}.w": torch.ones(2) * (2 + n) for n, c in enumerate("abcdefgh")})  # fmt: skip
    cut = ckpttool.diff("a.pt", "b.pt", top=1)
    notes = [block.text for block in cut.blocks() if isinstance(block, Note)]
    assert notes == [
        "and 7 tensors more, changed less: --all or --top 8 shows them",
        "and 1 tensor more that only one side has: --all shows them",
    ]
    assert "h.w" in text(cut)
    whole = ckpttool.diff("a.pt", "b.pt", all=True)
    assert not [block for block in whole.blocks() if isinstance(block, Note)]
    torch.save({"model": MODEL, "config": {f"k{n}": n for n in range(50)}}, "a.pt")
    torch.save({"model": MODEL, "config": {f"k{n}": -n for n in range(50)}}, "b.pt")
    fields = ckpttool.diff("a.pt", "b.pt", top=3)
    assert "and 43 fields more: --all shows them" in text(fields)
    assert "k49" in text(ckpttool.diff("a.pt", "b.pt", all=True))


def test_many_parameters_share_a_line(files):
    """State that all of them lost, with a few names; numbers of numpy and long strings read well."""
    fixtures = FIXTURES / "optimizers"
    said = text(ckpttool.diff(fixtures / "AdamW.pt", fixtures / "AdamW_unstepped.pt", part="optimizer"))
    assert (
        "state of 7 parameters  step, exp_avg, exp_avg_sq  →  none   emb.weight, fc1.weight, fc1.bias and 4 more"
        in said
    )
    assert "parameters are matched by position, because a side does not tell their names" in said
    base = {"model": MODEL}
    files({**base, "note": {"n": np.float64(1.5), "s": "a" * 200 + "b", "b": True}},
          {**base, "note": {"n": np.float64(2.5), "s": "a" * 200 + "c"}})  # fmt: skip
    report = ckpttool.diff("a.pt", "b.pt")
    said = text(report)
    assert "1.5" in said
    assert "first at character 200" in said
    part = next(p for p in report.document()["parts"] if p["name"] == "note")
    assert {tuple(c["key"]): ("left" in c, "right" in c) for c in part["changes"]}["b",] == (True, False)


def test_neighbours_are_spelled_apart(files):
    """Two float64 values that agree to 9 digits."""
    files(
        {"w": torch.tensor([0.1, 1.0], dtype=torch.float64)},
        {"w": torch.tensor([0.1 + 1e-16, 1.0], dtype=torch.float64)},
    )
    assert "0.1 → 0.10000000000000009" in text(ckpttool.diff("a.pt", "b.pt")) or "0.1 → 0.100000000000000" in text(
        ckpttool.diff("a.pt", "b.pt")
    )


def test_a_checkpoint_without_parts(files, monkeypatch):
    """What holds something, none of which can be compared, is not `identical`."""
    files(MODEL, MODEL)
    monkeypatch.setattr(comparing, "compare_checkpoints", lambda *_: ())
    with pytest.raises(UnsupportedFormat, match="neither side holds a part"):
        ckpttool.diff("a.pt", "b.pt")


def test_a_damaged_member_of_a_single_file(files):
    """A storage that is shorter than the pickle says."""
    files(MODEL, MODEL)
    with zipfile.ZipFile("a.pt") as whole, zipfile.ZipFile("short.pt", "w") as short:
        for info in whole.infolist():
            data = whole.read(info)
            short.writestr(info.filename, data[:8] if info.filename.endswith("data/0") else data)
    with pytest.raises(DamagedFile, match="the left side is not whole") as wrong:
        ckpttool.diff("short.pt", "a.pt")
    assert wrong.value.where.startswith("short.pt")


def test_a_run_beside_a_folder(files, tmp_path):
    """The other side is a folder of one checkpoint, or one that cannot be opened: only the run is asked about."""
    files(MODEL, MODEL)
    run, one = FIXTURES / "lightning/ema", FIXTURES / "accelerate/sharded_safetensors"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/pytorch_model.bin.index.json").write_text("{")
    for other in (one, tmp_path / "broken", tmp_path / "a.pt"):
        with pytest.raises(UsageError) as wrong:
            ckpttool.diff(run, other)
        assert wrong.value.hint == f"name one, as ckpt diff {run}/last.ckpt {other}"


def test_a_run_beside_a_folder_that_cannot_be_opened(files, tmp_path):
    """Too many files on the other side: the run is asked about first."""
    files(MODEL, MODEL)
    (tmp_path / "many").mkdir()
    for n in range(30):
        (tmp_path / f"many/{n}.pt").touch()
    with pytest.raises(UsageError, match="the left side holds 3 checkpoints, and one is wanted"):
        ckpttool.diff(FIXTURES / "lightning/ema", tmp_path / "many", limit=["files=20"])


def test_inspect_and_diff_open_alike(files):
    """The API names both."""
    files(MODEL, MODEL)
    assert ckpttool.diff("a.pt", "b.pt").document()["schema"] == "ckpt.diff/1"
    with open_checkpoint("a.pt") as checkpoint:
        assert checkpoint.weights


def test_what_only_nan_and_inf_tell_apart_comes_first(files):
    """Above every finite change, and it says so; its figures do not read as no difference."""
    ones = torch.ones(4)
    files({"a": ones, "b": ones, "c": ones}, {"a": ones * 9, "b": ones.clone(), "c": ones[:2]})
    bad = ones.clone()
    bad[2] = math.nan
    torch.save({"a": ones * 9, "b": bad, "c": ones[:2]}, "b.pt")
    report = ckpttool.diff("a.pt", "b.pt")
    rows = [line for line in lines(report) if line.split()[:1] in (["a"], ["b"], ["c"])]
    assert [row.split()[0] for row in rows] == ["b", "c", "a"]
    assert rows[0].split()[1:7] == ["25%", "nan", "nan", "nan", "NaN/Inf", "only,"]
    (row,) = [row for row in next(iter(report.document()["parts"]))["tensors"] if row["name"] == "b"]
    assert row["note"] == "NaN/Inf only"


def test_an_overlap_is_said_where_it_is_equal(files):
    """Tensors of other shapes are never called identical: a word of their own, in the answer, the row and the JSON."""
    files({"w": torch.ones(3, 2)}, {"w": torch.ones(5, 2)})
    report = ckpttool.diff("a.pt", "b.pt", overlap=True)
    assert (report.exit_code, report.verdict) == (0, "same where they overlap")
    assert text(report).startswith("same where they overlap: model 1 of 1 tensor\n")
    assert "same where they overlap, [3, 2] against [5, 2]" in text(report)
    (part,) = report.document()["parts"]
    assert (part["verdict"], part["counts"]["same where they overlap"]) == ("same where they overlap", 1)
    assert part["tensors"][0]["is"] == "same where they overlap"


@pytest.mark.parametrize(
    ("right", "options", "verdict", "said"),
    [
        (torch.ones(5, 2).bfloat16(), {}, "different", "[3, 2] against [5, 2], same values where they overlap"),
        (torch.ones(5, 2).bfloat16(), {"by_value": True}, "same where they overlap", "same values where they overlap"),
        (torch.full((5, 2), 1.5), {"atol": 1.0}, "same where they overlap", "within tolerance where they overlap"),
        (torch.full((5, 2), 1.5), {}, "different", "[3, 2] against [5, 2]"),
    ],
)
def test_an_overlap_passes_as_the_options_say(files, right, options, verdict, said):
    """What both have is held to `--by-value` and the tolerance, and the row says how alike it is."""
    files({"w": torch.ones(3, 2)}, {"w": right})
    report = ckpttool.diff("a.pt", "b.pt", overlap=True, **options)
    assert (report.verdict, report.exit_code) == (verdict, int(verdict == "different"))
    assert said in text(report)


def test_another_type_that_a_tolerance_lets_pass_is_said(files):
    """A tolerance compares by value; without one the type is a difference."""
    files({"w": torch.ones(3)}, {"w": torch.ones(3).double()})
    said = "the other type passes, as a tolerance compares by value"
    for options, exit_code, told in (({}, 1, False), ({"rtol": 1e-3}, 0, True), ({"by_value": True}, 0, False)):
        report = ckpttool.diff("a.pt", "b.pt", **options)
        assert (report.exit_code, said in text(report)) == (exit_code, told)


def test_large_integers_do_not_pass_by_value(files):
    """2**60 + 1 is no float64."""
    files({"n": torch.tensor([2**60 + 1])}, {"n": torch.tensor([2.0**60], dtype=torch.float64)})
    assert ckpttool.diff("a.pt", "b.pt", by_value=True).exit_code == 1
