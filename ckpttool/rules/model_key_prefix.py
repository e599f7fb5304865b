"""`model.key-prefix`."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role, Weights
from ckpttool.names import leading, without_wrappers
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, Pair, loads_strictly, pairs, raising
from ckpttool.rules._hf_models import prefix_of
from ckpttool.rules._places import count, place
from ckpttool.rules._trained import is_adapter

_FROM = {
    "module": "DataParallel or DDP",
    "_orig_mod": "torch.compile",
    "_forward_module": "Fabric",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "base_model": "PEFT",
}
_SURE = (
    "_orig_mod",
    "_forward_module",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
)  # no module of one's own is called so
_HINT = "`ckpt convert SRC DST --strip-prefix auto` takes it off, unless the program wraps the model before it loads"


class KeyPrefix:
    """A wrapper's prefix stands in the names of the weights.

    What: `module.`, `_orig_mod.`, `_forward_module.`, `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.` and
    `base_model.model.`, at any depth and in any order. Held against another checkpoint: names that match only without
    them, or without a prefix such as `model.` that one side has before all of its names. In a folder of the
    Trainer also names without the prefix that the class in config.json puts before them.

    Why: names with a prefix fit a model that is wrapped in the same way when it loads, and no other: strict loading
    raises, and `strict=False` loads nothing and says nothing, so that training goes on from random weights. So does the
    Trainer, which saves the model without wrappers.

    Example: `0 of 28 names are spelled as in OTHER, 28 without _orig_mod.`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch/_dynamo/eval_frame.py `OptimizedModule`, torch 2.13;
    pytorch/pytorch#94575, karpathy/nanoGPT#325, huggingface/pytorch-image-models#2003.
    """

    code: ClassVar[str] = "model.key-prefix"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        compared = pairs(case)
        told = {id(p.mine) for p in compared}
        for pair in compared:
            yield from self._against(case, pair)
        for weights in case.checkpoint.weights:
            if id(weights) not in told:
                yield from self._alone(case, weights)

    def _alone(self, case: Case, weights: Weights) -> Iterator[Finding]:
        names = list(weights.tensors)
        if is_adapter(weights) or not names:
            return
        if weights.role is Role.EMA and "n_averaged" in weights.tensors:  # AveragedModel's own, and it loads it itself
            names = [n.removeprefix("module.") for n in names if n != "n_averaged"]
        prefix = leading(names)
        if case.checkpoint.layout == "nanogpt" and prefix == "_orig_mod.":  # its script takes this one off itself
            return
        inside = [n for n in names if not _SURE_SEGMENTS.isdisjoint(n.split(".")[:-1])]
        if prefix:
            said = f"all {count(len(names), 'name')} begin with `{prefix}`, which {_who(prefix)} puts there"
        elif (missed := _base(case, weights, names)) is not None:
            yield missed
            return
        elif inside:
            said = f"{len(inside):,} of {count(len(names), 'name')} hold a wrapper's segment, as `{inside[0]}` does"
        else:
            return
        # The Trainer saves and loads the model that is in the wrapper, with strict=False.
        unseen = case.checkpoint.layout == "hf-trainer" and bool(prefix)
        then = (
            "the Trainer loads with strict=False, and none of them reaches the model"
            if unseen
            else f"a model that is not wrapped so raises {RAISED}, or with strict=False loads none of them"
        )
        yield Finding(
            code=self.code,
            severity=Severity.SILENT if unseen else Severity.NOTE,
            where=place(weights.at),
            message=f"{said}: {then}",
            hint=_HINT,
        )

    def _against(self, case: Case, pair: Pair) -> Iterator[Finding]:
        matched, total = len(pair.same), len(pair.other.tensors)
        if pair.matched_before >= matched:
            return
        strictly = loads_strictly(case, pair.mine)
        severity = raising(case) if strictly else Severity.SILENT
        then = f"a model that loads the other raises {RAISED}" if strictly else "the trainer loads none of the others"
        yield Finding(
            code=self.code,
            severity=severity,
            where=place(pair.mine.at),
            message=f"{pair.matched_before:,} of {count(total, 'name')} are spelled as in the other checkpoint, "
            f"{matched:,} without {_difference(pair)}: {then}",
            hint=_HINT
            if not pair.prefix
            else f"`ckpt convert SRC DST --strip-prefix {pair.prefix}` on the side that has it",
        )


_SURE_SEGMENTS = frozenset(_SURE)


def _base(case: Case, weights: Weights, names: Sequence[str]) -> Finding | None:
    """Names without what the model's class puts before them, in a folder of the Trainer."""
    known = prefix_of(case.checkpoint.config) if case.checkpoint.layout == "hf-trainer" else None
    if known is None or any(n.startswith(known[1]) for n in names):
        return None
    return Finding(
        code=KeyPrefix.code,
        severity=Severity.SILENT,
        where=place(weights.at),
        message=f"{known[0]} (config.json) keeps its weights under `{known[1]}`, and none of the names "
        f"begins so ({names[0]}): the Trainer loads with strict=False, and they do not reach the model",
        hint="give them the names that the model has: `ckpt convert SRC DST --rename OLD=NEW`",
    )


def _who(prefix: str) -> str:
    return " and ".join(dict.fromkeys(_FROM[s] for s in prefix.split(".") if s in _FROM))


def _difference(pair: Pair) -> str:
    """What the names differ by: a prefix of one side, or the wrappers in the first pair of names that differ."""
    if pair.prefix:
        return f"`{pair.prefix}`"
    here, there = next((h, t) for h, t in pair.same.items() if h != t)
    bare = without_wrappers(here)
    shown = [f"`{n}`" for n in (here, there) if n != bare]
    return f"the wrappers in {' and '.join(shown)}"
