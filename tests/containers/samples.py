"""Small files of every format, made by the programs that write them, and by hand where none is left."""

import io
import pickle
import struct
import tarfile
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import safetensors.torch
import torch


def state_dict() -> "OrderedDict[str, torch.Tensor]":
    """Three tensors, two of which share memory."""
    weight = torch.arange(6.0).reshape(2, 3)
    return OrderedDict(w=weight, tied=weight, b=torch.ones(300, dtype=torch.bfloat16))


def saved(obj: Any, **options: Any) -> bytes:
    """What torch.save writes."""
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    return buffer.getvalue()


def legacy(obj: Any, **options: Any) -> bytes:
    """What torch.save wrote before it wrote zip archives."""
    return saved(obj, _use_new_zipfile_serialization=False, **options)


def members(data: bytes) -> dict[str, bytes]:
    """The members of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(content: Mapping[str, bytes] | Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive as Python writes it; pairs may name a member twice."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile says that a name is there twice
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for name, data in content.items() if isinstance(content, Mapping) else content:
                archive.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


def changed(obj: Any, method: int = zipfile.ZIP_STORED, **new: bytes | None) -> bytes:
    """What torch.save writes, zipped anew with other members; `version=None` leaves one out.

    Names are without the folder, with `_` for `/` and `.`.
    """
    content = members(saved(obj))
    for name in list(content):
        key = name.partition("/")[2].replace("/", "_").replace(".", "_")
        if key in new:
            value = new.pop(key)
            content.pop(name)
            if value is not None:
                content[name] = value
    assert not new, new
    return zipped(content, method)


def tarred(content: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> bytes:
    """A tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in content.items() if isinstance(content, Mapping) else content:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


class _Keys(pickle.Pickler):
    """Writes tensors as persistent ids, as the first releases of torch did."""

    keys: Mapping[str, Any]

    def persistent_id(self, obj: Any) -> Any:
        return obj.key if isinstance(obj, Key) else None


class Key:
    """Stands for a tensor, a storage or a class in an old tar archive."""

    def __init__(self, key: Any) -> None:
        self.key = key


def with_keys(obj: Any) -> bytes:
    """A pickle with persistent ids where `Key` stands."""
    buffer = io.BytesIO()
    _Keys(buffer, 2).dump(obj)
    return buffer.getvalue()


def dumped(*objects: Any) -> bytes:
    """Pickles one after the other."""
    return b"".join(pickle.dumps(obj, 2) for obj in objects)


def old_members() -> dict[str, bytes]:
    """The members of a tar archive of torch before 0.1.10: storage 10, its view 11, tensors 1 and 2 on them."""
    data = torch.arange(6.0).numpy().tobytes()
    return {
        "sys_info": dumped({"protocol_version": 1000, "little_endian": True}),
        "pickle": with_keys(OrderedDict(w=Key("1"), v=Key(2))),
        "storages": dumped(1, (10, "cpu", torch.FloatStorage)) + struct.pack("<q", 6) + data + dumped([(11, 10, 3, 3)]),
        "tensors": dumped(2, (1, 10, torch.FloatTensor))
        + struct.pack("<i4x5q", 2, 2, 3, 3, 1, 0)
        + dumped((2, 11, torch.FloatTensor))
        + struct.pack("<i4x3q", 1, 3, 1, 0),
    }


def safe(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """What safetensors writes."""
    return safetensors.torch.save(dict(tensors), metadata)


def header(text: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file by hand."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def packaged() -> bytes:
    """What torch.package writes."""
    from torch.package import PackageExporter  # noqa: PLC0415

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses TypedStorage, which is deprecated
        with PackageExporter(buffer) as exporter:
            exporter.extern(["torch", "torch.**", "collections"])
            exporter.save_pickle("m", "sd.pkl", state_dict())
            exporter.save_source_string("m.code", "x = 1\n")
    return buffer.getvalue()


def scripted() -> bytes:
    """What torch.jit.save writes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        module = torch.jit.trace(torch.nn.Linear(3, 2), torch.ones(1, 3))
        torch.jit.save(module, buffer, _extra_files={"note.txt": "hi"})
    return buffer.getvalue()
