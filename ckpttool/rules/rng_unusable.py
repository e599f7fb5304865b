"""`rng.unusable`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import tensors_in
from ckpttool.layouts import some
from ckpttool.model import At, Contents
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import CALLS, ONLY, Refusal, kind, refusal
from ckpttool.rules._globals import NUMPY_GLOBALS
from ckpttool.rules._places import place
from ckpttool.rules._rng_slots import CUDA, FILES, KEYS, Slot, slots
from ckpttool.values import KeyPath, TensorRef, Trust, Value

_TRAINER = "_load_rng_state of transformers/trainer.py"
_ACCELERATE = "load_accelerator_state of accelerate/checkpointing.py"
_LOGGED = "swallows it with a line at INFO"
_HINT = f"take the random states of another checkpoint of the run, or remove them: {ONLY}"


class RngUnusable:
    """A state that its random generator does not take: of another length, type or kind.

    What: for Python the tuple (3, 625 integers, next gauss), for numpy the tuple ('MT19937', 624 words, position,
    has_gauss, cached_gaussian) or the dict of a bit generator, for torch a contiguous ByteTensor of 5,056 bytes on the
    CPU and of 16 for each CUDA device; and the keys that Accelerate and the Trainer always write. Both load arrays of
    numpy only where they are of uint32, as its words are. In a script's file, keys that name their generator,
    `torch_rng_state`, `rng.numpy`, or states under `rng`, `rng_state`, `generator_state` that are of one by their form.
    Of torch's own on the CPU, whether it was seeded and how far it came are read.

    Why: the generator raises, and the Trainer and most scripts with it. Accelerate restores Python, numpy and torch in
    that order in one `try`: it goes on without the one and all after it, and says so at INFO only.

    Example: `rng_state.pth: cpu: it has 16 bytes, not 5,056: torch.set_rng_state raises RuntimeError`

    Reference: torch/random.py `set_rng_state`, torch 2.13; transformers/trainer.py `_load_rng_state` and
    trainer_pt_utils.py `set_rng_state_for_device`, 5.24; accelerate/checkpointing.py `load_accelerator_state`, 1.15.
    """

    code: ClassVar[str] = "rng.unusable"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        checkpoint = case.checkpoint
        pattern = FILES.get(checkpoint.layout)
        for file, contents in checkpoint.contents.items():
            if pattern is not None and pattern.fullmatch(file) and not _is_refused(contents):
                yield from self._of_trainer(checkpoint.layout, file, contents)
        for slot in slots(checkpoint):
            if wrong := refusal(slot.generator, slot.value):
                yield self._of_script(slot, wrong)

    def _of_trainer(self, layout: str, file: str, contents: Contents) -> Iterator[Finding]:
        root = contents.root
        if (array := _refused_array(contents)) is not None:
            yield self._of_loading(layout, array, file)
            return
        if not isinstance(root, dict):
            yield self._not_a_dict(layout, file, root)
            return
        absent = [key for key in KEYS[layout] if key not in root]
        if absent:
            says = f"{some(absent)} are not there" if len(absent) > 1 else "it is not there"
            where = place(At(file), *absent[: len(absent) == 1])
            lost = _lost(layout, KEYS[layout][absent[0]], root) if layout == "accelerate" else ""
            yield self._finding(where, Refusal("KeyError", says), "the look-up", lost)
        for key, generator in KEYS[layout].items():
            if key in root and (wrong := refusal(generator, root[key])):
                lost = _lost(layout, generator, root) if layout == "accelerate" else ""
                yield self._finding(place(At(file), key), wrong, CALLS[generator], lost)
        device = CUDA[layout]
        if root.get(device) and (wrong := refusal("cuda", root[device])):
            yield self._of_device(layout, place(At(file), device), wrong)

    def _of_loading(self, layout: str, array: tuple[KeyPath, TensorRef], file: str) -> Finding:
        path, held = array
        wrong = Refusal("UnpicklingError", f"it is {kind(held)}, and torch.load is told of none but uint32")
        lost = _lost(layout, "python", {}) if layout == "accelerate" else ""
        return self._finding(place(At(file), *path), wrong, "torch.load", lost)

    def _not_a_dict(self, layout: str, file: str, root: Value) -> Finding:
        if layout == "accelerate":
            said = f"{_ACCELERATE} {_LOGGED}: no generator goes on where it was, and Accelerate's step stays at 0"
            severity = Severity.SILENT
        else:
            exception = "IndexError" if isinstance(root, TensorRef) else "TypeError"
            severity, said = Severity.ERROR, f"{_TRAINER} raises {exception}"
        return self._say(severity, file, f"it holds {kind(root)}, not a dict of states: {said}")

    def _finding(self, where: str, wrong: Refusal, by: str, lost: str) -> Finding:
        if not wrong.exception:
            return self._say(Severity.SILENT, where, f"{wrong.says}: {by} takes it, and draws other numbers")
        raised = f"{wrong.says}: {by} raises {wrong.exception}"
        if not lost:
            return self._say(Severity.ERROR, where, f"{raised}, in {_TRAINER}")
        return self._say(Severity.SILENT, where, f"{raised}; {_ACCELERATE} {_LOGGED}: {lost}")

    def _of_device(self, layout: str, where: str, wrong: Refusal) -> Finding:
        """Both trainers go on without the states of devices; where there is no such device nothing is lost."""
        caller = f"{_ACCELERATE} {_LOGGED}" if layout == "accelerate" else "the Trainer logs it and goes on"
        said = f"{wrong.says}: on CUDA {CALLS['cuda']} raises {wrong.exception}; {caller}"
        return self._say(Severity.SILENT, where, said)

    def _of_script(self, slot: Slot, wrong: Refusal) -> Finding:
        call = CALLS[slot.generator]
        if not wrong.exception:
            said = f"{wrong.says}: {call} takes it, and draws other numbers"
            return self._say(Severity.SILENT, place(slot.at), said)
        said = f"{wrong.says}: {call} raises {wrong.exception}"
        if not slot.sure:
            return self._say(Severity.WARNING, place(slot.at), f"{said}, unless the script takes it for something else")
        return self._say(Severity.ERROR, place(slot.at), said)

    def _say(self, severity: Severity, where: str, message: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=_HINT)


def _lost(layout: str, generator: str, root: Mapping[Any, Value]) -> str:
    """What is not restored once a generator of Accelerate's raised; the step is taken before all of them."""
    names = list(KEYS[layout].values())
    step = "" if "step" in root else ", and Accelerate's step stays at 0"
    return f"not restored are {', '.join(names[names.index(generator) :])}{step}"


def _is_refused(contents: Contents) -> bool:
    """Whether it names globals that the trainers' `torch.load` refuses, of which `load.weights-only` tells."""
    return any(use.trust is not Trust.ACCEPTED and use.ref not in NUMPY_GLOBALS for use in contents.globals)


def _refused_array(contents: Contents) -> tuple[KeyPath, TensorRef] | None:
    """The first array whose dtype the trainers' `torch.load` refuses: each dtype of numpy is a class of its own."""
    for path, held in tensors_in(contents.root):
        if held.kind == "ndarray" and (held.dtype.family, held.dtype.bits) != ("uint", 32):
            return path, held
    return None
