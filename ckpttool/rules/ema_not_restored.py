"""`ema.not-restored`."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.counting import last
from ckpttool.blocks import Finding, Severity
from ckpttool.facts import ModuleFact
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived, some
from ckpttool.rules._places import count, place

_BEGUN = 2  # steps after which an average has been updated
_COUNT = re.compile(r"^(?:n_?|num_?)?(?:updates?|averaged|steps?|optimization_step)$")
_OF_EMA = re.compile(r"ema|averag|shadow|swa", re.IGNORECASE)
_MOST = 0.5  # of the tensors: a copy that shares so many names is one of the model


class EmaNotRestored:
    """The averaged weights of the checkpoint are not those of the run.

    What: the averaged weights, by content, in modules that are not trained and in tensors that objects and dicts hold.

    Why: the average starts from whatever the weights are now. What is evaluated and kept in the end is the average of
    another run for as long as the decay remembers.

    Example: `ema: 0 of 28 averaged tensors reached the run, whose average starts afresh`

    Reference: torch/optim/swa_utils.py `AveragedModel`, torch 2.13; timm/utils/model_ema.py.
    """

    code: ClassVar[str] = "ema.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a set of averaged weights, or one for those that the checkpoint lacks."""
        found = arrived(case)
        if found is None:
            return
        averaged = [w for w in found.weights if w.weights.role is Role.EMA]
        keeps = _keeps_average(found)
        for one in averaged:
            if one.outcome in (Outcome.ABSENT, Outcome.CHANGED):
                came = len(one.weights.tensors) - len(one.lost)
                said = f"{came:,} of {count(len(one.weights.tensors), 'averaged tensor')} reached the run"
                after = ", whose average goes on from something else" if keeps else ", which keeps no average"
                yield self._finding(keeps=keeps, where=place(one.weights.at) or one.weights.name, message=said + after)
            elif one.outcome is Outcome.REACHED:
                yield from self._warms_up_again(found)
        asked = found.was_asked(Role.EMA)
        if asked and not averaged and keeps:
            message = f"the script asked for {some(asked)}, which is not there, and went on: the average starts afresh"
            yield self._finding(keeps=keeps, where=some(asked), message=message)

    def _warms_up_again(self, found: Arrival) -> Iterator[Finding]:
        """Averages whose decay grows with the number of updates count them."""
        if not found.steps.taken or found.steps.taken < _BEGUN:
            return
        counts = [c for c in found.facts.counters if c.own and _COUNT.search(last(c.name)) and _is_averages(c.where)]
        if counts and not any(c.value for c in counts):
            one = counts[0]
            message = (
                f"{last(one.name)} of the average is 0 ({one.where}) after {found.steps.taken:,} steps: a decay that "
                "grows with it begins anew, and what was averaged is soon forgotten"
            )
            yield self._finding(keeps=True, where=one.where, message=message)

    def _finding(self, *, keeps: bool, where: str, message: str) -> Finding:
        severity = Severity.SILENT if keeps else Severity.WARNING
        hint = "load the averaged weights into the object that keeps them"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _keeps_average(found: Arrival) -> bool:
    """Whether the run keeps a copy of its weights that is not trained: as a module, or as loose tensors."""
    if found.facts.loose:
        return True
    trained = [m for m in found.facts.modules if m.trained]
    copies = [m for m in found.facts.modules if not m.trained]
    return any(_is_copy(copy, model) for copy in copies for model in trained)


def _is_copy(copy: ModuleFact, model: ModuleFact) -> bool:
    ends = {n.removeprefix("module.") for n in copy.tensors}
    shared = sum(n.removeprefix("module.") in ends for n in model.tensors)
    return shared > _MOST * max(len(model.tensors), 1)


def _is_averages(where: str) -> bool:
    """Whether a counter lies in an object that keeps averages: `ModelEMA of main`."""
    kind, of, _ = where.partition(" of ")
    return bool(of) and _OF_EMA.search(kind) is not None
