"""States that belong to no parameter of a group, and numbers that skip."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._alignment import Alignment, alignments, fits, shape_of
from ckpttool.rules._optimizers import figure, some, state_of, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.values import TensorRef, Value

_REFUSED = (
    "load_state_dict raises ValueError ('loaded state dict has a different number of parameter groups', or '… a "
    "parameter group that doesn't match the size of optimizer's group') in torch/optim/optimizer.py"
)
_BY_POSITION = (
    "load_state_dict goes by position, and there the states have other shapes than the weights: the first step() "
    "raises RuntimeError"
)
_ADDRESS = 1 << 32  # torch 1.5 and older number parameters by their address in memory, and leave gaps rightly


class OptimizerIndexGap:
    """Keys of `state` and ids of the groups do not go together.

    What: a state whose id no group lists; an id that two parameters share; ids that skip a number or do not ascend,
    which torch 1.6 and newer do not write. Ids of torch 1.5 and older are memory addresses and load rightly.

    Why: groups that list fewer parameters than there are states raise ValueError in the run that wrote them. Else
    `load_state_dict` keeps a state that no group lists under its bare id, where no parameter finds it, and says
    nothing: the parameter starts with new moments. Ids are matched by position, so where one was taken out of a
    group all behind it move up, and where they are in another order the states go to other parameters: the first step
    raises RuntimeError where their shapes differ.

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
        pairs = {id(optimizer): pair for optimizer, pair in alignments(case.checkpoint)}
        for optimizer in whole(case):
            params = [param for group in optimizer.groups for param in group.params]
            if any(isinstance(param, TensorRef) for param in params):  # a pickled optimizer
                continue
            # A float that is whole is the same key as the integer.
            ids = [i for p in params if (i := _id(p)) is not None]
            if len(ids) == len(params):
                yield from self._orphans(optimizer, ids, pairs.get(id(optimizer)))
                yield from self._numbers(optimizer, ids, pairs.get(id(optimizer)))
            else:
                yield self._no_ids(optimizer, len(params) - len(ids))

    def _said(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _no_ids(self, optimizer: OptimizerState, number: int) -> Finding:
        message = (
            f"{count(number, 'entry').replace('entrys', 'entries')} of params that no state can have for its id; "
            "load_state_dict gives those parameters no state, and says nothing"
        )
        hint = "give each parameter the number that its state has"
        return self._said(Severity.SILENT, place(optimizer.at, "param_groups"), message, hint)

    def _orphans(self, optimizer: OptimizerState, ids: list[int | str], pair: Alignment | None) -> Iterator[Finding]:
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
        built = _built(optimizer, ids)
        if built > len(ids):
            severity = Severity.ERROR
            then = f"the optimizer that wrote them had {built:,} parameters, the groups list {len(ids):,}: {_REFUSED}"
        elif pair is not None and _told_by_shapes(optimizer, ids, pair) == "number":
            severity, then = Severity.ERROR, _BY_POSITION
        else:
            severity = Severity.SILENT
            then = "load_state_dict keeps them where no parameter finds them, and says nothing"
        hint = "give the states the ids that param_groups lists, in the order of the parameters"
        yield self._said(severity, place(optimizer.at, "state"), f"{what}; {then}", hint)

    def _numbers(self, optimizer: OptimizerState, ids: list[int | str], pair: Alignment | None) -> Iterator[Finding]:
        where = place(optimizer.at, "param_groups")
        numbers = [i for i in ids if isinstance(i, int)]
        twice = sorted({figure(i) for i in _repeated(ids)})
        gaps = _gaps(numbers) if len(numbers) == len(ids) and not twice else []
        if twice:
            yield self._twice(optimizer, twice, pair)
        elif gaps:
            message = (
                f"ids run from {min(numbers)} to {max(numbers)} for {count(len(ids), 'parameter')}, without "
                f"{some(gaps)}; load_state_dict goes by position, so a parameter that is still in the model takes the "
                "state of the next one"
            )
            hint = "torch numbers without gaps: parameters were taken out of the groups after saving"
            yield self._said(Severity.WARNING, where, message, hint)
        elif len(numbers) == len(ids) and numbers != sorted(numbers) and max(numbers) < len(numbers):
            yield from self._order(optimizer, numbers, pair)

    def _twice(self, optimizer: OptimizerState, twice: list[str], pair: Alignment | None) -> Finding:
        where = place(optimizer.at, "param_groups")
        what = f"{count(len(twice), 'id')} listed more than once: {some(twice)}"
        hint = "the groups were put together by hand: give each parameter an id of its own"
        lists = [set(map(figure, (p for p in g.params if isinstance(p, int | str)))) for g in optimizer.groups]
        if sum(map(len, lists)) > len(set().union(*lists)):
            message = f"{what}, in more than one group, which no optimizer has: {_REFUSED}"
            return self._said(Severity.ERROR, where, message, hint)
        if pair is not None and len(pair.kept) > len(pair.names):  # a tied weight that its group lists twice
            message = f"{what}, as torch writes a parameter that its group was given twice; it loads rightly so"
            return self._said(Severity.NOTE, where, message, "give the optimizer each parameter once")
        message = (
            f"{what}; load_state_dict gives the state to the last parameter of an id, and the others start with new "
            "moments"
        )
        return self._said(Severity.SILENT, where, message, hint)

    def _order(self, optimizer: OptimizerState, ids: list[int], pair: Alignment | None) -> Iterator[Finding]:
        """Numbers that do not ascend, which torch's always do."""
        groups = [[p for p in g.params if isinstance(p, int)] for g in optimizer.groups]
        runs = all(not g or g == list(range(g[0], g[0] + len(g))) for g in groups)
        before = [len(g) for g in sorted(groups, key=lambda g: g[:1])]
        where = place(optimizer.at, "param_groups")
        hint = "list the ids in the order of the parameters that the run gives its optimizer: torch writes 0, 1, 2, …"
        what = f"the ids are in another order ({some([figure(i) for i in ids])}) than torch numbers them"
        if runs and before != [len(g) for g in groups]:
            message = f"{what}: the groups were exchanged, and they are of other sizes: {_REFUSED}"
            yield self._said(Severity.ERROR, where, message, hint)
            return
        told = _told_by_shapes(optimizer, ids, pair)
        if told == "position":  # states and groups were put in another order together
            return
        if told == "number":
            then = _BY_POSITION
        else:
            then = "load_state_dict goes by position and gives states to other parameters, and says nothing"
        severity = Severity.ERROR if told == "number" else Severity.SILENT
        yield self._said(severity, where, f"{what}; {then}", hint)


def _built(optimizer: OptimizerState, ids: list[int | str]) -> int:
    """How many parameters the optimizer had that wrote the states, by the highest of their numbers; 0: not known."""
    numbers = [key for key in optimizer.state if isinstance(key, int)]
    known = numbers and all(isinstance(i, int) for i in ids) and max(numbers) < _ADDRESS
    return max(numbers) + 1 if known else 0


def _id(param: Value) -> int | str | None:
    """An id; of a whole float the integer that is the same key; None for what is none."""
    if isinstance(param, float):
        return int(param) if param.is_integer() else None
    return param if isinstance(param, int | str) else None


def _told_by_shapes(optimizer: OptimizerState, ids: Sequence[int | str], pair: Alignment | None) -> str:
    """Whether states go with the weights by position, or by number; empty where both or neither do."""
    if pair is None or not pair.ordered:
        return ""
    by_position = fits([shape_of(optimizer, i) for i in ids], pair.held)
    by_number = fits([shape_of(optimizer, n) for n in range(len(ids))], pair.held)
    if by_position == by_number:
        return ""
    return "position" if by_position else "number"


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
