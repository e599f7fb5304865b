"""What a script that was run says of itself: where it stood, what it opened, what it printed."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from ckpttool.blocks import Block, Cell, Note, Style, Text
from ckpttool.commands._words import plural
from ckpttool.facts import FrameFact, ScriptFacts
from ckpttool.probe.question import Question
from ckpttool.validation.judging import Verdict

_SAID: dict[Verdict, tuple[str, Style]] = {
    Verdict.RESUMABLE: ("this script resumes from it, as far as was checked", "good"),
    Verdict.RAISES: ("this script raises when it resumes from it", "bad"),
    Verdict.SILENTLY_WRONG: ("this script goes on from it silently wrong", "bad"),
    Verdict.NOT_JUDGED: ("not judged: the script did not come to where training would go on", "warn"),
}
_STOPPED = {
    "backward": "at the first backward",
    "optimizer step": "at the first optimizer step",
    "steps done": "after the steps that were asked for",
    "ended": "it ended by itself",
    "exited": "it ended by itself",
    "raised": "it raised",
    "timed out": "the time was up",
    "killed": "it was killed",
}
_SHOWN = 8  # lines of what it printed


def script_says(verdict: Verdict) -> tuple[str, Style]:
    """The verdict in words, where a script was run."""
    return _SAID[verdict]


def script_fields(facts: ScriptFacts, question: Question) -> Iterator[tuple[str, Cell]]:
    """The script, where it was stopped, and what it was kept from touching."""
    yield "script", Text(question.called, "name")
    stopped = _STOPPED.get(facts.stopped, facts.stopped)
    if facts.stopped in ("ended", "exited") and facts.exit_code is not None:
        stopped += f", exit code {facts.exit_code}"
    frame = standing(facts)
    place = f", {PurePath(frame.file).name}:{frame.line}" if frame is not None else ""
    made = f"; {plural(facts.steps_made, 'step')} made" if facts.steps_made else ""
    yield "stopped", f"{stopped}{place}, after {facts.seconds:.1f} s{made}"
    if facts.isolation:
        yield "sandbox", facts.isolation


def standing(facts: ScriptFacts) -> FrameFact | None:
    """The innermost line of the user's own program."""
    frames = facts.raised.frames if facts.raised is not None else facts.frames
    return next((f for f in reversed(frames) if not f.library), None)


def script_blocks(facts: ScriptFacts, verdict: Verdict) -> Iterator[Block]:
    """The end of what it printed, where that may say why; and what could not be watched."""
    lines = [line for line in facts.printed.splitlines() if line.strip()]
    if lines and (verdict is Verdict.NOT_JUDGED or facts.stopped in ("ended", "exited")):
        for line in lines[-_SHOWN:]:
            yield Note([Text("printed  ", "dim"), line.rstrip()])
    for what in facts.unwatched:
        yield Note([Text("not watched  ", "dim"), what])


def script_document(facts: ScriptFacts, question: Question) -> Mapping[str, object]:
    """The same for programs."""
    raised = facts.raised
    return {
        "script": question.script or None,
        "module": question.module or None,
        "args": list(facts.args),
        "stopped": facts.stopped,
        "exit_code": facts.exit_code,
        "where": _frame(standing(facts)),
        "raised": None
        if raised is None
        else {"type": raised.type, "message": raised.message, "causes": list(raised.causes), "during": raised.during},
        "seconds": facts.seconds,
        "isolation": facts.isolation,
        "python": facts.python,
        "versions": dict(facts.versions),
        "opened": [o.path for o in facts.opened],
        "asked_for": list(facts.asked),
        "saves": [{"how": s.how, "path": s.path, "keys": list(s.keys), "where": _frame(s.frame)} for s in facts.saves],
        "unwatched": list(facts.unwatched),
        "printed": facts.printed,
    }


def _frame(frame: FrameFact | None) -> str | None:
    return f"{frame.file}:{frame.line}" if frame is not None else None
