"""Other objects that save and load a state: those that a user registers, callbacks, samplers with a position."""

from __future__ import annotations

from typing import Any

import torch

from .digests import Looks
from .plain import class_name, plain, told
from .record import Record
from .stack import Stack

_MOST = 200


def object_facts(stateful: list[Any], looks: Looks, record: Record, stack: Stack) -> list[dict[str, Any]]:
    """`ObjectFact` of each."""
    if len(stateful) > _MOST:
        record.could_not(f"{len(stateful) - _MOST:,} of {len(stateful):,} objects with a state of their own")
    facts = []
    for one in stateful[:_MOST]:
        try:
            with torch.no_grad():
                state = one.state_dict()
        except Exception as error:  # code of the script
            record.could_not(f"the state of {class_name(type(one))}: {told(error)}")
            continue
        facts.append({
            "cls": class_name(type(one)), "id": record.id_of(one), "name": stack.name_of(one),
            "state": plain(state, looks), "loaded": record.is_loaded(one),
        })  # fmt: skip
    return facts
