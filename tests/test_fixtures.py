"""The checkpoints in `fixtures/` are those that the manifest describes."""

import hashlib
import json
import tomllib
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"
MANIFEST = json.loads((FIXTURES / "MANIFEST.json").read_text())
NOT_DATA = {"MANIFEST.json", "README.md", ".gitattributes"}
FILES = {
    name: entry for runs in MANIFEST["written_by"].values() for run in runs for name, entry in run["files"].items()
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_fixture_is_as_its_framework_wrote_it(name: str) -> None:
    """Each file has the size and the SHA-256 of the manifest."""
    data = (FIXTURES / name).read_bytes()
    assert {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} == FILES[name]


def test_the_manifest_is_complete() -> None:
    """There is no file in `fixtures/` that the manifest does not account for."""
    found = {p.relative_to(FIXTURES).as_posix() for p in FIXTURES.rglob("*") if p.is_file()}
    assert {n for n in found - NOT_DATA if not n.startswith("scripts/")} == FILES.keys()


def test_the_fixtures_stay_small() -> None:
    """They are part of every clone: less than 6 MB together."""
    assert sum(entry["size"] for entry in FILES.values()) < 6_000_000


@pytest.mark.parametrize("script", sorted(MANIFEST["written_by"]))
def test_a_script_pins_what_the_manifest_says(script: str) -> None:
    """The versions of the manifest are those that the script's header asks for."""
    text = (FIXTURES / "scripts" / script).read_text()
    block = text.split("# /// script\n")[1].split("# ///\n")[0]
    header = tomllib.loads("".join(line[2:] for line in block.splitlines(keepends=True)))
    pins = [dict(d.split("==") for d in header["dependencies"] if "==" in d)]
    releases = header.get("tool", {}).get("fixtures", {}).get("releases")
    for wanted, run in zip(releases or pins, MANIFEST["written_by"][script], strict=True):
        have = {name: version.partition("+")[0] for name, version in run["versions"].items()}
        assert have["python"].startswith(wanted.get("python", "3.11"))
        assert wanted.items() - {("python", wanted.get("python"))} <= have.items()


def test_no_fixture_names_the_machine_that_made_it() -> None:
    """Paths inside the files are neutral ones."""
    traces = (b"/home/", b"/root/", b"/Users/")
    assert [name for name in FILES if any(trace in (FIXTURES / name).read_bytes() for trace in traces)] == []
