"""Which of a folder's weight files the trainer loads, and adapters.

Sources: transformers/modeling_utils.py (`from_pretrained` looks for safetensors first), accelerate/checkpointing.py
(`load_accelerator_state`), peft/utils/constants.py.
"""

from ckpttool.blocks import Severity
from ckpttool.layouts._assembly import INDEX, Reading
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


def take_model(reading: Reading, loader: str, suffix: str = "") -> bool:
    """Read the model's weights; False where the folder has none."""
    return take_first(reading, model_files(reading.names, suffix), loader, called=f"model{suffix}")


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
