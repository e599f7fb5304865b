"""Pickles to read: what torch and Python write, and streams put together by hand."""

import io
import zipfile
from typing import Any

import torch

from ckpttool.dtypes import BY_STORAGE
from ckpttool.pickles import load
from ckpttool.pickles.vm import Pickle
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, StorageRef


class Archive:
    """What `torch.save` writes for an object, with its storages at hand."""

    def __init__(self, obj: Any) -> None:
        buffer = io.BytesIO()
        torch.save(obj, buffer)
        self.members = {}
        with zipfile.ZipFile(buffer) as archive:
            for name in archive.namelist():
                self.members[name.split("/", 1)[1]] = archive.read(name)
        self.storages: dict[str, StorageRef] = {}

    def persistent(self, pid: Any) -> StorageRef:
        """The storage behind ('storage', class, key, location, numel)."""
        _, cls, key, location, _ = pid
        if key not in self.storages:
            data = self.members[f"data/{key}"]
            dtype = BY_STORAGE.get(cls.name)
            self.storages[key] = StorageRef(BytesSource(data), 0, len(data), key, location, dtype)
        return self.storages[key]

    def read(self) -> Pickle:
        """Its pickle, read."""
        return load(self.members["data.pkl"], where="data.pkl", persistent=self.persistent)


def saved(obj: Any) -> Any:
    """The inert value of what torch wrote for an object."""
    return Archive(obj).read().value


def read(stream: bytes, **options: Any) -> Any:
    """The inert value of a pickle."""
    return load(stream, where="x.pkl", **options).value


def name(module: str, attribute: str) -> bytes:
    """GLOBAL."""
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, args: bytes) -> bytes:
    """A call of a global with a tuple that `args` leaves on the stack."""
    return name(module, attribute) + args + b"R"


def text(value: str) -> bytes:
    """SHORT_BINUNICODE."""
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data


FLOAT_STORAGE = GlobalRef("torch", "FloatStorage")


def float_storage(count: int) -> Any:
    """A `persistent` that answers every id with the same float32 storage of `count` elements."""
    storage = StorageRef(BytesSource(bytes(4 * count)), 0, 4 * count, "0", "cpu", BY_STORAGE["FloatStorage"])
    return lambda _pid: storage
