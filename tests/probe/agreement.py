"""How often `ckpt validate --script` says what resumes really do.

    python -m tests.probe.agreement          the cases that CI asks, a part of each script's
    python -m tests.probe.agreement --all    every case: half an hour

Prints verdicts against truths and every disagreement. Exit code 1 where fewer than 95 of 100 agree (92 of a part), where
a resume that raises is called resumable, or where one that is right is called anything else.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from tests.probe.truth import CASES, prepare

ENOUGH: Final = 0.95
_OF_A_PART: Final = 0.92  # what nothing in a file tells is not spread evenly; three in a hundred are chance
_OF_EACH: Final = 9  # cases of a script that CI asks
_LONGEST: Final = 120  # seconds a script may take
_SURROUNDINGS: Final = {
    "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "PYTHONHASHSEED": "0",
}  # fmt: skip


class Answer(NamedTuple):
    """What ckpt says of a case."""

    case: dict[str, Any]
    verdict: str
    worst: list[str]  # codes of its errors and of what is silent

    @property
    def agrees(self) -> bool:
        """Whether it is the truth."""
        return self.verdict == self.case["truth"]

    @property
    def harms(self) -> bool:
        """Whether somebody who believes it loses work: a resume that raises, or a false alarm."""
        said = (self.case["truth"], self.verdict)
        return not self.agrees and (said == ("raises", "resumable") or said[0] == "resumable")


def answer(case: dict[str, Any]) -> Answer:
    """Prepare a case, and ask."""
    with tempfile.TemporaryDirectory(prefix="ckpt-truth-") as folder:
        checkpoint, script, args = prepare(case, Path(folder))
        asked = [sys.executable, "-m", "ckpttool", "validate", str(checkpoint), "--json", "--timeout", str(_LONGEST)]
        ran = subprocess.run(
            [*asked, "--script", str(script), "--", *args],
            cwd=folder, env={**os.environ, **_SURROUNDINGS}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        document = json.loads(ran.stdout)
    except ValueError:
        return Answer(case, f"exit {ran.returncode}", [ran.stderr[-300:]])
    worst = [f["code"] for f in document.get("findings", ()) if f["severity"] in ("error", "silent")]
    return Answer(case, document.get("verdict") or "error", worst)


def part() -> list[dict[str, Any]]:
    """A part of each script's cases, the same one each time; always the checkpoint as it is."""
    of_script: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for case in CASES:
        of_script[case["script"]].append(case)
    chosen = []
    for name, cases in of_script.items():
        cases.sort(key=lambda case: case["id"])
        random.Random(name).shuffle(cases)  # a choice, no secret
        chosen += sorted(cases, key=lambda case: case["mutation"] != "unmutated")[:_OF_EACH]
    return chosen


def main() -> int:
    """Ask, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cases, say = CASES if options.all else part(), Console(soft_wrap=True, highlight=False, markup=False).print
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(answer, cases))
    for (truth, verdict), number in sorted(collections.Counter((a.case["truth"], a.verdict) for a in answers).items()):
        say(f"{number:5,}  {truth:15} called {verdict}")
    for one in answers:
        if not one.agrees:
            mark = "!" if one.harms else " "
            say(f"{mark} {one.case['id']}: {one.case['truth']}, called {one.verdict}  {', '.join(one.worst)}")
    agreed, enough = sum(a.agrees for a in answers) / len(answers), ENOUGH if options.all else _OF_A_PART
    say(f"{agreed:.1%} of {len(answers):,} agree; at least {enough:.0%} shall")
    return int(agreed < enough or any(a.harms for a in answers))


if __name__ == "__main__":
    sys.exit(main())
