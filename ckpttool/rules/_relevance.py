"""Whether what ended a script has to do with the checkpoint."""

import os
import re
from typing import Final

from ckpttool.facts import RaisedFact, ScriptFacts

_LOADING: Final = re.compile(
    r"load_state|load_checkpoint|load_from_checkpoint|_load_|resume|restore|from_checkpoint|torch\.load|load_file",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(
    r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError|ConnectionError|ConnectTimeout|HTTPError|URLError|MaxRetryError|"
    r"OfflineModeIsEnabled|LocalEntryNotFoundError|RepositoryNotFoundError|DatasetNotFoundError|MemoryError|"
    r"OutOfMemoryError|KeyboardInterrupt|BrokenPipeError|PermissionError|TimeoutError|gaierror)$"
)
_PATH: Final = re.compile(r"FileNotFoundError|NotADirectoryError|IsADirectoryError")
_WORDS: Final = re.compile(r"checkpoint|resum|state_dict|state dict|ckpt", re.IGNORECASE)


def concerns(facts: ScriptFacts, path: str) -> bool:
    """Whether an exception, or an exit, comes of the checkpoint: out of a load, after one, or with its path."""
    raised = facts.raised
    if facts.hindered:
        return False
    if raised is None:
        refused = any(entry.refused for entry in facts.opened)
        return facts.exit_code not in (0, None) and (refused or _last_words(facts, path))
    if raised.during or _names(raised.message, path, facts):
        return True
    if _PATH.search(raised.type) or _ELSEWHERE.match(raised.type):
        return _in_loading(raised) and _WORDS.search(raised.message) is not None
    if facts.opened:
        return True
    return _in_loading(raised) or (bool(facts.asked) and _WORDS.search(raised.message) is not None)


def _last_words(facts: ScriptFacts, path: str) -> bool:
    """Whether words such as `checkpoint … does not exist` ended it.

    With 2 an argument parser ends, which quotes paths, too.
    """
    last = facts.printed.strip().rpartition("\n")[2]
    return facts.exit_code == 1 and not facts.opened and _names(last, path, facts)


def _names(message: str, path: str, facts: ScriptFacts) -> bool:
    """Whether a message names the checkpoint, or a file of it."""
    whole = os.path.abspath(path)  # noqa: PTH100  # links stay as the script sees them
    paths = [path, whole, *facts.asked]
    return any(p and p in message for p in paths)


def _in_loading(raised: RaisedFact) -> bool:
    return any(_LOADING.search(f.function) or _LOADING.search(f.text) for f in raised.frames[-8:])
