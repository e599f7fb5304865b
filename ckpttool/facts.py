"""What a training script built, loaded and asked for, up to the moment when training would go on.

The probe watches a script run and writes these down as JSON; `probe.codec` reads them. Rules that hold a
checkpoint against a script look only here. Without a script there are no facts, and such rules say that they were not
checked. Digests are the SHA-256, in hexadecimal, of a tensor's elements in C order, little-endian: the same as
`ckpt inspect --hash sha256` gives. A digest is empty where a tensor has no plain elements (meta, sparse, quantized).

Values that are no tensors are plain: None, bool, int, float, str, lists and dicts of these. What JSON has no word for
is a dict of one key: `{"$float": "nan"}`, `{"$tuple": [...]}`, `{"$pairs": [[key, value], ...]}` for a dict whose keys
are not all text, `{"$tensor": {"dtype": ..., "shape": [...], "digest": ..., "value": number of a single element}}`,
`{"$bytes": sha256}`, `{"$object": "module.Class"}` for anything else, `{"$cut": count}` for what was too much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Plain = object  # of the kinds above


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFact:
    """A line of the user's program that was being run; frames of libraries are marked."""

    file: str
    line: int
    function: str
    text: str = ""  # the line itself
    library: bool = False  # in site-packages or the standard library


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedFact:
    """An exception."""

    type: str  # `RuntimeError`; with its module unless that is builtins
    message: str  # cut after 4,000 characters
    frames: tuple[FrameFact, ...] = ()  # outermost first
    during: str = ""  # the loading call that it came out of: `Adam.load_state_dict`, `torch.load`
    causes: tuple[str, ...] = ()  # `type: message` of what it was raised from, nearest first


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFact:
    """A file of the checkpoint, or of the run it belongs to, that the script opened."""

    path: str  # absolute
    how: str  # `torch.load`, `safetensors`, `open`
    keys: tuple[str, ...] = ()  # that were read by name, at the top; of a dict one level down `outer.inner`
    all_keys: bool = False  # it was walked through, copied, or handed on whole, so every key may have been read
    missed: tuple[str, ...] = ()  # keys that were asked for (`get`, `in`, `[]`) and are not there
    refused: str = ""  # the exception, where it could not be loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFact:
    """A call of `load_state_dict`, or a setter of an RNG state."""

    kind: str  # `module`, `optimizer`, `scheduler`, `scaler`, `rng`, `loader`, `object`
    target: str  # id of what was loaded into; of an RNG the generator: `torch`, `cuda:0`, `numpy`, `python`
    cls: str = ""
    strict: bool = True
    missing: tuple[str, ...] = ()  # keys, at most 50; as load_state_dict returned them
    unexpected: tuple[str, ...] = ()
    missing_count: int = 0
    unexpected_count: int = 0
    digests: tuple[str, ...] = ()  # of at most 8 tensors of what was given, the largest first
    value: Plain = None  # what was given, where it holds no tensors (a scheduler's fields)
    raised: str = ""  # `type: message`
    frame: FrameFact | None = None  # of the user's program
    in_library: str = ""  # `accelerate`, `lightning`, `transformers`: who called, where it was a library


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFact:
    """A parameter or buffer that the script builds, as it is at the boundary."""

    shape: tuple[int, ...]
    dtype: str  # torch's word without `torch.`: `float32`
    trainable: bool = True  # a parameter that requires a gradient
    buffer: bool = False
    persistent: bool = True
    digest: str = ""
    nan: int = 0  # elements
    inf: int = 0
    place: str = ""  # the same for names that share memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFact:
    """A module that no other module contains."""

    id: str
    cls: str
    name: str = ""  # of the variable or attribute that holds it, where one was found: `model`, `self.ema`
    tensors: Mapping[str, TensorFact] = field(default_factory=dict)  # names as in its state_dict; all, also tied ones
    trained: bool = False  # an optimizer holds parameters of it
    loaded: bool = False  # load_state_dict was called on it or on a module inside it


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFact:
    """A param group."""

    names: tuple[str, ...] = ()  # `module id:FQN` of each parameter, or `?N` for one that no module holds
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    hyperparameters: Mapping[str, Plain] = field(default_factory=dict)  # all keys but `params`, at the boundary
    made_with: Mapping[str, Plain] = field(default_factory=dict)  # the same when the optimizer was made


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerFact:
    """A torch optimizer; wrappers of trainers are looked through."""

    id: str
    cls: str  # `torch.optim.adamw.AdamW`
    name: str = ""
    groups: tuple[GroupFact, ...] = ()
    state: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict)  # by position over all groups: `"0"`
    loaded: bool = False
    next_step: str = ""  # the exception of a trial step with zero gradients on copies, `type: message`
    next_step_unchecked: str = ""  # why there was none: it needs a closure, sparse gradients, …


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFact:
    """An LR scheduler."""

    id: str
    cls: str
    name: str = ""
    optimizer: str = ""  # id
    fields: Mapping[str, Plain] = field(default_factory=dict)  # its state_dict
    made_with: Mapping[str, Plain] = field(default_factory=dict)  # its state_dict when it was made
    rates: tuple[float, ...] = ()  # lr of each group by the live schedule at its `last_epoch`; empty: no such form
    rates_unchecked: str = ""
    loaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerFact:
    """A GradScaler."""

    id: str
    name: str = ""
    enabled: bool = True
    fields: Mapping[str, Plain] = field(default_factory=dict)  # its state_dict
    loaded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFact:
    """A DataLoader, and where in its data the run stands."""

    id: str
    cls: str
    name: str = ""
    batch_size: int | None = None
    batches: int | None = None  # in an epoch; None where it has no length
    samples: int | None = None
    sampler: str = ""  # class
    drop_last: bool = False
    given: int = 0  # batches that the newest iterator gave out; the last of them is the one that is trained on
    iterators: int = 0  # how many were made
    skipped: int = 0  # batches that it passes over by itself (`skip_first_batches`)
    ahead: int = 0  # batches that a wrapper took and has not handed out (Accelerate takes one ahead)
    epoch: int | None = None  # that its sampler was set to


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFact:
    """A number that says how far training is, as the run holds it at the boundary."""

    name: str  # `epoch`, `global_step`, `iter_num`
    value: int | float
    where: str  # `train.py:120 main`, `TrainerState of Trainer._inner_training_loop`
    own: bool = False  # of the user's code: a variable of it, an item of its dicts, an attribute of its classes
    given: bool = False  # among arguments or in a configuration: set beforehand, and may count nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFact:
    """Arguments or a model's configuration that the run holds."""

    where: str  # `args of main`, `config of GPT2LMHeadModel`, `peft_config of PeftModel`
    values: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RngFact:
    """A random generator at the boundary."""

    generator: str  # `torch`, `cuda:0`, `numpy`, `python`
    set_since: bool = False  # a state was set after the checkpoint was first opened
    seeded_since: bool = False  # it was seeded anew after that (`manual_seed`)
    set_to: str = ""  # digest of the state that was set last: of torch the bytes, of the others what `value` says
    value: Plain = None  # python's and numpy's state that was set last


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFact:
    """Another object that has `state_dict` and `load_state_dict`."""

    cls: str
    id: str = ""
    name: str = ""
    state: Plain = None  # what its state_dict returns at the boundary
    loaded: bool = False  # its load_state_dict came through after the checkpoint was opened


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFact:
    """A save that was asked for and not carried out."""

    how: str  # `torch.save`, `safetensors.torch.save_file`, `Accelerator.save_state`
    path: str
    keys: tuple[str, ...] = ()  # of the dict that was given
    frame: FrameFact | None = None


_STANDS: Final = ("backward", "optimizer step", "steps done")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """A script at the moment when training would go on, or where it ended before that."""

    args: tuple[str, ...] = ()  # that it was called with
    stopped: str = ""  # `backward`, `optimizer step`, `steps done`, `ended`, `exited`, `raised`, `timed out`, `killed`,
    # `not examined`
    exit_code: int | None = None  # of one that ended or exited by itself
    raised: RaisedFact | None = None
    printed: str = ""  # the end of its output, at most 4,000 characters
    frames: tuple[FrameFact, ...] = ()  # where it stood, outermost first
    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # of torch and of the trainers that it imported
    isolation: str = ""  # `namespaces`, `patched functions`
    left_open: tuple[str, ...] = ()  # what these do not keep it from, in words: `the network`
    hindered: str = ""  # what of the surroundings, and not of the checkpoint, kept it from training, in words
    processes: tuple[str, ...] = ()  # lines of the script that started processes, which are not watched
    read_input: bool = False  # it read its standard input, where nothing is
    seconds: float = 0.0  # to the boundary
    examined_seconds: float = 0.0
    steps_before: int = 0  # optimizer steps that were made before the checkpoint was opened
    steps_made: int = 0  # that were made beyond the boundary, with --steps
    opened: tuple[OpenedFact, ...] = ()
    asked: tuple[str, ...] = ()  # absolute paths in the checkpoint or beside it, asked for and not there
    loads: tuple[LoadFact, ...] = ()
    modules: tuple[ModuleFact, ...] = ()
    loose: Mapping[str, str] = field(default_factory=dict)  # digest -> where: tensors that no module or optimizer holds
    # The same of averages in a part of a loaded dict that a variable of the script's holds (`ema = saved["ema"]`).
    kept: Mapping[str, str] = field(default_factory=dict)
    optimizers: tuple[OptimizerFact, ...] = ()
    schedulers: tuple[SchedulerFact, ...] = ()
    scalers: tuple[ScalerFact, ...] = ()
    loaders: tuple[LoaderFact, ...] = ()
    rng: tuple[RngFact, ...] = ()
    counters: tuple[CounterFact, ...] = ()
    held: tuple[int, ...] = ()  # whole numbers from 2 on that the user's own variables and objects hold under any name
    accumulates: bool = True  # the user's source has a word for it: one optimizer step may be of several batches
    config: tuple[ConfigFact, ...] = ()
    objects: tuple[ObjectFact, ...] = ()
    saves: tuple[SaveFact, ...] = ()
    unwatched: tuple[str, ...] = ()  # what could not be watched, in words: never to be taken for clean
    world_size: int = 1

    @property
    def stands(self) -> bool:
        """Whether the script came to where training goes on."""
        return self.stopped in _STANDS
