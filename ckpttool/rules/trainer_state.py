"""`trainer.state`."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import number
from ckpttool.layouts import some
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import kind
from ckpttool.rules._releases import release
from ckpttool.values import Opaque, Value

_STATE: Final = "trainer_state.json"
_LOAD = "TrainerState.load_from_json of transformers/trainer_callback.py"
_KNOWN: Final = frozenset(
    (
        "epoch", "global_step", "max_steps", "logging_steps", "eval_steps", "save_steps", "train_batch_size",
        "num_train_epochs", "num_input_tokens_seen", "total_flos", "log_history", "best_metric", "best_global_step",
        "best_model_checkpoint", "is_local_process_zero", "is_world_process_zero", "is_hyper_param_search",
        "trial_name", "trial_params", "stateful_callbacks",
    )
)  # fmt: skip
_RELEASE = (5, 24)  # of transformers, whose fields these are
_BITS = 64
_CONTROLLER = "TrainerControl"
_CONTROL = frozenset(
    ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
)  # fmt: skip


class _Fact(NamedTuple):
    """What a resume does with an entry, and what it raises on another kind of value."""

    takes: Callable[[Value], bool]
    wanted: str
    exception: str
    caller: str
    when: Callable[[Checkpoint], bool] = lambda _: True  # whether a run with the saved arguments comes to it
    needed: bool = False  # it raises too where the entry is absent


def _is_number(value: Value) -> bool:
    return number(value) is not None


def _is_listed(value: Value) -> bool:
    """`log_history` is made a list where it is None; `append` is all that it has to know."""
    return value is None or isinstance(value, list)


def _is_callbacks(value: Value) -> bool:
    return isinstance(value, dict) or value in (None, [], "")


def _is_path(value: Value) -> bool:
    return value is None or isinstance(value, str | int)


def _by_steps(argument: str, *, default: bool) -> Callable[[Checkpoint], bool]:
    """Whether something is done every so many steps, as the saved arguments say."""

    def asked(checkpoint: Checkpoint) -> bool:
        said = checkpoint.config.get(argument)
        spelled = said.args[0] if isinstance(said, Opaque) and isinstance(said.args, tuple) and said.args else said
        return spelled == "steps" if isinstance(spelled, str) else default

    return asked


def _saves(checkpoint: Checkpoint) -> bool:
    """Whether the run goes on to save, as far as the arguments tell."""
    said = checkpoint.config.get("save_strategy")
    return "no" not in (said, *(said.args if isinstance(said, Opaque) and isinstance(said.args, tuple) else ()))


def _counts_tokens(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("include_num_input_tokens_seen") not in (None, False, "no")


_FLOW = "DefaultFlowCallback.on_step_end of transformers/trainer_callback.py"
_FACTS: Final[Mapping[str, _Fact]] = {
    "global_step": _Fact(_is_number, "a whole number", "TypeError", "Trainer._init_training_state"),
    "train_batch_size": _Fact(
        _is_number, "a number", "TypeError", "compare_trainer_and_checkpoint_args of transformers/trainer_utils.py",
        needed=True,
    ),
    "stateful_callbacks": _Fact(_is_callbacks, "a dict", "TypeError", _LOAD),
    "log_history": _Fact(_is_listed, "a list", "AttributeError", "Trainer.log"),
    "total_flos": _Fact(_is_number, "a number", "TypeError", "Trainer.store_flos"),
    "best_model_checkpoint": _Fact(_is_path, "a path", "TypeError", "Trainer._init_training_state"),
    "num_input_tokens_seen": _Fact(_is_number, "a number", "TypeError", "Trainer._run_epoch", _counts_tokens),
    "logging_steps": _Fact(_is_number, "a number", "TypeError", _FLOW, _by_steps("logging_strategy", default=True)),
    "save_steps": _Fact(_is_number, "a number", "TypeError", _FLOW, _by_steps("save_strategy", default=True)),
    "eval_steps": _Fact(_is_number, "a number", "TypeError", _FLOW, _by_steps("eval_strategy", default=False)),
}  # fmt: skip


class TrainerState:
    """An entry of `trainer_state.json` that the Trainer does not take.

    What: each entry against the field of `TrainerState` that it becomes: unknown names, and values of a kind that the
    resume trips over. What is written again at once (`epoch`, `max_steps`, `trial_name`) may be anything.
    `stateful_callbacks` has to know `TrainerControl`, which releases before 4.41 did not write.

    Why: the Trainer raises TypeError when it builds the state, or later: at the first step, the first log, or, after
    hours of training, at the first save.

    Example: `trainer_state.json: global_step: global_step is a str, not a whole number: Trainer._init_training_state
    raises TypeError`

    Reference: transformers/trainer_callback.py `TrainerState`, transformers/trainer.py `_init_training_state`,
    transformers 5.24.
    """

    code: ClassVar[str] = "trainer.state"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        if checkpoint.layout != "hf-trainer" or not any(p.name == _STATE and p.read for p in checkpoint.files):
            return
        state = _state(checkpoint)
        yield from self._unknown(checkpoint, state)
        for key, fact in _FACTS.items():
            if not fact.when(checkpoint) or (key not in state and not fact.needed):
                continue
            if key not in state or not fact.takes(state[key]):
                is_what = f"is {kind(state[key])}, not {fact.wanted}" if key in state else "is not there"
                yield self._error(key, f"{key} {is_what}: {fact.caller} raises {fact.exception}")
        yield from self._step(checkpoint, state.get("global_step"))
        yield from self._every(checkpoint, state)
        yield from self._control(checkpoint, state.get("stateful_callbacks"))
        if checkpoint.config.get("restore_callback_states_from_checkpoint") is True:
            yield from self._callbacks(state.get("stateful_callbacks"))

    def _unknown(self, checkpoint: Checkpoint, state: Mapping[str, Value]) -> Iterator[Finding]:
        unknown = sorted(key for key in state if key not in _KNOWN)
        said = checkpoint.config.get("transformers_version")
        version = said if isinstance(said, str) else ""
        if unknown and release(version)[:2] > _RELEASE:
            message = f"{some(unknown)}: no field of TrainerState in transformers 5.24, where {_LOAD} raises TypeError"
            hint = f"resume with transformers {version}, which saved it"
            yield self._finding(Severity.WARNING, str(unknown[0]), message, hint)
        elif unknown:
            yield self._error(unknown[0], f"{some(unknown)}: no field of TrainerState: {_LOAD} raises TypeError")

    def _step(self, checkpoint: Checkpoint, step: Value) -> Iterator[Finding]:
        """A number with a point counts batches to skip, which `range` does not take; at an epoch's end there is none.

        Source: transformers/trainer.py, `_run_epoch`
        """
        if isinstance(step, int) and step.bit_length() > _BITS:
            message = "global_step is beyond 64 bits: the Trainer ends at once, and says nothing"
            yield self._finding(Severity.SILENT, "global_step", message, "write the step that the folder's name says")
        if not isinstance(step, float):
            return
        if not math.isfinite(step):
            yield self._error("global_step", f"global_step is {step}: Trainer._init_training_state raises ValueError")
            return
        epoch = next((number(c.value) for c in checkpoint.counters if c.name == "epoch"), None)
        at_end = epoch is not None and float(epoch).is_integer() and step.is_integer()
        if not at_end and checkpoint.config.get("ignore_data_skip") is not True:
            message = f"global_step is {step}, a float, within an epoch: Trainer._run_epoch raises TypeError"
            yield self._error("global_step", message)

    def _every(self, checkpoint: Checkpoint, state: Mapping[str, Value]) -> Iterator[Finding]:
        """Logging and evaluation every 0 steps; saving asks for more than 0."""
        for key in ("logging_steps", "eval_steps"):
            if _FACTS[key].when(checkpoint) and key in state and number(state[key]) == 0:
                yield self._error(key, f"{key} is 0: {_FLOW} raises ZeroDivisionError")

    def _control(self, checkpoint: Checkpoint, kept: Value) -> Iterator[Finding]:
        """A save looks the state of each callback up to write the newer one; the control's is always there."""
        if _is_callbacks(kept) and _CONTROLLER not in _keys(kept) and _saves(checkpoint):
            where = f"stateful_callbacks.{_CONTROLLER}"
            said = f"{_CONTROLLER} is not there: at the first save Trainer._save_checkpoint raises KeyError"
            yield self._error(where, said)

    def _callbacks(self, kept: Value) -> Iterator[Finding]:
        """What `_load_callback_state` trips over: it asks each entry for `args` and `attributes`."""
        for name, entries in kept.items() if isinstance(kept, dict) else ():
            for entry in entries if isinstance(entries, list) else [entries]:
                where = f"stateful_callbacks.{name!s}"
                if not isinstance(entry, dict):
                    said = f"{name} is {kind(entry)}, not a dict: Trainer._load_callback_state raises AttributeError"
                    yield self._error(where, said)
                elif name == _CONTROLLER and (odd := _keys(entry.get("args")) - _CONTROL):
                    said = f"TrainerControl has no {some(sorted(odd))}: Trainer._load_callback_state raises TypeError"
                    yield self._error(where, said)

    def _error(self, key: str, message: str) -> Finding:
        return self._finding(Severity.ERROR, key, message, "take the entry of another checkpoint of the run")

    def _finding(self, severity: Severity, key: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=f"{_STATE}: {key}", message=message, hint=hint)


def _state(checkpoint: Checkpoint) -> dict[str, Value]:
    """The whole of it: the layout keeps its numbers as counters and the rest as one object."""
    rest: dict[str, Value] = {}
    for custom in checkpoint.custom:
        if custom.at.file == _STATE and isinstance(custom.value, dict):
            rest.update(custom.value)
    return rest | {c.key: c.value for c in checkpoint.counters if c.at.file == _STATE}


def _keys(value: Any) -> set[str]:
    return {str(key) for key in value} if isinstance(value, dict) else set()
