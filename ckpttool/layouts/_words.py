"""What trainers' own keys and file names mean; structure decides first, these words only where it cannot."""

import re
from collections.abc import Iterable, Sequence

from ckpttool.model import Role

_EMA = re.compile(r"(?:^|[^a-z])ema(?:$|[^a-z])|averaged|average_model|shadow|(?:^|_)swa(?:_|$)")
_SCALER = re.compile(r"scaler|amp_scaling|mixedprecision|^amp$")
_SCHEDULER = re.compile(r"sched")
_RNG = re.compile(r"rng|random|seed|generator")
_DATA = re.compile(r"data_?loader|sampler|dl_state|train_iterator|iterator_state|dataset_state|data_?state")
_CONFIG = re.compile(
    r"^(?:.*_)?(?:args|arguments|config|configs|cfg|conf|hparams|hyper_?parameters|hparams_dict|options|model_kwargs)$"
)
_MODEL = re.compile(r"model|state_?dict|module|weight|net|generator|discriminator|encoder|decoder|critic|actor|param")

_SHOWN = 5  # names that fit a line
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.")

# Our word for a counter by the trainer's own key, in lower case. How long training shall be (`epochs`, `num_epochs`,
# `max_steps`, `total_steps`) is an argument and no position.
COUNTERS = {
    **dict.fromkeys(
        ("epoch", "current_epoch", "start_epoch", "epoch_num", "epoch_idx", "cur_epoch"), "epoch"
    ),
    **dict.fromkeys(
        ("global_step", "global_steps", "iteration", "iterations", "iter", "iter_num", "iters", "it", "num_updates",
         "n_iter", "train_step", "train_steps", "n_updates", "current_iteration", "total_steps_done",
         "optimizer_steps", "global_iter", "cur_iter", "num_steps_done"),
        "global_step",
    ),
    **dict.fromkeys(("step", "steps", "current_step", "cur_step", "batch_idx", "completed_steps"), "step"),
    **dict.fromkeys(
        ("samples_seen", "global_samples", "consumed_samples", "consumed_train_samples", "num_samples_seen"), "samples"
    ),
    **dict.fromkeys(("tokens_seen", "num_input_tokens_seen", "train_tokens", "num_tokens_seen", "tokens"), "tokens"),
    **dict.fromkeys(("total_flos", "num_floating_point_operations_so_far"), "floating_point_operations"),
    **dict.fromkeys(("skipped_steps", "num_skipped"), "skipped_steps"),
    **dict.fromkeys(("loss", "train_loss"), "loss"),
    **dict.fromkeys(("val_loss", "eval_loss", "valid_loss"), "val_loss"),
    "metric": "metric",
}  # fmt: skip

# What a file is for by its stem, where its content does not tell (`{}` in scaler.pt), first match wins.
_FILE_ROLES = (
    (re.compile(r"scaler"), Role.SCALER),
    (re.compile(r"custom_checkpoint"), Role.CUSTOM),
    (re.compile(r"optim"), Role.OPTIMIZER),
    (re.compile(r"sched"), Role.SCHEDULER),
    (re.compile(r"rng_state|random_state"), Role.RNG),
    (re.compile(r"sampler|dl_state|dataloader"), Role.DATA),
    (re.compile(r"trainer_state|^latest|latest_checkpointed"), Role.PROGRESS),
    (re.compile(r"args|config|hparams"), Role.CONFIG),
    (re.compile(r"(?:^|[^a-z])ema(?:$|[^a-z])"), Role.EMA),
    (re.compile(r"model|weights|adapter|pytorch_lora"), Role.MODEL),
)


def is_ema(word: str) -> bool:
    """Whether a key names an averaged copy of the weights."""
    return _EMA.search(word.lower()) is not None


def is_scaler(word: str) -> bool:
    """Whether a key names a gradient scaler."""
    return _SCALER.search(word.lower()) is not None


def is_scheduler(word: str) -> bool:
    """Whether a key names an LR scheduler."""
    return _SCHEDULER.search(word.lower()) is not None


def is_rng(word: str) -> bool:
    """Whether a key names random generators."""
    return _RNG.search(word.lower()) is not None


def is_data(word: str) -> bool:
    """Whether a key names a data loader, a sampler or an iterator."""
    return _DATA.search(word.lower()) is not None


def is_config(word: str) -> bool:
    """Whether a key names arguments or hyperparameters."""
    return _CONFIG.search(word.lower()) is not None


def is_model(word: str) -> bool:
    """Whether a key names a model of its own, so that it is not a layer of another."""
    return is_ema(word) or ("." not in word and _MODEL.search(word.lower()) is not None)


def role_of_root(stem: str) -> Role | None:
    """What a file's stem says of its root where the content does not: arguments, or a position in the data."""
    return Role.CONFIG if is_config(stem) else Role.DATA if is_data(stem) else None


def counter(word: str) -> str:
    """Our word for a counter by its key; empty for a key that counts nothing."""
    lower = word.lower()
    if lower.startswith("best"):
        return "best_step" if lower.endswith(("step", "iter", "epoch")) else "best"
    return COUNTERS.get(lower, "")


def count(number: int, thing: str) -> str:
    """`1 file`, `1,024 files`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def some(texts: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN:,} more"


def is_shard(file: str) -> bool:
    """Whether a file is named as one of several shards: `model-00001-of-00003.safetensors`."""
    return _SHARD.search(file) is not None


def shards_of(files: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """The shards among files, in order, by the name of the whole (`model.safetensors`) and how many make it up."""
    found: dict[tuple[str, int], list[str]] = {}
    for file in sorted(files):
        if (match := _SHARD.search(file)) and (count := int(match[2][:9])) > 1:
            found.setdefault((f"{file[: match.start()]}.{file[match.end() :]}", count), []).append(file)
    return found


def stem(file: str) -> str:
    """A file's name without folder and endings: `out/scaler.pt` -> `scaler`."""
    return file.rsplit("/", 1)[-1].split(".", 1)[0]


def role_of_file(file: str) -> Role:
    """What a file is for by its name alone."""
    word = stem(file).lower()
    return next((role for pattern, role in _FILE_ROLES if pattern.search(word)), Role.OTHER)
