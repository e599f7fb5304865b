"""An optimizer's state_dict that `load_state_dict` cannot take as it is."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._kinds import kind_of
from ckpttool.rules._optimizers import trained
from ckpttool.rules._payloads import Payload, payloads
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import TorchClass, torch_class
from ckpttool.values import BytesRef, Opaque, TensorRef, Value

_IN = "in load_state_dict of torch/optim/optimizer.py"
_FEWER = f"ValueError ('loaded state dict has a different number of parameter groups') {_IN}"
_SIZE = (
    "ValueError ('loaded state dict contains a parameter group that doesn't match the size of optimizer's group') "
    f"{_IN}"
)
_PLAIN = (int, float, str, bytes, BytesRef)


class OptimizerStructure:
    """What should be an optimizer's state_dict is none, or its parts are of another kind.

    What: the value where the optimizer lies (`None`, a list, `{}`, weights); `param_groups` that are absent, empty, no
    list or hold no dicts; `params` that are absent or no list; `state` that is absent or no dict; the entry of a
    parameter that is no dict. In a script's file `None` and `{}` alone are a warning unless training had begun.

    Why: `load_state_dict` looks at nothing but these, and raises while it does. An entry that is no dict raises in
    `__setstate__`, or in the first step.

    Example: `optimizer: param_groups is absent: load_state_dict raises KeyError: 'param_groups' (in load_state_dict
    of torch/optim/optimizer.py)`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`, optim/adam.py `__setstate__`.
    """

    code: ClassVar[str] = "optimizer.structure"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """At most one finding an optimizer, and one for the entries of its parameters."""
        for payload in payloads(case.checkpoint):
            told = _fault(payload.value)
            if told is not None:
                yield self._said(case, payload, *told)
            elif payload.optimizer is not None and isinstance(payload.value, dict):
                yield from self._entries(payload.optimizer, payload.value["state"])

    def _said(self, case: Case, payload: Payload, steps: tuple[Any, ...], what: str, raised: str) -> Finding:
        # A script that may save no optimizer looks before it loads one; weights alone are saved so, too.
        optional = payload.value is None or payload.value == {}
        begun = trained(case.checkpoint) or case.checkpoint.schedulers or not optional
        begun = begun or case.checkpoint.layout == "lightning"  # which loads whatever lies there
        return Finding(
            code=self.code,
            severity=Severity.ERROR if begun else Severity.WARNING,
            where=place(payload.at, *steps),
            message=f"{what}: load_state_dict raises {raised}",
            hint="resume from a checkpoint whose optimizer is whole: optimizer.state_dict() as it was returned",
        )

    def _entries(self, optimizer: OptimizerState, state: Mapping[Any, Value]) -> Iterator[Finding]:
        made = torch_class(optimizer)
        listed = {p for group in optimizer.groups for p in group.params if isinstance(p, int | str)}
        wrong = [(k, v) for k, v in state.items() if isinstance(k, int | str) and k in listed and _is_no_entry(v)]
        if wrong and made is not None:
            key, value = wrong[0]
            more = f", as of {count(len(wrong) - 1, 'other')}" if len(wrong) > 1 else ""
            yield Finding(
                code=self.code,
                severity=Severity.ERROR,
                where=place(optimizer.at, "state", key),
                message=f"the entry is {kind_of(value)}, no dict{more}: {_refusal(made, value)}",
                hint="remove it, and the moments of its parameter start anew; or resume from a whole checkpoint",
            )


def _fault(value: Value) -> tuple[tuple[Any, ...], str, str] | None:
    """Steps to what is wrong, what it is, and what is raised; in the order in which torch looks."""
    if not isinstance(value, dict):
        kind = kind_of(value)
        raised = "TypeError" if isinstance(value, list) else "AttributeError (it has no copy())"
        return (), f"the optimizer is {kind}, no state_dict", f"{raised} {_IN}"
    if "param_groups" not in value:
        if len(value) == 1 and isinstance(inner := next(iter(value.values())), dict) and "param_groups" in inner:
            return (
                (),
                f"the optimizer lies one key deeper, under {next(iter(value))}",
                f"KeyError: 'param_groups' {_IN}",
            )
        held = "" if value.keys() <= {"state"} else f"; it holds {some([str(k) for k in value if isinstance(k, str)])}"
        return (), f"param_groups is absent{held}", f"KeyError: 'param_groups' {_IN}"
    in_groups = _fault_of_groups(value["param_groups"])
    if in_groups is not None:
        return in_groups
    if "state" not in value:
        return (), "state is absent", f"KeyError: 'state' {_IN}"
    state = value["state"]
    if not isinstance(state, dict):
        return ("state",), f"state is {kind_of(state)}, no dict", f"AttributeError (it has no items()) {_IN}"
    if state and not any(_length(group["params"]) for group in value["param_groups"]):
        return ("param_groups",), f"the groups list no parameter, and {count(len(state), 'state')} are there", _SIZE
    return None


def _fault_of_groups(groups: Value) -> tuple[tuple[Any, ...], str, str] | None:
    at = ("param_groups",)
    if isinstance(groups, dict):
        return at, "param_groups is a dict, no list", f"{_FEWER}, or TypeError where as many groups are built"
    if not isinstance(groups, list | tuple):
        return at, f"param_groups is {kind_of(groups)}, no list", f"TypeError {_IN}"
    if not groups:
        return at, "param_groups is empty", _FEWER
    for n, group in enumerate(groups):
        if isinstance(group, Opaque):  # a group of a class of its own
            continue
        if not isinstance(group, dict):
            return (*at, n), f"the group is {kind_of(group)}, no dict", f"TypeError {_IN}"
        if "params" not in group:
            return (*at, n), "params is absent", f"KeyError: 'params' {_IN}"
        if _length(group["params"]) is None:
            return (*at, n, "params"), f"params is {kind_of(group['params'])}, no list", f"TypeError {_IN}"
    return None


def _length(params: Value) -> int | None:
    """How many parameters are listed; None where `len` does not tell."""
    if isinstance(params, list | tuple | dict | set | frozenset | str):
        return len(params)
    return len(params.items) if isinstance(params, Opaque) and params.items is not None else None


def _is_no_entry(value: Value) -> bool:
    return value is None or isinstance(value, (*_PLAIN, list, tuple, TensorRef))


def _refusal(made: TorchClass, value: Value) -> str:
    """What the class does with an entry that is no dict."""
    if not made.at_load:
        return f"the first step() of {made.name} raises AttributeError or TypeError (in torch/optim/{made.module})"
    raised = "IndexError or TypeError" if isinstance(value, TensorRef) else "TypeError"
    return f"load_state_dict raises {raised} in __setstate__ of torch/optim/{made.module}"
