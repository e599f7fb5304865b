"""Which of a folder's weight files the trainer loads, and adapters.

Sources: transformers/modeling_utils.py (`from_pretrained` looks for safetensors first), accelerate/checkpointing.py
(`load_accelerator_state`), peft/utils/constants.py.
"""

from collections.abc import Iterator

from ckpttool.blocks import Severity
from ckpttool.layouts import _words as words
from ckpttool.layouts._assembly import INDEX, Reading, may_hold
from ckpttool.layouts._distributed import DCP_INDEX, folder_of, is_deepspeed, is_megatron
from ckpttool.model import Role

_ADAPTER_CONFIG = "adapter_config.json"
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")


def model_files(names: tuple[str, ...], suffix: str = "") -> list[str]:
    """Files that hold the whole model, the one that is loaded first; shards come as their index.

    Args:
        suffix: of the second and later models of one folder: `_1`.
    """
    order = (
        f"model{suffix}.safetensors",
        f"model{suffix}.safetensors{INDEX}",
        f"pytorch_model{suffix}.bin",
        f"pytorch_model{suffix}.bin{INDEX}",
        f"pytorch_model_fsdp{suffix}.bin",
    )
    return [name for name in order if name in names]


def model_shards(names: tuple[str, ...], suffix: str = "") -> dict[tuple[str, int], list[str]]:
    """Shards of the whole model that no index names, by the name of the whole and how many make it up.

    Args:
        suffix: as for `model_files`.
    """
    wholes = (f"model{suffix}.safetensors", f"pytorch_model{suffix}.bin")
    return {key: files for key, files in words.shards_of(names).items() if key[0] in wholes}


def take_model(reading: Reading, loader: str, suffix: str = "") -> bool:
    """Read the model's weights; False where the folder has none."""
    if take_first(reading, model_files(reading.names, suffix), loader, called=f"model{suffix}"):
        return True
    shards = model_shards(reading.names, suffix)
    for (whole, count), files in shards.items():
        reading.take_shards(whole, count, files)
    return bool(shards)


def take_first(reading: Reading, files: list[str], loader: str, *, called: str) -> bool:
    """Read the first of several files that hold the same, and say so of the others."""
    if not files:
        return False
    reading.take(files[0], role=Role.MODEL, called=called)
    for other in files[1:]:
        reading.role(other, Role.MODEL)
        reading.log.add(
            "weights.twice",
            Severity.NOTE,
            f"{files[0]} and {other} are both there; {loader} loads {files[0]}",
            where=other,
            hint=f"name {other} itself to inspect it",
        )
    return True


def say_missing(reading: Reading, code: str, *, optimizer: bool = False) -> None:
    """Say which of the parts that a trainer always saves the folder has no file for, damaged or not.

    Without the model there is nothing to resume; without the optimizer it starts afresh.

    Args:
        code: of the findings.
        optimizer: whether the trainer always saves one.
    """
    roles = set(_roles_of_files(reading.names))
    if not reading.parts.weights and Role.MODEL not in roles:
        reading.log.add(
            code,
            Severity.ERROR,
            "the model's weights are missing: neither model.safetensors nor pytorch_model.bin, shards or adapters",
            where="model.safetensors",
            hint="the save was interrupted or the copy is partial; resume from another checkpoint",
        )
    if optimizer and not reading.parts.optimizers and Role.OPTIMIZER not in roles:
        reading.log.add(
            code,
            Severity.WARNING,
            "optimizer.bin is missing, so there is no optimizer to resume",
            where="optimizer.bin",
            hint="the save was interrupted or the copy is partial, unless no optimizer was prepared",
        )


def _roles_of_files(names: tuple[str, ...]) -> Iterator[Role]:
    """What the files are for by their names, those in folders of a distributed checkpoint too."""
    for name in names:
        if is_deepspeed(name) or is_megatron(name):
            yield from (Role.MODEL, Role.OPTIMIZER)  # without ZeRO both lie in the model's files
        elif name.rsplit("/", 1)[-1] == DCP_INDEX:
            role = words.role_of_file(folder_of(name).strip("/"))
            yield from (Role.MODEL, Role.OPTIMIZER) if role is Role.OTHER else (role,)
        elif may_hold(name) or name.endswith(INDEX):
            yield words.role_of_file(name)


def take_adapters(reading: Reading) -> list[str]:
    """Read the adapters of the folder and of its subfolders; returns the folders that hold one, "" for its own."""
    folders = [n.removesuffix(_ADAPTER_CONFIG) for n in reading.names if n.rsplit("/", 1)[-1] == _ADAPTER_CONFIG]
    for folder in folders:
        files = [folder + name for name in _ADAPTERS if folder + name in reading.names]
        take_first(reading, files, "PEFT", called=folder.strip("/") or "adapter")
        config = reading.json(folder + _ADAPTER_CONFIG)
        if config is not None:
            reading.arguments(folder + _ADAPTER_CONFIG, config)
    return folders
