"""`model.adapter-only`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED
from ckpttool.rules._places import count, figure, place, place_of
from ckpttool.rules._trained import is_adapter, resumes
from ckpttool.values import Value

_PREFIX = "base_model.model."
_CONFIG = "adapter_config.json"


class AdapterOnly:
    """Adapters without their model, or adapters that do not fit their own configuration.

    What: a file of LoRA weights alone without `adapter_config.json`; beside one: ranks other than `r`, names without
    `base_model.model.`, modules that `target_modules` does not name, and with `--values` matrices `lora_B` that are all
    zero after training.

    Why: as a whole model it raises, or with `strict=False` leaves the model as it was. PEFT loads adapters with
    `strict=False`: names that it does not look for never reach the model, and `lora_B` stays zero.

    Example: `4 of 4 adapter tensors lack base_model.model. in front: PEFT finds none of them, and lora_B stays zero`

    Reference: peft/utils/save_and_load.py `set_peft_model_state_dict`, peft 0.21.
    """

    code: ClassVar[str] = "model.adapter-only"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for weights in case.checkpoint.weights:
            if weights.role is not Role.MODEL or not is_adapter(weights):
                continue
            config = _config_of(case.checkpoint, weights)
            if config is None:
                if not _has_config(case.checkpoint, weights):
                    yield self._alone(case, weights)
            elif config.get("peft_type", "LORA") == "LORA":
                yield from self._rank(case, weights, config)
                yield from self._names(weights)
                yield from self._targets(case, weights, config)
        yield from self._zero(case)

    def _alone(self, case: Case, weights: Weights) -> Finding:
        return Finding(
            code=self.code,
            severity=Severity.WARNING if resumes(case.checkpoint) else Severity.NOTE,
            where=place(weights.at),
            message=f"all {count(len(weights.tensors), 'tensor')} are adapters, and neither their model nor {_CONFIG} "
            f"is there: a whole model raises {RAISED}: Missing key(s), or with strict=False keeps its own weights",
            hint="load the base model first, and the adapters into it with the rank and modules they were made for",
        )

    def _rank(self, case: Case, weights: Weights, config: Mapping[str, Value]) -> Iterator[Finding]:
        rank, pattern = config.get("r"), config.get("rank_pattern")
        if not isinstance(rank, int) or config.get("target_parameters"):
            return
        others = pattern.values() if isinstance(pattern, dict) else ()
        allowed = {rank, *(r for r in others if isinstance(r, int))}
        wrong = [
            n for n, t in weights.tensors.items()
            if (".lora_A." in n or n.endswith(".lora_A")) and t.shape and t.shape[0] not in allowed
        ]  # fmt: skip
        if wrong:
            rows = weights.tensors[wrong[0]].shape[0]
            by_config = case.checkpoint.layout == "peft"
            yield Finding(
                code=self.code,
                severity=Severity.ERROR if by_config else Severity.WARNING,
                where=place_of(weights, wrong[0]),
                message=f"{_CONFIG} says r={figure(rank)}, and {count(len(wrong), 'tensor')} "
                f"({some(wrong)}) {'has' if len(wrong) == 1 else 'have'} {rows} rows: a model built from it raises "
                f"{RAISED}: size mismatch",
                hint=f"set r to {rows} in {_CONFIG}, or take adapters and configuration from one save",
            )

    def _names(self, weights: Weights) -> Iterator[Finding]:
        bare = [n for n in weights.tensors if "lora_" in n and not n.startswith(_PREFIX)]
        if bare:
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=place_of(weights, bare[0]),
                message=f"{len(bare):,} of {count(len(weights.tensors), 'adapter tensor')} lack {_PREFIX} in front "
                f"({some(bare)}): PEFT finds none of them, and lora_B stays zero",
                hint=f"`ckpt convert SRC DST --rename '^={_PREFIX}'` puts it there",
            )

    def _targets(self, case: Case, weights: Weights, config: Mapping[str, Value]) -> Iterator[Finding]:
        targets = config.get("target_modules")
        if (
            not isinstance(targets, list)
            or not all(isinstance(t, str) for t in targets)
            or config.get("target_parameters")
        ):
            return
        modules = [n.removeprefix(_PREFIX).split(".lora_", 1)[0] for n in weights.tensors if ".lora_" in n]
        strays = [m for m in dict.fromkeys(modules) if not _is_target(m, targets)]
        if strays:
            yield Finding(
                code=self.code,
                severity=Severity.SILENT if case.checkpoint.layout == "peft" else Severity.WARNING,
                where=place(weights.at),
                message=f"target_modules of {_CONFIG} ({some(targets)}) does not name {count(len(strays), 'module')} "
                f"with adapters ({some(strays)}): a model built from it has none there, and these do not reach it",
                hint=f"name them in target_modules, or take adapters and {_CONFIG} from one save",
            )

    def _zero(self, case: Case) -> Iterator[Finding]:
        steps = max((o.steps[-1] for o in case.checkpoint.optimizers if o.steps), default=0)
        scans = [s for s in case.values.tensors if ".lora_B." in s.name and s.part is Role.MODEL] if case.values else []
        if steps > 1 and scans and all(s.zero for s in scans):
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=scans[0].where,
                message=f"all {count(len(scans), 'tensor')} lora_B are zero after "
                f"{figure(steps)} optimizer steps: the adapters do nothing",
                hint="they were not trained, or not loaded into the model that was saved; look at an earlier one",
            )


def _config_of(checkpoint: Checkpoint, weights: Weights) -> Mapping[str, Value] | None:
    """The settings of the configuration beside the adapters; None where there is none."""
    name = _config_name(weights)
    if name not in checkpoint.config_at:
        return None
    keys = ("r", "rank_pattern", "target_modules", "target_parameters", "peft_type")
    own = {key: checkpoint.config.get(f"{name}.{key}", checkpoint.config.get(key)) for key in keys}
    return {key: value for key, value in own.items() if value is not None}


def _config_name(weights: Weights) -> str:
    folder = weights.at.file.rpartition("/")[0]
    return f"{folder}/{_CONFIG}" if folder else _CONFIG


def _has_config(checkpoint: Checkpoint, weights: Weights) -> bool:
    """Whether the configuration lies beside the adapters, read or not; of a single file that is not known."""
    beside = {f.name for f in checkpoint.files}
    return _config_name(weights) in beside


def _is_target(module: str, targets: Sequence[str]) -> bool:
    """As PEFT matches a list: the module's name, or its end.

    Source: peft/tuners/tuners_utils.py, `check_target_module_exists`
    """
    return any(module == t or module.endswith(f".{t}") for t in targets)
