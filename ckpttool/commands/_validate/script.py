"""What a script that was run says of itself: where it stood, what it opened, what it printed."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from ckpttool.blocks import Block, Cell, Fields, Heading, SourceLine, Text
from ckpttool.commands._validate.judged import Judged
from ckpttool.commands._words import plural
from ckpttool.facts import FrameFact, RaisedFact, ScriptFacts
from ckpttool.probe.question import Question
from ckpttool.protocols import NotChecked
from ckpttool.validation.judging import Verdict

_LONGEST = 4_000  # characters of an exception's message
_STOPPED = {
    "backward": "at the first backward",
    "optimizer step": "at the first optimizer step",
    "steps done": "after the steps that were asked for",
    "ended": "it ended by itself",
    "exited": "it exited",
    "raised": "it raised",
    "timed out": "the time was up",
    "killed": "it was killed",
}
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_CHAINED = ("another exception occurred:", "the direct cause of the following exception:")
_SHOWN = 10  # lines of what it printed
_MISSING = ("ModuleNotFoundError", "ImportError")


def script_fields(judged: Judged, facts: ScriptFacts, question: Question) -> Iterator[tuple[str, Cell]]:
    """The script, where it was stopped, and why there is no verdict where there is none."""
    yield "script", Text(question.called, "name")
    if judged.judgement.verdict is Verdict.NOT_JUDGED:
        yield from _reasons(judged, facts)
    else:
        yield "stopped", _stop(facts)


def _reasons(judged: Judged, facts: ScriptFacts) -> Iterator[tuple[str, Cell]]:
    """Why there is no verdict, and what to do."""
    label = "because"
    for why in (n.why for n in judged.judgement.not_checked if explains(n)):
        yield label, why
        label = ""
    yield label, f"→ {_advice(facts)}"


def _stop(facts: ScriptFacts) -> str:
    """`at the first backward, train.py:64, after 2.7 s`; of what it raised the finding says where."""
    stopped = _STOPPED.get(facts.stopped, facts.stopped)
    if facts.stopped in ("ended", "exited") and facts.exit_code is not None:
        stopped += f" with {facts.exit_code}"
    frame = standing(facts) if facts.raised is None else None
    place = f", {PurePath(frame.file).name}:{frame.line}," if frame is not None else ""
    made = f"; {plural(facts.steps_made, 'step')} made" if facts.steps_made else ""
    return f"{stopped}{place} after {facts.seconds:.1f} s{made}"


def explains(unchecked: NotChecked) -> bool:
    """Whether it says why a script gives no verdict."""
    return unchecked.code == "script.not-reached"


def follows(unchecked: NotChecked) -> bool:
    """Whether it says of a rule what the verdict says of all."""
    return unchecked.why.startswith("the script did not come to where")


def sandbox(facts: ScriptFacts) -> str:
    """What kept the script from touching anything, and from what it did not."""
    return f"{facts.isolation}; not held: {', '.join(facts.left_open)}" if facts.left_open else facts.isolation


def _advice(facts: ScriptFacts) -> str:
    """What to do where it did not come to its training."""
    if facts.hindered:
        return "then ask again; that says nothing of the checkpoint"
    if facts.stopped == "timed out":
        return "--timeout SECONDS gives it longer; with small data it comes there sooner"
    if facts.raised is not None and facts.raised.type.rpartition(".")[2] in _MISSING:
        return f"it ran under Python {facts.python}: --python PATH names another"
    if facts.stopped in ("ended", "exited") and not facts.exit_code:
        return "give it the arguments by which it trains"
    return "mend that first; it says nothing of the checkpoint"


def standing(facts: ScriptFacts) -> FrameFact | None:
    """The innermost line of the user's own program."""
    frames = facts.raised.frames if facts.raised is not None else facts.frames
    return next((f for f in reversed(frames) if not f.library), None)


def script_blocks(facts: ScriptFacts) -> Iterator[Block]:
    """The end of what it printed, where it did not come to its training."""
    lines = [line.rstrip().expandtabs(4) for line in _printed(facts).splitlines() if line.strip()]
    if lines and not facts.stands:
        last = "" if len(lines) <= _SHOWN else f", at last {_SHOWN} lines"
        yield Heading(Text(f"the script printed{last}", "dim"))
        yield Fields([("|", line) for line in lines[-_SHOWN:]])


def _printed(facts: ScriptFacts) -> str:
    """What it printed before the traceback of what it raised, which is told in other words."""
    if facts.raised is None:
        return facts.printed
    heads = [found.start() for found in _TRACEBACK.finditer(facts.printed)]
    if not heads:  # the tail may begin within it
        return "" if facts.raised.type.rpartition(".")[2] in facts.printed else facts.printed
    while len(heads) > 1 and facts.printed[: heads[-1]].rstrip().endswith(_CHAINED):
        heads.pop()
    return facts.printed[: heads[-1]]


def script_document(facts: ScriptFacts, question: Question) -> Mapping[str, object]:
    """The same for programs."""
    return {
        "script": question.script or None,
        "module": question.module or None,
        "args": list(facts.args),
        "stopped": facts.stopped,
        "exit_code": facts.exit_code,
        "where": _frame(standing(facts)),
        "raised": None if facts.raised is None else _raised(facts.raised),
        "hindered": facts.hindered or None,
        "seconds": facts.seconds,
        "isolation": facts.isolation,
        "left_open": list(facts.left_open),
        "python": facts.python,
        "versions": dict(facts.versions),
        "opened": [o.path for o in facts.opened],
        "asked_for": list(facts.asked),
        "saves": [{"how": s.how, "path": s.path, "keys": list(s.keys), "where": _frame(s.frame)} for s in facts.saves],
        "unwatched": list(facts.unwatched),
        "printed": facts.printed,
    }


def _raised(raised: RaisedFact) -> Mapping[str, object]:
    return {
        "type": raised.type, "message": raised.message[:_LONGEST], "causes": list(raised.causes),
        "during": raised.during,
    }  # fmt: skip


def _frame(frame: FrameFact | None) -> str | None:
    return str(SourceLine(frame.file, frame.line)) if frame is not None else None
