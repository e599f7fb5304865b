"""`model.nesting`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.keypaths import spelled_path
from ckpttool.model import Checkpoint, Role, Weights
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, raising
from ckpttool.rules._places import place
from ckpttool.rules._trained import resumes

_USUAL = frozenset(("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network", "weights"))


class Nesting:
    """The weights do not lie where one looks for them.

    What: the one state_dict of a file that scripts write themselves, where it lies two or more keys deep, or where a
    file of weights keeps it under a key of its own (`netG`). Held against another checkpoint: another place than
    there.

    Why: `load_state_dict` of the whole file raises, since its keys are `model` and `epoch`; a key that is not there
    raises KeyError.

    Example: `the weights lie under state_dict.state_dict`

    Reference: torch/nn/modules/module.py `load_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "model.nesting"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        mine = _only(case.checkpoint)
        if mine is None:
            return
        path = mine.at.path
        if not all(isinstance(step, str) for step in path):  # in a list or an object: no one's state_dict
            return
        key = spelled_path(path)
        other = None if case.other is None else _only(case.other)
        if other is not None:
            if other.at.path != path and resumes(case.checkpoint) == resumes(case.other or case.checkpoint):
                yield self._elsewhere(case, mine, other)
            return
        unusual = len(path) == 1 and not resumes(case.checkpoint) and str(path[0]).lower() not in _USUAL
        if len(path) > 1 or unusual:
            yield Finding(
                code=self.code,
                severity=Severity.NOTE,
                where=place(mine.at),
                message=f"the weights lie under `{key}`: load_state_dict of the whole file raises {RAISED}",
                hint=f"load what is at `{key}`, or `ckpt convert SRC DST --part model` writes it by itself",
            )

    def _elsewhere(self, case: Case, mine: Weights, other: Weights) -> Finding:
        here, there = spelled_path(mine.at.path) or "the top", spelled_path(other.at.path) or "the top"
        missed = other.at.path and other.at.path[0] not in _keys(case.checkpoint)
        raised = f"KeyError: {other.at.path[0]!r}" if missed else RAISED
        return Finding(
            code=self.code,
            severity=raising(case),
            where=place(mine.at),
            message=f"the weights lie under `{here}`, in the other checkpoint under `{there}`: "
            f"a script that loads the other raises {raised}",
            hint="load each from its own place, or save this one again as the other is saved",
        )


def _only(checkpoint: Checkpoint) -> Weights | None:
    """The one state_dict of a single file that no trainer claims; a pickled module is loaded as it is."""
    models = [w for w in checkpoint.weights if w.role is Role.MODEL]
    if checkpoint.layout != "plain" or checkpoint.is_folder or len(models) != 1 or models[0].at.file:
        return None
    return models[0]


def _keys(checkpoint: Checkpoint) -> frozenset[str]:
    root = checkpoint.contents[""].root
    return frozenset(k for k in root if isinstance(k, str)) if isinstance(root, dict) else frozenset()
