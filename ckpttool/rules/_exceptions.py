"""What raised in a script, matched to its cause: which rule explains it, what it means, and how to mend it."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ckpttool.arrival.reading import role_of
from ckpttool.facts import RaisedFact, ScriptFacts
from ckpttool.model import Role
from ckpttool.names import leading, without_wrappers
from ckpttool.rules._causes import BY_CALL, KNOWN, STEPPING, Cause

_STRIP: Final = "`ckpt convert SRC DST --strip-prefix auto` takes the prefix off"
# Functions of an optimizer that run in its step.
_STEPS: Final = re.compile(
    r"torch/optim/(?!lr_scheduler|swa_utils)\w+\.py (?:step|_init_group|_(?:single|multi)_tensor_\w+|_fused_\w+)"
)
_KEYS: Final = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (.*?)(?:\. ?(?:\n|$)|\n|$)", re.DOTALL)
_QUOTED: Final = re.compile(r'"([^"]+)"')
_MISSING_KEY: Final = re.compile(r"KeyError: ['\"](?P<key>[^'\"]*)['\"]")
_LACKING: Final = {
    Role.MODEL: "model.nesting", Role.OPTIMIZER: "optimizer.missing", Role.SCHEDULER: "scheduler.missing",
    Role.SCALER: "scaler.missing", Role.RNG: "rng.missing", Role.EMA: "ema.missing", Role.PROGRESS: "progress.missing",
}  # fmt: skip
_WHOLE: Final = frozenset(
    ("model", "optimizer", "state_dict", "epoch", "model_state_dict", "scheduler", "config", "step")
)


def cause_of(
    text: str, facts: ScriptFacts | None, *, during: str = "", causes: Sequence[str] = (), stepping: bool = False
) -> Cause:
    """The cause of an exception.

    Args:
        text: `type: message`.
        during: the loading call that it came out of, and the functions of libraries, as `came_out_of` spells them.
        causes: the same as `text`, of what it was raised from.
        stepping: it was raised by a step of an optimizer.
    """
    if stepping or _STEPS.search(during):
        return next(known.cause for known in STEPPING if known.fits(text, during))
    own = _of_state_dict(text) or (_of_key(text, facts) if facts is not None and not during else None)
    if own is not None:
        return own
    known = (k.cause for one in (text, *causes) for k in KNOWN if k.fits(one, during))
    by_call = (k.cause for k in BY_CALL if k.fits(text, during))
    unknown = Cause(
        "", "what the checkpoint holds is not what the script expects", "`ckpt inspect` shows what it holds"
    )
    return next(known, None) or next(by_call, unknown)


def came_out_of(raised: RaisedFact) -> str:
    """`Adam.load_state_dict; torch/optim/optimizer.py load_state_dict`; empty where the user's own line raised it."""
    if not raised.during and raised.frames and not raised.frames[-1].library:
        return ""
    return "; ".join([raised.during, *(f"{_module(f.file)} {f.function}" for f in raised.frames if f.library)])


def _module(file: str) -> str:
    """The path of a module among those that are installed; of one that is not its name."""
    _, installed, below = file.replace("\\", "/").rpartition("-packages/")
    return below if installed else below.rpartition("/")[2]


def _of_key(text: str, facts: ScriptFacts) -> Cause | None:
    """A key that the script itself reads, and the checkpoint does not have."""
    asked = _MISSING_KEY.search(text)
    if asked is None or not any(asked["key"] in opened.missed for opened in facts.opened):
        return None
    have = dict.fromkeys(k for opened in facts.opened for k in opened.keys if k not in opened.missed)
    said = f"; it read {', '.join(list(have)[:4])}" if have else ""
    return Cause(
        _LACKING.get(role_of(asked["key"]) or Role.OTHER, "container.incomplete"),
        f"the script reads {asked['key']!r}, which the checkpoint does not have{said}",
        "`ckpt inspect` lists them, `ckpt convert SRC DST --rename OLD=NEW` renames one",
    )


def _of_state_dict(text: str) -> Cause | None:
    """What `Module.load_state_dict` says of keys and shapes, taken apart."""
    if "Error(s) in loading state_dict" not in text:
        return None
    keys: dict[str, list[str]] = {"Missing": [], "Unexpected": []}
    for kind, listed in _KEYS.findall(text):
        keys[kind] += _QUOTED.findall(listed)
    missing, unexpected = keys["Missing"], keys["Unexpected"]
    if missing and unexpected and _match(missing, unexpected):
        spelled = leading(unexpected) or leading(missing) or "the prefix"
        hint = _STRIP if leading(unexpected) else "wrap the model as when it was saved before it loads, or rename"
        return Cause("model.key-prefix", f"the names differ in {spelled}", hint)
    if missing and unexpected and set(unexpected) & _WHOLE:
        whole = "the whole checkpoint was given as the state_dict of the model"
        keys_of = ", ".join(sorted(set(unexpected) & _WHOLE))
        return Cause("model.nesting", whole, f"load what lies under its key: {keys_of}")
    if "size mismatch for" in text:
        return Cause("model.shape", "the model is built with other sizes than the weights have",
                     "build it with the settings that it was saved with")  # fmt: skip
    if missing and not unexpected:
        return Cause("model.missing-key", f"the checkpoint lacks {', '.join(missing[:3])}",
                     "build the model as when it was saved; a tied weight may be left out")  # fmt: skip
    if unexpected and not missing:
        return Cause("model.unexpected-key", f"the model has no place for {', '.join(unexpected[:3])}",
                     "`ckpt convert SRC DST --exclude GLOB` leaves them out")  # fmt: skip
    if "expected torch.Tensor" in text:
        return Cause("model.structure", "a value among the weights is no tensor", "`ckpt inspect` shows it")
    return Cause("model.missing-key", "the names of the model and of the weights differ", "`ckpt diff` shows how")


def _match(missing: Iterable[str], unexpected: Iterable[str]) -> bool:
    """Whether most names agree without wrappers, or without one prefix."""
    here = {without_wrappers(n) for n in unexpected}
    there = {without_wrappers(n) for n in missing}
    if len(here & there) * 2 >= max(len(there), 1):
        return True
    ends = {n.partition(".")[2] for n in here}, {n.partition(".")[2] for n in there}
    return len(ends[0] & there) * 2 >= len(there) or len(here & ends[1]) * 2 >= len(there)
