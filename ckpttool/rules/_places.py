"""Where a finding points, and how many of something there are, as people write them."""

from ckpttool.keypaths import spelled_path
from ckpttool.model import At, Weights
from ckpttool.values import Attribute

_BITS = 64
_WIDE = Attribute("a number beyond 64 bits")  # Python refuses to spell whole numbers of thousands of digits


def place(at: At, *steps: object) -> str:
    """`optimizer.bin: param_groups[0].lr`; the file alone, or the path alone in a checkpoint of one file."""
    short = (_WIDE if isinstance(step, int) and step.bit_length() > _BITS else step for step in (*at.path, *steps))
    spelled = spelled_path(tuple(short))
    return f"{at.file}: {spelled}" if at.file and spelled else at.file or spelled


def count(number: int, thing: str) -> str:
    """`1 name`, `1,024 names`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def place_of(weights: Weights, fqn: str) -> str:
    """Where one tensor of a state_dict is, which may be in a shard or deeper than its name says."""
    path = weights.paths.get(fqn, (*weights.at.path, fqn))
    return place(At(weights.files.get(fqn, weights.at.file), path))


def figure(number: float) -> str:
    """`1,024`, `0.000244141`; of a whole number beyond 64 bits only that it is one."""
    if not isinstance(number, int):
        return f"{number:,.6g}"
    return f"{number:,}" if number.bit_length() <= _BITS else _WIDE.name
