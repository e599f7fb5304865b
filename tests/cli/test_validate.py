"""`ckpt validate` and `ckpt rules` from the shell: stdout, stderr, exit code."""

import json
import shutil
from xml.etree import ElementTree as ET

import pytest
import torch

import ckpttool
from ckpttool.commands._validate import bench, validating
from ckpttool.rules import RULES
from ckpttool.validation import scanning

RUN = "accelerate/run/checkpoints"


@pytest.fixture
def run(fixtures_dir, tmp_path, monkeypatch):
    """A copy of a run of three checkpoints of Accelerate, `run` in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(fixtures_dir / RUN, tmp_path / "run")
    return tmp_path / "run"


def codes(told):
    return {f["code"] for f in told["findings"]}


@pytest.mark.usefixtures("run")
def test_a_good_run(ckpt):
    """Exit code 0, the newest is the one to resume from, and nothing is said on stderr."""
    result = ckpt("validate", "run")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("resume from checkpoint_2")
    told = json.loads(ckpt("validate", "run", "--json").out)
    assert (told["schema"], told["verdict"], told["resume_from"]) == (
        "ckpt.validate/1",
        "resumable",
        "run/checkpoint_2",
    )
    assert [c["step"] for c in told["checkpoints"]] == [4, 7, 11]


def test_a_run_whose_newest_is_damaged(ckpt, run):
    """The exit code speaks of the newest, and the newest good one is named; an older damaged one changes neither."""
    with (run / "checkpoint_2" / "optimizer.bin").open("r+b") as file:
        file.truncate(9000)
    result = ckpt("validate", "run")
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith(
        "resume from checkpoint_1\n  3 checkpoints in run; the newest, checkpoint_2, would raise"
    )
    told = json.loads(ckpt("validate", "run", "--json").out)
    assert (told["verdict"], told["resume_from"]) == ("raises", "run/checkpoint_1")
    assert "container.unreadable" in codes(told)
    shutil.rmtree(run / "checkpoint_2")
    with (run / "checkpoint_0" / "optimizer.bin").open("r+b") as file:
        file.truncate(9000)
    assert ckpt("validate", "run").code == 0


def test_a_run_of_damaged_ones(ckpt, run):
    """Where none is good, none is named."""
    for folder in run.iterdir():
        (folder / "optimizer.bin").write_bytes(b"")
    result = ckpt("validate", "run")
    assert result.code == 1
    assert result.out.startswith("none of the 3 checkpoints in run can be resumed from")


def test_a_flipped_bit(ckpt, run):
    """A bit of a tensor is found by the archive's checksum, which torch.load does not look at; without values it is not."""
    path = run / "checkpoint_2" / "optimizer.bin"
    state = torch.load(path, weights_only=True)["state"][0]["exp_avg"]
    data = bytearray(path.read_bytes())
    place = data.index(state.numpy().tobytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert not torch.equal(torch.load(path, weights_only=True)["state"][0]["exp_avg"], state)
    for options in ([], ["--values"], ["--crc"]):
        told = json.loads(ckpt("validate", "run/checkpoint_2", "--json", *options).out)
        assert (told["verdict"], codes(told) & {"container.bitrot"}) == ("silently-wrong", {"container.bitrot"})
    told = json.loads(ckpt("validate", "run/checkpoint_2", "--json", "--no-values").out)
    assert (told["verdict"], told["bytes_read"]) == ("resumable", None)
    assert "container.bitrot" in {n["code"] for n in told["not_checked"]}


def test_what_fails(ckpt, run):
    """NaN in the model is silent and fails; `--fail-on error` lets it pass, and skipping its rule does, too."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    path = run / "checkpoint_2" / "model.safetensors"
    weights = load_file(path)
    next(iter(weights.values()))[0] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    newest = "run/checkpoint_2"
    assert ckpt("validate", newest).code == 1
    assert ckpt("validate", newest, "--fail-on", "error").code == 0
    assert ckpt("validate", newest, "--skip-rules", "model.nonfinite").code == 0
    assert ckpt("validate", newest, "--rules", "scaler.*").code == 0
    (run / "ckpt.toml").write_text('skip-rules = ["model.nonfinite"]\n')
    assert ckpt("validate", newest).code == 1  # the configuration is that of the current folder
    shutil.move(run / "ckpt.toml", "ckpt.toml")
    assert ckpt("validate", newest).code == 0
    assert ckpt("validate", newest, "--rules", "model.*").code == 1


@pytest.mark.usefixtures("checkpoint")
def test_strict(ckpt):
    """A warning fails with `--strict`, which the text says; without, it does not."""
    torch.save({"model": {"w": torch.arange(2_000_000.0)[:2]}, "step": 3, "optimizer": None}, "m.pt")
    told = json.loads(ckpt("validate", "m.pt", "--json", "--rules", "storage.oversized").out)
    assert [f["severity"] for f in told["findings"]] == ["warning"]
    assert ckpt("validate", "m.pt", "--rules", "storage.oversized").code == 0
    result = ckpt("validate", "m.pt", "--rules", "storage.oversized", "--strict")
    assert result.code == 1
    assert "exit code  1: warnings fail, too" in result.out


def test_what_is_not_judged(ckpt, fixtures_dir):
    """Weights alone are neither good nor bad to resume from: exit code 2, and a report."""
    result = ckpt("validate", fixtures_dir / "plain/weights.pt")
    assert (result.code, result.err) == (2, "")
    assert result.out.startswith("not judged: nothing in it is resumed, it holds weights alone")
    assert json.loads(ckpt("validate", fixtures_dir / "plain/weights.pt", "--json").out)["verdict"] == "not-judged"


@pytest.mark.parametrize("option", [("--rules", "scaler.*"), ("--skip-rules", "container.*")])
def test_what_the_chosen_rules_do_not_tell(ckpt, run, option):
    """A newest checkpoint that cannot be read holds no weights alone, and what nobody was asked to tell is named."""
    for file in (run / "checkpoint_2").iterdir():
        file.unlink()
    told = ckpt("validate", "run", *option)
    assert (told.code, told.err) == (2, "")
    words = " ".join(told.out.split())
    assert words.startswith(
        "resume from checkpoint_1 3 checkpoints in run; the newest, checkpoint_2, could not be read"
    )
    assert "checkpoint_2: not judged: it could not be read" in words
    document = json.loads(ckpt("validate", "run", *option, "--json").out)
    assert document["said"] == "not judged: it could not be read"
    assert {"code": "container.incomplete", "why": "it was not asked for, and would tell of run/checkpoint_2: the folder "
            "is empty"} in document["not_checked"]  # fmt: skip


def test_a_file_that_the_chosen_rules_do_not_tell_of(ckpt, run):
    """Of a file that is empty, too; and where its rule is asked for, nothing is left out."""
    (run / "checkpoint_2/optimizer.bin").write_bytes(b"")
    document = json.loads(ckpt("validate", "run/checkpoint_2", "--rules", "scaler.*", "--json").out)
    assert document["verdict"] == "resumable"
    (left,) = [n for n in document["not_checked"] if n["code"].startswith("container.")]
    assert left["code"] == "container.incomplete"
    assert "optimizer.bin: not a checkpoint: the file is empty" in left["why"]
    document = json.loads(ckpt("validate", "run/checkpoint_2", "--rules", "container.incomplete", "--json").out)
    assert document["verdict"] == "raises"
    assert not any("asked" in n["why"] for n in document["not_checked"])


def test_states_that_cannot_be_read_are_no_weights_alone(ckpt, run):
    """A folder whose other files are broken."""
    for file in (run / "checkpoint_2").iterdir():
        if file.name != "model.safetensors":
            file.write_bytes(b"")
    result = ckpt("validate", "run/checkpoint_2", "--rules", "scaler.*")
    assert result.out.startswith("not judged: it could not be read in part")


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "is complete"), (("--strict",), "passes: warnings fail, too")],
)
def test_why_there_is_none_to_resume_from(ckpt, run, options, said):
    """All are resumable, and lack something, or have a warning that fails."""
    for folder in run.iterdir():
        (folder / "random_states_0.pkl").unlink()
        scale = torch.load(folder / "scaler.pt")
        torch.save({**scale, "scale": 1.0}, folder / "scaler.pt")
    result = ckpt("validate", "run", "--rules", "scaler.collapsed", *options)
    assert result.out.startswith(f"none of the 3 checkpoints in run {said}")


@pytest.mark.parametrize("output", ["text", "json", "github", "junit", "sarif"])
def test_what_cannot_be_read(ckpt, tmp_path, monkeypatch, output):
    """Exit code 2 and a sentence on stderr; the formats for CI say it, too, since nobody reads stderr there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04")
    result = ckpt("validate", "cut.pt", "--format", output)
    assert result.code == 2
    assert result.err.startswith("error: ")
    said = {"text": "", "json": ""}.get(output, "cut.pt")
    assert said in result.out
    assert bool(result.out) == bool(said)


@pytest.mark.parametrize("output", ["github", "junit", "sarif"])
def test_formats_for_ci(ckpt, run, output):
    """They hold the findings of the report, and the exit code is the report's."""
    (run / "checkpoint_2" / "optimizer.bin").write_bytes(b"")
    told = json.loads(ckpt("validate", "run/checkpoint_2", "--json").out)
    result = ckpt("validate", "run/checkpoint_2", "--format", output)
    assert (result.code, result.err) == (1, "")
    if output == "github":
        found = {line.partition("title=")[2].partition("::")[0] for line in result.out.splitlines()} - {"ckpt validate"}
    elif output == "junit":
        tests = ET.fromstring(result.out).iter("testcase")
        found = {t.get("name") for t in tests if t.find("failure") is not None or t.find("system-out") is not None}
    else:
        found = {r["ruleId"] for r in json.loads(result.out)["runs"][0]["results"]}
    assert found == codes(told)


@pytest.mark.usefixtures("checkpoint")
def test_formats_for_ci_are_of_judgements(ckpt):
    """Another command has none of them, and says which it has; a word that is no format is none of `validate` either."""
    result = ckpt("inspect", "m.pt", "--format", "sarif")
    assert (result.code, result.err) == (
        2,
        "error: 'sarif' is not a format of this report\n  hint: the formats are text and json\n",
    )
    result = ckpt("validate", "m.pt", "--format", "xml")
    assert (
        result.err
        == "error: 'xml' is not a format of this report\n  hint: the formats are text, json, github, junit and sarif\n"
    )
    assert ckpt("validate", "m.pt", "--json", "--format", "junit").code == 2


@pytest.mark.usefixtures("checkpoint")
def test_wrong_usage_is_no_finding(ckpt):
    """A rule that there is not is said on stderr alone, whatever the format."""
    result = ckpt("validate", "m.pt", "--rules", "scaler.emtpy", "--format", "github")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: 'scaler.emtpy' is no rule\n  hint: did you mean scaler.empty")
    assert ckpt("validate", "").err == "error: the path is empty\n  hint: name a checkpoint\n"


@pytest.mark.usefixtures("run")
def test_values_up_to_a_size(ckpt, monkeypatch):
    """Values are read up to 2 GB: of a run those of the newest checkpoints, as far as that goes."""
    told = json.loads(ckpt("validate", "run", "--json").out)["checkpoints"]
    assert all(c["bytes_read"] for c in told)
    monkeypatch.setattr(bench, "MOST_READ", told[-1]["bytes_read"] * 5 // 2)
    told = json.loads(ckpt("validate", "run", "--json").out)["checkpoints"]
    assert [c["bytes_read"] is not None for c in told] == [False, True, True]
    told = json.loads(ckpt("validate", "run", "--json", "--values").out)["checkpoints"]
    assert all(c["bytes_read"] for c in told)
    monkeypatch.setattr(bench, "MOST_READ", 10)
    assert "values were not read: --values" in ckpt("validate", "run/checkpoint_2").out


@pytest.mark.usefixtures("run")
def test_counters(ckpt):
    """`--counters` prints them side by side."""
    result = ckpt("validate", "run/checkpoint_2", "--counters")
    assert "optimizer step" in result.out
    assert "optimizer step" not in ckpt("validate", "run/checkpoint_2").out


def test_a_manifest(ckpt, run):
    """A bit that no checksum of the container guards is found by what was kept of it."""
    newest = "run/checkpoint_2"
    assert ckpt("validate", newest, "--write-manifest", "kept.json").code == 0
    assert "kept.json" in ckpt("validate", newest, "--write-manifest", "kept.json").out
    assert ckpt("validate", newest, "--manifest", "kept.json").code == 0
    path = run / "checkpoint_2" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert ckpt("validate", newest).code == 0
    assert ckpt("validate", newest, "--manifest", "kept.json").code == 1
    result = ckpt("validate", "run", "--manifest", "kept.json")
    assert (result.code, result.err) == (
        2, "error: a manifest is of one checkpoint, and the folder holds several\n  at: run\n  hint: name one of them\n",
    )  # fmt: skip


@pytest.mark.usefixtures("run")
def test_against_another(ckpt):
    """A second checkpoint answers what one alone cannot; without it the rules say so."""
    alone = json.loads(ckpt("validate", "run/checkpoint_2", "--json").out)
    both = json.loads(ckpt("validate", "run/checkpoint_2", "--against", "run/checkpoint_1", "--json").out)
    needing = {n["code"] for n in alone["not_checked"] if "--against" in n["why"]}
    assert needing
    assert not needing & {n["code"] for n in both["not_checked"]}
    assert ckpt("validate", "run/checkpoint_2", "--against", "nowhere").code == 2


def test_a_checkpoint_that_changes_meanwhile(ckpt, run, monkeypatch):
    """What was written to while it was judged has no verdict."""
    whole = scanning.scan

    def writing(checkpoint, **options):
        found = whole(checkpoint, **options)
        (run / "checkpoint_2" / "scaler.pt").write_bytes(b"new")
        return found

    monkeypatch.setattr(scanning, "scan", writing)
    for path in ("run", "run/checkpoint_2"):
        assert ckpt("validate", path).code == 2


@pytest.mark.usefixtures("run")
def test_an_empty_run(ckpt, monkeypatch):
    """A folder that holds no checkpoint is refused."""
    monkeypatch.setattr(validating, "open_path", lambda *_: validating.Run(path="run", layout=""))
    result = ckpt("validate", "run")
    assert (result.code, result.err) == (2, "error: the folder holds no checkpoints\n  at: run\n")


@pytest.mark.usefixtures("run")
def test_a_large_run_keeps_few_files_open(ckpt, monkeypatch):
    """Files are given back after each checkpoint of a run."""
    left = []
    whole = bench.judge

    def counting(case, *arguments):
        for one in case.run.checkpoints:
            left.extend(
                f._fd >= 0 for s in one.opened for f in getattr(s, "_opened", [s]) if one is not case.checkpoint
            )
        return whole(case, *arguments)

    monkeypatch.setattr(bench, "judge", counting)
    assert ckpt("validate", "run").code == 0
    assert left.count(True) < len(left)


def test_rules_are_listed(ckpt):
    """Each with a sentence, in text and as JSON."""
    result = ckpt("rules")
    assert (result.code, result.err) == (0, "")
    told = json.loads(ckpt("rules", "--json").out)
    assert told["schema"] == "ckpt.rules/1"
    assert [r["code"] for r in told["rules"]] == [r.code for r in RULES]
    assert all(r.code in result.out for r in RULES)


def test_a_rule_is_explained(ckpt):
    """What it looks at, why, an example, the reference; one that there is not is refused with what it may have been."""
    result = ckpt("rules", "scaler.empty")
    assert result.out.startswith("scaler.empty: ")
    assert [h for h in ("what", "why", "example", "reference") if f"\n  {h} " not in result.out] == []
    result = ckpt("rules", "scaler.emty")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: 'scaler.emty' is no rule\n  hint: did you mean scaler.empty")


def test_the_same_from_python(run):
    """`ckpttool.validate` returns the report."""
    report = ckpttool.validate(run, rules="scaler.*")
    assert (report.exit_code, report.resume_from) == (0, str(run / "checkpoint_2"))
    assert report.verdict == "resumable"
