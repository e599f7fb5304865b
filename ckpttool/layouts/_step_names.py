"""Steps in the names of files and folders: `checkpoint-500`, `global_step3`, `epoch=1-step=8.ckpt`, `iter_0000010`."""

import re

_KINDS = (
    "global_step",
    "globalstep",
    "step",
    "iteration",
    "iter",
    "it",
    "ba",
    "checkpoint",
    "ckpt",
    "tag",
    "epoch",
    "ep",
)
# The kind that counts optimizer steps comes first: of `epoch=1-step=8` it is 8.
_NUMBERED = tuple(re.compile(rf"(?:^|[^a-z]){kind}s?[-_=]?(\d+)") for kind in _KINDS)
_TRAINER_FOLDER = re.compile(r"(?:tmp-)?checkpoint[-_]\d+")  # Hugging Face Trainer and Accelerate
_ANY_NUMBER = re.compile(r"(?:^|[-_.=])(\d+)(?:$|[-_.])")
_SHARD = re.compile(r"-\d+-of-\d+")
_EPOCHS = ("epoch", "ep")


def step_in_name(name: str) -> int | None:
    """The step that a name says; of several numbers the one that counts steps, and epochs only where there is no other.

    A number without a word counts where it stands by itself: `model_100.pt`.
    """
    lower = name.lower()
    for pattern in _NUMBERED:
        if match := pattern.search(lower):
            return int(match[1][:18])
    match = _ANY_NUMBER.search(lower)
    return int(match[1][:18]) if match and not _SHARD.search(lower) else None


def says_step(name: str) -> bool:
    """Whether a folder's name says a step with a word for it, or is nothing but a number."""
    lower = name.lower()
    return lower.isdecimal() or any(pattern.search(lower) for pattern in _NUMBERED)


def is_trainer_folder(name: str) -> bool:
    """Whether a folder is called as Accelerate and the Hugging Face Trainer call theirs."""
    return _TRAINER_FOLDER.fullmatch(name) is not None
