"""How the report of `convert` reads, from outcomes made by hand."""

import pytest

from ckpttool.blocks import Report
from ckpttool.commands._convert.report import ConvertReport
from ckpttool.conversion.outcome import Outcome, WrittenFile
from ckpttool.conversion.tally import Changed, Harm, Lost, Tally
from ckpttool.keypaths import spelled_path
from ckpttool.render.text import lines as set_lines
from ckpttool.values import Attribute, GlobalRef


def told(*, files=1, columns=None, tally=None, **fields):
    """The lines of a report."""
    written = [WrittenFile(name=f"f{n}", kind="torch", nbytes=100, tensors=n % 2) for n in range(files)]
    outcome = Outcome(
        source="a",
        source_kind="torch-zip",
        target="b",
        target_kind="torch",
        files=written,
        tally=tally or Tally(),
        **fields,
    )
    return ["".join(s.text for s in line).rstrip() for line in set_lines(ConvertReport(outcome).blocks(), columns)]


def report(**fields):
    tally = Tally(**fields)
    return ConvertReport(Outcome(source="a", source_kind="", target="b", target_kind="", tally=tally))


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"verified": True}, "converted and verified: 0 tensors, 1 file of 100 B"),
        ({}, "converted, not verified: 0 tensors, 1 file of 100 B"),
        ({"dry_run": True}, "would convert: 0 tensors, 1 file of 100 B"),
        ({"tally": Tally(lost=[Lost("x", "C", "--drop-opaque")])}, "converted, with losses: 1 left out, 0 tensors, 1 file of 100 B"),
        ({"dry_run": True, "tally": Tally(lost=[Lost("x", "C", "--drop-opaque")])}, "would convert: 1 left out, 0 tensors, 1 file of 100 B"),
        ({"tally": Tally(lost=[Lost("x", "C", "--part")])}, "converted, not verified: 0 tensors, 1 file of 100 B"),
        ({"tally": Tally(harmed=[Harm("w", "float16", 3, 1, 1)])}, "converted, with losses: 1 tensor overflowed, 0 tensors, 1 file of 100 B"),
        ({"tally": Tally(harmed=[Harm("w", "float16", 3, 0, 1)])}, "converted, not verified: 0 tensors, 1 file of 100 B"),
    ],
)  # fmt: skip
def test_the_first_line_answers(fields, first):
    """Whether it was done, whether it is proved, what is missing, how much there is."""
    assert told(**fields)[0] == first


def test_what_went_wrong_comes_before_what_was_written():
    """Losses, overflows and zeros stand above the files and all that was asked for."""
    tally = Tally(
        lost=[Lost("gone", "m.C", "--drop-opaque"), Lost("opt", "dict", "--part")],
        harmed=[Harm("w", "float16", 3000, 1, 2), Harm("v", "bfloat16", 1, 0, 1)],
        settings=[Changed("epoch", "1", "2")],
    )
    said = told(files=2, tally=tally)
    order = ["not in the result  1", "  gone: m.C (--drop-opaque)", "overflowed  1",
             "  w: of 3,000 elements 1 too large for float16, 2 became zero", "became zero  1",
             "  v: of 1 element 1 became zero", "left out, as asked  1", "  opt: dict (--part)", "set  1", "  epoch: 1 → 2"]  # fmt: skip
    places = [said.index(line) for line in order]
    assert places == sorted(places)
    assert said.index("  v: of 1 element 1 became zero") < next(
        n for n, line in enumerate(said) if line.startswith("  file")
    )


def test_one_file_needs_no_table():
    """Its name and size stand above; of many the first are listed, and the rest is counted."""
    assert not any("holds" in line for line in told())
    said = told(files=20)
    assert said[-1].split() == ["8", "more", "800", "B"]


def test_lists_are_cut_and_names_shortened():
    """Five lines of each kind, the count of the rest; a name of a thousand characters does not fill the screen."""
    tally = Tally(renamed=[Changed("model", f"a{n}", "b" * 1000) for n in range(8)])
    said = told(tally=tally)
    assert "renamed  8" in said
    assert said[-1] == "  3 more, all of them with --json"
    assert max(map(len, said)) < 250


def test_everything_a_tally_holds_is_told():
    """Nothing is counted in silence."""
    tally = Tally(
        tensors=3,
        ties=[Changed("head", "", "emb")],
        packed=[Changed("t", "strides [1, 2]", "side by side")],
        carried=[Changed("c", "complex128", "F64 [2]")],
        trimmed_bytes=4096,
        cast=[
            Changed("w", "float32", "bfloat16"),
            Changed("v", "float32", "bfloat16"),
            Changed("u", "float64", "bfloat16"),
        ],
        plain=[Changed("args", "argparse.Namespace", "dict")],
        opaque=[Changed("m.C", "2", "objs[0]"), Changed("m.D", "1", "obj")],
        notes=["a note"],
    )
    said = "\n".join(told(tally=tally, source_sha256={"a": "ab" * 32}))
    for line in (
        "tied  1\n  head is emb", "packed  1\n  t: strides [1, 2] → side by side", "in another form  1\n  c: complex128 → F64 [2]",
        "trimmed  4.1 kB that no tensor looks at", "cast     2 tensors float32 → bfloat16, 1 tensor float64 → bfloat16",
        "turned into builtins  1\n  args: argparse.Namespace → dict", "m.C at objs[0], 2 times\n  m.D at obj", "a note",
        f"sha256 of the source\n{'ab' * 32}  a",
    ):  # fmt: skip
        assert line in said
    assert "sha256 of the result" not in said


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("--part", 0),
        ("--ema", 0),
        ("--select --exclude", 0),
        ("--drop-opaque", 1),
        ("links and devices are not copied", 1),
    ],
)
def test_exit_codes(why, code):
    """1 where something is not in the result that the user did not choose to leave out."""
    assert report(lost=[Lost("x", "y", why)]).exit_code == code


def test_the_document():
    """Numbers are numbers; the schema comes first; it is a report."""
    made = report(harmed=[Harm("w", "float16", 3, 1, 2)], opaque=[Changed("m.C", "1,200", "obj")])
    assert isinstance(made, Report)
    document = made.document()
    assert next(iter(document.items())) == ("schema", "ckpt.convert/1")
    assert document["out_of_range"] == [
        {"name": "w", "dtype": "float16", "elements": 3, "overflowed": 1, "became_zero": 2}
    ]
    assert document["opaque"] == [{"class": "m.C", "count": 1200, "where": "obj"}]
    assert document["complete"] is False
    made.close()


def test_key_paths_are_spelled_as_people_write_them():
    """Keys with dots between, numbers in brackets, attributes, and what is neither by its type."""
    assert spelled_path(("a", 0, "b", Attribute("c"), GlobalRef("m", "n"))) == "a[0].b.c[GlobalRef]"
