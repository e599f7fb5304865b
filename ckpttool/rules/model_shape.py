"""`model.shape`."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from ckpttool.blocks import Finding
from ckpttool.protocols import Case, Needs
from ckpttool.rules._against import RAISED, pairs, raising
from ckpttool.rules._places import count, place_of

_SHOWN = 3
_Shape = tuple[int, ...]


class _Other(NamedTuple):
    """A tensor that has another shape there."""

    name: str
    here: _Shape
    there: _Shape


class Shape:
    """Weights have another shape than in the checkpoint that it is held against.

    What: tensors of one name, pairwise. A tensor of shape (1,) and one of shape () are taken for each other.

    Why: loading raises, with `strict=False` too. Mostly the vocabulary was resized, or the head counts other classes.

    Example: `2 tensors have another shape: embed.weight [40, 8] against [42, 8], ...; the vocabulary differs by 2 rows`

    Reference: torch/nn/modules/module.py `_load_from_state_dict`, torch 2.13.
    """

    code: ClassVar[str] = "model.shape"
    needs: ClassVar[Needs] = Needs.OTHER

    def check(self, case: Case) -> Iterator[Finding]:
        for pair in pairs(case):
            found = [
                _Other(name, here.shape, there.shape)
                for name, here, there in pair.tensors()
                if here.shape != there.shape and {here.shape, there.shape} != {(), (1,)}
            ]
            if found:
                shown = ", ".join(f"{o.name} {list(o.here)} against {list(o.there)}" for o in found[:_SHOWN])
                more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
                yield Finding(
                    code=self.code,
                    severity=raising(case),
                    where=place_of(pair.mine, found[0].name),
                    message=f"{count(len(found), 'tensor')} {'has' if len(found) == 1 else 'have'} another shape than "
                    f"in the other checkpoint: {shown}{more}{_pattern(found)}; loading raises {RAISED}: size mismatch, "
                    "with strict=False too",
                    hint="build the model with the sizes of this checkpoint, or leave out what differs: "
                    f"`ckpt convert SRC DST --exclude '{found[0].name}'`",
                )


def _pattern(found: Sequence[_Other]) -> str:
    """What usually makes such a difference; empty where none of the usual ones fits."""
    if all(o.here == o.there[::-1] for o in found):
        return "; each is the other's transpose"
    deltas = {o.here[0] - o.there[0] for o in found if o.here and o.there}
    rows_alone = all(o.here and o.there and o.here[1:] == o.there[1:] for o in found)
    if not rows_alone or len(deltas) != 1:
        return ""
    (delta,) = deltas
    if any("emb" in o.name or "wte" in o.name for o in found):
        return f"; the vocabulary differs by {count(abs(delta), 'row')}"
    return (
        f"; the last layer differs by {count(abs(delta), 'class').replace('classs', 'classes')}"
        if _is_head(found)
        else ""
    )


def _is_head(found: Sequence[_Other]) -> bool:
    modules = {o.name.rpartition(".")[0] for o in found}
    last = next(iter(modules)).rsplit(".", 1)[-1]
    return len(modules) == 1 and any(word in last for word in ("head", "classifier", "fc", "score", "out"))
