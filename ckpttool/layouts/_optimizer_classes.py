"""Which optimizer class writes which keys. The class itself is in no plain state_dict.

Sources: torch/optim/*.py of 1.0 to 2.13 (state and `defaults` of each class), transformers/optimization.py,
bitsandbytes/optim/optimizer.py, torchao/optim, apex/optimizers, deepspeed/ops/adam, timm/optim and the reference code
of the others.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ckpttool.values import TensorRef, Value


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What the state and the groups of one class look like."""

    name: str
    group: frozenset[str] = frozenset()  # keys that every group has
    absent: frozenset[str] = frozenset()  # keys that no group has
    state: frozenset[str] = frozenset()  # all keys the state may have; empty for any
    must: frozenset[str] = frozenset()  # keys that a state which is not empty has
    stepped: bool = False  # only the state tells it from Adam, so it is not a candidate without one

    def fits(self, state: Collection[str], group: Collection[str]) -> bool:
        """Whether these keys may be of this class; a parameter that was never stepped has no state."""
        kept = (not state and not self.stepped) or (
            bool(state) and self.must <= set(state) and (not self.state or self.state >= set(state))
        )
        return kept and self.group <= set(group) and not self.absent & set(group)


_NONE: frozenset[str] = frozenset()
_ADAM_STATE = _keys("step exp_avg exp_avg_sq max_exp_avg_sq")
_MOMENTS = _keys("exp_avg exp_avg_sq")
_NOT_ADAM = _keys(
    "momentum_decay correct_bias bias_correction grad_averaging rho growth_rate final_lr train_mode d_coef"
)

_NADAM = _ADAM_STATE | {"mu_product"}
_AMSGRAD = _keys("amsgrad")
_BIASED = _keys("betas bias_correction")
_MOMENTUM = _keys("momentum_buffer")
_RMSPROP = _keys("step square_avg momentum_buffer grad_avg")

# Rows with the rarer keys come first: the first that fits is the likeliest.
# fmt: off
_TABLE = (
    #           name                        group                                    absent    state    must
    Fingerprint("NAdam", _keys("betas momentum_decay"), _NONE, _NADAM, _keys("exp_avg mu_product")),
    Fingerprint("Adafactor", _keys("beta2_decay"), _NONE, _keys("step row_var col_var variance")),
    Fingerprint("Adafactor (transformers)", _keys("scale_parameter clip_threshold")),
    Fingerprint("Adagrad", _keys("lr_decay"), _NONE, _keys("step sum"), _keys("sum")),
    Fingerprint("Adadelta", _keys("rho eps"), _keys("betas"), _keys("step square_avg acc_delta"), _keys("acc_delta")),
    Fingerprint("ASGD", _keys("lambd alpha t0"), _NONE, _keys("step eta mu ax"), _keys("ax")),
    Fingerprint("Rprop", _keys("etas step_sizes"), _NONE, _keys("step prev step_size"), _keys("prev")),
    Fingerprint("RMSprop", _keys("alpha centered"), _NONE, _RMSPROP, _keys("square_avg")),
    Fingerprint("LBFGS", _keys("history_size max_iter")),
    Fingerprint("Muon", _keys("momentum nesterov ns_steps"), _NONE, _MOMENTUM),
    Fingerprint("FusedSGD", _keys("momentum dampening wd_after_momentum"), _NONE, _MOMENTUM),
    Fingerprint("LARS", _keys("momentum trust_coefficient"), _NONE, _MOMENTUM),
    Fingerprint("SGD", _keys("momentum dampening nesterov"), _keys("wd_after_momentum"), _MOMENTUM | {"step"}),
    Fingerprint("FusedLAMB", _keys("betas grad_averaging max_grad_norm"), _keys("trust_clip"), _ADAM_STATE, _MOMENTS),
    Fingerprint("Lamb", _keys("betas grad_averaging max_grad_norm trust_clip"), _NONE, _ADAM_STATE, _MOMENTS),
    Fingerprint("DeepSpeedCPUAdam", _BIASED | {"amsgrad"}, _keys("grad_averaging"), _ADAM_STATE, _MOMENTS),
    Fingerprint("FusedAdam", _BIASED, _keys("amsgrad grad_averaging"), _ADAM_STATE, _MOMENTS),
    Fingerprint("AdamW (transformers)", _keys("betas correct_bias"), _NONE, _ADAM_STATE, _MOMENTS),
    Fingerprint("AdamWScheduleFree", _keys("betas weight_sum"), must=_keys("z exp_avg_sq")),
    Fingerprint("SGDScheduleFree", _keys("momentum weight_sum"), must=_keys("z")),
    Fingerprint("Prodigy", _keys("betas d_coef"), must=_keys("s p0")),
    Fingerprint("DAdaptAdam", _keys("betas growth_rate"), _keys("d_coef"), must=_keys("s exp_avg")),
    Fingerprint("SophiaG", _keys("betas rho"), must=_keys("exp_avg hessian")),
    Fingerprint("AdaBelief", _keys("betas"), must=_keys("exp_avg exp_avg_var"), stepped=True),
    Fingerprint("AdaBound", _keys("betas final_lr"), _NONE, _ADAM_STATE, _MOMENTS),
    Fingerprint("Adan", _keys("betas"), must=_keys("exp_avg exp_avg_diff"), stepped=True),
    Fingerprint("SOAP", _keys("betas precondition_frequency")),
    Fingerprint("Adamax", _keys("betas eps"), _AMSGRAD | _NOT_ADAM, _keys("step exp_avg exp_inf"), _keys("exp_inf")),
    Fingerprint("AdamW", _keys("betas eps amsgrad"), _NOT_ADAM, _ADAM_STATE, _MOMENTS),
    Fingerprint("Adam", _keys("betas eps amsgrad"), _NOT_ADAM, _ADAM_STATE, _MOMENTS),
    Fingerprint("RAdam", _keys("betas eps weight_decay"), _AMSGRAD | _NOT_ADAM, _ADAM_STATE, _MOMENTS),
    Fingerprint("SparseAdam", _keys("betas eps"), _keys("weight_decay amsgrad") | _NOT_ADAM, _ADAM_STATE, _MOMENTS),
    Fingerprint("Lion", _keys("betas"), _keys("eps amsgrad") | _NOT_ADAM, _keys("step exp_avg"), _keys("exp_avg")),
)
# fmt: on

KNOWN = frozenset(f.name for f in _TABLE)

_TORCHAO = {"OptimState8bit": "8bit", "OptimState4bit": "4bit", "OptimStateFp8": "Fp8"}


def candidates(state: Collection[str], group: Collection[str], sample: Value, *, decoupled: Value) -> tuple[str, ...]:
    """Classes that may have written these keys, likeliest first; empty for one we do not know.

    Args:
        state: keys over all parameters' states; empty where nothing was stepped, or for plain SGD.
        group: keys over all groups, `params` left out.
        sample: one `exp_avg`, whose class tells the packed optimizers of torchao apart.
        decoupled: `decoupled_weight_decay` of the first group, which torch 2.7 and newer write: True for AdamW.
    """
    if "state1" in state:
        return _bitsandbytes(state)
    suffix = (
        _TORCHAO.get(sample.cls.name.rsplit(".", 1)[-1], "") if isinstance(sample, TensorRef) and sample.cls else ""
    )
    names = list(_fitting(state, group))
    if "AdamW" in names and isinstance(decoupled, bool):
        names.remove("Adam" if decoupled else "AdamW")
    return tuple(name + suffix for name in names)


def _fitting(state: Collection[str], group: Collection[str]) -> Iterator[str]:
    yield from (f.name for f in _TABLE if f.fits(state, group))


def _bitsandbytes(state: Collection[str]) -> tuple[str, ...]:
    """Optimizers of bitsandbytes name their moments `state1` and `state2`; a `qmap1` says that they hold 8 bits."""
    bits = "8bit" if "qmap1" in state else "32bit"
    names = ("AdamW", "Adam", "LAMB") if "state2" in state else ("Lion", "SGD", "RMSprop", "Adagrad", "LARS")
    return tuple(f"{name}{bits} (bitsandbytes)" for name in names)
