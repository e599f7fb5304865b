"""What an exception says, in one line: what matters of it, where libraries say it at length."""

import re
from typing import Final

from ckpttool.blocks import SourceLine
from ckpttool.facts import FrameFact, RaisedFact

_MOST = 300  # characters
_STYLING: Final = re.compile(r"\x1b\[[0-9;]*m")
_STATE_DICT: Final = re.compile(r"Error\(s\) in loading state_dict for ")
_OTHER_SIZE: Final = re.compile(
    r"size mismatch for (\S+): copying a param with shape (.*?) from checkpoint, the shape in current model is "
    r"(.*?)\.?\s*$",
    re.MULTILINE,
)
_SIZE: Final = re.compile(r"torch\.Size\((\[[\d, ]*\])\)")
_REFUSED: Final = re.compile(r"Weights only load failed.*?WeightsUnpickler error:\s*(.*?)(?:\n|$)", re.DOTALL)
_WITHIN: Final = re.compile(r": CheckpointException ranks:.*\n(\w[\w.]*: .*)$", re.DOTALL)


def short(raised: RaisedFact) -> str:
    """`type: message`; of several faults of one kind the first, of a traceback in a message its last line."""
    text = _STYLING.sub("", f"{raised.type}: {raised.message}")
    text = _REFUSED.sub(lambda found: f"Weights only load failed: {found[1]}", text)
    text = _WITHIN.sub(lambda found: f": {_SIZE.sub(_sizes, found[1])}", text)
    if _STATE_DICT.search(text):
        text = _sized(text)
    flat = " ".join(text.split()).rstrip(".")
    return flat if len(flat) <= _MOST else f"{flat[: _MOST - 1]}…"


def line_of(raised: RaisedFact) -> SourceLine | None:
    """The innermost line of the user's own program; of a library where there is none."""
    own: list[FrameFact] = [f for f in raised.frames if not f.library] or list(raised.frames)
    return SourceLine(own[-1].file, own[-1].line) if own else None


def _sized(text: str) -> str:
    """`… size mismatch for fc.weight: [12, 2] in the checkpoint, [16, 2] in the model, and 5 more`."""
    found = [*_OTHER_SIZE.finditer(text)]
    if not found:
        return text
    more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
    name = found[0][1]
    saved, live = (_SIZE.sub(_sizes, shape) for shape in found[0].groups()[1:])
    said = f"size mismatch for {name}: {saved} in the checkpoint, {live} in the model"
    return f"{text[: found[0].start()]}{said}{more}"


def _sizes(found: re.Match[str]) -> str:
    return found[1]
