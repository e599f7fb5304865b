"""`progress.not-restored`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.arrival.counting import CounterArrival, epochs_fit, last
from ckpttool.blocks import Finding, Severity
from ckpttool.model import Role
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import arrived, some
from ckpttool.rules._bounded import told
from ckpttool.rules._places import place


class ProgressNotRestored:
    """The run counts its steps or epochs from another place than the checkpoint says.

    What: the script's counters by their names (`epoch`, `global_step`, `iter_num`), in its own frames and in the state
    of its trainer, against those of the checkpoint; one more is right, since what was completed is not begun again.

    Why: training takes another number of steps, and whatever goes by the step (the learning rate of a function of
    one's own, the order of the data, evaluations) is out of place.

    Example: `epoch is 3 in the checkpoint, and the run stands at 0 (train.py:80 main)`

    Reference: pytorch/examples imagenet/main.py `start_epoch`.
    """

    code: ClassVar[str] = "progress.not-restored"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding a counter that the run has and holds at another value."""
        found = arrived(case)
        if found is None:
            return
        lost = [c for c in found.counters if c.outcome is Outcome.ABSENT]
        kinds = {c.saved.name for c in found.counters if c.outcome is Outcome.REACHED}
        for one in lost:
            if case.checkpoint.layout == "lightning" and len(one.saved.at.path) == 1:
                continue  # Lightning reads its loops, not these
            if one.saved.name not in kinds and not ({"global_step", "step"} >= {one.saved.name} and kinds & _STEPS):
                yield self._lost(one)
        asked = found.was_asked(Role.PROGRESS)
        if asked and not found.counters and self._begins_anew(found):
            message = (
                f"the script asked for {some(asked)}, which is not there, and went on: it counts from the beginning"
            )
            yield self._finding(Severity.SILENT, some(asked), message)

    def _lost(self, one: CounterArrival) -> Finding:
        nearest = min(one.live, key=lambda c: (abs(c.value - one.value), len(c.name)))
        message = (
            f"{one.saved.key} is {told(one.value)} in the checkpoint, and {last(nearest.name)} of the run is "
            f"{told(nearest.value)} ({nearest.where})"
        )
        return self._finding(Severity.SILENT, place(one.saved.at) or one.saved.key, message)

    def _begins_anew(self, found: Arrival) -> bool:
        """Whether the run stands at its beginning though its optimizer does not."""
        counting = [c for c in found.facts.counters if last(c.name) in ("epoch", "start_epoch", "global_step", "step")]
        if not counting or not found.steps.taken:
            return False
        epochs = [c.value for c in counting if "epoch" in last(c.name)]
        if epochs and epochs_fit(max(epochs), found.steps) is False:
            return True
        return all(c.value <= 1 for c in counting)

    def _finding(self, severity: Severity, where: str, message: str) -> Finding:
        hint = "start the loop from the counter of the checkpoint"
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


_STEPS = {"global_step", "step"}
