"""`callback.state`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.layouts import some
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import kind
from ckpttool.rules._places import figure
from ckpttool.rules._trained import siblings
from ckpttool.values import GlobalRef, Value

_ARGUMENT = re.compile(r"'(\w+)': (.*?)(?=, '\w+': |$)")
_LONGEST_KEY = 4_000  # characters
_CONTROL = "TrainerControl"
_LIGHTNING = "lightning/pytorch/trainer/call.py"


class _Wanted(NamedTuple):
    """What `load_state_dict` of a callback looks up, and what it raises on something that is no dict."""

    keys: tuple[str, ...]
    exception: str


_WANTED = {
    "ModelCheckpoint": _Wanted(("best_model_path",), "AttributeError"),
    "EarlyStopping": _Wanted(("wait_count", "stopped_epoch", "best_score", "patience"), "TypeError"),
}
_FORGETFUL = ("ModelCheckpoint", "Timer", "ModelSummary", "LearningRateMonitor")  # whose state steers no training


class CallbackState:
    """What callbacks kept does not come back: patience, the best score, the best file.

    What: in Lightning, a checkpoint with optimizers and without `callbacks`: silent where another checkpoint of the run
    shows that a callback steered training by what it kept (early stopping, a monitored best score, one of the user's),
    else a warning, as a ModelCheckpoint that monitors nothing only forgets a file's name; states of ModelCheckpoint and
    EarlyStopping that they do not take; against another checkpoint, callbacks that are kept under other arguments or
    are not there. In the Trainer's state, callbacks that counted something while
    `restore_callback_states_from_checkpoint` is off, as it is unless one says otherwise.

    Why: Lightning finds a callback's state by a key that spells the callback's arguments, so that any other argument
    loses it, and says nothing where `callbacks` is absent. The Trainer passes over the states by default, so that early
    stopping waits its whole patience again.

    Example: `EarlyStoppingCallback counted 2 of 3, and restore_callback_states_from_checkpoint=False`

    Reference: lightning/pytorch/trainer/call.py `_call_callbacks_load_state_dict`, Lightning 2.6;
    transformers/trainer.py `_load_callback_state`, transformers 5.24; Lightning-AI/pytorch-lightning#15606.
    """

    code: ClassVar[str] = "callback.state"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        here, there = case.checkpoint, case.other
        if here.layout == "lightning":
            yield from self._absent(case)
            yield from self._refused(here)
            if there is not None and there.layout == "lightning":
                yield from self._renamed(here, there)
        elif here.layout == "hf-trainer":
            yield from self._passed_over(here)

    def _absent(self, case: Case) -> Iterator[Finding]:
        root = _dict(case.checkpoint.contents[""].root)
        if "optimizer_states" not in root or root.get("callbacks") is not None:
            return
        beside = [*siblings(case), *([case.other] if case.other is not None else [])]
        steering = sorted({name for one in beside for name in _steering(one)})
        said = "callbacks is not there, which Lightning always saves with the optimizers: "
        if steering:
            severity, lost = Severity.SILENT, f"{some(steering)}, kept in another checkpoint of the run, begins afresh"
        else:
            severity, lost = (
                Severity.WARNING,
                "a best score and a patience, if there were any, start afresh",
            )
        yield self._finding(
            severity,
            "callbacks",
            f"{said}{lost}, and nothing is said ({_LIGHTNING})",
            "resume from a checkpoint that has them",
        )

    def _refused(self, here: Checkpoint) -> Iterator[Finding]:
        """What callbacks of Lightning's own do not take as their state; nothing is asked of an empty one."""
        held = _dict(here.contents[""].root).get("callbacks")
        if held is not None and not isinstance(held, dict):
            said = f"callbacks is {kind(held)}, not a dict: _call_callbacks_on_load_checkpoint raises AttributeError"
            yield self._finding(Severity.ERROR, "callbacks", f"{said} ({_LIGHTNING})", "remove it, or take another's")
        for key, state in _dict(held).items():
            name = _class_of(key)
            wanted = _WANTED.get(name)
            if wanted is None or not state:
                continue
            exception, lacking = wanted.exception, [k for k in wanted.keys if k not in _dict(state)]
            if not isinstance(state, dict):
                said = f"its state is {kind(state)}, not a dict: {name}.load_state_dict raises {exception}"
            elif lacking:
                said = f"its state lacks {some(lacking)}: {name}.load_state_dict raises KeyError"
            else:
                continue
            hint = "take the callback's state from another checkpoint, or remove it"
            yield self._finding(Severity.ERROR, f"callbacks: {name}", said, hint)

    def _renamed(self, here: Checkpoint, there: Checkpoint) -> Iterator[Finding]:
        mine, theirs = _callbacks(here) or {}, _callbacks(there) or {}
        for key in theirs:
            if key in mine or not _class_of(key):
                continue
            twin = next((k for k in mine if _class_of(k) == _class_of(key) and k not in theirs), None)
            name = _class_of(key)
            if twin is None:
                said = f"{name} is in the other checkpoint and not here: it starts afresh in a run of the other"
            else:
                differing = _differing(twin, key)
                said = f"{name} is kept under other arguments than in the other checkpoint ({differing}): a run with "
                said += "those of the other does not find its state"
            yield self._finding(
                Severity.WARNING, f"callbacks: {name}", said, "give the callback the arguments that it was saved with"
            )

    def _passed_over(self, here: Checkpoint) -> Iterator[Finding]:
        if here.config.get("restore_callback_states_from_checkpoint") is not False or not here.optimizers:
            return
        for name, args, attributes in _kept(here):
            patience = attributes.get("early_stopping_patience_counter")
            counted = {k: v for k, v in attributes.items() if not _is_nothing(v)}
            if isinstance(patience, int) and patience:
                of = args.get("early_stopping_patience")
                limit = f" of {figure(of)}" if isinstance(of, int) else ""
                severity, said = Severity.SILENT, f"counted {figure(patience)}{limit} evaluations without progress"
            elif counted:
                severity, said = Severity.WARNING, f"kept {some(sorted(map(str, counted)))}"
            else:
                continue
            yield self._finding(
                severity,
                f"trainer_state.json: stateful_callbacks.{name}",
                f"{name} {said}, and restore_callback_states_from_checkpoint=False: the Trainer passes over it and "
                "begins at 0 (transformers/trainer.py, _load_callback_state)",
                "set restore_callback_states_from_checkpoint=True",
            )

    def _finding(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _callbacks(checkpoint: Checkpoint) -> Mapping[Any, Value] | None:
    found = _dict(checkpoint.contents[""].root).get("callbacks")
    return found if isinstance(found, dict) else None


def _steering(checkpoint: Checkpoint) -> Iterator[str]:
    """Callbacks whose state decides how training goes on."""
    for key, state in (_callbacks(checkpoint) or {}).items():
        name = _class_of(key)
        monitored = name == "ModelCheckpoint" and _dict(state).get("best_model_score") is not None
        if name and state and (monitored or name not in _FORGETFUL):
            yield name


def _kept(checkpoint: Checkpoint) -> Iterator[tuple[str, Mapping[Any, Value], Mapping[Any, Value]]]:
    """Callbacks of the Trainer's state: name, arguments, attributes; several of a class are a list."""
    states = [_dict(c.value) for c in checkpoint.custom if c.name == "trainer_state"]
    for state in states:
        for name, kept in _dict(state.get("stateful_callbacks")).items():
            for one in kept if isinstance(kept, list) else [kept]:
                if name != _CONTROL:
                    yield str(name), _dict(_dict(one).get("args")), _dict(_dict(one).get("attributes"))


def _is_nothing(value: Value) -> bool:
    """Whether an attribute is as a callback begins with, as far as one can tell."""
    match value:
        case None | 0 | 0.0 | "":  # and False
            return True
        case list() | dict():
            return not value
    return False


def _dict(value: Value) -> Mapping[Any, Value]:
    return value if isinstance(value, dict) else {}


def _class_of(key: Any) -> str:
    text = key.name if isinstance(key, GlobalRef) else key if isinstance(key, str) else ""
    return text.split("{", 1)[0].rsplit(".", 1)[-1]


def _differing(mine: Any, its: Any) -> str:
    """The arguments that two keys of one class spell differently: `here mode: 'max', there mode: 'min'`."""
    here, there = _arguments(mine), _arguments(its)
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    sides = [(name, side, of[name]) for name in names for side, of in (("here", here), ("there", there)) if name in of]
    return some([f"{side} {name}: {spelled}" for name, side, spelled in sides])


def _arguments(key: Any) -> Mapping[str, str]:
    """The arguments that a key spells: `ModelCheckpoint{'monitor': None, 'mode': 'min'}`."""
    inside = str(key)[:_LONGEST_KEY].partition("{")[2].removesuffix("}")
    return dict(_ARGUMENT.findall(inside))
