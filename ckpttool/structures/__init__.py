"""The value tree of a checkpoint as JSON that people can read and that loses nothing: what safetensors cannot say.

`encode` makes documents and says which tensors go to which safetensors file; `stored_as` says how each lies there;
`decode` is the way back. The format: docs/formats/structure.md.
"""

from ckpttool.structures.decoding import decode
from ckpttool.structures.documents import KEY, MAIN, SCHEMA, Document, is_document, parsed
from ckpttool.structures.encoding import Encoded, encode
from ckpttool.structures.names import FOLDER, WHOLE, Part
from ckpttool.structures.stored import Stored, stored_as
from ckpttool.structures.tables import Dropped

__all__ = [
    "FOLDER",
    "KEY",
    "MAIN",
    "SCHEMA",
    "WHOLE",
    "Document",
    "Dropped",
    "Encoded",
    "Part",
    "Stored",
    "decode",
    "encode",
    "is_document",
    "parsed",
    "stored_as",
]
