"""`model.tied`."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import Role, Weights
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._against import RAISED, Pair, pairs, raising
from ckpttool.rules._leftovers import missing, unexpected
from ckpttool.rules._places import figure, place, place_of
from ckpttool.rules._reading import readable
from ckpttool.values import TensorRef

_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared|embedding)\.weight$"
)
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_projection|output)\.weight$")
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_CONFIG = "config.json"
_TIES = 64  # tensors of one storage that are held against each other


class Tied:
    """Weights that are tied in the model and not in the file, or the other way round.

    What: `tie_word_embeddings` of config.json against embedding and head; names that a safetensors file notes as
    another spelling of a tensor in it; held against another checkpoint, tensors that share memory on one side only.

    Why: a model with tied weights keeps the one that is loaded last, so that a head that was trained apart overwrites
    the embedding; of a dropped partner strict loading says Missing key(s), and where nothing ties it, it stays random.

    Example: `config.json ties lm_head.weight to embed_tokens.weight, and the file holds two that differ`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13; transformers/modeling_utils.py `tie_weights`,
    transformers 5.24; huggingface/transformers#38870, vllm-project/vllm#51665, huggingface/accelerate#2807.
    """

    code: ClassVar[str] = "model.tied"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        yield from readable(self.code, self._looked(case))

    def _looked(self, case: Case) -> Iterator[Finding | NotChecked]:
        for weights in case.checkpoint.weights:
            if weights.role is Role.MODEL:
                yield from self._configured(case, weights)
                yield from self._noted(weights)
        for pair in pairs(case):
            yield from self._dropped(case, pair)
            yield from self._parted(case, pair)

    def _configured(self, case: Case, weights: Weights) -> Iterator[Finding | NotChecked]:
        config = case.checkpoint.config
        if _CONFIG not in case.checkpoint.config_at:
            return
        match config.get("tie_word_embeddings"):
            case True:
                embedding, head = _first(weights, _EMBEDDING), _first(weights, _HEAD)
                if embedding and head:
                    yield from self._both(case, weights, embedding, head)
            case False if case.checkpoint.layout in ("hf-trainer", "hf-model"):
                yield from self._headless(case, weights)

    def _both(self, case: Case, weights: Weights, embedding: str, head: str) -> Iterator[Finding | NotChecked]:
        one, two = weights.tensors[embedding], weights.tensors[head]
        equal = _equal(case, one, two)
        if equal is None:
            yield NotChecked(code=self.code, why=f"whether {head} equals {embedding} takes --values")
        elif not equal:
            loaded = case.checkpoint.layout == "hf-trainer"
            yield Finding(
                code=self.code,
                severity=Severity.SILENT if loaded else Severity.WARNING,
                where=place_of(weights, head),
                message=f"config.json ties {head} to {embedding}, and the file holds two that differ: "
                + (
                    "the model keeps the one that is loaded last for both"
                    if loaded
                    else "older transformers drop the head"
                ),
                hint="set tie_word_embeddings to false in config.json if the head was trained apart",
            )

    def _headless(self, case: Case, weights: Weights) -> Iterator[Finding]:
        config = case.checkpoint.config
        vocabulary, architectures = config.get("vocab_size"), config.get("architectures")
        causal = isinstance(architectures, list) and any(
            isinstance(a, str) and a.endswith(_CAUSAL) for a in architectures
        )
        rows = [n for n, t in weights.tensors.items() if len(t.shape) > 1 and t.shape[0] == vocabulary]
        if causal and isinstance(vocabulary, int) and len(rows) == 1 and _EMBEDDING.search(rows[0]):
            yield Finding(
                code=self.code,
                severity=Severity.SILENT if case.checkpoint.layout == "hf-trainer" else Severity.WARNING,
                where=place(weights.at),
                message=f"config.json does not tie the head to {rows[0]}, and no head of {figure(vocabulary)} rows is "
                "there: it stays as it was initialised",
                hint="set tie_word_embeddings to true in config.json if the model was tied when it was saved",
            )

    def _noted(self, weights: Weights) -> Iterator[Finding]:
        notes = weights.stored or {}
        left_out = [n for n, of in notes.items() if n not in weights.tensors and of in weights.tensors]
        if left_out:
            yield Finding(
                code=self.code,
                severity=Severity.NOTE,
                where=place(weights.at),
                message=f"tied weights are there under one name, and the file notes the others ({some(left_out)}): "
                f"safetensors.torch.load_model knows, load_state_dict(load_file(…)) raises {RAISED}: Missing key(s)",
                hint="load it with load_model, or write each name: `ckpt convert SRC DST --duplicate-ties`",
            )

    def _dropped(self, case: Case, pair: Pair) -> Iterator[Finding]:
        """A partner that one side lacks. safetensors drops it at saving, and those that read it know."""
        here, there = missing(pair).tied, unexpected(pair).tied
        for names, drops, said in ((here, pair.mine, "Missing"), (there, pair.other, "Unexpected")):
            if not names or not drops.in_model_order or case.checkpoint.layout == "hf-trainer":
                continue
            whose = "this checkpoint lacks" if said == "Missing" else "the other checkpoint lacks"
            yield Finding(
                code=self.code,
                severity=raising(case),
                where=place(pair.mine.at),
                message=f"{whose} {some(names)}, tied to a tensor that both have: strict loading raises {RAISED}: "
                f"{said} key(s) in state_dict",
                hint="tie the model before it loads, and give both names the one tensor: --duplicate-ties",
            )

    def _parted(self, case: Case, pair: Pair) -> Iterator[Finding | NotChecked]:
        names = {there: here for here, there in pair.same.items()}
        for one, two in _ties(pair.other, set(names)):
            here = pair.mine.tensors[names[one]], pair.mine.tensors[names[two]]
            if here[0].tied_to(here[1]):
                continue
            equal = _equal(case, *here)
            if equal is None:
                yield NotChecked(code=self.code, why=f"whether {names[two]} equals {names[one]} takes --values")
            elif not equal:
                yield Finding(
                    code=self.code,
                    severity=Severity.SILENT,
                    where=place_of(pair.mine, names[two]),
                    message=f"{names[one]} and {names[two]} are one tensor in the other checkpoint and two that differ "
                    "here: a tied model keeps the one that is loaded last for both",
                    hint="resume with a model that is not tied, or decide which of the two is meant",
                )


def _first(weights: Weights, pattern: re.Pattern[str]) -> str:
    return next((n for n in weights.tensors if pattern.search(n)), "")


def _equal(case: Case, one: TensorRef, two: TensorRef) -> bool | None:
    """Whether two tensors hold the same numbers; None where that would take reading values that were not asked for."""
    if one.tied_to(two):
        return True
    if one.shape != two.shape:
        return False
    if case.values is None:
        return None
    from ckpttool.comparison.sameness import Sameness  # noqa: PLC0415  # few files need it
    from ckpttool.comparison.tensors import compare_tensors  # noqa: PLC0415

    compared = compare_tensors(one, two, limits=case.checkpoint.limits)
    return compared.sameness in (Sameness.IDENTICAL, Sameness.SAME_VALUES)


def _ties(weights: Weights, names: set[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that are one tensor."""
    by_storage: dict[int, list[str]] = {}
    for name, tensor in weights.tensors.items():
        if name in names and tensor.storage is not None:
            by_storage.setdefault(id(tensor.storage), []).append(name)
    for group in by_storage.values():
        for one, two in combinations(group[:_TIES], 2):
            if weights.tensors[one].tied_to(weights.tensors[two]):
                yield one, two
