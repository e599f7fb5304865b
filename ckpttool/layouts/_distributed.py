"""Folders of distributed checkpoints: named file by file, with what each says of itself.

Sources: torch/distributed/checkpoint/metadata.py and filesystem.py of torch 2.13, deepspeed/runtime/engine.py
(`_get_zero_ckpt_name`, `_get_ckpt_name`) of 0.19, Megatron-LM megatron/training/checkpointing.py.
"""

import re
from collections.abc import Iterable

from ckpttool.blocks import Severity
from ckpttool.elements import number
from ckpttool.layouts import _words as words
from ckpttool.layouts._assembly import Reading
from ckpttool.layouts._spots import class_name, fields_of
from ckpttool.model import LossScale, Role
from ckpttool.values import Value

DCP_INDEX = ".metadata"
_DCP_SHARD = ".distcp"
_ZERO = re.compile(r"(?:.*_)?(?:zero_pp|expp)_rank_(\d+)_mp_rank_(\d+)_(?:model|optim)_states\.pt")
_MEGATRON = re.compile(r"(?:.*/)?mp_rank_\d+(?:_\d+)*/(?:model_optim_rng|distrib_optim)\.pt")
# What DeepSpeed writes for itself into its files, beside the parts and the user's own client state.
_DEEPSPEED_OWN = frozenset(
    ("buffer_names", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments", "data_sampler",
     "random_ltd", "dp_world_size", "mp_world_size", "checkpoint_parallel_dimensions", "ds_version",
     "sparse_tensor_module_names", "num_experts", "optimizer_state_dict", "dynamic_loss_scale", "overflow", "clip_grad",
     "zero_stage", "group_paddings", "param_alignment_paddings", "partition_count", "param_slice_mappings")
)  # fmt: skip
_SCALE_KEYS = ("cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window")
_UNIVERSAL = "zero/optimizer_state.pt"  # param groups and loss scaler of a universal checkpoint
_NOT_YET = "reading it as one checkpoint is not supported yet; its files are listed"


def is_deepspeed(name: str) -> bool:
    """Whether a file name is one of DeepSpeed's."""
    return name.endswith(("_model_states.pt", "-model_states.pt", "_optim_states.pt"))


def is_megatron(name: str) -> bool:
    """Whether a file name is one of Megatron-LM's."""
    return _MEGATRON.fullmatch(name) is not None


def folder_of(name: str) -> str:
    """The folder of a file with the slash behind it; empty for the checkpoint's own."""
    return name[: name.rfind("/") + 1]


def take_distributed(reading: Reading) -> bool:
    """Name what is distributed in this folder and below it; False where nothing is.

    Parameter names are not looked for where ZeRO cut the optimizer state in flat partitions.
    """
    dcp = [folder_of(n) for n in reading.names if n.rsplit("/", 1)[-1] == DCP_INDEX]
    for folder in dcp:
        _take_dcp(reading, folder)
    deepspeed = sorted({folder_of(n) for n in reading.names if is_deepspeed(n)})
    for folder in deepspeed:
        _take_deepspeed(reading, folder)
    megatron = [n for n in reading.names if is_megatron(n)]
    if megatron:
        _take_megatron(reading, megatron)
    return bool(dcp or deepspeed or megatron)


def _say(reading: Reading, folder: str, what: str, hint: str) -> None:
    where = folder or reading.found.path
    reading.log.add("layout.not-yet", Severity.NOTE, f"{what}; {_NOT_YET}", where=where, hint=hint)


def _take_dcp(reading: Reading, folder: str) -> None:
    shards = {n: s for n, s in reading.sizes.items() if folder_of(n) == folder and n.endswith(_DCP_SHARD)}
    role = next((r for r in (words.role_of_file(folder.strip("/")),) if r in (Role.MODEL, Role.OPTIMIZER)), Role.OTHER)
    for name in (*shards, folder + DCP_INDEX):
        reading.role(name, role)
    contents = reading.open(folder + DCP_INDEX)
    index = fields_of(contents.root) if contents else {}
    entries = fields_of(index.get("state_dict_metadata"))
    tensors = sum(class_name(e) == "TensorStorageMetadata" for e in entries.values())
    _say(
        reading,
        folder,
        f"a torch.distributed.checkpoint of {words.count(tensors, 'tensor')} and "
        f"{words.count(len(entries) - tensors, 'other value')} in {words.count(len(shards), 'shard')} "
        f"({sum(shards.values()):,} bytes)",
        "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE makes one file of it",
    )
    _check_shards(reading, folder, _needed(fields_of(index.get("storage_data")).values()))


def _needed(places: Iterable[Value]) -> dict[str, int]:
    """Each shard that the index names, with the bytes it must have at the least."""
    found: dict[str, int] = {}
    for place in places:
        fields = fields_of(place)
        name, offset, length = fields.get("relative_path"), fields.get("offset"), fields.get("length")
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            found[name] = max(found.get(name, 0), offset + length)
    return found


def _check_shards(reading: Reading, folder: str, needed: dict[str, int]) -> None:
    have = {name: reading.sizes.get(folder + name) for name in sorted(needed)}
    missing = [repr(name) for name, size in have.items() if size is None]
    short = [
        f"{name!r} has {size:,} of at least {needed[name]:,} bytes"
        for name, size in have.items()
        if size is not None and size < needed[name]
    ]
    if missing:
        reading.log.add(
            "dcp.missing-shard",
            Severity.ERROR,
            f"{words.count(len(missing), 'shard')} that the index names are not there: {words.some(missing)}",
            where=folder + DCP_INDEX,
            hint="copy the missing ranks' files into the folder",
        )
    if short:
        reading.log.add(
            "dcp.short-shard",
            Severity.ERROR,
            f"{words.count(len(short), 'shard')} shorter than the index says: {words.some(short)}",
            where=folder + DCP_INDEX,
            hint="the save or the copy was cut short",
        )


def _take_deepspeed(reading: Reading, folder: str) -> None:
    files = [n for n in reading.names if folder_of(n) == folder and is_deepspeed(n)]
    reading.match_names = False
    world: Value = None
    for name in files:
        match = _ZERO.fullmatch(name.rsplit("/", 1)[-1])
        role = Role.OPTIMIZER if name.endswith("_optim_states.pt") else Role.MODEL
        reading.take(name, role=role, rank=int(match[1]) if match else None, called=role.value)
        contents = reading.open(name)
        root = fields_of(contents.root) if contents else {}
        world = root.get("dp_world_size", world)
    if f"{folder}{_UNIVERSAL}" in reading.names:
        reading.take(f"{folder}{_UNIVERSAL}", role=Role.OPTIMIZER)
    reading.parts.custom[:] = [
        c
        for c in reading.parts.custom
        if not (c.at.file.startswith(folder) and c.at.path[:1] and c.at.path[0] in _DEEPSPEED_OWN)
    ]
    _keep_one_scale(reading, folder)
    _say(
        reading,
        folder,
        f"a DeepSpeed checkpoint of {words.count(len(files), 'file')}",
        "python zero_to_fp32.py FOLDER OUT, which DeepSpeed puts beside it, makes plain weights of it",
    )
    _check_ranks(reading, folder, files, world)


def _keep_one_scale(reading: Reading, folder: str) -> None:
    """Every rank saves the same loss scaler; one of them is enough, as long as they agree."""
    seen: set[tuple[object, ...]] = set()
    kept: list[LossScale] = []
    for scale in reading.parts.scalers:
        mine = folder_of(scale.at.file) == folder
        state = (scale.form, *(number(scale.fields.get(key)) for key in _SCALE_KEYS))
        if not mine or state not in seen:
            kept.append(scale)
        if mine:
            seen.add(state)
    reading.parts.scalers[:] = kept


def _check_ranks(reading: Reading, folder: str, files: list[str], world: Value) -> None:
    """Each data-parallel rank has its own optimizer file; without all of them ZeRO state cannot be put together."""
    found = [m for n in files if n.endswith("_optim_states.pt") and (m := _ZERO.fullmatch(n.rsplit("/", 1)[-1]))]
    if not found or not isinstance(world, int) or world > reading.found.limits.files:
        return
    for model_rank in sorted({m[2] for m in found}):
        have = {int(m[1]) for m in found if m[2] == model_rank}
        missing = sorted(set(range(world)) - have)
        if missing:
            reading.log.add(
                "deepspeed.missing-rank",
                Severity.ERROR,
                f"{len(missing):,} of {world:,} ranks' optimizer files are missing, the first of rank {missing[0]}",
                where=folder or reading.found.path,
                hint="copy the files of every rank into the folder",
            )


def _take_megatron(reading: Reading, files: list[str]) -> None:
    for name in files:
        role = Role.OPTIMIZER if name.endswith("distrib_optim.pt") else Role.MODEL
        reading.take(name, role=role)
    _say(
        reading,
        "",
        f"a Megatron-LM checkpoint of {words.count(len(files), 'file')}, one a model-parallel rank",
        "the axis along which a tensor is split is not in the files; Megatron's own converter knows it",
    )
