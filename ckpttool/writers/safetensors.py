"""A safetensors file, planned: eight bytes of length, a JSON header, then all tensors without a gap.

Source: the format in the README of safetensors 0.8, and its `serialize`, which lays the widest elements first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ckpttool.dtypes import BY_SAFETENSORS
from ckpttool.errors import CannotWrite, UsageError
from ckpttool.sources import Source
from ckpttool.writers.plans import FilePlan, Literal, Piece

MOST_HEADER = 100_000_000  # bytes; readers refuse a longer one
_LENGTH = 8  # bytes of the header's length, and what the header is rounded up to
_METADATA = "__metadata__"
_BITS = {**{code: dtype.bits for code, dtype in BY_SAFETENSORS.items()}, "F4": 4}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it is to stand in the file, and where its packed bytes are."""

    code: str  # `BF16`
    shape: tuple[int, ...]
    source: Source
    start: int  # byte in `source`
    nbytes: int


def plan_safetensors(name: str, tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> FilePlan:
    """Lay out a file: the header in the order given, the bytes so that each tensor is aligned to its elements.

    Args:
        name: of the file, relative to the folder of the result; empty where the result is one file.
        tensors: in the order in which readers are to list them.
        metadata: what stands in `__metadata__`; left out where empty.

    Raises:
        UsageError: a tensor is called `__metadata__`, or has no such name in UTF-8.
        CannotWrite: the header exceeds 100,000,000 bytes.
    """
    if _METADATA in tensors:
        raise UsageError(
            f"a tensor called {_METADATA} cannot be stored in this format", where=name, hint="give it another name"
        )
    for text in (*tensors, *(part for pair in metadata.items() for part in pair)):
        _check_spelling(name, text)
    places = _places(tensors)
    header = _header(name, tensors, metadata, places)
    data = _LENGTH + len(header)
    return FilePlan(
        name=name,
        size=data + sum(stored.nbytes for stored in tensors.values()),
        literals=(Literal(0, len(header).to_bytes(_LENGTH, "little") + header),),
        pieces=tuple(
            Piece(data + places[key], stored.source, stored.start, stored.nbytes, key)
            for key, stored in sorted(tensors.items(), key=lambda item: places[item[0]])
        ),
    )


def _check_spelling(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text[:80]!a} holds half of a character, which the format cannot spell",
            where=name,
            hint="rename it with --rename",
        ) from error


def _places(tensors: Mapping[str, Stored]) -> dict[str, int]:
    """First byte of each tensor, counted from the first byte of all: widest elements first, else in the order given."""
    places, end = {}, 0
    for key, stored in sorted(tensors.items(), key=lambda item: -_BITS[item[1].code]):
        places[key] = end
        end += stored.nbytes
    return places


def _header(name: str, tensors: Mapping[str, Stored], metadata: Mapping[str, str], places: Mapping[str, int]) -> bytes:
    entries: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    for key, stored in tensors.items():
        offsets = [places[key], places[key] + stored.nbytes]
        entries[key] = {"dtype": stored.code, "shape": stored.shape, "data_offsets": offsets}
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _LENGTH)
    if len(header) > MOST_HEADER:
        raise CannotWrite(
            f"the header would have {len(header):,} bytes for {len(tensors):,} tensors, the format allows "
            f"{MOST_HEADER:,}",
            where=name,
            hint="spread the tensors over several files with --max-shard-size",
        )
    return header
