"""safetensors: eight bytes of length, a JSON header, then the bytes of all tensors without a gap.

The official reader judges every file first; a parse of our own then says where the bytes are, which the official one
does not tell. Sources: the format in the README and `Metadata::validate` of safetensors 0.8.
"""

import json
from typing import Any, ClassVar

from ckpttool.blocks import FindingLog, Severity
from ckpttool.containers._structures import without_structure
from ckpttool.dtypes import BY_NAME, BY_SAFETENSORS, DType
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.pickles.views import MOST_DIMENSIONS, contiguous_stride
from ckpttool.sources import ByteSpan, FileSource, Source, head
from ckpttool.values import StorageRef, TensorRef

_LENGTH = 8  # bytes of the header's length, little-endian
_MOST_HEADER = 100_000_000  # bytes; the format allows no more
_PLAUSIBLE = 1 << 48  # a length above is text or another format
_FIELDS = 4  # names in the description of one tensor, its own among them
_SPACE = b" \t\r\n"
_NOT_COVERED = "incomplete metadata, file not fully covered"  # the official reader's words for a wrong file size


class SafetensorsReader:
    """Reads safetensors files."""

    name: ClassVar[str] = "safetensors"

    def sniff(self, source: Source) -> bool:
        start = head(source, 64)
        return start[_LENGTH:].lstrip(_SPACE)[:1] == b"{" and int.from_bytes(start[:_LENGTH], "little") < _PLAUSIBLE

    def read(self, source: Source, limits: Limits) -> Contents:
        header = _header(source, limits)
        _judge(source, header)
        return self._contents(source, header)

    def read_own(self, source: Source, limits: Limits) -> Contents:
        """Read a file of ours without the official reader's judgement."""
        return self._contents(source, _header(source, limits))

    def _contents(self, source: Source, header: bytes) -> Contents:
        data_start = _LENGTH + len(header)
        entries = _Entries(source, data_start)
        log = FindingLog()
        root: dict[str, TensorRef] = {}
        facts: dict[str, Any] = {"header_bytes": len(header)}
        for name, entry in entries.parse(header):
            if name == "__metadata__":
                facts["metadata"] = without_structure(dict(entry or ()), facts)
            elif name in root:
                log.add(
                    "safetensors.duplicate-key",
                    Severity.WARNING,
                    f"the tensor {name!r} is described twice, in the same words",
                    where=source.name,
                )
            else:
                root[name] = entry
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=root,
            storages=tuple(t.storage for t in root.values() if t.storage),
            facts=facts,
            problems=tuple(log.items),
        )


def _header(source: Source, limits: Limits) -> bytes:
    """The header's bytes, once its length is sound.

    Raises:
        DamagedFile, TruncatedFile, LimitExceeded: it is not.
    """
    length = int.from_bytes(source.read(ByteSpan(0, _LENGTH)), "little")
    if length > _MOST_HEADER:
        raise DamagedFile(
            f"the header is said to have {length:,} bytes, the format allows {_MOST_HEADER:,}",
            where=f"{source.name} @ byte 0",
            hint="this is no safetensors file, or its first bytes are damaged",
        )
    if _LENGTH + length > source.size:
        raise TruncatedFile(
            f"the header ends at byte {_LENGTH + length:,}, the file has {source.size:,}",
            where=f"{source.name} @ byte {source.size:,}",
            hint="the save or the download was cut short; compare the size with the original",
        )
    if length > limits.header:
        raise LimitExceeded(
            f"the header has {length:,} bytes, the limit is {limits.header:,}",
            where=f"{source.name} @ byte 0",
            hint="raise it with --limit header=SIZE",
        )
    header = source.read(ByteSpan(_LENGTH, _LENGTH + length))
    names, values = header.count(b":"), header.count(b",")
    if names > _FIELDS * limits.members or values > limits.nodes:
        raise LimitExceeded(
            f"the header has {names:,} names and {values:,} values, the limits are {_FIELDS * limits.members:,} and "
            f"{limits.nodes:,}",
            where=f"{source.name} @ byte {_LENGTH:,}",
            hint="raise them with --limit members=N and --limit nodes=N",
        )
    return header


def _judge(source: Source, header: bytes) -> None:
    """Let the official reader judge the file.

    Raises:
        TruncatedFile: the file is shorter than its tensors.
        DamagedFile: anything else that it refuses.
    """
    from safetensors import SafetensorError, deserialize, safe_open  # noqa: PLC0415  # its framework brings numpy

    try:
        if isinstance(source, FileSource):
            with safe_open(source.path, framework="np"):
                pass
        else:
            deserialize(source.read(ByteSpan(0, source.size)))  # type: ignore[no-untyped-call]  # its stub has none
    except SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        if _NOT_COVERED in reason:
            raise _wrong_size(source, header) from error
        where = f"{source.name} @ byte {_LENGTH:,}"
        raise DamagedFile(
            f"the official reader refuses the header: {reason}", where=where, hint=_advice(header)
        ) from error


def _wrong_size(source: Source, header: bytes) -> CkptError:
    """Say by how much the file is too short or too long; its header is sound JSON."""
    entries = (e for n, e in json.loads(header).items() if n != "__metadata__")
    end = _LENGTH + len(header) + max((e["data_offsets"][1] for e in entries), default=0)
    message = f"the tensors end at byte {end:,}, the file has {source.size:,}"
    where = f"{source.name} @ byte {min(end, source.size):,}"
    if source.size < end:
        hint = "the save or the download was cut short; compare the size with the original"
        return TruncatedFile(message, where=where, hint=hint)
    return DamagedFile(message, where=where, hint="something was written behind the tensors; get the file again")


def _advice(header: bytes) -> str:
    if b'"__metadata__":{"dtype"' in header.replace(b" ", b""):
        return "a tensor called __metadata__ cannot be stored in this format; save it under another name"
    return "get the file again, or save it again with the safetensors library"


class _Entries:
    """Turns a header into tensors while JSON is parsed, so that hundreds of thousands fit in memory."""

    def __init__(self, source: Source, data_start: int) -> None:
        self._source = source
        self._data_start = data_start

    def parse(self, header: bytes) -> list[tuple[str, Any]]:
        """Names with their `TensorRef`, in the order of the file; `__metadata__` with its dict, or None.

        Raises:
            UnsupportedFormat: an element type that torch does not have.
        """
        named: list[tuple[str, Any]] = json.loads(header, object_pairs_hook=self._object)
        return named

    def _object(self, pairs: list[tuple[str, Any]]) -> Any:
        fields = dict(pairs)
        match fields:
            case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
                return self._tensor(code, tuple(shape), start, end)
        return pairs

    def _tensor(self, code: str, shape: tuple[int, ...], start: int, end: int) -> TensorRef:
        if len(shape) > MOST_DIMENSIONS:
            raise UnsupportedFormat(
                f"a tensor has {len(shape):,} dimensions, torch allows {MOST_DIMENSIONS}",
                where=self._source.name,
                hint="no program that saves checkpoints writes such a tensor; do not trust this file",
            )
        dtype, shape = self._as_torch(code, shape)
        storage = StorageRef(self._source, self._data_start + start, end - start, dtype=dtype)
        return TensorRef(dtype=dtype, shape=shape, stride=contiguous_stride(shape), storage=storage)

    def _as_torch(self, code: str, shape: tuple[int, ...]) -> tuple[DType, tuple[int, ...]]:
        """Type and shape in torch's terms: two F4 elements are one `float4_e2m1fn_x2`."""
        if code == "F4" and shape and shape[-1] % 2 == 0:
            return BY_NAME["float4_e2m1fn_x2"], (*shape[:-1], shape[-1] // 2)
        if code not in BY_SAFETENSORS:
            raise UnsupportedFormat(
                f"a tensor has the type {code} and the shape {list(shape)}, which torch does not have",
                where=self._source.name,
                hint="torch's safetensors reader refuses this file too",
            )
        return BY_SAFETENSORS[code], shape
