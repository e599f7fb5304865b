"""What a conversion writes, held in memory: documents as text, tensors packed as a safetensors file has them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpttool import structures
from ckpttool.dtypes import BY_NAME, BY_SAFETENSORS
from ckpttool.elements import windows
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.pickles.views import contiguous_stride
from ckpttool.sources import BytesSource
from ckpttool.structures import Document, Encoded, Part, stored_as
from ckpttool.values import StorageRef, TensorRef


def packed(tensor: TensorRef) -> bytes:
    """The elements side by side."""
    if tensor.kind == "ndarray" and tensor.storage is not None:
        return tensor.storage.read()  # in C order here, or it would be given as bytes
    return b"".join(array.tobytes() for _, array in windows(tensor))


def written(tensor: TensorRef) -> TensorRef:
    """A tensor as the reader of safetensors files describes it after it was written."""
    stored = stored_as(tensor)
    data = packed(stored.tensor)
    shape, dtype = stored.shape, BY_SAFETENSORS.get(stored.code)
    if dtype is None:
        assert stored.code == "F4"
        dtype, shape = BY_NAME["float4_e2m1fn_x2"], (*shape[:-1], shape[-1] // 2)
    assert dtype.nbytes(_count(shape)) == len(data), (stored, len(data))
    storage = StorageRef(BytesSource(data, "x.safetensors"), 0, len(data), dtype=dtype)
    return TensorRef(dtype=dtype, shape=shape, stride=contiguous_stride(shape), storage=storage)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def tensors_of(encoded: Encoded) -> dict[str, dict[str, TensorRef]]:
    """All safetensors files."""
    return {file: {name: written(t) for name, t in tensors.items()} for file, tensors in encoded.tensors.items()}


def documents_of(encoded: Encoded) -> dict[str, Document]:
    """All documents, written and read."""
    return {
        name: structures.parsed(("".join(d.text()) if name else d.compact()).encode(), name, DEFAULT_LIMITS)
        for name, d in encoded.documents.items()
    }


def there_and_back(value: Any, parts: Sequence[Part] = structures.WHOLE, limits: Limits = DEFAULT_LIMITS) -> Any:
    """A tree after it became documents and tensors, and a tree again."""
    encoded = structures.encode(value, name="x.pt", container="torch-zip", parts=parts, limits=limits)
    return back(documents_of(encoded), tensors_of(encoded))


def back(documents: Mapping[str, Document], tensors: Mapping[str, Mapping[str, TensorRef]]) -> Any:
    """The tree that documents describe."""
    main = next(iter(documents.values()))
    return structures.decode(
        main, tensors=lambda file: tensors.get(file, {}), documents=documents.__getitem__, where="x"
    )


def safetensors_bytes(tensors: Mapping[str, TensorRef], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file of these tensors."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, tensor in tensors.items():
        stored = stored_as(tensor)
        added = packed(stored.tensor)
        offsets = [len(data), len(data) + len(added)]
        header[name] = {"dtype": stored.code, "shape": list(stored.shape), "data_offsets": offsets}
        data += added
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def write(folder: Path, encoded: Encoded) -> None:
    """All files of a conversion into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, tensors in encoded.tensors.items():
        folder.joinpath(file).write_bytes(safetensors_bytes(tensors))
    for name, document in encoded.documents.items():
        folder.joinpath(name).write_text("".join(document.text()))


def bare(encoded: Encoded) -> bytes:
    """The one safetensors file of a conversion, with the document in its metadata."""
    metadata = {"format": "pt", structures.KEY: encoded.main.compact()}
    return safetensors_bytes(encoded.tensors.get("", {}), metadata)
