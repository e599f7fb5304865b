"""Parts of a checkpoint in full: every param group, every field of a schedule, every generator."""

from collections.abc import Iterator, Mapping

from ckpttool.blocks import Block, Cell, Column, Fields, Heading, Table, Text
from ckpttool.commands._brief import brief
from ckpttool.commands._inspect import sentences as say
from ckpttool.commands._inspect.facts import optimizer_facts, weights_facts
from ckpttool.commands._names import dotted, label
from ckpttool.commands._nearest import nearest
from ckpttool.commands._words import figure, listed, plural, shortened, size
from ckpttool.errors import NoSuchKey
from ckpttool.model import At, Checkpoint, LossScale, OptimizerState, RngState, Role, Weights
from ckpttool.values import Value

Rows = list[tuple[str, Cell]]

_NAMES = {
    "": "unknown: the file does not tell",
    "param_names": "stored beside the parameters (param_names)",
    "shapes": "found by matching shapes, in order, with the weights",
    "FQN": "the keys of the state",
    "order": "assumed from the model's order",
}


def require_parts(checkpoint: Checkpoint, roles: tuple[Role, ...]) -> None:
    """Refuse parts that are not there.

    Raises:
        NoSuchKey: the checkpoint has none of a wanted kind.
    """
    present = {role for _, role in checkpoint.roles()}
    if checkpoint.files:
        present.add(Role.OTHER)
    for role in roles:
        if role not in present:
            names = [str(r) for r in Role if r in present]
            hint = nearest(role, names) or (f"its parts are {', '.join(names)}" if names else "")
            raise NoSuchKey(f"there is no part {role!s}", where=checkpoint.path, hint=hint)


def part_blocks(checkpoint: Checkpoint, roles: tuple[Role, ...]) -> Iterator[Block]:
    """Each wanted part; nothing for one that is not there."""
    for role in roles:
        yield from _blocks_of(checkpoint, role)


def _blocks_of(checkpoint: Checkpoint, role: Role) -> Iterator[Block]:
    match role:
        case Role.MODEL | Role.EMA:
            for weights in checkpoint.weights:
                if weights.role is role:
                    yield from _weights(weights)
        case Role.OPTIMIZER:
            for optimizer in checkpoint.optimizers:
                yield from _optimizer(optimizer)
        case Role.SCHEDULER:
            for schedule in checkpoint.schedulers:
                classes = " or ".join(schedule.candidates)
                yield _heading(schedule.name, schedule.at, classes)
                yield Fields(_values(schedule.fields))
        case Role.SCALER:
            for scale in checkpoint.scalers:
                yield from _scaler(scale)
        case _:
            yield from _lesser(checkpoint, role)


def _lesser(checkpoint: Checkpoint, role: Role) -> Iterator[Block]:
    match role:
        case Role.RNG:
            yield Heading("rng")
            columns = [Column("generator"), Column("rank", align="right"), Column("state", shrink=True)]
            yield Table([*columns, Column("at", shrink=True)], map(_generator, checkpoint.rng))
        case Role.DATA:
            for data in checkpoint.data:
                yield _heading(data.name, data.at)
                yield Fields(_values(data.fields))
        case Role.CUSTOM:
            for custom in checkpoint.custom:
                yield _heading(custom.name, custom.at)
                held = custom.value if isinstance(custom.value, dict) else {"value": custom.value}
                yield Fields(_values(held))
        case Role.PROGRESS:
            yield Heading("progress")
            yield Fields([
                (c.name, [say.setting(c.value), Text(f"  {_place(c.at)}", "dim")]) for c in checkpoint.counters
            ])  # fmt: skip
        case Role.CONFIG:
            yield Heading("config", listed(list(dict.fromkeys(map(_place, checkpoint.config_at.values())))))
            yield Fields(_values(checkpoint.config))
        case _:
            yield Heading("files")
            columns = [Column("file", shrink=True), Column("what"), Column("size", align="right")]
            yield Table(columns, ((f.name, f.container or "not opened", size(f.size)) for f in checkpoint.files))


def _generator(state: RngState) -> tuple[Cell, ...]:
    rank = "" if state.rank is None else str(state.rank)
    return state.generator, rank, state.detail or brief(state.value), Text(_place(state.at), "dim")


def _weights(weights: Weights) -> Iterator[Block]:
    facts = weights_facts(weights)
    yield _heading(weights.name, weights.at, say.tensors(facts))
    rows: Rows = [("bytes", _exact(facts.nbytes)), ("types", say.dtypes(facts))]
    if weights.prefix:
        rows.append(("prefix", weights.prefix))
    if weights.files:
        rows.append(("files", listed(list(dict.fromkeys(weights.files.values())))))
    yield Fields([*rows, *_values(weights.extra)])


def _optimizer(optimizer: OptimizerState) -> Iterator[Block]:
    facts = optimizer_facts(optimizer)
    yield _heading(optimizer.name, optimizer.at, say.optimizer(optimizer, facts))
    rows: Rows = [
        ("state keys", ", ".join(optimizer.state_keys) or "none"),
        ("bytes", _exact(facts.nbytes)),
        ("names", _NAMES.get(optimizer.names_from, optimizer.names_from)),
    ]
    if facts.moments:
        rows.append(("moments", say.moments(facts)))
    if facts.without_state:
        rows.append(("without state", listed([_numbered(name) for name in facts.without_state], most=20)))
    yield Fields(rows)
    for n, group in enumerate(optimizer.groups):
        yield Heading(f"group {n}", plural(len(group.params), "parameter"))
        told = [
            name if name is not None else _numbered(brief(p))
            for p, name in zip(group.params, group.names, strict=False)
        ]
        yield Fields([*_values(group.hyperparameters), ("params", ", ".join(told))])


def _numbered(name: str) -> str:
    """A parameter's name; its id as `#0`, to tell it from names."""
    return f"#{name}" if name.isdecimal() else name


def _exact(nbytes: int) -> str:
    return f"{nbytes:,}" if nbytes < 1000 else f"{nbytes:,} ({size(nbytes)})"  # noqa: PLR2004  # `size` is exact so far


def _scaler(scale: LossScale) -> Iterator[Block]:
    yield _heading(scale.name, scale.at, say.loss_scale(scale))
    own = ("scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")
    rows: Rows = [(name, figure(getattr(scale, name))) for name in own if scale.enabled]
    more = {key: value for key, value in scale.fields.items() if label(key).lstrip("_") not in own}
    yield Fields([*rows, ("enabled", str(scale.enabled)), ("form", scale.form), *_values(more)])


def _heading(name: str, at: At, aside: str = "") -> Heading:
    place = _place(at)
    return Heading(name, ", ".join(filter(None, (aside, place if place != name else ""))))


def _place(at: At) -> str:
    """`optimizer.bin`, `model.pt: optimizer`, `optimizer`."""
    return ": ".join(filter(None, (at.file, dotted(at.path))))


def _values(values: Mapping[str, Value]) -> Rows:
    return [(shortened(label(key)), say.setting(value)) for key, value in values.items()]
