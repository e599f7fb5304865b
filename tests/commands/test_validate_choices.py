"""What is checked and what fails: options, and what a project says."""

import pytest

import ckpttool
from ckpttool.blocks import Severity
from ckpttool.commands._validate import choices as module
from ckpttool.commands._validate.choices import choices
from ckpttool.commands._validate.configuration import Configuration, read_configuration
from ckpttool.errors import UsageError
from ckpttool.protocols import Needs
from ckpttool.rules import RULES

NOTHING = {
    "values": False, "no_values": False, "crc": False, "counters": False, "rules": None, "skip_rules": None,
    "strict": False, "fail_on": None, "limits": None, "against": None, "manifest": None, "write_manifest": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder without a configuration, with three rules."""

    def rule(code):
        return type("R", (), {"code": code, "needs": Needs.NOTHING})()

    monkeypatch.setattr(module, "RULES", tuple(map(rule, ("scaler.empty", "scaler.missing", "scheduler.missing"))))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def codes(**options):
    return [rule.code for rule in choices(**{**NOTHING, **options}).rules]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["scaler.empty", "scaler.missing", "scheduler.missing"]),
        ({"rules": "scaler.*"}, ["scaler.empty", "scaler.missing"]),
        ({"rules": "scheduler.missing, scaler.empty,"}, ["scaler.empty", "scheduler.missing"]),
        ({"skip_rules": "*.missing"}, ["scaler.empty"]),
        ({"rules": "scaler.*", "skip_rules": "scaler.empty"}, ["scaler.missing"]),
    ],
)
def test_rules_are_chosen_by_glob(options, left):
    """`--rules` and `--skip-rules` take ids and globs, in any order; the rules keep theirs."""
    assert codes(**options) == left


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"rules": "scaler.emty"}, "'scaler.emty' is no rule", "did you mean scaler.empty or scaler.missing"),
        ({"skip_rules": "zzzz"}, "'zzzz' is no rule", "`ckpt rules` lists them; scheduler.* means several"),
        (
            {"rules": "scaler.*", "skip_rules": "*"},
            "no rule is left to check",
            "every rule that was named is skipped, too",
        ),
        (
            {"values": True, "no_values": True},
            "--values and --no-values contradict each other",
            "leave one of them out",
        ),
        ({"crc": True, "no_values": True}, "--crc and --no-values contradict each other", "leave one of them out"),
        ({"strict": True, "fail_on": "error"}, "--strict and --fail-on both say what fails", "leave one of them out"),
        ({"rules": ""}, "--rules names no rule", "leave it out to check all"),
        ({"rules": " , "}, "--rules names no rule", "leave it out to check all"),
        ({"fail_on": "note"}, "'note' is not a severity that can fail", "one of error, silent, warning"),
    ],
)
def test_what_cannot_be_answered(options, message, hint):
    """A rule or a severity that there is not, and options that contradict each other."""
    with pytest.raises(UsageError) as caught:
        choices(**{**NOTHING, **options})
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("options", "values", "figures"),
    [
        ({}, None, True),
        ({"values": True}, True, True),
        ({"no_values": True}, False, True),
        ({"crc": True}, True, False),
    ],
)
def test_which_values_are_read(options, values, figures):
    """By default those of small checkpoints; `--crc` reads all, for checksums alone."""
    made = choices(**{**NOTHING, **options})
    assert (made.values, made.figures) == (values, figures)


@pytest.mark.parametrize(
    ("options", "told", "threshold"),
    [
        ({}, "", Severity.SILENT),
        ({"strict": True}, "", Severity.WARNING),
        ({"fail_on": "error"}, "", Severity.ERROR),
        ({}, "strict = true", Severity.WARNING),
        ({}, 'fail_on = "error"', Severity.ERROR),
        ({}, 'fail-on = "warning"', Severity.WARNING),
        ({"fail_on": "silent"}, "strict = true", Severity.SILENT),
        ({"strict": True}, 'fail_on = "error"', Severity.WARNING),
    ],
)
def test_what_fails(here, options, told, threshold):
    """Silent findings and errors, unless an option or the project says otherwise; an option goes first."""
    (here / "ckpt.toml").write_text(told)
    assert choices(**{**NOTHING, **options}).fail_on is threshold


def test_a_project_chooses_rules(here):
    """Options replace its lists: a rule that is asked for by name runs, although the project skips it."""
    (here / "ckpt.toml").write_text('skip-rules = ["scaler.*"]\nvalues = false\n')
    assert codes() == ["scheduler.missing"]
    assert codes(rules="scaler.empty") == ["scaler.empty"]
    assert codes(skip_rules="scheduler.*") == ["scaler.empty", "scaler.missing"]
    assert choices(**NOTHING).values is False
    assert choices(**{**NOTHING, "values": True}).values is True
    (here / "ckpt.toml").write_text('rules = ["scaler.*"]\n')
    assert codes() == ["scaler.empty", "scaler.missing"]
    assert codes(skip_rules="scaler.empty") == ["scaler.missing"]


@pytest.mark.parametrize("options", [{}, {"skip_rules": "scaler.empty"}])
def test_a_project_that_chooses_none(here, options):
    """An empty list is no way to say all; nothing would be checked. An option goes first."""
    (here / "ckpt.toml").write_text("rules = []\n")
    with pytest.raises(UsageError, match="rules names no rule") as caught:
        codes(**options)
    assert caught.value.where == str(here / "ckpt.toml")
    assert codes(rules="scaler.empty") == ["scaler.empty"]
    (here / "ckpt.toml").write_text('skip-rules = ["scaler.*"]\n')
    assert len(codes(skip_rules="")) == 3


@pytest.mark.parametrize("other", ["m.json", "./m.json", "sub/../m.json", "link.json", "hard.json"])
def test_a_manifest_is_not_written_over_the_one_it_is_held_against(here, other):
    """However the file is spelled, also before it is there; two files are fine."""
    (here / "sub").mkdir()
    (here / "link.json").symlink_to("m.json")
    if other == "hard.json":
        (here / "m.json").write_text("{}")
        (here / "hard.json").hardlink_to(here / "m.json")
    with pytest.raises(UsageError, match="name one file"):
        choices(**{**NOTHING, "manifest": "m.json", "write_manifest": other})
    assert choices(**{**NOTHING, "manifest": "m.json", "write_manifest": "new.json"}).write_manifest == "new.json"


def test_the_nearest_configuration_counts(here):
    """ckpt.toml goes before pyproject.toml, a near folder before a far one; a pyproject.toml without our table is passed."""
    inner = here / "a" / "b"
    inner.mkdir(parents=True)
    assert read_configuration(inner) == Configuration()
    (here / "pyproject.toml").write_text("[tool.ckpt]\nstrict = true\n")
    assert read_configuration(inner) == Configuration(strict=True)
    (here / "a" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert read_configuration(inner) == Configuration(strict=True)
    (here / "ckpt.toml").write_text('rules = ["scaler.*"]\n')
    assert read_configuration(inner) == Configuration(rules=("scaler.*",))
    (inner / "pyproject.toml").write_text('[tool.ckpt]\nfail_on = "error"\n')
    assert read_configuration(inner) == Configuration(fail_on="error")


@pytest.mark.parametrize("text", ["no toml at all", "ckpt = = 3", "ckpt = 1\ntool = 3\n", "\x00", "[tool]\nckpt = 1\n"])
def test_a_strange_pyproject_is_not_ours(here, text):
    """What is no TOML, or has no table of ours, is passed over: other programs will say so."""
    (here / "pyproject.toml").write_text(text)
    assert read_configuration() == Configuration()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules =", "it is no TOML: Invalid value (at end of document)"),
        ("rule = []", "'rule' is no setting"),
        ('rules = "scaler.*"', "'rules' is 'scaler.*', which is of another type"),
        ("rules = [1]", "'rules' is [1], which is of another type"),
        ("strict = 1", "'strict' is 1, which is of another type"),
        ('strict = true\nfail-on = "error"', "strict and fail-on both say what fails"),
    ],
)
def test_a_wrong_configuration_is_said_with_its_place(here, text, message):
    """A setting that there is not, or of another type, is a wrong usage and not ignored."""
    (here / "ckpt.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_configuration()
    assert caught.value.message.startswith(message)
    assert caught.value.where == str(here / "ckpt.toml")


def test_a_wrong_word_of_a_project(here):
    """A severity or a rule that there is not is refused wherever it is said."""
    (here / "ckpt.toml").write_text('fail_on = "never"')
    with pytest.raises(UsageError, match="'never' is not a severity that can fail"):
        choices(**NOTHING)


def test_every_rule_can_be_named():
    """Rules have ids of a room and a fault, each of its own, in order."""
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert ckpttool.validate
