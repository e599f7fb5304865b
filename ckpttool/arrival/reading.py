"""What a script read of the checkpoint, and what it asked for and did not find."""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ckpttool.facts import ScriptFacts
from ckpttool.model import Role

_WORDS: Final = (  # what a key or a file name is for; the first that fits
    (Role.SCHEDULER, re.compile(r"sched")),
    (Role.OPTIMIZER, re.compile(r"optim|(?:^|_)opt(?:$|_)")),
    (Role.SCALER, re.compile(r"scaler|^amp$|amp_scal|loss_scale")),
    (Role.RNG, re.compile(r"rng|random_?state|(?:^|_)seed")),
    (Role.EMA, re.compile(r"(?:^|[^a-z])ema(?:$|[^a-z])|shadow|averaged|swa")),
    (Role.DATA, re.compile(r"sampler|loader|dl_state|data_?state|dataset_state|batch_idx|(?:^|_)offset")),
    (Role.CUSTOM, re.compile(r"custom_checkpoint")),
    (Role.CONFIG, re.compile(r"(?:^|_)(?:args|config|cfg|hparams|hyper_parameters)")),
    (Role.PROGRESS, re.compile(r"epoch|(?:^|_)step|iter|trainer_state|progress|update|(?:^|_)it$")),
    (Role.MODEL, re.compile(r"model|state_?dict|weights|(?:^|_)net|module|params")),
)

# The whole of a key that holds the state itself, and the kind of object that it is loaded into.
_STATES: Final = {
    Role.SCHEDULER: (re.compile(r"(?:lr_?)?sched(?:uler)?s?(?:_?states?)?(?:_?dicts?)?"), "scheduler"),
    Role.OPTIMIZER: (re.compile(r"opt(?:im(?:izer)?s?)?(?:_?states?)?(?:_?dicts?)?"), "optimizer"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that a script asked a checkpoint for, and that is not there."""

    name: str  # a key, or the name of a file
    role: Role


def asked_in_vain(facts: ScriptFacts) -> list[Asked]:
    """Keys and files that were asked for and are not there."""
    keys = (key for opened in facts.opened for key in opened.missed)
    names = (PurePath(path).name for path in facts.asked)
    return [Asked(name, role) for name in dict.fromkeys((*keys, *names)) if (role := role_of(name)) is not None]


def role_of(name: str) -> Role | None:
    """What a key or a file is for, by its name; None where it does not say."""
    word = re.sub(r"\.(?:pt|pth|bin|pkl|json|safetensors|ckpt|msgpack)$", "", name.lower())
    return next((role for role, words in _WORDS if words.search(word)), None)


def read_in_vain(facts: ScriptFacts, role: Role) -> list[str]:
    """Keys under which the script looked for a state and found nothing: None, or a state without a field.

    Only of use where the checkpoint holds no such state.
    """
    word, kind = _STATES[role]
    keys = [k for opened in facts.opened for k in opened.keys if word.fullmatch(k.lower())]
    emptied = [x for x in facts.loads if x.kind == kind and not x.raised and x.value == {}]
    return keys or (["a state, and got an empty one"] if emptied else [])
