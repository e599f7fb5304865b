"""What of its surroundings, and not of the checkpoint, kept a script from training: in words, or nothing."""

import re
import signal
from typing import Final

from ckpttool.facts import RaisedFact, ScriptFacts

_INPUT: Final = "EOFError: EOF when reading a line"
_DEBUGGER: Final = "bdb.BdbQuit"
_NETWORK_TYPES: Final = re.compile(
    r"(?:^|\.)(?:gaierror|URLError|ConnectionError|ConnectTimeout|MaxRetryError|NameResolutionError|NewConnectionError|"
    r"OfflineModeIsEnabled|LocalEntryNotFoundError|ClientConnectorError|EndpointConnectionError|ConnectError)$"
)
_NETWORK_WORDS: Final = re.compile(
    r"Network is unreachable|name resolution|Name or service not known|offline mode|HF_HUB_OFFLINE|"
    r"couldn't connect to '?https?:|Couldn't reach|outgoing traffic has been disabled",
    re.IGNORECASE,
)
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_SHELL_SIGNALLED: Final = 128  # exit codes beyond it are of a process that a signal ended
_MOST = 200  # characters of a message


def hindered(facts: ScriptFacts, *, online: bool) -> str:
    """Why it did not come to training; empty where nothing of the surroundings is known to be the reason."""
    if facts.hindered:
        return facts.hindered
    if facts.stopped == "killed":
        return _killed(facts)
    if facts.raised is None:
        return _elsewhere(facts)
    raised = facts.raised
    if raised.type == _DEBUGGER:
        return "the script stops in a debugger, and nobody sits there"
    if _INPUT in _chain(raised):
        return f"the script asks for input{_line(raised)}, and nobody sits there: tell it by an argument"
    if facts.read_input and (not facts.opened or "stdin" in _line(raised)):
        return f"the script reads its standard input, which is empty here, and raises {_short(raised)}"
    if any(_FULL.search(said) for said in _chain(raised)):
        return f"the script raises {_short(raised)}: there is no room for what it writes, which is kept until it ends"
    if not online and not facts.opened and not raised.during and _is_of_network(raised):
        return f"the script needs the network, which is shut ({_short(raised)}): --online opens it"
    return ""


def _elsewhere(facts: ScriptFacts) -> str:
    """Of one that ended without training here: where it may have been done."""
    if facts.stopped not in ("ended", "exited") or not facts.processes:
        return ""
    others = facts.processes[0]
    return f"the script ends without training in its own process; others that it starts ({others}) are not watched"


def _is_of_network(raised: RaisedFact) -> bool:
    chain = _chain(raised)
    return any(_NETWORK_TYPES.search(said.partition(":")[0]) or _NETWORK_WORDS.search(said) for said in chain)


def _chain(raised: RaisedFact) -> list[str]:
    return [f"{raised.type}: {raised.message}", *raised.causes]


def _short(raised: RaisedFact) -> str:
    text = " ".join(f"{raised.type}: {raised.message}".split())
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _line(raised: RaisedFact) -> str:
    """Where, in the user's own program."""
    own = [frame for frame in raised.frames if not frame.library]
    return f" ({own[-1].text})" if own and own[-1].text else ""


def _killed(facts: ScriptFacts) -> str:
    code = facts.exit_code or 0
    number = -code if code < 0 else code - _SHELL_SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"a signal, exit code {code}"
    after = "after it opened the checkpoint, and " if facts.opened else ""
    memory = ", as where memory runs out" if name == "SIGKILL" else ""
    return f"the script was ended by {name}{memory}, {after}before it trains"
