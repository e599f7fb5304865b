"""Loss scales, wherever they sit: GradScaler's five numbers, pickled scalers, and what other trainers keep instead."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ckpttool.elements import number
from ckpttool.layouts import _words as words
from ckpttool.layouts._spots import Spot, Verdict, class_name, entries_of, key_text, spelled
from ckpttool.model import LossScale, Role
from ckpttool.values import Opaque, Value

_GRAD_SCALER = frozenset(("scale", "growth_factor", "backoff_factor", "growth_interval"))
_MEGATRON = frozenset(("scale", "growth_tracker", "hysteresis_tracker"))
_APEX = re.compile(r"loss_scaler\d+")


def scaler(spot: Spot, found: list[LossScale]) -> Verdict:
    """Recognise a loss scale."""
    if isinstance(spot.value, Opaque) and spot.value.entries is None:
        scale = _of_object(spot, spot.value)
        found.extend([scale] if scale else [])
        return Verdict.PART if scale else Verdict.NO
    entries = entries_of(spot.value)
    if entries is None:
        return Verdict.NO
    if not entries:
        return _disabled(spot, found)
    if entries.keys() >= _GRAD_SCALER or _is_left_of(spot, entries):
        found.append(_of_state_dict(spot, entries))
        return Verdict.PART
    if entries.keys() >= _MEGATRON:
        found.append(_of_megatron(spot, entries))
        return Verdict.PART
    if "cur_scale" in entries:
        found.append(_of_deepspeed(spot, entries, form="DeepSpeed fp16 optimizer"))
        return Verdict.PART_AND_BELOW
    apex = list(_of_apex(spot, entries))
    found.extend(apex)
    return Verdict.PART if apex else Verdict.NO


def _is_left_of(spot: Spot, entries: Mapping[Any, Value]) -> bool:
    """Whether it is a GradScaler's state that lost keys: most are there, or it is called a scaler."""
    kept = len(_GRAD_SCALER & entries.keys())
    named = spot.role is Role.SCALER or words.is_scaler(spot.word)
    only = entries.keys() <= _GRAD_SCALER | {"_growth_tracker"}
    return only and (kept > 2 or (named and kept > 0))  # noqa: PLR2004  # of four


def scale_beside_optimizer(spot: Spot, entries: Mapping[Any, Value]) -> LossScale | None:
    """The `loss_scale` that fairseq's FP16 optimizer writes into the optimizer's own dict.

    Source: fairseq/optim/fp16_optimizer.py, `state_dict`
    """
    scale = _real(entries.get("loss_scale"))
    if scale is None:
        return None
    return LossScale(
        at=spot.at, name="loss_scale", scale=scale, form="fairseq fp16 optimizer", fields={"loss_scale": scale}
    )


def _disabled(spot: Spot, found: list[LossScale]) -> Verdict:
    """An empty dict is what a disabled GradScaler saves; only the key or the file tells."""
    if spot.role is not Role.SCALER and not words.is_scaler(spot.word):
        return Verdict.NO
    found.append(LossScale(at=spot.at, name=spot.name or "scaler", enabled=False))
    return Verdict.PART


def _of_state_dict(spot: Spot, entries: Mapping[Any, Value]) -> LossScale:
    """Source: torch/amp/grad_scaler.py, `state_dict` of torch 2.13."""
    return LossScale(
        at=spot.at,
        name=spot.name or "scaler",
        scale=_real(entries.get("scale")),
        growth_factor=_real(entries.get("growth_factor")),
        backoff_factor=_real(entries.get("backoff_factor")),
        growth_interval=_whole(entries.get("growth_interval")),
        growth_tracker=_whole(entries.get("_growth_tracker")),
        fields=spelled(entries),
    )


def _of_megatron(spot: Spot, entries: Mapping[Any, Value]) -> LossScale:
    """Source: megatron/core/optimizer/grad_scaler.py, `DynamicGradScaler.state_dict`; the factors are not stored."""
    return LossScale(
        at=spot.at,
        name=spot.name or "scaler",
        scale=_real(entries.get("scale")),
        growth_tracker=_whole(entries.get("growth_tracker")),
        form="Megatron grad scaler",
        fields=spelled(entries),
    )


def _of_apex(spot: Spot, entries: Mapping[Any, Value]) -> Iterator[LossScale]:
    """`apex.amp.state_dict()`: one entry a loss, `{"loss_scale", "unskipped"}`; the factors are not stored."""
    for key, value in entries.items():
        inner = entries_of(value) if isinstance(key, str) and _APEX.fullmatch(key) else None
        if inner and "loss_scale" in inner:
            yield LossScale(
                at=spot.at,
                name=key_text(key),
                scale=_real(inner["loss_scale"]),
                growth_tracker=_whole(inner.get("unskipped")),
                form="apex amp",
                fields=spelled(inner),
            )


def _of_object(spot: Spot, value: Opaque) -> LossScale | None:
    fields = value.attributes
    name = class_name(value)
    if "_growth_factor" in fields and "_growth_interval" in fields:
        return _of_grad_scaler(spot, fields, name)
    if name.endswith("GradScaler") and "_enabled" in fields:
        return LossScale(
            at=spot.at, name=spot.name or "scaler", enabled=False, form=f"{name} object", fields=_named(fields)
        )
    if "cur_scale" in fields and name.endswith("LossScaler"):
        return _of_deepspeed(spot, fields, form=f"{name} object")
    return None


def _of_grad_scaler(spot: Spot, fields: Mapping[Any, Value], name: str) -> LossScale:
    """A pickled GradScaler: `__getstate__` moved the live values into the `_init_` fields.

    Source: torch/amp/grad_scaler.py, `__getstate__` of torch 2.13
    """
    live = _real(fields.get("_scale"))
    tracker = _whole(fields.get("_growth_tracker"))
    return LossScale(
        at=spot.at,
        name=spot.name or "scaler",
        scale=_real(fields.get("_init_scale")) if live is None else live,
        growth_factor=_real(fields.get("_growth_factor")),
        backoff_factor=_real(fields.get("_backoff_factor")),
        growth_interval=_whole(fields.get("_growth_interval")),
        growth_tracker=_whole(fields.get("_init_growth_tracker")) if tracker is None else tracker,
        enabled=fields.get("_enabled") is not False,
        form=f"{name or 'GradScaler'} object",
        fields=_named(fields),
    )


def _of_deepspeed(spot: Spot, fields: Mapping[Any, Value], *, form: str) -> LossScale:
    """DeepSpeed multiplies by `scale_factor` after `scale_window` good steps and divides by it on overflow.

    How far it is to the next growth follows from `cur_iter` and `last_overflow_iter`, which stay in `fields`.
    Source: deepspeed/runtime/fp16/loss_scaler.py, `DynamicLossScaler.update_scale`
    """
    factor = _real(fields.get("scale_factor"))
    return LossScale(
        at=spot.at,
        name=spot.name or "scaler",
        scale=_real(fields.get("cur_scale")),
        growth_factor=factor,
        backoff_factor=1 / factor if factor else None,
        growth_interval=_whole(fields.get("scale_window")),
        form=form,
        fields={k: v for k, v in _named(fields).items() if not isinstance(v, dict | list | Opaque)},
    )


def _named(fields: Mapping[Any, Value]) -> dict[str, Value]:
    return spelled(fields)


def _real(value: Value) -> float | None:
    found = number(value)
    try:
        return None if found is None else float(found)
    except OverflowError:  # an integer that no float holds
        return None


def _whole(value: Value) -> int | None:
    found = number(value)
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    return found
