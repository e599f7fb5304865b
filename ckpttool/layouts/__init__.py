"""Layouts: where each trainer puts what it saved. The order of `LAYOUTS` is the precedence; the last takes all."""

from ckpttool.layouts._assembly import INDEX, may_hold
from ckpttool.layouts._param_names import trainable
from ckpttool.layouts._recast import Recast, recast, recast_arguments
from ckpttool.layouts._schedulers import candidates as scheduler_classes
from ckpttool.layouts._spots import key_text
from ckpttool.layouts._step_names import is_trainer_folder, says_step, step_in_name
from ckpttool.layouts._unreadable import unreadable
from ckpttool.layouts._weights import METADATA
from ckpttool.layouts._words import some
from ckpttool.layouts.accelerate import AccelerateLayout
from ckpttool.layouts.composer import ComposerLayout
from ckpttool.layouts.dcp import DcpLayout
from ckpttool.layouts.deepspeed import DeepSpeedLayout
from ckpttool.layouts.fairseq import FairseqLayout
from ckpttool.layouts.hf_model import HfModelLayout
from ckpttool.layouts.hf_trainer import HfTrainerLayout
from ckpttool.layouts.lightning import LightningLayout
from ckpttool.layouts.megatron import MegatronLayout
from ckpttool.layouts.nanogpt import NanoGptLayout
from ckpttool.layouts.peft import PeftLayout
from ckpttool.layouts.plain import PlainLayout
from ckpttool.layouts.timm import TimmLayout
from ckpttool.protocols import Layout

__all__ = [
    "INDEX",
    "LAYOUTS",
    "METADATA",
    "Recast",
    "is_trainer_folder",
    "key_text",
    "may_hold",
    "recast",
    "recast_arguments",
    "says_step",
    "scheduler_classes",
    "some",
    "step_in_name",
    "trainable",
    "unreadable",
]

# Folders first by the file that only their trainer writes: Accelerate and the Trainer may hold DeepSpeed's or FSDP's.
LAYOUTS: tuple[Layout, ...] = (
    AccelerateLayout(),
    HfTrainerLayout(),
    MegatronLayout(),
    DeepSpeedLayout(),
    DcpLayout(),
    PeftLayout(),
    HfModelLayout(),
    LightningLayout(),
    ComposerLayout(),
    FairseqLayout(),
    TimmLayout(),
    NanoGptLayout(),
    PlainLayout(),
)
