"""States that belong to no parameter of a group, and numbers that skip."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, OptimizerState
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._alignment import Alignment, alignments, shape_of
from ckpttool.rules._arrangement import as_torch_numbers, clashes, goes_with, is_usual, unlike_sizes
from ckpttool.rules._optimizers import figure, some, state_of, unseen, whole
from ckpttool.rules._places import count, place
from ckpttool.values import TensorRef, Value

_REFUSED = (
    "load_state_dict raises ValueError ('loaded state dict has a different number of parameter groups', or '… a "
    "parameter group that doesn't match the size of optimizer's group') in torch/optim/optimizer.py"
)
_BY_POSITION = "load_state_dict goes by position, and there the states have other shapes than the weights: "
_PLACE, _NUMBER = "position", "number"  # what the shapes of states go with
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
            if len(ids) != len(params):
                yield self._no_ids(optimizer, len(params) - len(ids))
                continue
            seen = _Seen(case.checkpoint, optimizer, tuple(ids), pairs.get(id(optimizer)))
            if len(set(ids)) < len(ids):
                yield self._twice(seen)
            else:
                yield from self._orphans(seen)
                yield from self._numbers(seen)

    def _said(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _no_ids(self, optimizer: OptimizerState, number: int) -> Finding:
        message = (
            f"{count(number, 'entry').replace('entrys', 'entries')} of params that no state can have for its id; "
            "load_state_dict gives those parameters no state, and says nothing"
        )
        hint = "give each parameter the number that its state has"
        return self._said(Severity.SILENT, place(optimizer.at, "param_groups"), message, hint)

    def _orphans(self, seen: "_Seen") -> Iterator[Finding]:
        optimizer, ids = seen.optimizer, seen.ids
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
        severity, then = Severity.SILENT, "load_state_dict keeps them where no parameter finds them, and says nothing"
        if built > len(ids):
            severity = Severity.ERROR
            then = f"the optimizer that wrote them had {built:,} parameters, the groups list {len(ids):,}: {_REFUSED}"
        elif seen.told == _NUMBER:
            severity, then = Severity.ERROR, _BY_POSITION + unlike_sizes(optimizer)
        hint = "give the states the ids that param_groups lists, in the order of the parameters"
        yield self._said(severity, place(optimizer.at, "state"), f"{what}; {then}", hint)

    def _numbers(self, seen: "_Seen") -> Iterator[Finding]:
        where = place(seen.optimizer.at, "param_groups")
        numbers = [i for i in seen.ids if isinstance(i, int)]
        if len(numbers) < len(seen.ids):
            return
        gaps = _gaps(numbers)
        if gaps:
            message = (
                f"ids run from {min(numbers)} to {max(numbers)} for {count(len(numbers), 'parameter')}, without "
                f"{some(gaps)}; load_state_dict goes by position, so a parameter that is still in the model takes the "
                "state of the next one"
            )
            hint = "torch numbers without gaps: parameters were taken out of the groups after saving"
            yield self._said(Severity.WARNING, where, message, hint)
        elif numbers != sorted(numbers) and max(numbers) < len(numbers):
            yield from self._order(seen, numbers)
        elif seen.surplus:
            few, held = count(seen.surplus, "id"), len(numbers) - seen.surplus
            message = (
                f"the groups list {len(numbers):,} parameters, the model beside them has {held:,}, and {few} "
                f"{'has' if seen.surplus == 1 else 'have'} neither weight nor state: {_REFUSED}"
            )
            hint = "take the ids that no parameter had out of the groups"
            yield self._said(Severity.ERROR, where, message, hint)

    def _twice(self, seen: "_Seen") -> Finding:
        optimizer, ids = seen.optimizer, seen.ids
        where = place(optimizer.at, "param_groups")
        twice = sorted({figure(i) for i in _repeated(ids)})
        what = f"{count(len(twice), 'id')} listed more than once: {some(twice)}"
        hint = "the groups were put together by hand: give each parameter an id of its own"
        numbers = [i for i in ids if isinstance(i, int)]
        addresses = len(numbers) == len(ids) and max(numbers) >= _ADDRESS
        if as_torch_numbers(optimizer) or (addresses and not seen.across):
            message = f"{what}, as torch writes a parameter that its group was given twice; it loads rightly so"
            return self._said(Severity.NOTE, where, message, "give the optimizer each parameter once")
        built = max(_built(optimizer, ids), max(numbers) + 1 if numbers and not addresses else 0)
        if built != len(ids) if built else seen.across:
            had = f"the optimizer that wrote them had {built:,} parameters, the groups list {len(ids):,}"
            message = (
                f"{what}; {had if built else 'an id is in more than one group, which no optimizer has'}: {_REFUSED}"
            )
            return self._said(Severity.ERROR, where, message, hint)
        if seen.told == _NUMBER:
            return self._said(Severity.ERROR, where, f"{what}; {_BY_POSITION}{unlike_sizes(optimizer)}", hint)
        message = (
            f"{what}; load_state_dict gives the state to the last parameter of an id, and the others start with new "
            "moments"
        )
        return self._said(Severity.SILENT, where, message, hint)

    def _order(self, seen: "_Seen", ids: list[int]) -> Iterator[Finding]:
        """Numbers that do not ascend, which torch's always do."""
        optimizer = seen.optimizer
        groups = [[p for p in g.params if isinstance(p, int)] for g in optimizer.groups]
        runs = all(not g or g == list(range(g[0], g[0] + len(g))) for g in groups)
        before = [len(g) for g in sorted(groups, key=lambda g: g[:1])]
        where = place(optimizer.at, "param_groups")
        hint = "list the ids in the order of the parameters that the run gives its optimizer: torch writes 0, 1, 2, …"
        what = f"the ids are in another order ({some([figure(i) for i in ids])}) than torch numbers them"
        if runs and before != [len(g) for g in groups]:
            message = f"{what}: the groups were exchanged, and they are of other sizes: {_REFUSED}"
            if seen.told == _NUMBER:
                message += f"; in a run whose groups are of these sizes {unlike_sizes(optimizer)}"
            yield self._said(Severity.ERROR, where, message, hint)
            return
        if seen.told == _PLACE:  # states and groups were put in another order together
            return
        severity, then = Severity.ERROR, _BY_POSITION + unlike_sizes(optimizer)
        if seen.told != _NUMBER:
            severity = Severity.SILENT
            then = "load_state_dict goes by position and gives states to other parameters, and says nothing"
        yield self._said(severity, where, f"{what}; {then}", hint)


class _Seen(NamedTuple):
    """An optimizer whose parameters all have ids."""

    checkpoint: Checkpoint
    optimizer: OptimizerState
    ids: tuple[int | str, ...]
    pair: Alignment | None

    @property
    def told(self) -> str:
        """Whether states go with the weights by position, or by number; empty where nothing tells them apart."""
        last = {i: n for n, i in enumerate(self.ids)}  # of an id that is listed twice, that one gets the state
        by_position = [shape_of(self.optimizer, i) if last[i] == n else None for n, i in enumerate(self.ids)]
        if self.pair is not None:
            by_number = [shape_of(self.optimizer, n) for n in range(len(self.ids))]
            both = (by_position, by_number)
            usual = [is_usual(self.optimizer, self.pair, shapes) for shapes in both]
            fit = [goes_with(self.optimizer, self.checkpoint, self.pair, shapes) for shapes in both]
            for position, number in (usual, fit):
                if position != number and None not in (position, number):
                    return _PLACE if position else _NUMBER
        return _NUMBER if clashes(self.optimizer, self.ids) else ""

    @property
    def across(self) -> bool:
        """Whether an id is in more than one group."""
        groups = [{p for p in g.params if isinstance(p, int | str)} for g in self.optimizer.groups]
        return sum(map(len, groups)) > len(set().union(*groups))

    @property
    def surplus(self) -> int:
        """How many ids have neither a state nor a weight that could be theirs."""
        if self.pair is None or self.pair.elsewhere:
            return 0
        more = len(self.ids) - len(self.pair.names) - len(self.pair.cast)
        bare = sum(kept.moment is None for kept in self.pair.kept)
        return max(0, more) if more <= bare else 0


def _built(optimizer: OptimizerState, ids: Sequence[int | str]) -> int:
    """How many parameters the optimizer had that wrote the states, by the highest of their numbers; 0: not known."""
    numbers = [key for key in optimizer.state if isinstance(key, int)]
    known = numbers and all(isinstance(i, int) for i in ids) and max(numbers) < _ADDRESS
    return max(numbers) + 1 if known else 0


def _id(param: Value) -> int | str | None:
    """An id; of a whole float the integer that is the same key; None for what is none."""
    if isinstance(param, float):
        return int(param) if param.is_integer() else None
    return param if isinstance(param, int | str) else None


def _repeated(ids: Sequence[int | str]) -> Iterator[int | str]:
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
