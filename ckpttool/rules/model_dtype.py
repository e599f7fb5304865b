"""`model.dtype`."""

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.dtypes import DType, by_torch_name
from ckpttool.layouts import some
from ckpttool.model import Role, Weights
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._against import Pair, pairs
from ckpttool.rules._places import count, place, place_of
from ckpttool.rules._trained import Precision, said_precision
from ckpttool.values import TensorRef, Value

_LARGEST_HALF = 65504.0  # of float16
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_EXPONENTS = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}  # bits
_MANTISSAS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}  # bits


class OtherDtype:
    """Weights are of another type than the model they go to, which casts them without a word.

    What: held against another checkpoint, the types name by name; by itself, the type that `config.json` names
    (`dtype`, `torch_dtype`) against that of the weights (silent where the Trainer's optimizer has moments of the type
    that is named, so that the weights were cast), and with `--values` weights beyond 65,504 where float16 is
    meant.

    Why: `load_state_dict` copies into the parameter that is there, whatever its type: float32 into float16 loses digits
    and makes Inf of what is too large.

    Example: `28 tensors are float32, in the other checkpoint float16: the model that loads that one rounds them`

    Reference: torch/nn/modules/module.py `_load_from_state_dict` (`param.copy_(input_param)`), torch 2.13.
    """

    code: ClassVar[str] = "model.dtype"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        for pair in pairs(case):
            yield from self._against(case, pair)
        for weights in case.checkpoint.weights:
            if weights.role is Role.MODEL and not weights.at.file.startswith("adapter_model"):
                yield from self._configured(case, weights)
        yield from self._too_large(case)

    def _against(self, case: Case, pair: Pair) -> Iterator[Finding]:
        kinds: dict[tuple[str, str], list[str]] = {}
        for name, here, there in pair.tensors():
            if here.dtype.name != there.dtype.name and (here.dtype.is_floating or there.dtype.is_floating):
                kinds.setdefault((here.dtype.name, there.dtype.name), []).append(name)
        for (held, meant), names in kinds.items():
            loses = _loses(held, meant)
            beyond = _beyond(case, names) if meant == "float16" else 0
            lost = "rounds them" if loses else "holds them exactly, but no digit that was lost at saving comes back"
            inf = f", and {count(beyond, 'tensor')} of them become Inf" if beyond else ""
            yield Finding(
                code=self.code,
                severity=Severity.SILENT if loses else Severity.WARNING,
                where=place_of(pair.mine, names[0]),
                message=f"{count(len(names), 'tensor')} ({some(names)}) {'is' if len(names) == 1 else 'are'} {held}, "
                f"in the other checkpoint {meant}: the model that loads the other {lost}{inf}",
                hint=f"build the model in {held}, or cast once and knowingly: "
                f"`ckpt convert SRC DST --dtype {_SHORT.get(meant, meant)}`",
            )

    def _configured(self, case: Case, weights: Weights) -> Iterator[Finding]:
        key = next((k for k in ("dtype", "torch_dtype") if k in case.checkpoint.config), "")
        meant = _dtype(case.checkpoint.config.get(key)) if "config.json" in case.checkpoint.config_at else None
        held = Counter(t.dtype.name for t in weights.tensors.values() if t.dtype.family == "float")
        if meant is None or meant.family != "float" or len(held) != 1 or meant.name in held:
            return
        (name,) = held
        lost = case.checkpoint.layout == "hf-trainer" and _loses(meant.name, name) and _moments_are(case, meant)
        also = ", which the optimizer's moments are" if lost else ""
        then = (
            f"digits were lost, and the Trainer loads what is left into {meant.name}"
            if lost
            else f"from_pretrained casts them to {meant.name}"
        )
        yield Finding(
            code=self.code,
            severity=Severity.SILENT if lost else Severity.NOTE,
            where=f"config.json: {key}",
            message=f"it says {meant.name}{also}, and all {count(held[name], 'floating tensor')} of "
            f"{place(weights.at)} are {name}: {then}",
            hint="take the weights that were saved with this optimizer"
            if lost
            else f"say dtype={name!r} when you load it, or set it in config.json",
        )

    def _too_large(self, case: Case) -> Iterator[Finding | NotChecked]:
        said = said_precision(case.checkpoint)
        if said is None or said.precision is not Precision.FP16 or case.other is not None:
            return
        if case.values is None or not case.values.figures:
            yield NotChecked(
                code=self.code, why=f"whether weights fit float16 ({said.key}={said.value}) takes --values"
            )
            return
        found = [
            s
            for s in case.values.tensors
            if s.part is Role.MODEL and s.tensor.dtype.name != "float16" and s.largest > _LARGEST_HALF
        ]
        if found:
            worst = max(found, key=lambda s: s.largest)
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=worst.where,
                message=f"{count(len(found), 'tensor')} hold numbers beyond {_LARGEST_HALF:,.0f}, up to "
                f"{worst.largest:.6g} in {worst.name}: in float16 ({said.key}={said.value}) they are Inf",
                hint="train in bfloat16 or float32",
            )


def _moments_are(case: Case, meant: DType) -> bool:
    """Whether every moment of the optimizers is of a type."""
    entries = (e for o in case.checkpoint.optimizers for e in o.state.values())
    kinds = {
        v.dtype.name for e in entries for k, v in e.items() if isinstance(v, TensorRef) and v.shape and k != "step"
    }
    return kinds == {meant.name}


def _loses(here: str, there: str) -> bool:
    """Whether numbers of one type do not all fit another."""
    if here in _MANTISSAS and there in _MANTISSAS:
        return _MANTISSAS[here] > _MANTISSAS[there] or _EXPONENTS[here] > _EXPONENTS[there]
    return True


def _beyond(case: Case, names: list[str]) -> int:
    """How many of these hold finite numbers that float16 does not; 0 too where values were not read."""
    if case.values is None:
        return 0
    wanted = set(names)
    return sum(s.part is Role.MODEL and s.name in wanted and s.largest > _LARGEST_HALF for s in case.values.tensors)


def _dtype(value: Value) -> DType | None:
    return by_torch_name(value.removeprefix("torch.")) if isinstance(value, str) else None
