"""Every reader keeps the contract, on files made by the programs that write its format."""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ckpttool import structures
from ckpttool.containers.legacy_tar import LegacyTarReader
from ckpttool.containers.raw_pickle import RawPickleReader
from ckpttool.containers.safetensors import SafetensorsReader
from ckpttool.containers.sharded import ShardedReader
from ckpttool.containers.structure import StructureReader
from ckpttool.containers.torch_export import TorchExportReader
from ckpttool.containers.torch_legacy import TorchLegacyReader
from ckpttool.containers.torch_package import TorchPackageReader
from ckpttool.containers.torch_zip import TorchZipReader
from ckpttool.containers.torchscript import TorchScriptReader
from tests.containers import samples as make
from tests.suites import ReaderSuite


class TestTorchZip(ReaderSuite):
    reader = TorchZipReader()

    @pytest.fixture
    def samples(self):
        return {
            "plain": make.saved(make.state_dict()),
            "protocol 5": make.saved({"a": [1, torch.ones(2, dtype=torch.uint16)]}, pickle_protocol=5),
            "zipped anew": make.changed(make.state_dict()),
            "deflated": make.changed(make.state_dict(), zipfile.ZIP_DEFLATED),
            "no tensors": make.saved(None),
        }


class TestTorchScript(ReaderSuite):
    reader = TorchScriptReader()

    @pytest.fixture
    def samples(self):
        return {"traced": make.scripted()}


class TestTorchExport(ReaderSuite):
    reader = TorchExportReader()

    @pytest.fixture
    def samples(self, fixtures_dir):
        exported = Path(fixtures_dir, "programs", "exported.pt2").read_bytes()
        old = make.zipped({"serialized_exported_program.json": b"{}", "version": b"5.1"})
        return {"exported": exported, "torch 2.1": old}


class TestTorchPackage(ReaderSuite):
    reader = TorchPackageReader()

    @pytest.fixture
    def samples(self):
        return {"package": make.packaged()}


class TestTorchLegacy(ReaderSuite):
    reader = TorchLegacyReader()
    inline = True

    @pytest.fixture
    def samples(self):
        return {
            "protocol 2": make.legacy(make.state_dict()),
            "protocol 1": make.legacy({"a": torch.ones(2)}, pickle_protocol=1),
            "protocol 4": make.legacy({"a": torch.ones(2)}, pickle_protocol=4),
        }


class TestLegacyTar(ReaderSuite):
    reader = LegacyTarReader()
    inline = True

    @pytest.fixture
    def samples(self):
        return {"tar": make.tarred(make.old_members())}


class TestSafetensors(ReaderSuite):
    reader = SafetensorsReader()
    inline = True  # the official reader is given all bytes of a source that is no file

    @pytest.fixture
    def samples(self):
        tensors = {"a": torch.ones(2, 3), "b": torch.zeros(300, dtype=torch.float8_e4m3fn), "s": torch.tensor(1)}
        return {"plain": make.safe(tensors, {"format": "pt"}), "empty": make.safe({})}


class TestSharded(ReaderSuite):
    reader = ShardedReader()

    @pytest.fixture
    def samples(self):
        index = {"metadata": {"total_size": 4}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
        return {"index": json.dumps(index).encode()}


class TestStructure(ReaderSuite):
    reader = StructureReader()

    @pytest.fixture
    def samples(self):
        document = structures.encode({"a": [1, (2.5, None)], 3: b"x"}, name="x.pt", container="torch-zip").main
        return {"laid out": "".join(document.text()).encode(), "compact": document.compact().encode()}


class TestRawPickle(ReaderSuite):
    reader = RawPickleReader()
    inline = True

    @pytest.fixture
    def samples(self):
        value = {"a": [1, 2.5, "x"], "n": np.arange(4), "t": make.state_dict()}
        plain = {f"protocol {p}": pickle.dumps({"a": [1, 2.5, "x", None], "n": np.arange(4)}, p) for p in range(6)}
        return {**plain, "tensors": pickle.dumps(value)}
