"""What Lightning writes beside its loops, against them: a resume goes by the loops alone.

Source: lightning/pytorch/trainer/connectors/checkpoint_connector.py, `dump_checkpoint` of 2.6: "saved for
compatibility but they are not relevant for restoration".
"""

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.blocks import Severity
from ckpttool.model import Checkpoint
from ckpttool.rules._bounded import told
from ckpttool.rules._counts import Counts
from ckpttool.rules._loops import Loops
from ckpttool.rules._places import place


class Disagreement(NamedTuple):
    """One of the counters at the top, and what the loops say."""

    severity: Severity
    where: str
    message: str
    hint: str


def disagreements(checkpoint: Checkpoint, counts: Counts, loops: Loops) -> Iterator[Disagreement]:
    """Counters at the top that are not those of the loops.

    It is the loops that are odd where the optimizers agree with the top; `lightning.loops` tells of odd epochs.
    """
    for name, goes_by, said in (("global_step", loops.steps, counts.step), ("epoch", loops.epochs, counts.epoch)):
        counter = next((c for c in checkpoint.counters if c.name == name), None)
        if counter is None or goes_by is None or said is None or said == goes_by:
            continue
        goes_on = told(goes_by)
        message = f"{counter.key} is {told(said)}, the loops count {goes_on}: Lightning goes on at {goes_on}"
        if name == "global_step" and counts.optimizers and sum(o.steps for o in counts.optimizers) == said:
            message += ", from where it counts max_steps and saves by steps, though the optimizer agrees with the top"
            yield Disagreement(Severity.WARNING, place(counter.at), message, "resume from another checkpoint")
        else:
            hint = "the counters at the top are not read on resume"
            yield Disagreement(Severity.NOTE, place(counter.at), message, hint)
