"""All values read once: figures equal torch's, and every checksum is held against the bytes."""

import zipfile
import zlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ckpttool.errors import DamagedFile, FileChanged
from ckpttool.opening import open_checkpoint
from ckpttool.sources import FileSource
from ckpttool.validation import scanning
from ckpttool.validation.scanning import scan

FLOATS = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex128, torch.complex64,
    torch.complex32,
)  # fmt: skip
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def scanned(path, **options):
    with open_checkpoint(path) as checkpoint:
        return scan(checkpoint, **options)


def saved(tmp_path, weights, **more):
    torch.save({"model": weights, **more}, tmp_path / "m.pt")
    return tmp_path / "m.pt"


def only(found):
    (one,) = found.tensors
    return one


def of_torch(tensor):
    """NaN, Inf, whether all is zero, and the largest finite absolute value, computed by torch in float64."""
    wide = tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)
    nan = wide.isnan()
    inf = wide.isinf() & ~nan
    finite = wide[~(nan | inf)].abs()
    return int(nan.sum()), int(inf.sum()), not wide.any().item(), finite.max().item() if finite.numel() else 0.0


def figures(one):
    return one.nan, one.inf, one.zero, one.largest


def random(dtype, count=1000):
    """Random bits, so that NaN, infinities, subnormals and signs are all there."""
    width = dtype.itemsize
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, 256, (count * width,), dtype=torch.uint8, generator=generator).view(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_figures_are_those_of_torch(tmp_path, dtype):
    """Of random bits of every type that counts: dense, as a strided view, and of zeros."""
    tensor = random(dtype)
    for shown in (tensor, tensor.reshape(20, 50).t(), tensor[1::3]):
        one = only(scanned(saved(tmp_path, {"w": shown})))
        assert figures(one) == pytest.approx(of_torch(shown), rel=1e-6)
    zeros = tensor.view(torch.uint8).zero_().view(dtype)
    expected = of_torch(zeros)
    assert figures(only(scanned(saved(tmp_path, {"w": zeros})))) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf"), -0.0, 1e-40, -2.5])
def test_one_special_value(tmp_path, dtype, special):
    """A single NaN, Inf, negative zero or subnormal among zeros is seen for what it is."""
    tensor = torch.zeros(10_000, dtype=dtype)
    tensor[9_999] = special
    assert figures(only(scanned(saved(tmp_path, {"w": tensor})))) == of_torch(tensor)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_types_without_figures_are_summed_only(tmp_path):
    """Bools, packed and quantized types have checksums and no figures."""
    weights = {
        "flags": torch.ones(4, dtype=torch.bool),
        "packed": torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "quantized": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
        "empty": torch.zeros(0),
        "w": torch.ones(2),
    }
    found = scanned(saved(tmp_path, weights))
    assert [t.name for t in found.tensors] == ["w"]
    assert found.read_bytes == 4 + 4 + 4 + 8


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32], ids=str)
def test_signs_are_looked_at_where_none_may_be(tmp_path, dtype, gaps):
    """Squares and variances below zero are seen, -0.0 is not; of weights nobody asks."""
    for number, below in ((-1, True), (-0.0, False), (3, False)):
        tensor = torch.tensor([1.0, 2.0, number, 4.0, 5.0, 6.0]).to(dtype)
        tensor = tensor[::2] if gaps else tensor
        file = saved(tmp_path, {"bn.running_var": tensor, "fc.weight": torch.full((2, 2), -1.0)})
        seen = {one.name.rsplit(".", 1)[-1]: one.negative for one in scanned(file).tensors}
        assert seen == {"running_var": below, "weight": False}


def test_views_of_one_storage(tmp_path):
    """Parts of a flat buffer are looked at by themselves; a second name of the same elements is not counted again."""
    flat = torch.arange(12.0)
    flat[11] = float("nan")
    weights = {"a": flat[:4], "b": flat[4:].reshape(2, 4), "again": flat[:4], "all": flat, "same": flat}
    found = scanned(saved(tmp_path, weights))
    assert {t.name: (t.nan, t.largest) for t in found.tensors} == {"a": (0, 3.0), "b": (1, 10.0), "all": (1, 10.0)}
    assert found.unread == ()


def test_gaps_and_overlaps(tmp_path):
    """A column of a matrix is not the matrix, an expanded number is as many as its shape says."""
    matrix = torch.ones(3, 4)
    matrix[:, 1] = float("inf")
    weights = {"column": matrix[:, 1], "other": matrix[:, 2], "expanded": torch.tensor([float("nan")]).expand(5)}
    found = {t.name: t for t in scanned(saved(tmp_path, weights)).tensors}
    assert (found["column"].inf, found["other"].inf, found["expanded"].nan) == (3, 0, 5)


def test_every_part_is_named_with_its_place(tmp_path):
    """Weights, averaged weights, moments by parameter, and tensors anywhere in other objects."""
    layer = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = saved(
        tmp_path, layer.state_dict(), ema={"weight": torch.ones(1, 2)}, optimizer=optimizer.state_dict(),
        notes={"kept": [torch.ones(3), (torch.full((2,), float("nan")),)]},
    )  # fmt: skip
    found = [(t.part.value, t.name, t.where, t.nan) for t in scanned(path).tensors]
    assert found == [
        ("model", "weight", "model.weight", 0),
        ("ema", "weight", "ema.weight", 0),
        ("optimizer", "step of weight", "optimizer.state[0].step", 0),
        ("optimizer", "exp_avg of weight", "optimizer.state[0].exp_avg", 0),
        ("optimizer", "exp_avg_sq of weight", "optimizer.state[0].exp_avg_sq", 0),
        ("custom", "notes.kept[0]", "notes.kept[0]", 0),
        ("custom", "notes.kept[1][0]", "notes.kept[1][0]", 2),
    ]


def test_state_that_is_no_tensor(tmp_path):
    """A step that is a number, and a moment that is not there yet, have no figures."""
    state = {0: {"step": 3, "momentum_buffer": None, "exp_avg": torch.ones(2)}}
    group = {"lr": 0.1, "params": [0]}
    path = saved(tmp_path, {"w": torch.ones(2)}, optimizer={"state": state, "param_groups": [group]})
    assert [t.name for t in scanned(path).tensors] == ["w", "exp_avg of w"]


def test_arrays_in_both_byte_orders(tmp_path):
    """numpy arrays have figures too, whatever their byte order."""
    array = np.array([1.0, -7.5, np.nan, np.inf], dtype="<f4")
    torch.save({"model": {"w": torch.ones(1)}, "notes": {"l": array, "b": array.astype(">f4")}}, tmp_path / "m.pt")
    found = {t.name: figures(t) for t in scanned(tmp_path / "m.pt").tensors}
    assert found["l"] == found["b"] == (1, 1, False, 7.5)


def test_checksums_of_all_storages(tmp_path):
    """A flipped bit is found in a tensor's bytes, and in those that no tensor looks at; nothing else is called rotten."""
    flat = torch.arange(64.0)
    path = saved(tmp_path, {"w": torch.ones(8), "part": flat[:2]})
    assert scanned(path).rotten == ()
    for key in ("0", "1"):
        data = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"m/data/{key}")
        start = info.header_offset + 30 + int.from_bytes(data[info.header_offset + 26 :][:2], "little")
        start += int.from_bytes(data[info.header_offset + 28 :][:2], "little")
        data[start + info.file_size - 1] ^= 1
        damaged = tmp_path / f"damaged{key}.pt"
        damaged.write_bytes(data)
        for choice in (True, False):
            ((storage, crc),) = scanned(damaged, figures=choice).rotten
            assert storage.key == key
            assert crc == zlib.crc32(data[start : start + info.file_size])


def test_a_storage_is_cut_into_parts(tmp_path, monkeypatch):
    """Checksum and figures are put together from parts that two threads read, whatever their size."""
    monkeypatch.setattr(scanning, "BLOCK", 64)
    monkeypatch.setattr(scanning, "PART", 256)
    tensor = torch.zeros(1001)
    tensor[[3, 500, 1000]] = torch.tensor([float("nan"), -9.0, float("inf")])
    for choice in (True, False):
        found = scanned(saved(tmp_path, {"w": tensor, "small": torch.ones(3)}), figures=choice)
        assert found.rotten == ()
    assert figures(scanned(tmp_path / "m.pt").tensors[0]) == (1, 1, False, 9.0)


def test_containers_without_checksums(tmp_path):
    """safetensors and torch's legacy stream are read for figures alone; that there is no checksum is counted."""
    weights = {"w": torch.tensor([1.0, float("nan")]), "b": torch.zeros(3)}
    save_file(weights, tmp_path / "m.safetensors")
    torch.save(weights, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("m.safetensors", "old.pt"):
        found = scanned(tmp_path / name)
        assert (found.unsummed, found.rotten, found.read_bytes) == (2, (), 20)
        assert {t.name: figures(t) for t in found.tensors} == {"w": (1, 0, False, 1.0), "b": (0, 0, True, 0.0)}
        alone = scanned(tmp_path / name, figures=False)
        assert (alone.tensors, alone.figures, alone.read_bytes) == ((), False, 0)


def test_bytes_that_cannot_be_read(tmp_path, monkeypatch):
    """A place that the disk does not give is named with its error, and all else is read."""
    path = saved(tmp_path, {"bad": torch.ones(8), "w": torch.zeros(3), "column": torch.zeros(2, 2)[:, 1]})
    whole = FileSource.read_into
    with open_checkpoint(path) as checkpoint:
        bad = checkpoint.weights[0].tensors["bad"].storage.start
        monkeypatch.setattr(
            FileSource,
            "read_into",
            lambda s, start, buffer: refused(start) if start == bad else whole(s, start, buffer),
        )
        found, sums = scan(checkpoint), scan(checkpoint, figures=False)
    assert [t.name for t in found.tensors] == ["w", "column"]
    assert [where for where, _ in sums.unread] == [f"{path}: storage 0"]
    ((where, error),) = found.unread
    assert (where, error.message, found.rotten) == ("model.bad", "the disk does not give the bytes: it is gone", ())


def refused(start):
    raise DamagedFile("the disk does not give the bytes: it is gone", where=f"m.pt @ byte {start}")


def test_what_unrolls_too_far_is_named(tmp_path):
    """A stride of 0 that repeats a number beyond the limit is not looked at, and that is said."""
    path = saved(tmp_path, {"w": torch.ones(1).expand(1000), "b": torch.ones(2)})
    with open_checkpoint(path) as checkpoint:
        checkpoint.limits = checkpoint.limits.raised(["expanded=100"])
        found = scan(checkpoint)
    assert [t.name for t in found.tensors] == ["b"]
    ((where, error),) = found.unread
    assert (where, error.code) == ("model.w", "limit")


@pytest.mark.parametrize("tensor", [torch.ones(8), torch.ones(8, 8)[:, 1]], ids=["whole", "part"])
def test_a_file_that_changes_is_no_finding(tmp_path, monkeypatch, tensor):
    """A file that is written to while it is read ends the scan: no answer about it would be true."""

    def changed(*_):
        raise FileChanged("the file was written to")

    torch.save({"w": tensor}, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    with open_checkpoint(tmp_path / "m.pt") as checkpoint:
        monkeypatch.setattr(FileSource, "read_into", changed)
        with pytest.raises(FileChanged):
            scan(checkpoint)


def test_progress_reaches_the_end(tmp_path, monkeypatch):
    """Bytes done rise to bytes in all, in the caller's thread."""
    monkeypatch.setattr(scanning, "PART", 256)
    monkeypatch.setattr(scanning, "BLOCK", 64)
    told = []
    found = scanned(saved(tmp_path, {"w": torch.ones(1000)}), progress=lambda *seen: told.append(seen))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert {(what, total) for what, _, total in told} == {("reading values", 4000)}
    assert told[-1][1] == found.read_bytes == 4000


def test_many_small_tensors_share_a_thread(tmp_path):
    """Thousands of numbers are read in a few batches."""
    weights = {str(n): torch.tensor(float(n)) for n in range(3000)}
    found = scanned(saved(tmp_path, weights))
    assert [t.largest for t in found.tensors] == [float(n) for n in range(3000)]


def test_a_cycle_ends(tmp_path):
    """Objects that hold themselves are walked once."""
    inner = {"t": torch.ones(2)}
    inner["self"] = inner
    assert [t.name for t in scanned(saved(tmp_path, {"w": torch.ones(1)}, notes=inner)).tensors] == ["w", "notes.t"]
