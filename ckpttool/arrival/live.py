"""The live side of a comparison: every tensor that a script built, by content and by place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckpttool.arrival.plain import entries, items, tag_of, tensor
from ckpttool.facts import ModuleFact, OptimizerFact, Plain, ScriptFacts, TensorFact


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor of a module."""

    module: ModuleFact
    name: str
    fact: TensorFact


class Live:
    """Tensors of modules by digest; digests of all else; which modules are trained."""

    def __init__(self, facts: ScriptFacts) -> None:
        self.facts = facts
        self.modules = {m.id: m for m in facts.modules}
        self.by_digest: dict[str, list[Named]] = {}
        self.by_place: dict[str, list[Named]] = {}
        for one in named(facts.modules):
            if one.fact.digest:
                self.by_digest.setdefault(one.fact.digest, []).append(one)
            if one.fact.place:
                self.by_place.setdefault(one.fact.place, []).append(one)
        self.elsewhere = dict(facts.loose)
        for optimizer in facts.optimizers:
            for digest in digests_of_state(optimizer):
                self.elsewhere.setdefault(digest, f"the state of {optimizer.name or optimizer.cls}")
        for item in facts.objects:
            for digest in digests_in(item.state):
                self.elsewhere.setdefault(digest, f"{item.name or item.cls}")


def named(modules: tuple[ModuleFact, ...]) -> Iterator[Named]:
    """Every tensor that a state_dict would hold."""
    for module in modules:
        for name, fact in module.tensors.items():
            if fact.persistent:
                yield Named(module, name, fact)


def digests_of_state(optimizer: OptimizerFact) -> Iterator[str]:
    """The digests of all tensors of an optimizer's state."""
    for entry in optimizer.state.values():
        for value in entry.values():
            yield from digests_in(value)


def digests_in(value: Plain) -> Iterator[str]:
    """The digests of the tensors anywhere in a plain value."""
    pending = [value]
    while pending:
        inner = pending.pop()
        said = tensor(inner)
        if said is not None:
            if said.get("digest"):
                yield str(said["digest"])
            continue
        listed = items(inner)
        pending += listed if listed is not None else (entries(inner) or {}).values() if not _bare(inner) else []


def _bare(value: Plain) -> bool:
    """Whether nothing is inside."""
    return not isinstance(value, Mapping) or tag_of(value) in ("$object", "$bytes", "$cut", "$float")
