"""Checks of a checkpoint: one file, one rule. The order of `RULES` is the order of findings of one severity."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ckpttool.blocks import Finding
from ckpttool.protocols import Case, Needs, Rule
from ckpttool.rules._counters import CounterRow, counter_table
from ckpttool.rules._later import Later, loaded
from ckpttool.rules._troubles import by_rule
from ckpttool.rules.callback_state import CallbackState
from ckpttool.rules.container_bitrot import Bitrot
from ckpttool.rules.container_custom_count import CustomCount
from ckpttool.rules.container_incomplete import Incomplete
from ckpttool.rules.container_latest import Latest
from ckpttool.rules.container_misplaced import Misplaced
from ckpttool.rules.container_rotation import Rotation
from ckpttool.rules.container_unreadable import Unreadable
from ckpttool.rules.data_position_missing import DataPositionMissing
from ckpttool.rules.data_workers import DataWorkers
from ckpttool.rules.ema_missing import EmaMissing
from ckpttool.rules.ema_only import EmaOnly
from ckpttool.rules.lightning_loops import LightningLoops
from ckpttool.rules.lightning_payload import LightningPayload
from ckpttool.rules.lightning_version import LightningVersion
from ckpttool.rules.load_device_tag import DeviceTag
from ckpttool.rules.load_missing_class import MissingClass
from ckpttool.rules.load_numpy_core import NumpyCore
from ckpttool.rules.load_torch_gate import TorchGate
from ckpttool.rules.load_weights_only import WeightsOnly
from ckpttool.rules.model_adapter_only import AdapterOnly
from ckpttool.rules.model_dtype import OtherDtype
from ckpttool.rules.model_key_prefix import KeyPrefix
from ckpttool.rules.model_nesting import Nesting
from ckpttool.rules.model_own_optimizer import OwnOptimizer
from ckpttool.rules.model_structure import ModelStructure
from ckpttool.rules.model_tied import Tied
from ckpttool.rules.optimizer_empty_state import OptimizerEmptyState
from ckpttool.rules.optimizer_group_setting import OptimizerGroupSetting
from ckpttool.rules.optimizer_hparam_missing import OptimizerHparamMissing
from ckpttool.rules.optimizer_hparam_value import OptimizerHparamValue
from ckpttool.rules.optimizer_index_gap import OptimizerIndexGap
from ckpttool.rules.optimizer_missing import OptimizerMissing
from ckpttool.rules.optimizer_moment_dtype import OptimizerMomentDtype
from ckpttool.rules.optimizer_partial_state import OptimizerPartialState
from ckpttool.rules.optimizer_state_kind import OptimizerStateKind
from ckpttool.rules.optimizer_state_shape import OptimizerStateShape
from ckpttool.rules.optimizer_step_device import OptimizerStepDevice
from ckpttool.rules.optimizer_step_dtype import OptimizerStepDtype
from ckpttool.rules.optimizer_step_mismatch import OptimizerStepMismatch
from ckpttool.rules.optimizer_step_value import OptimizerStepValue
from ckpttool.rules.optimizer_structure import OptimizerStructure
from ckpttool.rules.optimizer_switches import OptimizerSwitches
from ckpttool.rules.progress_accumulation import ProgressAccumulation
from ckpttool.rules.progress_inconsistent import ProgressInconsistent
from ckpttool.rules.progress_missing import ProgressMissing
from ckpttool.rules.rng_missing import RngMissing
from ckpttool.rules.rng_unusable import RngUnusable
from ckpttool.rules.rng_world_size import RngWorldSize
from ckpttool.rules.scaler_collapsed import ScalerCollapsed
from ckpttool.rules.scaler_empty import ScalerEmpty
from ckpttool.rules.scaler_fields import ScalerFields
from ckpttool.rules.scaler_missing import ScalerMissing
from ckpttool.rules.scaler_unused import ScalerUnused
from ckpttool.rules.scheduler_class_changed import SchedulerClassChanged
from ckpttool.rules.scheduler_fields import SchedulerFields
from ckpttool.rules.scheduler_horizon import SchedulerHorizon
from ckpttool.rules.scheduler_lr_mismatch import SchedulerLrMismatch
from ckpttool.rules.scheduler_missing import SchedulerMissing
from ckpttool.rules.scheduler_no_initial_lr import SchedulerNoInitialLr
from ckpttool.rules.scheduler_object_in_state import SchedulerObjectInState
from ckpttool.rules.scheduler_off_by_one import SchedulerOffByOne
from ckpttool.rules.scheduler_position import SchedulerPosition
from ckpttool.rules.scheduler_unit import SchedulerUnit
from ckpttool.rules.shard_index import WrongIndex
from ckpttool.rules.shard_missing import MissingShard
from ckpttool.rules.shard_world_size import WorldSize
from ckpttool.rules.storage_oversized import Oversized
from ckpttool.rules.trainer_state import TrainerState

if TYPE_CHECKING:  # it costs as much as ten rules, and is of use beside a script alone
    from ckpttool.facts import ScriptFacts

__all__ = ["RULES", "CounterRow", "by_rule", "counter_table", "half_of", "held_against_script", "loaded"]

RULES: tuple[Rule, ...] = (
    CallbackState(),
    Bitrot(),
    CustomCount(),
    Incomplete(),
    Latest(),
    Misplaced(),
    Rotation(),
    Unreadable(),
    Later("custom_not_restored.CustomNotRestored", "custom.not-restored", Needs.FACTS),
    Later("data_not_restored.DataNotRestored", "data.not-restored", Needs.FACTS),
    DataPositionMissing(),
    DataWorkers(),
    Later("ema_equal.EmaEqual", "ema.equal", Needs.VALUES),
    EmaMissing(),
    Later("ema_not_restored.EmaNotRestored", "ema.not-restored", Needs.FACTS),
    EmaOnly(),
    LightningLoops(),
    LightningPayload(),
    LightningVersion(),
    DeviceTag(),
    MissingClass(),
    NumpyCore(),
    TorchGate(),
    WeightsOnly(),
    AdapterOnly(),
    Later("model_benign_buffer.BenignBuffer", "model.benign-buffer", Needs.OTHER),
    OtherDtype(),
    KeyPrefix(),
    Later("model_missing_key.MissingKey", "model.missing-key", Needs.OTHER),
    Nesting(),
    Later("model_nonfinite.NonFinite", "model.nonfinite", Needs.VALUES),
    Later("model_not_loaded.ModelNotLoaded", "model.not-loaded", Needs.FACTS),
    Later("model_other_function.OtherFunction", "model.other-function", Needs.FACTS),
    OwnOptimizer(),
    Later("model_partly_loaded.ModelPartlyLoaded", "model.partly-loaded", Needs.FACTS),
    Later("model_shape.Shape", "model.shape", Needs.OTHER),
    ModelStructure(),
    Tied(),
    Later("model_unexpected_key.UnexpectedKey", "model.unexpected-key", Needs.OTHER),
    Later("model_zero.Zero", "model.zero", Needs.VALUES),
    Later("optimizer_class_changed.OptimizerClassChanged", "optimizer.class-changed", Needs.OTHER),
    Later("optimizer_dummy_step.OptimizerDummyStep", "optimizer.dummy-step", Needs.VALUES),
    OptimizerEmptyState(),
    Later("optimizer_frozen_drift.OptimizerFrozenDrift", "optimizer.frozen-drift", Needs.OTHER),
    Later("optimizer_group_count.OptimizerGroupCount", "optimizer.group-count", Needs.OTHER),
    OptimizerGroupSetting(),
    Later("optimizer_group_size.OptimizerGroupSize", "optimizer.group-size", Needs.OTHER),
    OptimizerHparamMissing(),
    Later("optimizer_hparam_override.OptimizerHparamOverride", "optimizer.hparam-override", Needs.OTHER),
    OptimizerHparamValue(),
    OptimizerIndexGap(),
    OptimizerMissing(),
    OptimizerMomentDtype(),
    Later("optimizer_moment_value.OptimizerMomentValue", "optimizer.moment-value", Needs.VALUES),
    Later("optimizer_next_step.OptimizerNextStep", "optimizer.next-step", Needs.FACTS),
    Later("optimizer_not_restored.OptimizerNotRestored", "optimizer.not-restored", Needs.FACTS),
    Later("optimizer_param_order.OptimizerParamOrder", "optimizer.param-order", Needs.OTHER),
    OptimizerPartialState(),
    OptimizerStateKind(),
    OptimizerStateShape(),
    OptimizerStepDevice(),
    OptimizerStepDtype(),
    OptimizerStepMismatch(),
    OptimizerStepValue(),
    OptimizerStructure(),
    OptimizerSwitches(),
    ProgressAccumulation(),
    Later("progress_batch_size.ProgressBatchSize", "progress.batch-size", Needs.FACTS),
    ProgressInconsistent(),
    ProgressMissing(),
    Later("progress_not_restored.ProgressNotRestored", "progress.not-restored", Needs.FACTS),
    RngMissing(),
    Later("rng_not_restored.RngNotRestored", "rng.not-restored", Needs.FACTS),
    RngUnusable(),
    RngWorldSize(),
    ScalerCollapsed(),
    ScalerEmpty(),
    ScalerFields(),
    ScalerMissing(),
    Later("scaler_not_restored.ScalerNotRestored", "scaler.not-restored", Needs.FACTS),
    ScalerUnused(),
    SchedulerClassChanged(),
    SchedulerFields(),
    SchedulerHorizon(),
    SchedulerLrMismatch(),
    SchedulerMissing(),
    SchedulerNoInitialLr(),
    Later("scheduler_not_restored.SchedulerNotRestored", "scheduler.not-restored", Needs.FACTS),
    SchedulerObjectInState(),
    SchedulerOffByOne(),
    SchedulerPosition(),
    SchedulerUnit(),
    Later("script_arguments.OtherArguments", "script.arguments", Needs.FACTS),
    Later("script_never_opened.NeverOpened", "script.never-opened", Needs.FACTS),
    Later("script_not_reached.ScriptNotReached", "script.not-reached", Needs.FACTS),
    Later("script_nothing_left.NothingLeft", "script.nothing-left", Needs.FACTS),
    Later("script_raises.ScriptRaises", "script.raises", Needs.FACTS),
    Later("script_saves_not_loads.SavesNotLoads", "script.saves-not-loads", Needs.FACTS),
    Later("script_swallows.Swallows", "script.swallows", Needs.FACTS),
    WrongIndex(),
    MissingShard(),
    WorldSize(),
    Oversized(),
    TrainerState(),
)


def half_of(code: str) -> Callable[[Case, str], Iterator[Finding]] | None:
    """What a rule about files sees in a script that was asked; None for most."""
    from ckpttool.rules._halves import HALVES  # noqa: PLC0415  # with all that compares a live state

    return HALVES.get(code)


def held_against_script(finding: Finding, facts: "ScriptFacts") -> Finding:
    """What was predicted from the files alone, beside what the script did."""
    from ckpttool.rules._halves import held_against_script as held  # noqa: PLC0415

    return held(finding, facts)
