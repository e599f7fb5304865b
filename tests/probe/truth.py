"""What resumes really do, as `fixtures/scripts/resume_truth.py` found by running them, and the cases to try it on."""

import json
from pathlib import Path
from typing import Any

from fixtures.scripts.resuming.cases import arguments, build, cases

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
SCRIPTS = FIXTURES / "scripts" / "resume"
BASES = FIXTURES / "resume"
TRUTH: dict[str, Any] = json.loads((BASES / "truth.json").read_text())
CASES: list[dict[str, Any]] = TRUTH["cases"]
SAMPLE: list[dict[str, Any]] = [case for case in CASES if case["sample"]]


def prepare(case: dict[str, Any], folder: Path) -> tuple[Path, Path, list[str]]:
    """Lay the mutated checkpoint of a case into a folder.

    Args:
        case: an entry of `CASES`.
        folder: an empty one; the script is meant to run in it.

    Returns:
        the checkpoint (absolute; nothing is there where the mutation took it away), the script, and its arguments,
        where `{checkpoint}` stands for the path of the checkpoint.
    """
    mutation = cases()[case["id"]]
    return build(mutation, BASES, folder), SCRIPTS / case["script"], list(arguments(mutation))
