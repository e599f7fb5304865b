"""`lightning.payload`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from ckpttool.blocks import Finding, Severity
from ckpttool.model import At
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import told
from ckpttool.rules._generators import kind
from ckpttool.rules._loops import loops_of
from ckpttool.rules._places import place
from ckpttool.values import Value

_OPTIMIZERS: Final = "optimizer_states"
_SCHEDULERS: Final = "lr_schedulers"
_MODEL: Final = "state_dict"
_OF_OPTIMIZERS = "load_optimizer_state_dict of lightning/pytorch/strategies/strategy.py"
_OF_SCHEDULERS = "restore_lr_schedulers of lightning/pytorch/trainer/connectors/checkpoint_connector.py"
_TORCH_OPTIMIZER = "Optimizer.load_state_dict of torch/optim/optimizer.py"
_TORCH_SCHEDULER = "load_state_dict of torch/optim/lr_scheduler.py"
_MODULE = "Module.load_state_dict of torch/nn/modules/module.py"
_HINT = "resume from another checkpoint"


class LightningPayload:
    """A key of a Lightning checkpoint that holds something else than the Trainer takes from it.

    What: `state_dict` and its being a dict with entries, `optimizer_states` and `lr_schedulers` and their being lists
    of states; what lies in the lists, as far as it is no state at all.

    Why: the Trainer raises, for the most part after the weights were loaded. It walks the lists beside its optimizers
    and schedulers and stops with the shorter: of an empty list, text or dict it restores nothing and says nothing. More
    states than there are optimizers are passed over, and so are `epoch`, `global_step` and hyperparameters.

    Example: `lr_schedulers: it is None, not a list: restore_lr_schedulers of
    lightning/pytorch/trainer/connectors/checkpoint_connector.py raises TypeError`

    Reference: lightning/pytorch/trainer/connectors/checkpoint_connector.py, strategies/strategy.py, Lightning 2.6;
    torch/optim/optimizer.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "lightning.payload"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        contents = checkpoint.contents.get("")
        root = contents.root if contents is not None and contents.complete else None
        if checkpoint.layout != "lightning" or not isinstance(root, dict):
            return
        if _MODEL in root:
            yield from self._model(root)
        if _OPTIMIZERS in root:
            yield from self._list(root[_OPTIMIZERS], _OPTIMIZERS, _OF_OPTIMIZERS, "the optimizers begin anew")
            yield from self._optimizers(root[_OPTIMIZERS])
        if _SCHEDULERS in root:
            yield from self._list(root[_SCHEDULERS], _SCHEDULERS, _OF_SCHEDULERS, "the schedules begin anew")
            yield from self._schedulers(root[_SCHEDULERS])
            yield from self._gone(case)

    def _model(self, root: Mapping[Any, Value]) -> Iterator[Finding]:
        held = root[_MODEL]
        if not isinstance(held, dict):
            yield self._error((_MODEL,), f"it is {kind(held)}, not a dict: {_MODULE} raises TypeError")
        elif not held and _has_parameters(root.get(_OPTIMIZERS)):
            message = f"it is empty, and the optimizer has parameters: {_MODULE} raises RuntimeError, unless the "
            yield self._error((_MODEL,), f"{message}module says strict_loading=False")

    def _list(self, held: Value, key: str, caller: str, lost: str) -> Iterator[Finding]:
        """What the Trainer walks with `zip`: anything that can be walked."""
        if held is None or isinstance(held, int | float):
            yield self._error((key,), f"it is {kind(held)}, not a list: {caller} raises TypeError")
        elif not held and isinstance(held, dict | str):
            message = f"it is {kind(held)}, not a list: {lost}, and nothing is said"
            yield Finding(code=self.code, severity=Severity.SILENT, where=key, message=message, hint=_HINT)

    def _optimizers(self, held: Value) -> Iterator[Finding]:
        for step, state in _walked(held):
            if isinstance(state, list | tuple):
                yield self._error((_OPTIMIZERS, step), f"it is {kind(state)}: {_TORCH_OPTIMIZER} raises TypeError")
            elif not isinstance(state, dict):
                yield self._error((_OPTIMIZERS, step), f"it is {kind(state)}: {_TORCH_OPTIMIZER} raises AttributeError")
            elif "param_groups" not in state:
                message = f"it is {kind(state)} without param_groups: {_TORCH_OPTIMIZER} raises KeyError"
                yield self._error((_OPTIMIZERS, step), message)

    def _schedulers(self, held: Value) -> Iterator[Finding]:
        """A scheduler's `__dict__` is updated with whatever lies there."""
        for step, state in _walked(held):
            where = (_SCHEDULERS, step)
            if state is None or isinstance(state, int | float):
                yield self._error(where, f"it is {kind(state)}, not a dict: {_TORCH_SCHEDULER} raises TypeError")
            elif isinstance(state, str) and state:
                yield self._error(where, f"it is {kind(state)}, not a dict: {_TORCH_SCHEDULER} raises ValueError")
            elif not state and isinstance(state, dict | list | tuple | str):
                message = f"it is {kind(state)}: the schedule begins anew, and nothing is said"
                yield Finding(
                    code=self.code, severity=Severity.SILENT, where=place(At("", where)), message=message, hint=_HINT
                )

    def _gone(self, case: Case) -> Iterator[Finding]:
        """An empty list, where Lightning counted steps of schedulers: it steps none but those that it saves."""
        loops = loops_of(case.checkpoint)
        held = case.checkpoint.contents[""].root
        if isinstance(held, dict) and held[_SCHEDULERS] in ([], ()) and loops and (loops.scheduler_steps or 0) > 0:
            message = f"it is empty, and Lightning stepped schedulers {told(loops.scheduler_steps or 0)} times "
            message += "(scheduler_progress): they begin anew, and nothing is said"
            yield Finding(code=self.code, severity=Severity.SILENT, where=_SCHEDULERS, message=message, hint=_HINT)

    def _error(self, path: tuple[Any, ...], message: str) -> Finding:
        where = place(At("", path))
        return Finding(code=self.code, severity=Severity.ERROR, where=where, message=message, hint=_HINT)


def _walked(held: Value) -> Iterator[tuple[Any, Value]]:
    """What a `for` takes out: of a dict its keys."""
    if isinstance(held, dict):
        yield from ((key, key) for key in held)
    elif isinstance(held, list | tuple):
        yield from enumerate(held)
    elif isinstance(held, str) and held:
        yield 0, held[0]


def _has_parameters(held: Value) -> bool:
    for _, state in _walked(held):
        groups = state.get("param_groups") if isinstance(state, dict) else None
        for group in groups if isinstance(groups, list) else ():
            if isinstance(group, dict) and group.get("params"):
                return True
    return False
