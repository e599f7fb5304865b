"""What a script tells of prefixes, types and values of the weights."""

from collections.abc import Iterator

from ckpttool.arrival import Outcome
from ckpttool.blocks import Finding, Severity
from ckpttool.dtypes import by_torch_name
from ckpttool.facts import TensorFact
from ckpttool.model import Role
from ckpttool.names import leading
from ckpttool.protocols import Case
from ckpttool.rules._arrived import arrived, some
from ckpttool.rules._places import count, place
from ckpttool.values import TensorRef


def key_prefix(case: Case, code: str) -> Iterator[Finding]:
    """Names that fit the model but for a prefix, and whose weights did not reach it."""
    found = arrived(case)
    for one in found.weights if found is not None else ():
        if one.outcome is not Outcome.ABSENT or not one.pairs or one.spelled_alike == len(one.pairs):
            continue
        prefix = leading(one.weights.tensors) or one.prefix or leading(one.pairs.values())
        yield Finding(
            code=code,
            severity=Severity.SILENT if one.weights.role is Role.MODEL else Severity.WARNING,
            where=place(one.weights.at) or one.weights.name,
            message=f"{one.spelled_alike:,} of {count(len(one.pairs), 'name')} are spelled as in the script's model, "
            f"all but for {prefix or 'a prefix'}: a load that is not strict takes none of them and says nothing",
            hint="`ckpt convert SRC DST --strip-prefix auto` takes it off",
        )


def narrowed_weights(case: Case, code: str) -> Iterator[Finding]:
    """Weights that were rounded to a narrower type than the one they are trained in, or will be now."""
    found = arrived(case)
    for one in found.weights if found is not None else ():
        if not one.cast or one.weights.role not in (Role.MODEL, Role.EMA):
            continue
        narrow = [c for c in one.cast if _bits(c.saved) < _bits(c.live)]
        wide = [c for c in one.cast if _bits(c.saved) > _bits(c.live)]
        where = place(one.weights.at) or one.weights.name
        if narrow:
            full = _moments_are(case, narrow[0].live)
            said = f"{count(len(narrow), 'tensor')} are {narrow[0].saved} in the file and {narrow[0].live} in the run"
            more = ", as the optimizer's state is: they were rounded when they were saved" if full else ""
            severity = Severity.SILENT if full else Severity.WARNING
            yield Finding(code=code, severity=severity, where=where, message=f"{said}{more}",
                          hint="save the weights in the type that they are trained in")  # fmt: skip
        if wide:
            said = f"{count(len(wide), 'tensor')} are {wide[0].saved} in the file and {wide[0].live} in the run"
            yield Finding(code=code, severity=Severity.WARNING, where=where, message=said,
                          hint="it rounds them: right if the run is to train in this type")  # fmt: skip


def _bits(name: str) -> int:
    dtype = by_torch_name(name)
    return dtype.bits if dtype is not None and dtype.family == "float" else 0


def _moments_are(case: Case, dtype: str) -> bool:
    """Whether the optimizer keeps its moments in this type, as it does where the weights are trained in it."""
    return any(
        isinstance(value, TensorRef) and key != "step" and value.dtype.name == dtype and value.numel > 1
        for optimizer in case.checkpoint.optimizers
        for entry in optimizer.state.values()
        for key, value in (entry.items() if isinstance(entry, dict) else ())
    )


def nonfinite(case: Case, code: str) -> Iterator[Finding]:
    """NaN or Inf that is in the run when training goes on."""
    found = arrived(case)
    if found is None:
        return
    bad: dict[str, int] = {}
    seen: set[str] = set()
    for module in found.facts.modules:
        for name, fact in module.tensors.items() if module.trained or module.loaded else ():
            if _is_bad(name, fact) and fact.place not in seen:  # tied names are one tensor
                bad[name if name not in bad else f"{module.name or module.cls}.{name}"] = fact.nan + fact.inf
                seen |= {fact.place} - {""}
    if bad:
        yield Finding(
            code=code,
            severity=Severity.SILENT,
            where=next(iter(bad)),
            message=f"NaN or Inf reached the run: {sum(bad.values()):,} elements in {some(list(bad))}",
            hint="resume from an older checkpoint",
        )
    yield from _of_moments(case, code)


def _is_bad(name: str, fact: TensorFact) -> bool:
    """Masks hold -inf by design; parameters and running statistics hold none."""
    if fact.buffer and not name.endswith(("running_mean", "running_var")):
        return fact.nan > 0
    return fact.nan > 0 or fact.inf > 0


def _of_moments(case: Case, code: str) -> Iterator[Finding]:
    found = arrived(case)
    came = found is not None and any(o.reached for o in found.optimizers)
    scans = [t for t in case.values.tensors if t.part is Role.OPTIMIZER and (t.nan or t.inf)] if case.values else []
    if came and scans:
        yield Finding(
            code=code,
            severity=Severity.SILENT,
            where=scans[0].where,
            message=f"NaN or Inf reached the optimizer: {some([t.name for t in scans])}",
            hint="resume from an older checkpoint",
        )
