"""What the rules about optimizers share: which ones can be looked at, and how their parts are called."""

from collections.abc import Iterator, Mapping, Sequence

from ckpttool.elements import number
from ckpttool.model import Checkpoint, OptimizerState, Role
from ckpttool.names import without_wrappers
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules._torch_optimizers import TorchClass, torch_class
from ckpttool.values import TensorRef, Value

_SHOWN = 3  # names in a message
_WIDE = 64  # bits
_NOT_YET = "layout.not-yet"  # the finding of a folder whose files are listed and not read as one checkpoint
_COUNTS = ("global_step", "step", "iteration", "samples", "tokens", "epoch", "completed_epochs")
_STEPS = ("global_step", "step", "iteration")
_OWN_LOOPS = ("plain", "nanogpt", "accelerate")  # others step without asking but for a loss scale
_SKIPPED = 2  # steps
_ZERO_FILES = ("_optim_states.pt", "zero/optimizer_state.pt")
_ZERO_KEY = "base_optimizer_state"


def whole(case: Case) -> Iterator[OptimizerState]:
    """Optimizers with a state for each parameter, as torch keeps it: not the flat partitions of ZeRO."""
    yield from (o for o in case.checkpoint.optimizers if not is_partitioned(o) and count_of(o))


def of_torch(case: Case) -> Iterator[tuple[OptimizerState, TorchClass]]:
    """Those of them whose class is torch's, or asks for the same, with the class."""
    yield from ((optimizer, made) for optimizer in whole(case) if (made := torch_class(optimizer)) is not None)


def is_partitioned(optimizer: OptimizerState) -> bool:
    """Whether ids are numbers of groups and states are flat pieces of them.

    Source: deepspeed/runtime/zero/stage_1_and_2.py, `state_dict` of 0.19
    """
    return optimizer.at.file.endswith(_ZERO_FILES) or _ZERO_KEY in optimizer.at.path


def unseen(code: str, case: Case) -> Iterator[NotChecked]:
    """Say why optimizers that the checkpoint has, or may have, are not looked at."""
    checkpoint = case.checkpoint
    unread = unread_file(checkpoint)
    if unread:
        yield NotChecked(code=code, why=f"{unread} could not be read")
    elif any(is_partitioned(o) for o in checkpoint.optimizers):
        yield NotChecked(code=code, why="the optimizer state is cut in flat partitions, which have no parameters")
    elif not any(map(count_of, checkpoint.optimizers)) and is_distributed(checkpoint):
        yield NotChecked(code=code, why="the optimizer state may lie in distributed shards, which are not read")


def unread_file(checkpoint: Checkpoint) -> str:
    """The first file of an optimizer that did not become values, or only in part; empty where all were read."""
    if is_distributed(checkpoint):
        return ""
    for part in checkpoint.files:
        contents = checkpoint.contents.get(part.name if checkpoint.is_folder else "")
        damaged = contents is None and any(p.where.startswith(part.name) for p in checkpoint.problems)
        in_part = contents is not None and not contents.complete
        # What was read of a single file says whether it is one that has an optimizer.
        in_file = bool(checkpoint.optimizers or trained(checkpoint))
        expected = part.role is Role.OPTIMIZER if checkpoint.is_folder else in_file
        if expected and (damaged or in_part):
            return part.name
    return ""


def is_distributed(checkpoint: Checkpoint) -> bool:
    """Whether parts of the checkpoint lie in shards that are listed but not read."""
    return any(p.code == _NOT_YET for p in checkpoint.problems)


def count_of(optimizer: OptimizerState) -> int:
    """Parameters over all groups."""
    return sum(len(group.params) for group in optimizer.groups)


def state_of(optimizer: OptimizerState, param: Value) -> Mapping[str, Value]:
    """What is kept for a parameter; empty where nothing is, or only None for a buffer that was not made yet."""
    entry = optimizer.state.get(param, {}) if isinstance(param, int | str | TensorRef) else {}
    return entry if any(value is not None for value in entry.values()) else {}


def params_of(optimizer: OptimizerState) -> Iterator[tuple[int, str, Value]]:
    """Each parameter: the number of its group, what it is called, its id."""
    place = 0
    for at, group in enumerate(optimizer.groups):
        for param, name in zip(group.params, group.names, strict=True):
            yield at, name or f"param {figure(param) if isinstance(param, int | str) else place}", param
            place += 1


def by_group(optimizer: OptimizerState) -> list[list[tuple[str, Value]]]:
    """The parameters of each group: what they are called, and their ids."""
    found: list[list[tuple[str, Value]]] = [[] for _ in optimizer.groups]
    for at, label, param in params_of(optimizer):
        found[at].append((label, param))
    return found


def step_to(label: str, param: Value) -> int | str:
    """The step of a key path to a parameter's state."""
    return param if isinstance(param, int | str) else label


def figure(value: float | str) -> str:
    """A number or an id as text; Python refuses to spell whole numbers of thousands of digits."""
    match value:
        case int() if value.bit_length() > _WIDE:
            return "a number beyond 64 bits"
        case float():
            return f"{value:g}"
    return str(value)


def weights_by_name(checkpoint: Checkpoint) -> dict[str, TensorRef]:
    """Plain tensors of the model by the name that the unwrapped module gives them; a name of two models is none."""
    found: dict[str, TensorRef] = {}
    twice: set[str] = set()
    for weights in checkpoint.weights:
        for name, tensor in weights.tensors.items():
            bare = without_wrappers(name)
            if weights.role is Role.MODEL and tensor.kind == "strided":
                twice |= {bare} & found.keys()
                found[bare] = tensor
    return {name: tensor for name, tensor in found.items() if name not in twice}


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN:,} more"


def trained(checkpoint: Checkpoint) -> str:
    """A counter that says that steps were taken: `global_step 4`; empty where none does."""
    for name in _COUNTS:
        for counter in checkpoint.counters:
            value = number(counter.value)
            # Accelerate's own counts batches, of which several may make the first step.
            batches = counter.key.endswith("(random_states)")
            if counter.name == name and value is not None and value > 0 and not batches:
                return f"{counter.key} {figure(value)}"
    for scheduler in checkpoint.schedulers:
        value = number(scheduler.fields.get("last_epoch"))
        if value is not None and value > 0:
            return f"{scheduler.name} last_epoch {figure(value)}"
    return ""


def may_be_skipped(checkpoint: Checkpoint) -> bool:
    """Whether a loop of one's own counts so few steps that a guard of its own may have skipped all of them.

    Such guards leave out steps over losses or gradients that are none, as the first of a run often are; a loss scale
    need not be there.
    """
    counted = [c for c in checkpoint.counters if not c.key.endswith("(random_states)")]
    steps = [v for c in counted if c.name in _STEPS and (v := number(c.value)) is not None and v > 0]
    return checkpoint.layout in _OWN_LOOPS and bool(steps) and max(steps) <= _SKIPPED


def pairs(case: Case) -> Iterator[tuple[OptimizerState, OptimizerState]]:
    """Optimizers of the checkpoint and of the one it is held against: by name, else in order."""
    other = case.other.optimizers if case.other is not None else ()
    mine = case.checkpoint.optimizers
    by_name = {o.name: o for o in other}
    if len(by_name) == len(other) and by_name.keys() >= {o.name for o in mine}:
        yield from ((o, by_name[o.name]) for o in mine)
    else:
        yield from zip(mine, other, strict=False)


def unpaired(code: str, case: Case) -> Iterator[NotChecked]:
    """Say it where only one of the two checkpoints has an optimizer that was read."""
    if case.other is not None and bool(case.checkpoint.optimizers) != bool(case.other.optimizers):
        lacking = case.other if case.checkpoint.optimizers else case.checkpoint
        yield NotChecked(code=code, why=f"{lacking.path} has no optimizer state to hold against the other's")
