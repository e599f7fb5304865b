"""States that belong to no parameter of a group, and numbers that skip."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._optimizers import figure, some, state_of, unseen, whole
from ckpttool.rules._places import count, place

_ADDRESS = 1 << 32  # torch 1.5 and older number parameters by their address in memory, and leave gaps rightly


class OptimizerIndexGap:
    """Keys of `state` and ids of the groups do not go together.

    What: a state whose id no group lists; an id that two parameters share; ids that skip a number, which torch 1.6
    and newer do not write. Ids of torch 1.5 and older are memory addresses and load rightly.

    Why: `load_state_dict` keeps a state that no group lists under its bare id, where no parameter finds it, and says
    nothing: the parameter starts with new moments. Ids are matched by position, so where one was taken out of a
    group all behind it move up.

    Example: `optimizer.state: 7 states that no group lists: '0', '1', '2' and 4 more; the groups list numbers, and
    text is no number; load_state_dict keeps them where no parameter finds them, and says nothing`

    Reference: torch 2.13 optim/optimizer.py `load_state_dict` ("State that is not assigned to params is copied as
    is").
    """

    code: ClassVar[str] = "optimizer.index-gap"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        """At most one finding of each kind, an optimizer."""
        yield from unseen(self.code, case)
        for optimizer in whole(case):
            ids = [param for group in optimizer.groups for param in group.params if isinstance(param, int | str)]
            if len(ids) == sum(len(group.params) for group in optimizer.groups):  # else it is a pickled optimizer
                yield from self._orphans(optimizer, ids)
                yield from self._numbers(optimizer, ids)

    def _orphans(self, optimizer: OptimizerState, ids: list[int | str]) -> Iterator[Finding]:
        listed = set(ids)
        known = {key for param in ids for key in state_of(optimizer, param)} or set(optimizer.state_keys)
        orphans = [
            key
            for key, entry in optimizer.state.items()
            # An entry of another kind is what an optimizer of one's own keeps for all parameters together.
            if key not in listed and isinstance(key, int | str) and entry and known & entry.keys()
        ]
        if not orphans:
            return
        names = [repr(key) if isinstance(key, str) else figure(key) for key in orphans]
        what = f"{count(len(orphans), 'state')} that no group lists: {some(names)}"
        words = [isinstance(key, str) for key in orphans]
        if all(words) and all(isinstance(i, int) for i in ids):
            what += "; the groups list numbers, and text is no number"
        yield Finding(
            code=self.code,
            severity=Severity.SILENT,
            where=place(optimizer.at, "state"),
            message=f"{what}; load_state_dict keeps them where no parameter finds them, and says nothing",
            hint="give the states the ids that param_groups lists, in the order of the parameters",
        )

    def _numbers(self, optimizer: OptimizerState, ids: list[int | str]) -> Iterator[Finding]:
        where = place(optimizer.at, "param_groups")
        twice = sorted({figure(i) for i in _repeated(ids)})
        if twice:
            yield Finding(
                code=self.code,
                severity=Severity.SILENT,
                where=where,
                message=f"{count(len(twice), 'id')} listed more than once: {some(twice)}; load_state_dict gives the "
                "state to the last parameter of an id, and the others start with new moments",
                hint="the groups were put together by hand: give each parameter an id of its own",
            )
        numbers = [i for i in ids if isinstance(i, int)]
        gaps = _gaps(numbers)
        if gaps and len(numbers) == len(ids) and not twice:
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=where,
                message=f"ids run from {min(numbers)} to {max(numbers)} for {count(len(ids), 'parameter')}, without "
                f"{some(gaps)}; load_state_dict goes by position, so a parameter that is still in the model takes the "
                "state of the next one",
                hint="torch numbers without gaps: parameters were taken out of the groups after saving",
            )


def _repeated(ids: list[int | str]) -> Iterator[int | str]:
    seen: set[int | str] = set()
    for i in ids:
        if i in seen:
            yield i
        seen.add(i)


def _gaps(numbers: list[int]) -> list[str]:
    """Numbers from 0 to the highest that are not there; empty for memory addresses."""
    if not numbers or max(numbers) >= _ADDRESS or min(numbers) < 0:
        return []
    have = sorted(set(numbers))
    gaps: list[str] = []
    for before, after in zip([-1, *have], have, strict=False):
        if after - before > 1:
            gaps.append(str(before + 1) if after - before == 2 else f"{before + 1}–{after - 1}")  # noqa: PLR2004  # one
    return gaps
