"""Small JSON files that trainers put beside their weights."""

import json

from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Folder


def read_json(folder: Folder, name: str, limits: Limits) -> object:
    """Parse a JSON file of a folder, as trainers do: UTF-8 without a byte order mark.

    Raises:
        LimitExceeded: it is longer than `limits.header`.
        CkptError: it cannot be read.
        ValueError, RecursionError: it is no JSON; UnicodeDecodeError, which is one too, where it is no UTF-8.
    """
    source = folder.open(name)
    if source.size > limits.header:
        raise LimitExceeded(
            f"a JSON file of {source.size:,} bytes is over the limit of {limits.header:,}",
            where=name,
            hint=f"raise it with --limit header={source.size}",
        )
    value: object = json.loads(str(source.read(ByteSpan(0, source.size)), encoding="utf-8"))
    return value
