"""Moments in another precision than the parameters."""

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.dtypes import DType
from ckpttool.model import OptimizerState, Role
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import count_of, pairs, params_of, state_of, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.rules._torch_optimizers import shaped_by, torch_class
from ckpttool.values import TensorRef, Value

_BYTE = 8  # bits
_CAST = "resume from a checkpoint whose moments are as they were"
_QUANTIZED = ("8bit", "4bit", "Fp8", "(bitsandbytes)")  # in the names of classes that pack their state
_MASTERS = ("deepspeed", "megatron", "fairseq")  # trainers that step a wider copy of the weights


class OptimizerMomentDtype:
    """Moments are kept in a type that `load_state_dict` will not leave as it is.

    What: the element types of the moments against those of the weights beside them, and against the other
    checkpoint's. Packed 8-bit states are named. Narrow moments can be meant, and wide ones belong to trainers that
    step a wider copy of the weights, so neither is more than a warning; integers in the place of a moment are silent,
    and so are a few moments that are narrower than the others of their parameter.

    Why: `load_state_dict` casts every moment to its parameter's type without a word. From float32 to bfloat16 that
    keeps 8 bits of mantissa; from narrow to wide nothing comes back; float16 has lost squares below 6e-8. Integers of
    a quantized state become huge moments.

    Example: `optimizer.state: moments are bfloat16 and the weights float32: precision that was lost stays lost`

    Reference: torch 2.13 optim/optimizer.py `_process_value_according_to_param_policy`; bitsandbytes
    optim/optimizer.py `load_state_dict`.
    """

    code: ClassVar[str] = "optimizer.moment-dtype"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """At most one finding an optimizer, and one against the other checkpoint."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            if any(word in name for name in optimizer.candidates[:1] for word in _QUANTIZED):
                message = f"states of {optimizer.candidates[0]} are packed: only the same class can read them"
                yield self._finding(optimizer, Severity.NOTE, message, "resume with the optimizer that wrote them")
            elif torch_class(optimizer) is not None:
                yield from self._alone(case, optimizer)
        for mine, other in pairs(case):
            yield from self._against(mine, other)

    def _finding(self, optimizer: OptimizerState, severity: Severity, message: str, hint: str) -> Finding:
        where = place(optimizer.at, "state")
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _alone(self, case: Case, optimizer: OptimizerState) -> Iterator[Finding]:
        kinds = _types(optimizer)
        whole_numbers = sorted(d.name for d in kinds if d.family in ("int", "uint", "bool"))
        if whole_numbers:
            message = (
                f"{count(sum(n for d, n in kinds.items() if d.name in whole_numbers), 'moment')} in "
                f"{', '.join(whole_numbers)}: load_state_dict casts the integers to the parameter's type as they are"
            )
            hint = "they are of a quantized state: load it with the class that wrote it, or start the moments anew"
            yield self._finding(optimizer, Severity.SILENT, message, hint)
            return
        yield from self._uneven(optimizer, kinds)
        if not kinds or case.checkpoint.layout in _MASTERS:
            return
        weights = (t for w in case.checkpoint.weights if w.role is Role.MODEL for t in w.tensors.values())
        held = Counter(t.dtype for t in weights if t.kind == "strided" and t.dtype.family in ("float", "complex"))
        if held and max(d.bits for d in kinds) < min(d.bits for d in held):
            message = f"moments are {_names(kinds)} and the weights {_names(held)}: precision that was lost stays lost"
            if any(d.name == "float16" for d in kinds):
                message += ", squares below 6e-8 are 0"
            yield self._finding(optimizer, Severity.WARNING, message, "right where the optimizer keeps narrow moments")
        elif held and min(d.bits for d in kinds) > max(d.bits for d in held):
            message = (
                f"moments are {_names(kinds)} and the weights {_names(held)}: load_state_dict rounds the moments "
                f"where the run's parameters are {_names(held)} too"
            )
            hint = "right where the run trains a wider copy of the weights"
            yield self._finding(optimizer, Severity.NOTE, message, hint)

    def _uneven(self, optimizer: OptimizerState, kinds: Counter[DType]) -> Iterator[Finding]:
        """Moments of one parameter, which torch makes alike, of which one is narrower; or all of 8 bits."""
        if kinds and all(d.bits <= _BYTE for d in kinds):
            message = f"moments are {_names(kinds)}, which no class of torch keeps: digits were lost"
            yield self._finding(optimizer, Severity.SILENT, message, _CAST)
            return
        usual = max(kinds, key=lambda d: (kinds[d], d.bits)).bits if kinds else 0
        entries = ((label, param) for _, label, param in params_of(optimizer))
        narrow = [(label, key) for label, param in entries for key in _narrower(optimizer, param, usual)]
        if narrow:
            label, key = narrow[0]
            more = f", as of {count(len(narrow) - 1, 'other')}" if len(narrow) > 1 else ""
            few = 2 * len(narrow) < count_of(optimizer)
            message = (
                f"{key} of {label} is of a narrower type than the other moments of the parameter{more}: torch makes "
                "them alike, so digits were lost, and load_state_dict casts it back without a word"
            )
            yield self._finding(optimizer, Severity.SILENT if few else Severity.WARNING, message, _CAST)

    def _against(self, mine: OptimizerState, other: OptimizerState) -> Iterator[Finding]:
        here, there = _types(mine), _types(other)
        if here and there and here.keys() != there.keys():
            message = (
                f"moments are {_names(here)}, in the other checkpoint {_names(there)}: load_state_dict casts them to "
                "the parameter's type and says nothing"
            )
            yield self._finding(mine, Severity.WARNING, message, "compare with `ckpt diff`, part optimizer")


def _narrower(optimizer: OptimizerState, param: Value, usual: int) -> list[str]:
    """Moments of a parameter that have fewer bits than another one has, and than most have."""
    entry = state_of(optimizer, param)
    bits = {
        k: v.dtype.bits
        for k in shaped_by(entry)
        if isinstance(v := entry[k], TensorRef) and v.kind == "strided" and v.dtype.family == "float"
    }
    widest = max(bits.values(), default=0)
    return [key for key, n in bits.items() if n < min(widest, usual)]


def _types(optimizer: OptimizerState) -> Counter[DType]:
    """Element types of the moments: tensors of a parameter's state that are no single numbers."""
    return Counter(
        value.dtype
        for _, _, param in params_of(optimizer)
        for key, value in state_of(optimizer, param).items()
        if key != "step" and isinstance(value, TensorRef) and value.shape and value.dtype.family != "other"
    )


def _names(kinds: Counter[DType]) -> str:
    return " and ".join(sorted({d.name for d in kinds}))
