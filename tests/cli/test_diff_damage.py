"""A difference that is damage is an error of its side, not a difference."""

import zipfile
from pathlib import Path

import pytest
import torch


def flipped(path, member, bit=0):
    """Flip one bit of a stored member, leaving its checksum."""
    with zipfile.ZipFile(path) as archive:
        info = next(i for i in archive.infolist() if i.filename.endswith(member))
    data = bytearray(Path(path).read_bytes())
    name, extra = (
        int.from_bytes(data[info.header_offset + n : info.header_offset + n + 2], "little") for n in (26, 28)
    )
    data[info.header_offset + 30 + name + extra] ^= 1 << bit
    Path(path).write_bytes(data)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_flipped_bit_is_damage_where_the_archive_has_a_checksum(ckpt, tmp_path, monkeypatch, side):
    """The other side differs, but only because this one is damaged: exit 2, and nothing is printed as if compared."""
    monkeypatch.chdir(tmp_path)
    for name in ("left.pt", "right.pt"):
        torch.save({"a": torch.ones(8), "b": torch.zeros(8)}, name)
    flipped(f"{side}.pt", "data/1")
    result = ckpt("diff", "left.pt", "right.pt")
    assert (result.code, result.out) == (2, "")
    assert f"the {side} side is not whole: storage '1' is damaged: its checksum is" in result.err
    assert f"{side}.pt @ byte" in result.err


def test_a_flipped_bit_of_a_field_is_damage_too(ckpt, tmp_path, monkeypatch):
    """Tensors of custom objects are compared as fields; their bytes have checksums as well."""
    monkeypatch.chdir(tmp_path)
    for name in ("left.pt", "right.pt"):
        torch.save({"queue": [torch.ones(8), "note"], "model": {"w": torch.ones(8)}}, name)
    flipped("right.pt", "data/0")
    assert ckpt("diff", "left.pt", "right.pt").code == 2


def test_a_real_difference_is_no_damage(ckpt, tmp_path, monkeypatch):
    """The checksums hold, tied tensors are looked at once, and a container without checksums is not looked at."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("left.pt", 1.0), ("right.pt", 2.0)):
        w = torch.full((8,), value)
        torch.save({"a": w, "b": w}, name)
    assert ckpt("diff", "left.pt", "right.pt").code == 1
    torch.save({"a": torch.zeros(8)}, "legacy.pt", _use_new_zipfile_serialization=False)
    assert ckpt("diff", "left.pt", "legacy.pt").code == 1


def test_only_so_much_is_looked_at(ckpt, tmp_path, monkeypatch):
    """Where everything differs it is not damage, and reading it all again would take longer than the comparison."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ckpttool.commands._diff.undamaged._MOST", 16)
    for name in ("left.pt", "right.pt"):
        torch.save({"a": torch.ones(8)}, name)
    flipped("right.pt", "data/0")
    assert ckpt("diff", "left.pt", "right.pt").code == 1
