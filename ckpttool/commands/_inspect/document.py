"""A checkpoint as the JSON document `ckpt.inspect/1`; docs/json.md says what each field means."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ckpttool.blocks import Finding
from ckpttool.commands._brief import brief
from ckpttool.commands._inspect.facts import optimizer_facts, total_bytes, weights_facts
from ckpttool.commands._inspect.globals import global_document
from ckpttool.commands._inspect.measure import Gauge
from ckpttool.commands._inspect.rows import Row
from ckpttool.commands._inspect.storage import storage_use
from ckpttool.commands._names import json_key, json_step, label
from ckpttool.commands._values import RawTrees, Trees
from ckpttool.elements import number
from ckpttool.model import At, Checkpoint, Counter, LossScale, OptimizerState, ParamGroup, Weights
from ckpttool.values import TensorRef


def checkpoint_document(checkpoint: Checkpoint, trees: Trees | None = None) -> dict[str, object]:
    """All about a checkpoint but its tensors, globals and findings; `trees` shows the values of the file."""
    use, trees = storage_use(checkpoint), trees or Trees()
    containers = [contents.container for contents in checkpoint.contents.values()]
    return {
        "path": checkpoint.path,
        "layout": checkpoint.layout,
        "container": "folder" if checkpoint.is_folder else next(iter(containers), None),
        "writer": checkpoint.writer or None,
        "bytes": total_bytes(checkpoint),
        "complete": all(contents.complete for contents in checkpoint.contents.values()),
        "files": [
            {"name": f.name, "bytes": f.size, "container": f.container or None, "role": str(f.role)}
            for f in checkpoint.files
        ],
        "storages": {
            "count": use.count, "bytes": use.nbytes, "unused_bytes": use.unused_bytes, "devices": dict(use.devices),
        },
        "weights": [_weights(weights, trees) for weights in checkpoint.weights],
        "optimizers": [_optimizer(optimizer, trees) for optimizer in checkpoint.optimizers],
        "schedulers": [
            {"name": s.name, **_at(s.at), "class": [*s.candidates], "fields": trees.mapping(s.fields)}
            for s in checkpoint.schedulers
        ],
        "scalers": [_scaler(scale, trees) for scale in checkpoint.scalers],
        "scaler": _scaler(checkpoint.scalers[0], trees) if len(checkpoint.scalers) == 1 else None,
        "rng": [
            {"generator": r.generator, "rank": r.rank, **_at(r.at), "detail": r.detail} for r in checkpoint.rng
        ],
        "data": [{"name": d.name, **_at(d.at), "fields": trees.mapping(d.fields)} for d in checkpoint.data],
        "custom": [{"name": c.name, **_at(c.at), "value": trees.value(c.value)} for c in checkpoint.custom],
        "progress": _progress(checkpoint.counters, trees),
        "counters": [
            {"name": c.name, "trainer_key": c.key, **_at(c.at), "value": trees.scalar(c.value)}
            for c in checkpoint.counters
        ],
        "config": trees.mapping(checkpoint.config),
    }  # fmt: skip


def raw_document(checkpoint: Checkpoint) -> dict[str, object]:
    """The same with the values as the file holds them, to look one up.

    A shell wants the number of a hyperparameter that is kept as a tensor.
    """
    raw = RawTrees()
    document = checkpoint_document(checkpoint, raw)
    document["optimizers"] = [
        {**told, "groups": [{**group, **group["numbers"]} for group in told["groups"]]}
        for told in (_optimizer(optimizer, raw) for optimizer in checkpoint.optimizers)
    ]
    return document


def _progress(counters: Iterable[Counter], trees: Trees) -> dict[str, object]:
    """The first counter of each name."""
    told: dict[str, object] = {}
    for counter in counters:
        told.setdefault(counter.name, trees.scalar(counter.value))
    return told


def _at(at: At) -> dict[str, object]:
    return {"file": at.file or None, "key": json_key(at.path)}


def _weights(weights: Weights, trees: Trees) -> dict[str, object]:
    facts = weights_facts(weights)
    return {
        "name": weights.name, "part": str(weights.role), **_at(weights.at), "prefix": weights.prefix,
        "tensors": facts.tensors, "tied": facts.tied, "parameters": facts.parameters, "bytes": facts.nbytes,
        "dtypes": dict(facts.dtypes), "extra": trees.mapping(weights.extra),
    }  # fmt: skip


def _optimizer(optimizer: OptimizerState, trees: Trees) -> dict[str, Any]:
    facts = optimizer_facts(optimizer)
    return {
        "name": optimizer.name,
        **_at(optimizer.at),
        "class": [*optimizer.candidates],
        "groups": [_group(group, trees) for group in optimizer.groups],
        "state_keys": [*optimizer.state_keys],
        "steps": [trees.value(step) for step in optimizer.steps],
        "names_from": optimizer.names_from or None,
        "parameters": facts.parameters,
        "with_state": facts.with_state,
        "without_state": facts.without_state,
        "moments": {key: dict(kinds) for key, kinds in facts.moments.items()},
        "bytes": facts.nbytes,
    }


def _group(group: ParamGroup, trees: Trees) -> dict[str, Any]:
    """The hyperparameters by the file's own keys, and beside them who they are for.

    One that is a tensor in the file (the `lr` of a capturable optimizer) says so, and its number is in `numbers`:
    restoring it as a plain number would not be the same optimizer.
    """
    params = [brief(p) if isinstance(p, TensorRef) else json_step(p) for p in group.params]
    values = group.hyperparameters
    stored = {label(key): value for key, value in values.items() if isinstance(value, TensorRef)}
    spelled = {key: f"Tensor[{value.dtype.name}]{[*value.shape]}" for key, value in stored.items()}
    numbers = {key: found for key, value in stored.items() if (found := number(value)) is not None}
    return {**trees.mapping(values), **spelled, "numbers": numbers, "params": params, "param_names": [*group.names]}


def _scaler(scale: LossScale, trees: Trees) -> dict[str, object]:
    numbers = ("scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")
    told = {name: trees.value(getattr(scale, name)) for name in numbers}
    return {"name": scale.name, **_at(scale.at), **told, "enabled": scale.enabled, "form": scale.form}


def findings_document(findings: Iterable[Finding]) -> Iterator[dict[str, object]]:
    """Findings in the order they are given."""
    for f in findings:
        yield {"code": f.code, "severity": str(f.severity), "message": f.message, "where": f.where, "hint": f.hint}


def globals_document(checkpoint: Checkpoint) -> Iterator[dict[str, object]]:
    """Every global of every file."""
    return map(global_document, checkpoint.globals())


def tensors_document(rows: Iterable[Row], gauge: Gauge | None, asked: Sequence[str]) -> Iterator[dict[str, object]]:
    """A row for each tensor, measured when its turn comes.

    Args:
        rows: the chosen ones.
        gauge: reads values; None to read none.
        asked: `stats`, `sha256`: fields that every row then has, null with a `reason` where there is no answer.
    """
    first: dict[tuple[object, ...], list[str | int]] = {}
    for row in rows:
        tensor, key = row.tensor, json_key(row.path)
        document = {"key": key, "name": row.name, **_tensor(tensor), "file": row.file, "part": str(row.part)}
        if tensor.storage is not None and tensor.numel:
            identity = (id(tensor.storage), tensor.storage_offset, tensor.shape, tensor.stride, tensor.dtype)
            tied = first.setdefault(identity, key)
            document["tied_to"] = None if tied is key else tied
        document["parts"] = [
            {"name": name, **_tensor(part), **_measured(part, gauge, asked)}
            for name, part in tensor.parts
            if isinstance(part, TensorRef)
        ]
        yield {**document, **_measured(tensor, gauge, asked)}


def _tensor(tensor: TensorRef) -> dict[str, object]:
    storage = tensor.storage
    return {
        "dtype": tensor.dtype.name, "shape": [*tensor.shape], "bytes": tensor.nbytes, "kind": tensor.kind,
        "class": str(tensor.cls) if tensor.cls else None, "parameter": tensor.parameter,
        "requires_grad": tensor.requires_grad, "storage": storage.key if storage else None,
        "device": storage.location if storage else None, "offset": tensor.storage_offset, "stride": [*tensor.stride],
    }  # fmt: skip


def _measured(tensor: TensorRef, gauge: Gauge | None, asked: Sequence[str]) -> dict[str, object]:
    if gauge is None:
        return {}
    measured = gauge.measure(tensor)
    told: dict[str, object] = {"sha256": measured.sha256} if "sha256" in asked else {}
    if "stats" in asked:
        told["stats"] = measured.stats.document() if measured.stats else None
    return {**told, "reason": measured.reason or None}
