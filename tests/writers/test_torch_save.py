"""Torch files of ours: laid out as torch's own, loaded by torch as what the original loads as."""

import collections
import io
import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ckpttool.containers import READERS, read, verify_storage
from ckpttool.conversion.walk import first_difference as difference_of_values
from ckpttool.dtypes import BY_NAME, UINT8
from ckpttool.errors import CkptError, DamagedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.sources import ByteSpan, BytesSource, FileSource
from ckpttool.values import GlobalRef, Made, Placement, StorageRef, TensorRef
from ckpttool.writers.archives import Member, plan_archive
from ckpttool.writers.copying import write_plan
from ckpttool.writers.torch_save import folder_of, plan_torch
from tests.canonical import first_difference
from tests.conftest import FIXTURES
from tests.writers.torch_files import again, contents_of, file_again, loaded, rendered, rewritten, saved, tensor_of

FLOAT32 = BY_NAME["float32"]
ID = b"archive/.data/serialization_id"
PICKLES = {"torch-zip", "torch-legacy", "torch-tar", "pickle"}


def converts(path: Path) -> bool:
    """Whether a fixture holds a pickle of torch's or Python's."""
    with FileSource(path) as source:
        return next((r.name for r in READERS if r.sniff(source)), "") in PICKLES


FILES = sorted(
    p.relative_to(FIXTURES).as_posix()
    for p in FIXTURES.rglob("*")
    if p.is_file() and "scripts" not in p.parts and converts(p)
)


def weights_only(file: Any) -> bool:
    """Whether torch takes a file without being told to trust it."""
    try:
        loaded(file, weights_only=True)
    except Exception:  # noqa: BLE001  # whatever torch says
        return False
    return True


def test_there_are_fixtures_of_every_kind() -> None:
    """Zip archives, legacy streams, a bare pickle: more than a hundred files."""
    assert len(FILES) > 100


@pytest.mark.parametrize("name", FILES)
def test_fixture_comes_back(name: str) -> None:
    """What torch loads from our file is what it loads from the original; what it cannot load, we read as the same."""
    contents, data = file_again(FIXTURES / name)
    assert difference_of_values(contents.root, contents_of(data).root) is None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            original = loaded(FIXTURES / name)
    except Exception:  # noqa: BLE001  # a class that is not here, a file that this torch does not read
        return
    assert first_difference(original, loaded(data)) is None
    assert weights_only(data) >= weights_only(FIXTURES / name)


class Subclass(torch.Tensor):
    """A tensor of a class."""


def tensors() -> dict[str, Any]:
    """Tensors of every kind, views and ties among them."""
    base = torch.arange(24.0).reshape(4, 6)
    subclass = torch.arange(3.0).as_subclass(Subclass)
    subclass.note = {"a": [1]}
    noted = torch.nn.Parameter(torch.ones(2))
    noted.note = [base]
    shared = torch.nn.Parameter(base[1])
    return {
        "coo": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "base": base, "row": base[2], "transposed": base.t(), "again": base, "tied": base.view(4, 6),
        "expanded": torch.ones(1).expand(5), "parameter": shared, "tied parameter": shared, "scalar": torch.tensor(3.5),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False), "subclass": subclass, "noted": noted,
        "conj": torch.ones(2, dtype=torch.complex64).conj(), "neg": torch.ones(2, dtype=torch.complex64).conj().imag, "both": torch.ones(2, 2, dtype=torch.complex64).conj().imag.t(),
        "empty": torch.empty(0), "no rows": torch.empty(0, 3)[:, 1:], "meta": torch.empty(2, device="meta"),
        "float8": torch.ones(3).to(torch.float8_e4m3fn), "uint16": torch.arange(3).to(torch.uint16),
        "requires": torch.ones(2, requires_grad=True), "last": torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8),
        "per channel": torch.quantize_per_channel(torch.ones(2, 3), torch.ones(2), torch.zeros(2), 0, torch.quint8),
        "parameter of a subclass": torch.nn.Parameter(subclass),
    }  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
def test_every_kind_of_tensor_comes_back(*, legacy: bool) -> None:
    """Sharing, strides, flags, classes, attributes, parts: all as they were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kinds that are young, or on their way out
        given = tensors()
    if legacy:  # torch's legacy format has no place for these
        for name in ("float8", "uint16", "nested"):
            del given[name]
    data = saved(given, _use_new_zipfile_serialization=not legacy)
    result = rewritten(data)
    assert first_difference(loaded(data), loaded(result)) is None
    assert weights_only(result) == weights_only(data)


def test_hooks_that_were_saved() -> None:
    """Old torch saved what hung on a tensor; a call with more than an empty dict of hooks is spelled with it."""
    utils = torch._utils
    for function in (utils._rebuild_tensor_v2, utils._rebuild_parameter, utils._rebuild_tensor_v3):

        class Hooked:
            def __reduce_ex__(self, _protocol: int, function: Any = function) -> Any:
                hooks = collections.OrderedDict({1: len})
                tensor = torch.arange(3.0)
                if function is utils._rebuild_parameter:
                    return function, (tensor, True, hooks)
                storage = torch.storage.TypedStorage(
                    wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True
                )
                if function is utils._rebuild_tensor_v3:
                    return function, (tensor.untyped_storage(), 0, (3,), (1,), False, hooks, torch.float32)
                return function, (storage, 0, (3,), (1,), True, hooks)

        data = saved([Hooked(), torch.ones(2)])
        assert first_difference(loaded(data), loaded(rewritten(data))) is None
        assert loaded(rewritten(data))[0]._backward_hooks == {1: len}


def test_tensors_of_other_devices() -> None:
    """An XLA tensor is saved as a host tensor and the name of the device; `map_location` replaces the name."""

    class Elsewhere:
        def __reduce_ex__(self, _protocol: int) -> Any:
            function = torch._utils._rebuild_device_tensor_from_cpu_tensor
            return function, (torch.ones(3), torch.float32, "meta", False)

    root = contents_of(saved([Elsewhere()])).root
    assert loaded(again(root))[0].device.type == "meta"
    mapped = loaded(again(root, map_location="cpu"))[0]
    assert first_difference(mapped, torch.ones(3)) is None


def test_devices_of_storages() -> None:
    """Each storage keeps the device it was on, unless one is given for all."""
    root = {"w": tensor_of(bytes(8), dtype=FLOAT32, shape=(2,), stride=(1,), location="cuda:1")}
    assert contents_of(again(root)).storages[0].location == "cuda:1"
    assert contents_of(again(root, map_location="cpu")).storages[0].location == "cpu"


def test_a_state_dict_is_byte_for_byte_as_torch_writes_it() -> None:
    """All but the identity of forty digits and its checksum, which torch makes of hashes that change with its build."""
    given = {
        "model": {f"layer.{n}.w": torch.randn(n % 5, 3) for n in range(1200)},
        "step": 7,
        "lr": 1e-3,
        "betas": (0.9, 0.99),
    }
    data = saved(given)
    ours = rewritten(data)
    assert len(ours) == len(data)
    where = data.index(ID) + len(ID)
    digits = next(n for n in range(where, len(data)) if data[n : n + 1].isdigit())
    first = [n for n in range(len(data)) if data[n] != ours[n]]
    directory = data.rindex(ID) - 46 + 16  # the checksum in the directory's entry
    assert set(first) <= {*range(digits, digits + 40 + 8), *range(directory, directory + 4)}


@pytest.mark.parametrize("name", ["model.pt", "a.b.pt", "plain", "sp ace.ckpt", "two..pt"])
def test_the_folder_in_the_archive(name: str, tmp_path: Path) -> None:
    """It has the name that torch gives it."""
    torch.save([1], tmp_path / name)
    with zipfile.ZipFile(tmp_path / name) as archive:
        assert archive.namelist()[0] == f"{folder_of(f'x/{name}')}/data.pkl"
    assert [folder_of(odd) for odd in ("ünï.pt", ".pt", "")] == ["archive"] * 3


def test_written_by_the_engine_and_read_by_everyone(tmp_path: Path) -> None:
    """Two threads write it; zipfile, torch's own reader, a mapped load and our reader agree with it."""
    given = {"a": torch.arange(1000.0), "b": torch.arange(1000.0)[100:200], "none": torch.empty(0)}
    given["c"] = given["a"][5:9]
    root = contents_of(saved(given)).root
    planned = plan_torch("m.pt", root)
    assert planned.plan.seal is not None
    path = tmp_path / "m.pt"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    write_plan(fd, planned.plan)
    os.close(fd)
    assert path.read_bytes() == rendered(planned.plan)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    reader = torch._C.PyTorchFileReader(str(path))
    assert reader.get_all_records()[-1] == ".data/serialization_id"
    assert len(reader.get_record("data/0")) == 4000
    assert reader.serialization_id() == reader.get_record(".data/serialization_id").decode()
    for options in ({}, {"mmap": True}, {"weights_only": True}):
        assert first_difference(given, loaded(path, **options)) is None
    with FileSource(path) as source:
        contents = read(source, DEFAULT_LIMITS)
        assert contents.problems == ()
        assert [verify_storage(s) for s in contents.storages] == [None] * 3
        assert all(s.start % 64 == 0 for s in contents.storages)


def test_checksums_that_are_known_are_not_made_again() -> None:
    """A storage that is written whole keeps the checksum of its archive, so nothing is left to seal."""
    whole = plan_torch("m.pt", contents_of(saved([torch.ones(5), torch.ones(0)])).root).plan
    assert (whole.summed, whole.seal) == ((), None)
    part = plan_torch("m.pt", contents_of(saved([torch.ones(50)[10:12], torch.ones(3)])).root).plan
    assert [part.pieces[n].nbytes for n in part.summed] == [16]


def test_bytes_that_no_view_covers_are_left_out() -> None:
    """From the first to the last byte that is looked at, the start at a multiple of 16; how many are left out is told."""
    base = torch.arange(1000.0)
    given = {"a": base[101:104], "b": base[200:210], "whole": torch.ones(3), "seen": torch.arange(100.0)[:0]}
    planned = plan_torch("m.pt", contents_of(saved(given)).root)
    assert [(s.key, s.nbytes, s.dropped) for s in planned.storages] == [("0", 440, 3560), ("1", 12, 0), ("2", 0, 400)]
    result = rendered(planned.plan)
    got = loaded(result)
    assert first_difference(given, got) is None
    assert got["a"].storage_offset() == 1
    assert got["a"].untyped_storage().nbytes() == 440


def test_storage_that_is_a_value_is_written_whole() -> None:
    """Whoever holds the storage itself may look at any of it."""
    base = torch.arange(100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [base[50:51], base.storage(), torch.arange(5, dtype=torch.uint8).untyped_storage()]
        data = saved(given)
    planned = plan_torch("m.pt", contents_of(data).root)
    assert [(s.nbytes, s.dropped) for s in planned.storages] == [(400, 0), (5, 0)]
    assert first_difference(loaded(data), loaded(rendered(planned.plan))) is None
    both = torch.arange(5, dtype=torch.uint8)
    data = saved([both, both.untyped_storage()])
    assert first_difference(loaded(data), loaded(rewritten(data))) is None


def test_one_storage_under_two_types() -> None:
    """torch cannot save that; where a conversion makes it, the storage is untyped and each tensor says its own type."""
    half = tensor_of(np.arange(8, dtype="<f4").tobytes(), dtype=FLOAT32, shape=(2,), stride=(1,), storage_offset=4)
    words = TensorRef(dtype=BY_NAME["int32"], shape=(4,), stride=(2,), storage=half.storage)
    result = again({"half": half, "words": words, "storage": half.storage})
    got = loaded(result)
    assert got["half"].tolist() == [4.0, 5.0]
    assert got["words"].dtype is torch.int32
    assert got["half"].untyped_storage().data_ptr() == got["words"].untyped_storage().data_ptr()
    quantized = TensorRef(
        dtype=BY_NAME["qint8"], shape=(1,), stride=(1,), storage=half.storage, kind="quantized",
        made=Made(GlobalRef("torch._utils", "_rebuild_qtensor"), (None,) * 4 + ((), False, None)),
    )  # fmt: skip
    with pytest.raises(UnsupportedFormat, match="shares its storage with tensors of another type"):
        again([half, quantized])


def test_storages_that_overlap_are_one() -> None:
    """Old torch wrote a view of a storage as a storage; both share memory when loaded, and so they do here."""
    data = np.arange(16, dtype="<f4").tobytes()
    source = BytesSource(data)
    whole = StorageRef(source, 0, 40, key="1", dtype=FLOAT32)
    part = StorageRef(source, 16, 16, key="2", dtype=FLOAT32)
    apart = StorageRef(source, 40, 24, key="3", dtype=FLOAT32)
    views = [
        TensorRef(dtype=FLOAT32, shape=(n,), stride=(1,), storage=s, storage_offset=o)
        for s, n, o in ((whole, 8, 2), (part, 2, 1), (apart, 6, 0), (whole, 0, 0))
    ]
    planned = plan_torch("m.pt", views)
    assert [s.nbytes for s in planned.storages] == [40, 24]
    one, two, three, _ = loaded(rendered(planned.plan))
    assert (one.tolist(), two.tolist(), three.tolist()) == ([*range(2, 10)], [5.0, 6.0], [*range(10, 16)])
    one[3] = -1.0
    assert two.tolist() == [-1.0, 6.0]


def test_big_endian_storages_are_turned() -> None:
    """What a big-endian machine wrote comes out little-endian, as torch loads it."""
    data = saved([torch.arange(6.0)[2:], torch.arange(3, dtype=torch.uint8)])
    root = contents_of(data.replace(b"little", b"big\x00\x00\x00", 1)).root
    swapped = {
        "w": tensor_of(
            np.arange(6, dtype=">f4").tobytes(),
            dtype=FLOAT32,
            shape=(4,),
            stride=(1,),
            storage_offset=2,
            big_endian=True,
        ),
        "b": tensor_of(b"\x01\x02", dtype=UINT8, shape=(2,), stride=(1,), big_endian=True),
        "s": StorageRef(BytesSource(b"\x01\x02"), 0, 2, big_endian=True),
    }
    got = loaded(again(swapped))
    assert (got["w"].tolist(), got["b"].tolist(), bytes(got["s"]._untyped_storage)) == (
        [2.0, 3.0, 4.0, 5.0],
        [1, 2],
        b"\x01\x02",
    )
    assert root is not None
    mixed = [swapped["w"], TensorRef(dtype=BY_NAME["float64"], shape=(1,), stride=(1,), storage=swapped["w"].storage)]
    with pytest.raises(UnsupportedFormat, match="float32 and float64, which are turned in different ways"):
        again(mixed)


def placed(array: Any, home: StorageRef, offset: int, stride: tuple[int, ...], **fields: Any) -> TensorRef:
    """A packed tensor that lay elsewhere when it was saved."""
    array = np.ascontiguousarray(array)
    packed = StorageRef(BytesSource(array.tobytes()), 0, array.nbytes)
    lay = Placement(home, offset, stride)
    steps = tuple(s // array.itemsize for s in array.strides)
    return TensorRef(
        dtype=BY_NAME[str(array.dtype)], shape=array.shape, stride=steps, storage=packed, placed=lay, **fields
    )


def test_storages_are_put_together_again() -> None:
    """Views that a conversion packed share memory again, where and how they lay; what none covers is zero."""
    base = np.arange(40, dtype="float32")
    nowhere = StorageRef(BytesSource(b""), 0, 160, dtype=FLOAT32)
    alone = StorageRef(BytesSource(b""), 0, 400, dtype=FLOAT32)
    tied = placed(base[:6].reshape(2, 3), alone, 7, (3, 1))
    root = {
        "rows": placed(base[10:22].reshape(4, 3), nowhere, 10, (3, 1)),
        "column": placed(base[11:23:3], nowhere, 11, (3,)),
        "turned": placed(base[24:30].reshape(3, 2).T, nowhere, 24, (1, 2)),
        "tied": tied, "again": tied, "none": placed(base[:0], alone, 90, (1,)),
    }  # fmt: skip
    planned = plan_torch("m.pt", root)
    assert [(s.nbytes, s.dropped) for s in planned.storages] == [(88, 0), (36, 0)]
    got = loaded(rendered(planned.plan))
    assert got["rows"].tolist() == base[10:22].reshape(4, 3).tolist()
    assert got["column"].tolist() == base[11:23:3].tolist()
    assert (got["turned"].tolist(), got["turned"].stride()) == (base[24:30].reshape(3, 2).T.tolist(), (1, 2))
    got["rows"][0, 1] = -5.0
    assert got["column"][0] == -5.0
    assert got["tied"] is got["again"]


def test_a_placed_view_alone_is_copied_from_where_it_is() -> None:
    """Nothing has to be put together where one run of bytes is the whole storage; two of one place need one only."""
    array = np.arange(12, dtype="float32").reshape(3, 4)
    home = StorageRef(BytesSource(b""), 0, 48, dtype=FLOAT32)
    one = placed(array, home, 0, (4, 1))
    other = TensorRef(
        dtype=one.dtype, shape=one.shape, stride=one.stride, storage=one.storage,
        placed=Placement(home, 0, (4, 1)), parameter=True,
    )  # fmt: skip
    planned = plan_torch("m.pt", [one, other])
    assert planned.storages[0].source is one.storage.source
    got = loaded(rendered(planned.plan))
    assert got[0].data_ptr() == got[1].data_ptr()
    conj = placed(np.array([1 + 2j], "complex64"), StorageRef(BytesSource(b""), 0, 8), 0, (1,), conj=True)
    planned = plan_torch("m.pt", [conj])
    assert planned.storages[0].source is not conj.storage.source
    assert loaded(rendered(planned.plan))[0].tolist() == [1 + 2j]
    turned = placed(array, StorageRef(BytesSource(b""), 0, 48, dtype=FLOAT32), 0, (1, 3))
    got = loaded(again([turned]))[0]
    assert (got.tolist(), got.stride()) == (array.tolist(), (1, 3))


def test_storage_with_bytes_of_its_own_is_not_put_together() -> None:
    """A storage that is a value has all its bytes, whatever its views say."""
    home = StorageRef(BytesSource(bytes(range(8))), 0, 8, dtype=UINT8)
    view = placed(np.array([3], "uint8"), home, 3, (1,))
    got = loaded(again([home, view]))
    assert (bytes(got[0]._untyped_storage), got[1].tolist()) == (bytes(range(8)), [3])


def test_absent_bytes_are_refused_before_anything_is_written() -> None:
    """The error names the tensor, the place and the reason; a view of what is there passes."""
    data = saved({"w": torch.arange(6.0), "deep": [torch.ones(3)]})
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = {n: old.read(n) for n in old.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for name, member in members.items():
            if not name.endswith("data/1"):
                new.writestr(name, member)
    with pytest.raises(DamagedFile, match=r"the bytes of deep\[0\] are not there: the archive has no such member"):
        rewritten(buffer.getvalue())
    short = StorageRef(BytesSource(bytes(20)), 0, 40, dtype=FLOAT32)
    part = TensorRef(dtype=FLOAT32, shape=(5,), stride=(1,), storage=short)
    assert loaded(again([part]))[0].tolist() == [0.0] * 5
    with pytest.raises(DamagedFile, match=r"the bytes of \[0\] are not there: bytes 16 to 24 are wanted"):
        again([TensorRef(dtype=FLOAT32, shape=(2,), stride=(1,), storage=short, storage_offset=4)])
    with pytest.raises(DamagedFile, match="the bytes of s are not there"):
        again({"s": short})


def test_damage_does_not_come_through_in_silence() -> None:
    """A flipped byte of a storage that is copied whole keeps the checksum that it contradicts; a cut file is refused."""
    data = bytearray(saved({"w": torch.arange(60.0)}))
    storage = contents_of(bytes(data)).storages[0]
    data[storage.start + 5] ^= 1
    result = contents_of(rewritten(bytes(data)))
    finding = verify_storage(result.storages[0])
    assert finding is not None
    assert finding.code == "zip.crc"
    for cut in range(0, len(data), 97):
        with pytest.raises(CkptError):
            rewritten(bytes(data[:cut]))


class Zeros:
    """As many zeros as there are disks."""

    name = "zeros"

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, span: ByteSpan) -> bytes:
        return bytes(span.size)

    def read_into(self, start: int, buffer: memoryview) -> None:  # noqa: ARG002
        buffer[:] = bytes(len(buffer))


class Planned(io.RawIOBase):
    """The file of a plan, made while it is read; huge pieces of zeros take no memory."""

    def __init__(self, plan: Any) -> None:
        sealed = plan.seal([0] * len(plan.summed)) if plan.seal else ()
        self.literals = sorted((*plan.literals, *sealed), key=lambda x: x.at)
        self.size, self.at, self.name = plan.size, 0, "planned"

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: Any = -1) -> bytes:  # a source's span, or a file's count
        start, end = (size.start, size.end) if isinstance(size, ByteSpan) else (self.at, self.size)
        if isinstance(size, int) and size >= 0:
            end = min(self.at + size, self.size)
        out = bytearray(end - start)
        for x in self.literals:
            low, high = max(x.at, start), min(x.at + len(x.data), end)
            if low < high:
                out[low - start : high - start] = x.data[low - x.at : high - x.at]
        self.at = end
        return bytes(out)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_into(self, start: int, buffer: memoryview) -> None:
        buffer[:] = self.read(ByteSpan(start, start + len(buffer)))


def test_members_and_archives_beyond_four_gigabytes() -> None:
    """Sizes and places that 32 bits cannot hold are in fields of 64: for our reader, zipfile, and torch."""
    zeros = Zeros(5 * 2**30)
    count = zeros.size // 4
    big = StorageRef(zeros, 0, zeros.size, dtype=FLOAT32, crc32=7)
    small = StorageRef(BytesSource(b"\x00\x00\x80\x3f"), 0, 4, dtype=FLOAT32)
    root = [TensorRef(dtype=FLOAT32, shape=(n,), stride=(1,), storage=s) for s, n in ((big, count), (small, 1))]
    plan = plan_torch("m.pt", root).plan
    file = Planned(plan)
    contents = read(file, DEFAULT_LIMITS)
    assert contents.problems == ()
    assert [(s.nbytes, s.start % 64) for s in contents.storages] == [(zeros.size, 0), (4, 0)]
    assert contents.storages[0].crc32 == 7
    with zipfile.ZipFile(file) as archive:
        sizes = {i.filename: i.file_size for i in archive.infolist()}
        offset = archive.getinfo("m/data/1").header_offset
    assert sizes["m/data/0"] == zeros.size
    assert offset > 2**32
    file.seek(0)
    reader = torch._C.PyTorchFileReader(file)
    assert reader.has_record("data/1")
    assert reader.get_record("version") == b"3\n"


def test_more_members_than_sixteen_bits_count() -> None:
    """The old end record says as many as it can, the 64-bit one says how many."""
    members = [Member(name=f"data/{n}", chunks=(b"",)) for n in range(70_000)]
    data = rendered(plan_archive("m.pt", "m", members))
    assert struct.unpack("<HH", data[-14:-10]) == (0xFFFF, 0xFFFF)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.namelist()) == 70_001


def test_a_long_string_in_a_pickle_is_summed_when_it_is_planned() -> None:
    """The checksum of the pickle covers bytes that are copied only later."""
    member = Member(name="data.pkl", chunks=(b"head", (BytesSource(b"x" * 3_000_000), 0, 3_000_000), b"tail"))
    plan = plan_archive("m.pt", "m", [member])
    assert plan.seal is None
    with zipfile.ZipFile(io.BytesIO(rendered(plan))) as archive:
        assert archive.read("m/data.pkl") == b"head" + b"x" * 3_000_000 + b"tail"
