"""State of a parameter that is of another kind than its class computes with."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._kinds import kind_of
from ckpttool.rules._optimizers import of_torch, params_of, step_to, unseen
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import TorchClass
from ckpttool.values import NumpyScalar, TensorRef, Value

_SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_IN_LOAD = "in load_state_dict of torch/optim/optimizer.py"
_COUNTED = ("eta", "mu", "mu_product")  # single numbers beside `step`, which a list of one number stands for, too


class _Wrong(NamedTuple):
    """A value of a state that does not do."""

    label: str
    param: Value
    key: str
    what: str
    then: str
    severity: Severity = Severity.ERROR


class OptimizerStateKind:
    """A moment is no tensor of numbers, or a step count is no number.

    What: moments that are `None`, a list, a number, an array, a tensor without elements of its own (`meta`), a sparse
    one, or one whose elements share memory (`expand`); moments that share memory with each other; step counts that are
    `None`, text, a list, or a tensor of several elements, of bools or without elements of its own.

    Why: `load_state_dict` takes most of these and the first step raises, some raise while loading. Moments that share
    memory load, and each update of one destroys the other.

    Example: `optimizer.state[0].exp_avg: exp_avg of emb.weight is a list: the first step() raises AttributeError or
    TypeError (in torch/optim/adam.py)`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict`, optim/adam.py `__setstate__`, `_single_tensor_adam`.
    """

    code: ClassVar[str] = "optimizer.state-kind"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """One finding an optimizer and key that is wrong."""
        yield from unseen(self.code, case)
        for optimizer, made in of_torch(case):
            by_key: dict[tuple[str, Severity], list[_Wrong]] = {}
            for wrong in (*_wrong(optimizer, made), *_shared(optimizer, made)):
                by_key.setdefault((wrong.key, wrong.severity), []).append(wrong)
            for found in by_key.values():
                yield self._said(optimizer, found)

    def _said(self, optimizer: OptimizerState, found: list[_Wrong]) -> Finding:
        first = found[0]
        more = f", as of {count(len(found) - 1, 'other')}" if len(found) > 1 else ""
        return Finding(
            code=self.code,
            severity=first.severity,
            where=place(optimizer.at, "state", step_to(first.label, first.param), first.key),
            message=f"{first.key} of {first.label} {first.what}{more}: {first.then}",
            hint="resume from a checkpoint whose state is whole, or remove the entry: its moments start anew then",
        )


def _wrong(optimizer: OptimizerState, made: TorchClass) -> Iterator[_Wrong]:
    """Values of the parameters' states that cannot be computed with."""
    for _, label, param in params_of(optimizer):
        entry = optimizer.state.get(param) if isinstance(param, int | str) else None
        for key, value in (entry or {}).items():
            told = None
            if key == "step" or key in _COUNTED:
                told = _of_number(made, key, value) if key in made.state else None
            elif key in made.shaped and not (value is None and made.name == "SGD"):  # which makes it anew
                told = _of_moment(made, value)
            if told is not None:
                yield _Wrong(label, param, key, *told)


def _of_number(made: TorchClass, key: str, value: Value) -> tuple[str, str] | None:
    """What is wrong with a single number, and what becomes of it; None where it does."""
    if isinstance(value, TensorRef):
        return _of_number_tensor(made, value)
    if isinstance(value, int | float | NumpyScalar):
        return None
    one = isinstance(value, list | tuple) and len(value) == 1 and key in _COUNTED
    if one or (key not in made.at_load and not isinstance(value, str | list | tuple | None)):
        return None
    raised = "ValueError" if isinstance(value, str) and key == "step" else "TypeError"
    at = f"in __setstate__ of torch/optim/{made.module}"
    then = f"load_state_dict raises {raised} ({at})" if key in made.at_load else _in_step(made, "TypeError")
    return f"is {kind_of(value)}, no number", then


def _of_number_tensor(made: TorchClass, tensor: TensorRef) -> tuple[str, str] | None:
    if tensor.kind == "ndarray":
        return "is an array", f"load_state_dict raises TypeError ({_IN_LOAD})"
    if tensor.dtype.family == "bool":
        return "is a bool", _in_step(made, "RuntimeError: it cannot count")
    if tensor.kind == "meta" and made.reads_step:
        return "has no elements (a meta tensor)", _in_step(made, "RuntimeError")
    if tensor.kind == "strided" and tensor.numel != 1 and made.reads_step:
        return f"has {tensor.numel:,} elements, not one", _in_step(made, "RuntimeError: it is no single number")
    return None


def _of_moment(made: TorchClass, value: Value) -> tuple[str, str] | None:
    """What is wrong with a moment, and what becomes of it; None where it does."""
    if not isinstance(value, TensorRef):
        return f"is {kind_of(value)}, no tensor", _in_step(made, "AttributeError or TypeError")
    if value.kind == "ndarray":
        return "is an array, no tensor", f"load_state_dict raises TypeError ({_IN_LOAD})"
    if value.kind == "meta":
        return "has no elements (a meta tensor)", f"load_state_dict raises NotImplementedError ({_IN_LOAD})"
    if value.kind in _SPARSE:
        return f"is a {value.kind} tensor", _in_step(made, "NotImplementedError or RuntimeError")
    if _is_expanded(value):
        return "shows one element in many places (expand)", _in_step(made, "RuntimeError ('unsupported operation')")
    return None


def _in_step(made: TorchClass, raised: str) -> str:
    return f"the first step() raises {raised} (in torch/optim/{made.module})"


def _is_expanded(tensor: TensorRef) -> bool:
    strides = zip(tensor.shape, tensor.origin[2], strict=False)
    return tensor.kind == "strided" and tensor.numel > 1 and any(n > 1 and not step for n, step in strides)


def _shared(optimizer: OptimizerState, made: TorchClass) -> Iterator[_Wrong]:
    """Moments, or step counts, that lie in the same memory as another's."""
    runs: dict[int, list[tuple[int, int, str, Value, str]]] = {}
    seen: set[int] = set()
    for _, label, param in params_of(optimizer):
        entry = optimizer.state.get(param) if isinstance(param, int | str) else None
        if entry is None or id(entry) in seen:  # listed twice
            continue
        seen.add(id(entry))
        for key, value in entry.items():
            if isinstance(value, TensorRef) and value.numel and key in made.state | made.shaped:
                storage = value.origin[0]
                if storage is not None and value.kind == "strided" and not _is_expanded(value):
                    runs.setdefault(id(storage), []).append((*value.covered, label, param, key))
    for spans in runs.values():
        ordered = sorted(spans, key=lambda span: span[:2])
        for before, after in pairwise(ordered):
            if after[0] < before[1]:
                what = f"lies in the memory of {before[4]} of {before[2]}"
                then = "torch.load keeps that, and each update of one changes the other"
                yield _Wrong(*after[2:], what, then, Severity.SILENT)
