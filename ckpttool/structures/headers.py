"""What the header of a safetensors file says, in a few letters: a document knows by them that it is still about it.

Another program may write the file anew with other names, types or shapes, and keep the metadata; then a document says
of tensors what is no longer true of them.
"""

import json
from collections.abc import Mapping

from ckpttool.structures.stored import stored_as
from ckpttool.values import TensorRef

_LETTERS = 16  # of 64: an accident is to be noticed, not an attack, which could write them anew


def header_digest(tensors: Mapping[str, TensorRef]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `[[name, dtype, shape], …]`, as compact JSON sorted by name.

    Args:
        tensors: as they are to be written, or as they were read: both lie in a file in the same way.
    """
    import hashlib  # noqa: PLC0415  # loads OpenSSL, which only those who convert need

    lying = [(name, stored_as(tensors[name])) for name in sorted(tensors)]
    told = [[name, stored.code, stored.shape] for name, stored in lying]
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LETTERS]
