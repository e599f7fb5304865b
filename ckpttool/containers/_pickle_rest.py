"""What follows a pickle: further pickles are read for their globals, anything else is said to be unread.

`pickle.load` and `torch.load` stop at the first STOP and never look behind it, so a tail is a place to hide in.
"""

import re
from dataclasses import dataclass, field, replace

from ckpttool.blocks import Finding, Severity
from ckpttool.containers._globals import merge_globals
from ckpttool.containers._pickled import Stream, suspects
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.pickles import Mention
from ckpttool.values import GlobalRef

_MOST_PICKLES = 64  # read in one tail
_MOST_FAILURES = 8  # places in it that begin like a pickle and are none
_MOST_BYTES = 1 << 22  # of a tail that are looked into
_MOST_OPCODES = 1_000_000  # of one pickle in it
_HEAD = re.compile(rb"\x80[\x00-\x05]")


@dataclass(slots=True)
class Rest:
    """The tail behind a pickle."""

    globals: dict[GlobalRef, Mention] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)
    clean: bool = True  # False: there are bytes that could not be read as pickles


def read_rest(stream: Stream, start: int, limits: Limits) -> Rest:
    """Look at all bytes of a stream from `start` on."""
    rest = Rest()
    total = min(len(stream.buffer), start + _MOST_BYTES)
    limits = replace(limits, opcodes=min(limits.opcodes, _MOST_OPCODES))
    position, found, failed = start, 0, 0
    while position < total and found < _MOST_PICKLES and failed < _MOST_FAILURES:
        try:
            pickle = stream.load(position, limits)
        except CkptError as error:
            failed += 1
            merge_globals(rest.globals, error.seen)
            head = _HEAD.search(stream.buffer, position + 1, total)
            position = head.start() if head else total
        else:
            found += 1
            merge_globals(rest.globals, pickle.globals)
            position = pickle.end
    rest.clean = not failed and position == len(stream.buffer)
    if start < len(stream.buffer):
        rest.problems.append(_finding(stream, start, rest))
    return rest


def _finding(stream: Stream, start: int, rest: Rest) -> Finding:
    names = suspects(rest.globals)
    what = (
        "as further pickles"
        if rest.clean
        else f"that are no pickle, and begin with {bytes(stream.buffer[start : start + 8]).hex()}"
    )
    return Finding(
        code="pickle.trailing",
        severity=Severity.WARNING if rest.clean and not names else Severity.ERROR,
        message=f"{len(stream.buffer) - start:,} bytes follow the pickle {what}"
        + (f", naming {names}" if names else ""),
        where=f"{stream.where} @ byte {stream.base + start:,}",
        hint="loading reads the first pickle only; find out who put the rest there",
    )
