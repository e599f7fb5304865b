"""What each class of torch.optim cannot do without, and which class wrote a file whose keys are short of one.

Sources: torch/optim/*.py of 2.13: keys that `step` reads and `__setstate__` does not fill in.
"""

from collections.abc import Collection
from typing import NamedTuple

from ckpttool.elements import number
from ckpttool.model import OptimizerState
from ckpttool.values import Value


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


class TorchClass(NamedTuple):
    """One class: what a group and a parameter's state must have, and may have."""

    name: str
    module: str  # below torch/optim
    group: frozenset[str]  # `step` reads these; without one it raises KeyError
    filled: frozenset[str] = frozenset()  # `__setstate__` fills these in where they are not there
    state: frozenset[str] = frozenset()  # of every parameter with a state
    shaped: frozenset[str] = frozenset()  # state that has the shape of its parameter
    at_load: frozenset[str] = frozenset(("step",))  # state that `load_state_dict` reads already

    @property
    def reads_step(self) -> bool:
        """Whether the step count goes into the update, and not only up by one."""
        return "step" in self.state and self.name not in _COUNT_ALONE

    def asks_for(self, hyperparameters: Collection[str]) -> frozenset[str]:
        """Keys that a group lacks."""
        return self.group - set(hyperparameters)


_EXTRA = _keys("initial_lr max_lr min_lr base_momentum max_momentum name")  # schedulers and scripts add these
_LATER = _keys("foreach maximize differentiable capturable")
_NEWEST = _LATER | {"decoupled_weight_decay"}
_ADAM_GROUP, _ADAM_LATER = _keys("lr betas eps weight_decay"), _NEWEST | _keys("amsgrad fused")
_MOMENTS = _keys("exp_avg exp_avg_sq")
_ADAM_STATE = _MOMENTS | {"step"}
_ADAM_SHAPED = _MOMENTS | {"max_exp_avg_sq"}
_BUFFER = _keys("momentum_buffer")
_NONE: frozenset[str] = frozenset()

# fmt: off
_CLASSES = (
    #          name      module    group        filled in    state        shaped                   read at load
    TorchClass("AdamW", "adam.py", _ADAM_GROUP, _ADAM_LATER, _ADAM_STATE, _ADAM_SHAPED),
    TorchClass("Adam", "adam.py", _ADAM_GROUP, _ADAM_LATER, _ADAM_STATE, _ADAM_SHAPED),
    TorchClass("RAdam", "radam.py", _ADAM_GROUP, _NEWEST, _ADAM_STATE, _MOMENTS),
    TorchClass("NAdam", "nadam.py", _ADAM_GROUP | {"momentum_decay"}, _NEWEST,
               _ADAM_STATE | {"mu_product"}, _MOMENTS, _keys("step mu_product")),
    TorchClass("Adamax", "adamax.py", _ADAM_GROUP, _LATER, _keys("step exp_avg exp_inf"), _keys("exp_avg exp_inf")),
    # Before 1.13 it had no `maximize`, and a file without it may as well be of a class that is not torch's.
    TorchClass("SparseAdam", "sparse_adam.py", _keys("lr betas eps"), _keys("maximize"), _ADAM_STATE, _MOMENTS, _NONE),
    TorchClass("Adadelta", "adadelta.py", _keys("lr rho eps weight_decay"), _LATER,
               _keys("step square_avg acc_delta"), _keys("square_avg acc_delta")),
    TorchClass("Adagrad", "adagrad.py", _keys("lr lr_decay eps weight_decay"),
               _LATER | _keys("initial_accumulator_value fused"), _keys("step sum"), _keys("sum")),
    TorchClass("ASGD", "asgd.py", _keys("lr lambd alpha t0 weight_decay"), _LATER,
               _keys("step eta mu ax"), _keys("ax"), _keys("step eta mu")),
    TorchClass("RMSprop", "rmsprop.py", _keys("lr alpha eps weight_decay"), _LATER | _keys("momentum centered"),
               _keys("step square_avg"), _BUFFER | _keys("square_avg grad_avg")),
    TorchClass("Rprop", "rprop.py", _keys("etas step_sizes"), _LATER | {"lr"},
               _keys("step prev step_size"), _keys("prev step_size")),
    TorchClass("Adafactor", "_adafactor.py", _keys("lr beta2_decay eps d weight_decay maximize"), _keys("foreach"),
               _keys("step")),
    TorchClass("SGD", "sgd.py", _keys("lr momentum dampening weight_decay"), _LATER | _keys("nesterov fused"),
               _NONE, _BUFFER, _NONE),
    TorchClass("Muon", "_muon.py", _keys("lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn"),
               _NONE, _NONE, _BUFFER, _NONE),
    TorchClass("LBFGS", "lbfgs.py",
               _keys("lr max_iter max_eval tolerance_grad tolerance_change history_size line_search_fn"), _NONE),
)
# fmt: on
_FEWEST_KEYS = "SparseAdam"
_TABLE = {made.name: made for made in _CLASSES}
_SWITCHES = _keys("capturable differentiable")
_COUNT_ALONE = _keys(
    "RMSprop Adadelta Rprop Muon SGD"
)  # classes that count steps, if at all, and compute nothing of it
_SHAPED = frozenset(key for made in _CLASSES for key in made.shaped)


def torch_class(optimizer: OptimizerState) -> TorchClass | None:
    """The class whose rules hold for the optimizer: all candidates are torch's and ask for the same.

    Where no class has these keys, the one that does when a single key is put back.
    """
    known = [_TABLE.get(name.rsplit(".", 1)[-1]) for name in optimizer.candidates]
    keys = {key for group in optimizer.groups for key in group.hyperparameters} - _EXTRA
    first = known[0] if known else None
    # RAdam without `weight_decay` has all that SparseAdam has, and more.
    if first is not None and (first.name != _FEWEST_KEYS or keys <= first.group | first.filled):
        alike = all(made is not None and made.group == first.group for made in known)
        # Classes of others bear the same names (Muon), and lack more than one key of torch's.
        return first if alike and len(first.group - keys) <= 1 else None
    short = [made for made in _CLASSES if _is_short(made, keys, set(optimizer.state_keys))]
    same = len({made.group - keys for made in short}) == 1  # whichever it is, the same key is gone
    return min(short, key=lambda made: len(made.filled - keys)) if same else None


def _is_short(made: TorchClass, keys: set[str], state: set[str]) -> bool:
    """Whether keys are a class's but for one, and its state is what the class keeps.

    The state of an optimizer that was never stepped, or of SGD, tells nothing, so nothing is concluded then.
    """
    kept = bool(made.state) and made.state <= state <= made.state | made.shaped
    return kept and keys <= made.group | made.filled and len(made.group - keys) == 1


def is_on(flag: Value) -> bool:
    """Whether Python takes a switch for true: any text but an empty one does, `"no"` too."""
    return bool(flag) if isinstance(flag, str | list | tuple) else bool(number(flag))


def is_surely_torch(optimizer: OptimizerState) -> bool:
    """Whether the groups have switches that torch's own classes have."""
    return all(group.hyperparameters.keys() >= _SWITCHES for group in optimizer.groups)


def shaped_by(state: Collection[str]) -> list[str]:
    """Those keys of a state that have the shape of the parameter in some class, in order."""
    return sorted(_SHAPED & set(state))
