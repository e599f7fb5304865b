"""Archives of torch that are programs: named for what they are."""

import io
import json

import pytest
import torch

from ckpttool import containers
from ckpttool.containers._globals import Survey
from ckpttool.errors import LimitExceeded
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.sources import BytesSource
from ckpttool.values import Opaque
from tests.containers import samples as make


def read(data: bytes, limits: Limits = DEFAULT_LIMITS):
    """Contents of a file in memory."""
    return containers.read(BytesSource(data, "x.pt"), limits)


def codes(contents) -> list[str]:
    """Codes of the findings."""
    return [p.code for p in contents.problems]


def test_torchscript_lists_the_tensors_of_its_module() -> None:
    """The module's pickle is read as data: its tensors are there, its code is named and not looked at."""
    contents = read(make.scripted())
    assert (contents.container, contents.complete, codes(contents)) == ("torchscript", False, ["torchscript.program"])
    assert isinstance(contents.root, Opaque)
    assert {"bias", "training", "weight"} <= contents.root.attributes.keys()
    assert contents.root.attributes["weight"].shape == (2, 3)
    assert all(len(s.read()) == s.nbytes for s in contents.storages)
    assert contents.facts["lite"] is False
    assert contents.facts["extra"] == ["archive/extra/note.txt"]
    assert all(n.endswith(".py") for n in contents.facts["code"])
    assert Survey(contents.root, DEFAULT_LIMITS).places


def test_constants_make_a_checkpoint_a_program() -> None:
    """A member of that name turns torch.load into torch.jit.load, whatever else is there."""
    data = make.zipped(make.members(make.saved({"w": torch.ones(2)})) | {"archive/constants.pkl": b"\x80\2)."})
    contents = read(data)
    assert contents.container == "torchscript"
    assert contents.root["w"].shape == (2,)
    with pytest.warns(UserWarning, match="TorchScript"), pytest.raises(RuntimeError, match="TorchScript"):
        torch.load(io.BytesIO(data), weights_only=True)


def test_program_whose_pickle_breaks_is_still_named() -> None:
    """What cannot be read of a program is an error finding."""
    broken = make.members(make.scripted()) | {"archive/data.pkl": b"\x80\2\xff"}
    contents = read(make.zipped(broken))
    assert codes(contents) == ["torchscript.program", "torchscript.data"]
    assert (contents.root, contents.storages, contents.globals) == (None, (), ())


def test_old_program_without_a_pickle_is_named() -> None:
    """torch 1.0 to 1.2 wrote the module as JSON; its tensors are not listed."""
    contents = read(make.zipped({"m/model.json": b"{}", "m/version": b"1", "m/code/m.py": b""}))
    assert codes(contents) == ["torchscript.program", "torchscript.no-data"]


def test_exported_program_names_its_weights(fixtures_dir) -> None:
    """A torch.export archive is named, with its members and the names in its tables of weights."""
    contents = read((fixtures_dir / "programs" / "exported.pt2").read_bytes())
    assert (contents.container, contents.complete, codes(contents)) == ("torch-export", False, ["export.program"])
    assert {n.rpartition(".")[2] for n in contents.facts["weights"]} >= {"weight", "bias"}


@pytest.mark.parametrize(
    ("table", "weights", "more"),
    [
        (json.dumps({"config": {"a": {}, "b": {}}}).encode(), ["a", "b"], []),
        (b"{}", [], []),
        (b"[]", [], []),
        (b"{oops", [], ["export.weights"]),
        (b"[" * 100_000, [], ["export.weights"]),
    ],
)
def test_table_of_weights_may_be_odd(table, weights, more) -> None:
    """A table that cannot be read is an error finding."""
    data = make.zipped({"e/archive_format": b"pt2", "e/data/weights/m_weights_config.json": table})
    contents = read(data)
    assert (contents.facts["weights"], codes(contents)) == (weights, ["export.program", *more])


def test_package_names_what_it_brings() -> None:
    """A torch.package archive is named, with its code, its pickles and the modules that it wants."""
    contents = read(make.packaged())
    assert (contents.container, contents.complete, codes(contents)) == ("torch-package", False, ["package.program"])
    assert contents.facts["pickles"] == ["archive/m/sd.pkl"]
    assert "archive/m/code.py" in contents.facts["code"]
    assert "torch" in contents.facts["extern_modules"]
    assert contents.facts["python_version"].startswith("3.")


def test_package_without_details_is_named() -> None:
    """The one member that marks a package may be empty."""
    contents = read(make.zipped({"p/.data/extern_modules": b""}))
    assert (contents.facts["extern_modules"], contents.facts["python_version"]) == ([], None)


def test_programs_keep_the_limits() -> None:
    """An archive is limited whatever it is."""
    for data in (make.scripted(), make.packaged()):
        with pytest.raises(LimitExceeded):
            read(data, Limits(members=1))
