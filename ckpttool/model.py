"""A checkpoint in the words of those who train: weights, optimizer, schedule, loss scale, RNG, data, progress.

Layouts build these from values; commands and rules read them. Nothing here knows a file format or a trainer.
Every part says where it came from (`At`), and keeps the trainer's own keys beside our words.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from ckpttool.blocks import Finding
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import FileSource, Folder, Source
from ckpttool.values import GlobalRef, KeyPath, StorageRef, TensorRef, Trust, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalUse:
    """A global that a file names."""

    ref: GlobalRef
    trust: Trust
    file: str  # file and, in an archive, member
    offset: int  # byte of the opcode that named it first
    paths: tuple[KeyPath, ...] = ()  # where its objects sit in the value tree, the first few; empty where none stayed
    called: bool = False  # the file asks for a call of it
    places: int = 0  # how often its objects sit in the tree; `paths` lists the first of them


@dataclass(slots=True, kw_only=True, eq=False)
class Contents:
    """One file, read: the inert value tree, and what the reader noticed."""

    name: str  # as shown: relative to the folder, or as the user wrote it
    container: str  # `torch-zip`, `safetensors`
    source: Source
    root: Value = None
    storages: tuple[StorageRef, ...] = ()  # all of the file, looked at by a tensor or not
    globals: tuple[GlobalUse, ...] = ()
    problems: tuple[Finding, ...] = ()
    facts: Mapping[str, Value] = field(
        default_factory=dict
    )  # of the container: safetensors metadata, byteorder, format version
    complete: bool = True  # False: a part could not be read, so no answer about it is clean
    files: Mapping[str, str] = field(default_factory=dict)  # shard of each key of `root`, where shards were merged


class Role(enum.StrEnum):
    """What a part of a checkpoint is for."""

    MODEL = "model"
    EMA = "ema"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "scaler"
    RNG = "rng"
    DATA = "data"
    CUSTOM = "custom"
    PROGRESS = "progress"
    CONFIG = "config"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class At:
    """Where a part sits: the file (empty for a single-file checkpoint) and the key path in it."""

    file: str
    path: KeyPath = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """A state_dict: fully qualified names with their tensors."""

    at: At
    role: Role = Role.MODEL  # MODEL, or EMA for an averaged copy
    name: str = "model"  # the trainer's own key
    tensors: Mapping[str, TensorRef] = field(default_factory=dict)
    paths: Mapping[str, KeyPath] = field(default_factory=dict)  # where each lies, when that is not `at.path + (name,)`
    files: Mapping[str, str] = field(default_factory=dict)  # file of each, when sharded
    extra: Mapping[str, Value] = field(default_factory=dict)  # entries that are no tensors: `_extra_state`
    modules: Mapping[str, Value] = field(default_factory=dict)  # `_metadata` of a state_dict: versions by module name
    stored: Mapping[str, Value] | None = None  # metadata of the one safetensors file it is; None for all else
    buffers: frozenset[str] = frozenset()  # names that are no parameters, where the file tells (a pickled module)
    prefix: str = ""  # wrapper segments in front of every name: `module.`
    in_model_order: bool = True  # the order is that of the module; False where a format or a writer sorted the names


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParamGroup:
    """An entry of `param_groups`."""

    hyperparameters: Mapping[str, Value]  # all keys but `params` and `param_names`, in the file's order
    params: tuple[Value, ...]  # ids as in the file
    names: tuple[str | None, ...]  # one per id; None where it is not known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizerState:
    """Param groups and the state of each parameter."""

    at: At
    name: str = "optimizer"
    candidates: tuple[str, ...] = ()  # classes that write these keys, likeliest first; one where it is certain
    groups: tuple[ParamGroup, ...] = ()
    state: Mapping[Value, Mapping[str, Value]] = field(default_factory=dict)
    state_keys: tuple[str, ...] = ()
    steps: tuple[int | float, ...] = ()  # distinct values of `step`, ascending; empty where none is kept
    # How the names are known. Stored in the file: `param_names`, `FQN`; certain: `the same tensors` (a pickled
    # optimizer), `shapes` (each shape is there once); assumed: `order` (some rest on the optimizer having been given
    # the parameters in the model's order, as `model.parameters()` does); empty: unknown.
    names_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchedulerState:
    """What an LR scheduler keeps."""

    at: At
    name: str = "scheduler"
    candidates: tuple[str, ...] = ()
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossScale:
    """GradScaler state, or what another trainer keeps in its place."""

    at: At
    name: str = "scaler"
    scale: float | None = None
    growth_factor: float | None = None  # scale is multiplied by it after `growth_interval` good steps
    backoff_factor: float | None = None  # and by this on overflow
    growth_interval: int | None = None  # optimizer steps
    growth_tracker: int | None = None  # good steps since the last change
    enabled: bool = True
    form: str = "state_dict"  # `state_dict`, `GradScaler object`, `DynamicLossScaler object`
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RngState:
    """The state of one random generator."""

    at: At
    generator: str  # `python`, `numpy`, `torch`, `cuda:0`
    rank: int | None = None
    detail: str = ""  # `MT19937, position 624`, `5,056 bytes`
    value: Value = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataPosition:
    """Where in the data training would go on: sampler or data loader state."""

    at: At
    name: str
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CustomObject:
    """An object that the user registered, or a key we have no word for."""

    at: At
    name: str
    value: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One number that says how far training came."""

    at: At
    name: str  # our word: `epoch`, `global_step`, `step`, `best`
    key: str  # the trainer's own
    value: Value = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """A file of the checkpoint, read or not."""

    name: str
    size: int  # bytes
    container: str = ""  # empty: not opened
    role: Role = Role.OTHER
    read: bool = False  # what it says is in the checkpoint's parts


@dataclass(slots=True, kw_only=True, eq=False)
class Checkpoint:
    """All that a trainer saved to resume, whatever the container."""

    path: str
    layout: str  # `accelerate`, `lightning`, `plain`
    writer: str = ""  # in words: `Lightning 2.6.6`
    weights: tuple[Weights, ...] = ()
    optimizers: tuple[OptimizerState, ...] = ()
    schedulers: tuple[SchedulerState, ...] = ()
    scalers: tuple[LossScale, ...] = ()
    rng: tuple[RngState, ...] = ()
    data: tuple[DataPosition, ...] = ()
    custom: tuple[CustomObject, ...] = ()
    counters: tuple[Counter, ...] = ()
    config: Mapping[str, Value] = field(default_factory=dict)  # arguments and hyperparameters, by their own keys
    config_at: Mapping[str, At] = field(default_factory=dict)
    config_files: Mapping[str, str] = field(default_factory=dict)  # file that each key of `config` is from
    about: Mapping[str, Value] = field(default_factory=dict)  # what the trainer notes about itself: its version
    files: tuple[PartFile, ...] = ()
    contents: Mapping[str, Contents] = field(default_factory=dict)  # by file name; "" for a single file
    problems: tuple[Finding, ...] = ()  # of the checkpoint; those of a file are in its contents
    is_folder: bool = False
    limits: Limits = DEFAULT_LIMITS
    opened: tuple[FileSource | Folder, ...] = ()

    def all_problems(self) -> tuple[Finding, ...]:
        """Findings of the checkpoint and of each of its files."""
        return (*self.problems, *(p for c in self.contents.values() for p in c.problems))

    def globals(self) -> tuple[GlobalUse, ...]:
        """Every global that any file names."""
        return tuple(g for c in self.contents.values() for g in c.globals)

    def roles(self) -> Iterator[tuple[At, Role]]:
        """Where each recognised part begins."""
        yield from ((w.at, w.role) for w in self.weights)
        for role, parts in (
            (Role.OPTIMIZER, self.optimizers), (Role.SCHEDULER, self.schedulers), (Role.SCALER, self.scalers),
            (Role.RNG, self.rng), (Role.DATA, self.data), (Role.CUSTOM, self.custom), (Role.PROGRESS, self.counters),
        ):  # fmt: skip
            yield from ((part.at, role) for part in parts)
        yield from ((at, Role.CONFIG) for at in self.config_at.values())

    def check_unchanged(self) -> None:
        """Compare every open file with what it was at opening.

        Raises:
            FileChanged: one was written to, so no answer about the checkpoint would be true.
        """
        for source in self.opened:
            source.check_unchanged()

    def close(self) -> None:
        """Close every file; tensors can no longer be read."""
        for source in self.opened:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A folder of checkpoints, in step order."""

    path: str
    layout: str
    checkpoints: tuple[Checkpoint, ...] = ()
    steps: tuple[int | float | None, ...] = ()  # one per checkpoint
    complete: tuple[bool, ...] = ()  # whether each holds all that its siblings hold, undamaged
    problems: tuple[Finding, ...] = ()

    @property
    def newest_complete(self) -> int | None:
        """Index of the newest checkpoint one can resume from."""
        return max((n for n, good in enumerate(self.complete) if good), default=None)

    def close(self) -> None:
        """Close every checkpoint."""
        for checkpoint in self.checkpoints:
            checkpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
