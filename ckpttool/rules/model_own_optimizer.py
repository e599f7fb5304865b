"""`model.own-optimizer`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED
from ckpttool.rules._alignment import Alignment, Kept, Shape, alignments, left_out
from ckpttool.rules._arrangement import as_torch_numbers, moved, unlike_sizes
from ckpttool.rules._optimizers import step_to
from ckpttool.rules._places import count, place, place_of

_WHOLE = ("hf-trainer", "accelerate")  # trainers that save every parameter that their optimizer steps
_EXCHANGED = 2  # places that differ where two tensors took each other's place
_PARTNER = {"weight": "bias", "bias": "weight"}
_TABLE = re.compile(r"(?:emb\w*|wte|wpe|shared)$")  # modules with a weight and never a bias
_RARE = 10  # one tensor in so many is of another type than its moments by accident
_HINT = "take the weights from another checkpoint of the run, or from the one that the optimizer was saved with"


class OwnOptimizer:
    """The weights are not those that the optimizer beside them keeps its state for.

    What: the shapes of the states against those of the weights. Where the groups list the whole model in its order,
    place by place, also where all states moved up by one; else how often each shape is there, in the Trainer's groups
    with and without weight decay by themselves. A state of a shape that no weight has left is a weight that is
    missing, or of another shape: certain where its trainer saves all that is trained (Accelerate, the Trainer), where
    it lies before weights in order, or where its module has a bias and no weight (or the other way round), else a
    warning. Weights of integers, and the few of a narrower type than their moments, were cast.

    Why: torch makes a state of its parameter's shape and type, so the two cannot differ in a run. Strict loading
    raises; the Trainer loads with `strict=False` and trains on with what the model was initialised with.

    Example: `model.safetensors: 1 parameter of the optimizer has no weight: state[0] of 20×8; the Trainer loads with
    strict=False, so it stays as it was initialised`

    Reference: torch 2.13 optim/adam.py `_init_group` (`zeros_like`), nn/modules/module.py `load_state_dict`;
    transformers 5.24 trainer.py `_load_from_checkpoint`.
    """

    code: ClassVar[str] = "model.own-optimizer"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """At most one finding of shapes, and one of types, an optimizer."""
        for optimizer, pair in alignments(case.checkpoint):
            cast = pair.cast
            yield from self._shapes(case, optimizer, pair, Counter(cast.values()))
            if cast:
                yield self._integers(pair, cast)
            yield from self._narrow(pair)

    def _shapes(
        self, case: Case, optimizer: OptimizerState, pair: Alignment, cast: Counter[Shape]
    ) -> Iterator[Finding]:
        numbered = as_torch_numbers(optimizer)  # else `optimizer.index-gap` says what becomes of it
        differing = pair.differing if pair.ordered and pair.covers and numbered else []
        excess = pair.excess - cast
        if len(differing) == 1:
            yield self._misshaped(pair, pair.names[differing[0]], pair.kept[differing[0]])
        elif len(differing) == _EXCHANGED and not excess:
            yield self._exchanged(optimizer, pair, differing)
        elif excess and pair.covers and sum(excess.values()) == sum(pair.surplus.values()) == 1:
            (there,) = pair.surplus
            yield self._misshaped(pair, next(n for n in pair.names if pair.shape(n) == there), _of_shape(pair, excess))
        elif excess:
            yield self._missing(case, pair, excess)
        elif numbered and pair.covers and (how := moved(optimizer, case.checkpoint, pair)):
            yield self._moved(optimizer, how)

    def _misshaped(self, pair: Alignment, name: str, kept: Kept) -> Finding:
        held, shape = pair.shape(name), kept.shape or ()
        how = "; each is the other's transpose" if held == shape[::-1] and held != shape else ""
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=place_of(pair.weights, name),
            message=f"{name} is {text(held)}, and the optimizer's state ({_spelled(kept)}) is {text(shape)}{how}: "
            f"a model of the state's shape raises {RAISED}: size mismatch, one of the weight's raises RuntimeError in "
            "the first step",
            hint=_HINT,
        )

    def _exchanged(self, optimizer: OptimizerState, pair: Alignment, differing: list[int]) -> Finding:
        one, two = (f"{pair.names[n]} ({text(pair.held[n])})" for n in differing)
        kept = pair.kept[differing[0]]
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=place(optimizer.at, "state", step_to(kept.label, kept.param)),
            message=f"the states of {one} and {two} have each other's shape, and all others those of the weights in "
            f"their order: the first step() raises RuntimeError, or loading raises {RAISED} where the weights are "
            "the ones that were exchanged",
            hint="exchange them again, or resume from a checkpoint that was not edited",
        )

    def _moved(self, optimizer: OptimizerState, how: str) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.ERROR,
            where=place(optimizer.at, "state"),
            message=f"{how}, by the shapes of the weights in the groups' order: load_state_dict takes it, and "
            f"{unlike_sizes(optimizer)}",
            hint="number the states as the groups list their parameters, or resume from a checkpoint that is as saved",
        )

    def _missing(self, case: Case, pair: Alignment, excess: Counter[Shape]) -> Finding:
        number = sum(excess.values())
        shapes = some([f"{text(s)}{f' ({n} times)' if n > 1 else ''}" for s, n in excess.items()])
        likely = _partners(pair, excess)
        guess = f", likely {some(likely)}" if likely else ""
        what = f"{count(number, 'parameter')} of the optimizer {'has' if number == 1 else 'have'} no weight: "
        severity, then = _weighed(case, sure=bool(likely) or _is_between(pair))
        return Finding(
            code=self.code,
            severity=severity,
            where=place(pair.weights.at),
            message=f"{what}{shapes}{guess}; {then}",
            hint=_HINT,
        )

    def _integers(self, pair: Alignment, cast: dict[str, Shape]) -> Finding:
        names = list(cast)
        kinds = sorted({pair.weights.tensors[n].dtype.name for n in names})
        return Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place_of(pair.weights, names[0]),
            message=f"{some(names)} {_be(names)} {' and '.join(kinds)}, and the optimizer keeps "
            f"moments for {'it' if len(names) == 1 else 'them'}, which torch does for no integers: what was behind the "
            "point is lost, and load_state_dict casts them to the parameter's type",
            hint=_HINT,
        )

    def _narrow(self, pair: Alignment) -> Iterator[Finding]:
        names = _narrower(pair)
        if not names or len(names) > max(1, len(pair.names) // _RARE):
            return
        kinds = sorted({pair.weights.tensors[n].dtype.name for n in names})
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place_of(pair.weights, names[0]),
            message=f"{some(names)} {_be(names)} {' and '.join(kinds)}, alone among the weights "
            "and unlike the moments, which torch makes of the parameter's type: digits were lost, and load_state_dict "
            "casts it without a word",
            hint=_HINT,
        )


def _be(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def text(shape: Shape) -> str:
    """`6×4`."""
    return "×".join(map(str, shape)) if shape else "a single number"


def _spelled(kept: Kept) -> str:
    return f"state[{kept.param}]" if isinstance(kept.param, int) else "in a pickled optimizer"


def _of_shape(pair: Alignment, excess: Counter[Shape]) -> Kept:
    return next(k for k in pair.kept if k.shape in excess)


def _weighed(case: Case, *, sure: bool) -> tuple[Severity, str]:
    """How much a weight that is missing matters, and what happens."""
    if case.checkpoint.layout == "hf-trainer":
        return Severity.SILENT, "the Trainer loads with strict=False, so it stays as it was initialised"
    if sure or case.checkpoint.layout in _WHOLE:
        return Severity.ERROR, f"strict loading raises {RAISED}: Missing key(s) in state_dict"
    return Severity.WARNING, "right where parameters were saved elsewhere; else they start anew, or loading raises"


def _is_between(pair: Alignment) -> bool:
    """Whether the weights are the states in order but for some, of which one lies before a weight.

    Behind the model's parameters a run may step others, of its loss, say, which it keeps elsewhere.
    """
    gaps = left_out(pair.kept, pair.held) if pair.ordered else None
    last = next((n for n in reversed(range(len(pair.kept))) if n not in gaps), 0) if gaps else 0
    return any(n < last for n in gaps or ())


def _partners(pair: Alignment, excess: Counter[Shape]) -> list[str]:
    """Names that are not there beside a bias, or a weight, of the same module, and whose shape a state has."""
    names = pair.weights.tensors.keys()
    likely: list[str] = []
    for name in pair.names:
        module, _, last = name.rpartition(".")
        shape = pair.shape(name)
        other = f"{module}.{_PARTNER.get(last, '')}"
        if not module or not shape or last not in _PARTNER or other in names or _TABLE.search(module):
            continue
        of_weight = any(s == shape or (len(s) > 1 and shape[0] in (s[0], s[-1])) for s in excess)
        of_bias = (shape[0],) in excess or (_has_alike(other, names) and (shape[-1],) in excess)
        if of_weight if last == "bias" else of_bias:
            likely.append(other)
    return likely


def _has_alike(name: str, names: Iterable[str]) -> bool:
    """Whether a name of the same spelling but for its numbers is there: `h.1.fc.bias` for `h.0.fc.bias`."""
    pattern = re.compile(re.sub(r"\\\.\d+(?=\\\.)", r"\\.\\d+", re.escape(name)))
    return any(pattern.fullmatch(n) for n in names)


def _narrower(pair: Alignment) -> list[str]:
    """Weights of a floating type with fewer bits than the moments, where the optimizer holds the whole model."""
    moments = [k.moment for k in pair.kept if k.moment is not None]
    kinds = {m.dtype for m in moments}
    if len(kinds) != 1 or not pair.covers or pair.excess:
        return []
    (kind,) = kinds
    if kind.family != "float":
        return []
    return [
        n for n in pair.names if (d := pair.weights.tensors[n].dtype).family in ("float", "bits") and d.bits < kind.bits
    ]
