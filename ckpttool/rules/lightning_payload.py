"""`lightning.payload`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import At, Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import told
from ckpttool.rules._generators import kind
from ckpttool.rules._loops import SCHEDULERS, loops_of
from ckpttool.rules._places import place
from ckpttool.values import Value

_OPTIMIZERS: Final = "optimizer_states"
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
    of states; what lies in the list of schedules, as far as it is no state at all. Of the optimizers' states
    `optimizer.structure` tells.

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
        """One finding of each severity: the first, with the keys that are wrong too."""
        checkpoint = case.checkpoint
        contents = checkpoint.contents.get("")
        root = contents.root if contents is not None and contents.complete else None
        if checkpoint.layout != "lightning" or not isinstance(root, dict):
            return
        wrong = [*_of_model(root), *_of_optimizers(root), *_of_schedulers(root), *_gone(checkpoint, root)]
        for severity in (Severity.ERROR, Severity.SILENT):
            of_it = [one for one in wrong if one.severity is severity]
            if of_it:
                yield self._finding(of_it[0], [place(At("", one.path)) for one in of_it])

    def _finding(self, first: "_Wrong", places: list[str]) -> Finding:
        more = places[1:]
        then = f"; {some(more)} {'are' if len(more) > 1 else 'is'} wrong, too" if more else ""
        return Finding(
            code=self.code, severity=first.severity, where=places[0], message=f"{first.says}{then}", hint=_HINT
        )  # fmt: skip


class _Wrong(NamedTuple):
    """What lies somewhere, and what comes of it."""

    severity: Severity
    path: tuple[Any, ...]
    says: str


def _of_model(root: Mapping[Any, Value]) -> Iterator[_Wrong]:
    held = root.get(_MODEL)
    if _MODEL not in root:
        return
    if not isinstance(held, dict):
        yield _Wrong(Severity.ERROR, (_MODEL,), f"it is {kind(held)}, not a dict: {_MODULE} raises TypeError")
    elif not held and _has_parameters(root.get(_OPTIMIZERS)):
        message = f"it is empty, and the optimizer has parameters: {_MODULE} raises RuntimeError, unless the module "
        yield _Wrong(Severity.ERROR, (_MODEL,), f"{message}says strict_loading=False")


def _of_optimizers(root: Mapping[Any, Value]) -> Iterator[_Wrong]:
    """What is no list; of the states in a list `optimizer.structure` tells."""
    if _OPTIMIZERS not in root:
        return
    held = root[_OPTIMIZERS]
    yield from _no_list(held, _OPTIMIZERS, _OF_OPTIMIZERS, "the optimizers begin anew")
    for step, state in () if isinstance(held, list) else _walked(held):
        if isinstance(state, list | tuple):
            raised = "TypeError" if isinstance(state, list) else "AttributeError"
        elif not isinstance(state, dict):
            raised = "AttributeError"
        elif "param_groups" not in state:
            raised = "KeyError"
        else:
            continue
        message = f"it is {kind(state)}, no state of an optimizer: {_TORCH_OPTIMIZER} raises {raised}"
        yield _Wrong(Severity.ERROR, (_OPTIMIZERS, step), message)


def _of_schedulers(root: Mapping[Any, Value]) -> Iterator[_Wrong]:
    """A scheduler's `__dict__` is updated with whatever lies there."""
    if SCHEDULERS not in root:
        return
    yield from _no_list(root[SCHEDULERS], SCHEDULERS, _OF_SCHEDULERS, "the schedules begin anew")
    for step, state in _walked(root[SCHEDULERS]):
        where = (SCHEDULERS, step)
        if state is None or isinstance(state, int | float):
            says = f"it is {kind(state)}, not a dict: {_TORCH_SCHEDULER} raises TypeError"
            yield _Wrong(Severity.ERROR, where, says)
        elif isinstance(state, str) and state:
            says = f"it is {kind(state)}, not a dict: {_TORCH_SCHEDULER} raises ValueError"
            yield _Wrong(Severity.ERROR, where, says)
        elif not state and isinstance(state, dict | list | tuple | str):
            says = f"it is {kind(state)}: the schedule begins anew, and nothing is said"
            yield _Wrong(Severity.SILENT, where, says)


def _no_list(held: Value, key: str, caller: str, lost: str) -> Iterator[_Wrong]:
    """What the Trainer walks with `zip`: anything that can be walked."""
    if held is None or isinstance(held, int | float):
        yield _Wrong(Severity.ERROR, (key,), f"it is {kind(held)}, not a list: {caller} raises TypeError")
    elif not held and isinstance(held, dict | str):
        says = f"it is {kind(held)}, not a list: {lost}, and nothing is said"
        yield _Wrong(Severity.SILENT, (key,), says)


def _gone(checkpoint: Checkpoint, root: Mapping[Any, Value]) -> Iterator[_Wrong]:
    """An empty list, where Lightning counted steps of schedulers: it steps none but those that it saves."""
    loops = loops_of(checkpoint)
    if root.get(SCHEDULERS) in ([], ()) and loops and (loops.scheduler_steps or 0) > 0:
        says = f"it is empty, and Lightning stepped schedulers {told(loops.scheduler_steps or 0)} times "
        says += "(scheduler_progress): they begin anew, and nothing is said"
        yield _Wrong(Severity.SILENT, (SCHEDULERS,), says)


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
