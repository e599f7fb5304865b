"""Checks of a checkpoint: one file, one rule. The order of `RULES` is the order of findings of one severity."""

from ckpttool.arrival import stands
from ckpttool.protocols import Rule
from ckpttool.rules._counters import CounterRow, counter_table
from ckpttool.rules._halves import HALVES, held_against_script
from ckpttool.rules._troubles import by_rule
from ckpttool.rules.callback_state import CallbackState
from ckpttool.rules.container_bitrot import Bitrot
from ckpttool.rules.container_custom_count import CustomCount
from ckpttool.rules.container_incomplete import Incomplete
from ckpttool.rules.container_latest import Latest
from ckpttool.rules.container_misplaced import Misplaced
from ckpttool.rules.container_rotation import Rotation
from ckpttool.rules.container_unreadable import Unreadable
from ckpttool.rules.custom_not_restored import CustomNotRestored
from ckpttool.rules.data_not_restored import DataNotRestored
from ckpttool.rules.data_position_missing import DataPositionMissing
from ckpttool.rules.data_workers import DataWorkers
from ckpttool.rules.ema_equal import EmaEqual
from ckpttool.rules.ema_missing import EmaMissing
from ckpttool.rules.ema_not_restored import EmaNotRestored
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
from ckpttool.rules.model_benign_buffer import BenignBuffer
from ckpttool.rules.model_dtype import OtherDtype
from ckpttool.rules.model_key_prefix import KeyPrefix
from ckpttool.rules.model_missing_key import MissingKey
from ckpttool.rules.model_nesting import Nesting
from ckpttool.rules.model_nonfinite import NonFinite
from ckpttool.rules.model_not_loaded import ModelNotLoaded
from ckpttool.rules.model_other_function import OtherFunction
from ckpttool.rules.model_own_optimizer import OwnOptimizer
from ckpttool.rules.model_partly_loaded import ModelPartlyLoaded
from ckpttool.rules.model_shape import Shape
from ckpttool.rules.model_structure import ModelStructure
from ckpttool.rules.model_tied import Tied
from ckpttool.rules.model_unexpected_key import UnexpectedKey
from ckpttool.rules.model_zero import Zero
from ckpttool.rules.optimizer_class_changed import OptimizerClassChanged
from ckpttool.rules.optimizer_dummy_step import OptimizerDummyStep
from ckpttool.rules.optimizer_empty_state import OptimizerEmptyState
from ckpttool.rules.optimizer_frozen_drift import OptimizerFrozenDrift
from ckpttool.rules.optimizer_group_count import OptimizerGroupCount
from ckpttool.rules.optimizer_group_setting import OptimizerGroupSetting
from ckpttool.rules.optimizer_group_size import OptimizerGroupSize
from ckpttool.rules.optimizer_hparam_missing import OptimizerHparamMissing
from ckpttool.rules.optimizer_hparam_override import OptimizerHparamOverride
from ckpttool.rules.optimizer_hparam_value import OptimizerHparamValue
from ckpttool.rules.optimizer_index_gap import OptimizerIndexGap
from ckpttool.rules.optimizer_missing import OptimizerMissing
from ckpttool.rules.optimizer_moment_dtype import OptimizerMomentDtype
from ckpttool.rules.optimizer_moment_value import OptimizerMomentValue
from ckpttool.rules.optimizer_next_step import OptimizerNextStep
from ckpttool.rules.optimizer_not_restored import OptimizerNotRestored
from ckpttool.rules.optimizer_param_order import OptimizerParamOrder
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
from ckpttool.rules.progress_batch_size import ProgressBatchSize
from ckpttool.rules.progress_inconsistent import ProgressInconsistent
from ckpttool.rules.progress_missing import ProgressMissing
from ckpttool.rules.progress_not_restored import ProgressNotRestored
from ckpttool.rules.rng_missing import RngMissing
from ckpttool.rules.rng_not_restored import RngNotRestored
from ckpttool.rules.rng_unusable import RngUnusable
from ckpttool.rules.rng_world_size import RngWorldSize
from ckpttool.rules.scaler_collapsed import ScalerCollapsed
from ckpttool.rules.scaler_empty import ScalerEmpty
from ckpttool.rules.scaler_fields import ScalerFields
from ckpttool.rules.scaler_missing import ScalerMissing
from ckpttool.rules.scaler_not_restored import ScalerNotRestored
from ckpttool.rules.scaler_unused import ScalerUnused
from ckpttool.rules.scheduler_class_changed import SchedulerClassChanged
from ckpttool.rules.scheduler_fields import SchedulerFields
from ckpttool.rules.scheduler_horizon import SchedulerHorizon
from ckpttool.rules.scheduler_lr_mismatch import SchedulerLrMismatch
from ckpttool.rules.scheduler_missing import SchedulerMissing
from ckpttool.rules.scheduler_no_initial_lr import SchedulerNoInitialLr
from ckpttool.rules.scheduler_not_restored import SchedulerNotRestored
from ckpttool.rules.scheduler_object_in_state import SchedulerObjectInState
from ckpttool.rules.scheduler_off_by_one import SchedulerOffByOne
from ckpttool.rules.scheduler_position import SchedulerPosition
from ckpttool.rules.scheduler_unit import SchedulerUnit
from ckpttool.rules.script_arguments import OtherArguments
from ckpttool.rules.script_never_opened import NeverOpened
from ckpttool.rules.script_not_reached import ScriptNotReached
from ckpttool.rules.script_nothing_left import NothingLeft
from ckpttool.rules.script_raises import ScriptRaises
from ckpttool.rules.script_saves_not_loads import SavesNotLoads
from ckpttool.rules.script_swallows import Swallows
from ckpttool.rules.shard_index import WrongIndex
from ckpttool.rules.shard_missing import MissingShard
from ckpttool.rules.shard_world_size import WorldSize
from ckpttool.rules.storage_oversized import Oversized
from ckpttool.rules.trainer_state import TrainerState

__all__ = ["HALVES", "RULES", "CounterRow", "by_rule", "counter_table", "held_against_script", "stands"]

RULES: tuple[Rule, ...] = (
    CallbackState(),
    Bitrot(),
    CustomCount(),
    Incomplete(),
    Latest(),
    Misplaced(),
    Rotation(),
    Unreadable(),
    CustomNotRestored(),
    DataNotRestored(),
    DataPositionMissing(),
    DataWorkers(),
    EmaEqual(),
    EmaMissing(),
    EmaNotRestored(),
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
    BenignBuffer(),
    OtherDtype(),
    KeyPrefix(),
    MissingKey(),
    Nesting(),
    NonFinite(),
    ModelNotLoaded(),
    OtherFunction(),
    OwnOptimizer(),
    ModelPartlyLoaded(),
    Shape(),
    ModelStructure(),
    Tied(),
    UnexpectedKey(),
    Zero(),
    OptimizerClassChanged(),
    OptimizerDummyStep(),
    OptimizerEmptyState(),
    OptimizerFrozenDrift(),
    OptimizerGroupCount(),
    OptimizerGroupSetting(),
    OptimizerGroupSize(),
    OptimizerHparamMissing(),
    OptimizerHparamOverride(),
    OptimizerHparamValue(),
    OptimizerIndexGap(),
    OptimizerMissing(),
    OptimizerMomentDtype(),
    OptimizerMomentValue(),
    OptimizerNextStep(),
    OptimizerNotRestored(),
    OptimizerParamOrder(),
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
    ProgressBatchSize(),
    ProgressInconsistent(),
    ProgressMissing(),
    ProgressNotRestored(),
    RngMissing(),
    RngNotRestored(),
    RngUnusable(),
    RngWorldSize(),
    ScalerCollapsed(),
    ScalerEmpty(),
    ScalerFields(),
    ScalerMissing(),
    ScalerNotRestored(),
    ScalerUnused(),
    SchedulerClassChanged(),
    SchedulerFields(),
    SchedulerHorizon(),
    SchedulerLrMismatch(),
    SchedulerMissing(),
    SchedulerNoInitialLr(),
    SchedulerNotRestored(),
    SchedulerObjectInState(),
    SchedulerOffByOne(),
    SchedulerPosition(),
    SchedulerUnit(),
    OtherArguments(),
    NeverOpened(),
    ScriptNotReached(),
    NothingLeft(),
    ScriptRaises(),
    SavesNotLoads(),
    Swallows(),
    WrongIndex(),
    MissingShard(),
    WorldSize(),
    Oversized(),
    TrainerState(),
)
