"""Which name of a module is which name of a state_dict: wrappers and prefixes of either side set aside."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ckpttool.arrival.digests import Digests
from ckpttool.facts import ModuleFact, TensorFact
from ckpttool.model import Weights
from ckpttool.names import without_wrappers
from ckpttool.values import TensorRef

LEAST: Final = 0.5  # share of names that must fit before a module is what a state_dict is for


class Pairing(NamedTuple):
    """Names of both sides that belong together."""

    pairs: dict[str, str]  # name in the file: name in the module
    prefix: str = ""  # that one side has before all of its names, beside wrappers


def paired(weights: Weights, module: ModuleFact, digests: Digests) -> Pairing:
    """Pair names without wrappers, then without what only one side has before its names.

    The latter where few names fit as they are, and where none of those that do has the content of its partner: a
    module may hold a model and an average of it.
    """

    def agreeing(pairs: Mapping[str, str]) -> int:
        return _agreeing(weights, module, pairs, digests)

    here = _unwrapped(weights.tensors)
    there = _unwrapped(n for n, t in module.tensors.items() if t.persistent)
    straight = Pairing({name: there[bare] for bare, name in here.items() if bare in there})
    agreed = agreeing(straight.pairs)
    if len(straight.pairs) >= LEAST * len(here) and agreed:
        return straight
    shifted = _shifted(here, there, agreeing, len(straight.pairs))
    better = (agreeing(shifted.pairs), len(shifted.pairs)) > (agreed, len(straight.pairs))
    return shifted if better else straight


def _unwrapped(names: Iterable[str]) -> dict[str, str]:
    """Names by what they are without wrappers; as they are where two would become one."""
    listed = list(names)
    bare = {without_wrappers(name): name for name in listed}
    return bare if len(bare) == len(listed) else {name: name for name in listed}


def _agreeing(weights: Weights, module: ModuleFact, pairs: Mapping[str, str], digests: Digests) -> int:
    """How many of the pairs have one content."""
    both = [(weights.tensors[name], module.tensors[there]) for name, there in pairs.items()]
    fitting = [(tensor, fact) for tensor, fact in both if fact.digest and tuple(fact.shape) == tuple(tensor.shape)]
    return sum(fact.digest in forms(tensor, fact, digests) for tensor, fact in fitting)


def forms(tensor: TensorRef, fact: TensorFact, digests: Digests) -> tuple[str, ...]:
    """The digests that a tensor of the file may have in the place of a live one: as it is, and in its type."""
    return tuple(d for d in (digests.of(tensor), digests.after_cast(tensor, fact.dtype)) if d)


def _shifted(
    here: Mapping[str, str], there: Mapping[str, str], agreeing: Callable[[Mapping[str, str]], int], straight: int
) -> Pairing:
    """The prefix by which names of one side become names of the other; of several the one whose contents agree best.

    Args:
        straight: names that fit without one.
    """
    found: list[Pairing] = []
    for long, short, mine in ((here, there, True), (there, here, False)):
        for prefix in _prefixes(long, short):
            pairs = {}
            for bare, name in long.items():
                other = short.get(bare.removeprefix(prefix)) if bare.startswith(prefix) else None
                if other is not None:
                    pairs[name if mine else other] = other if mine else name
            found.append(Pairing(pairs, prefix))
    most = max((straight, *(len(one.pairs) for one in found)))
    likely = [one for one in found if one.pairs and len(one.pairs) >= LEAST * most]
    if len(likely) > 1:
        likely.sort(key=lambda one: (agreeing(one.pairs), len(one.pairs)), reverse=True)
    return likely[0] if likely else Pairing({})


def _prefixes(long: Mapping[str, str], short: Mapping[str, str]) -> Iterator[str]:
    """What stands before the first few names of the short side in the long one."""
    seen: dict[str, None] = {}
    for name in list(short)[:4]:
        ends = [n for n in long if n.endswith(f".{name}")]
        seen.update(dict.fromkeys(n.removesuffix(name) for n in ends[:8]))
    yield from seen
