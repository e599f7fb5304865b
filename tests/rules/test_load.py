"""load.*: what a file names, held against what its loader takes."""

import argparse
import shutil
import sys
import zipfile
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest
import torch

import ckpttool
from ckpttool.protocols import NotChecked
from ckpttool.rules.load_device_tag import DeviceTag
from ckpttool.rules.load_missing_class import MissingClass
from ckpttool.rules.load_numpy_core import NumpyCore
from ckpttool.rules.load_torch_gate import TorchGate
from ckpttool.rules.load_weights_only import WeightsOnly
from tests.conversion.runs import load
from tests.rules.asking import asked, short
from tests.validation.resuming import (
    copied,
    raised,
    resume_with_accelerate,
    resume_with_lightning,
    resume_with_trainer,
    train_with_accelerate,
    train_with_lightning,
    train_with_trainer,
)

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Accelerate, Transformers and Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module")
def of_trainer(tmp_path_factory):
    """checkpoint-2 of the Trainer."""
    return train_with_trainer(tmp_path_factory.mktemp("trainer") / "run", 2) / "checkpoint-2"


@pytest.fixture(scope="module")
def of_accelerate(tmp_path_factory):
    """The last folder of a run of Accelerate."""
    return train_with_accelerate(tmp_path_factory.mktemp("accelerate")) / "checkpoints/checkpoint_2"


@pytest.fixture(scope="module")
def of_lightning(tmp_path_factory):
    """A file of Lightning."""
    return train_with_lightning(tmp_path_factory.mktemp("lightning") / "run", 1) / "epoch=0.ckpt"


def edited(path, change):
    """Load a file, change what is in it, and save it again."""
    state = load(path)
    change(state)
    torch.save(state, path)


def of_module(name, monkeypatch):
    """An object of a class in a module of that name, which is there only while it is pickled."""
    made = type("Config", (), {"__module__": name})
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "Config", made, raising=False)
    return made()


# load.weights-only


def test_a_numpy_number_in_the_trainers_optimizer(of_trainer, tmp_path):
    """The Trainer loads optimizer.pt with torch's own list: a numpy learning rate raises UnpicklingError."""
    assert asked(WeightsOnly(), of_trainer) == []  # nor does training_args.bin matter, which nothing reads
    folder = copied(of_trainer, tmp_path / "checkpoint-2")
    edited(folder / "optimizer.pt", lambda s: s["param_groups"][0].update(lr=np.float64(0.001)))
    (found,) = asked(WeightsOnly(), folder)
    assert (str(found.severity), found.where) == ("error", "optimizer.pt")
    assert found.message == (
        "torch's list lacks numpy._core.multiarray.scalar, numpy.dtype; _load_optimizer_and_scheduler of the Trainer "
        "raises UnpicklingError"
    )
    assert found.hint.startswith("ckpt convert optimizer.pt OUT.pt --plain makes builtins ")
    assert raised(resume_with_trainer, folder, tmp_path / "out")[0] == "UnpicklingError"
    ckpttool.convert(str(folder / "optimizer.pt"), str(tmp_path / "plain.pt"), plain=True)
    shutil.copy(tmp_path / "plain.pt", folder / "optimizer.pt")
    assert raised(resume_with_trainer, folder, tmp_path / "out", 3) == ("", "")


def test_what_accelerate_adds_to_the_list(of_accelerate, tmp_path):
    """Accelerate takes numpy arrays, and anything in custom objects; a Namespace in a scheduler raises."""
    folder = copied(of_accelerate, tmp_path / "checkpoint_2")
    edited(folder / "optimizer.bin", lambda s: s["param_groups"][0].update(note=np.arange(3, dtype=np.uint32)))
    edited(folder / "custom_checkpoint_0.pkl", lambda s: s.update(note=argparse.Namespace(a=1)))
    assert asked(WeightsOnly(), folder) == []
    assert raised(resume_with_accelerate, folder) == ("", "")
    edited(folder / "scheduler.bin", lambda s: s.update(note=argparse.Namespace(a=1)))
    ((severity, where, message),) = short(asked(WeightsOnly(), folder))
    assert (severity, where) == ("error", "scheduler.bin")
    assert message == (
        "torch's list lacks argparse.Namespace at note; load_accelerator_state of Accelerate raises UnpicklingError"
    )
    assert raised(resume_with_accelerate, folder)[0] == "UnpicklingError"


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (np.arange(3, dtype="u4"), False),
        (np.arange(3, dtype=">u4"), False),
        (np.dtype("u4"), False),
        (np.arange(3, dtype="f4"), True),
        (np.arange(3, dtype="i8"), True),
        (np.array(["a"]), True),
        (np.array([None, {}], dtype=object), True),
        (np.zeros(2, dtype=[("a", "i4")]), True),
        (np.zeros(2, dtype="M8[s]"), True),
        (np.dtype("f4"), True),
    ],
)
@pytest.mark.parametrize("file", ["optimizer.bin", "scheduler.bin", "scaler.pt"])
def test_dtypes_that_accelerate_refuses(of_accelerate, tmp_path, file, value, refused):
    """Each dtype of numpy is of a class of its own, and only that of uint32 is on the list."""
    folder = copied(of_accelerate, tmp_path / "checkpoint_2")
    edited(folder / file, lambda s: s.update(note={"a": [value]}))
    said = short(asked(WeightsOnly(), folder))
    assert [f[:2] for f in said] == ([("error", f"{file}: note.a[0]")] if refused else [])
    assert (raised(resume_with_accelerate, folder)[0] == "UnpicklingError") is refused
    if refused:
        assert said[0][2].endswith("load_accelerator_state of Accelerate raises UnpicklingError")


def test_random_states_that_accelerate_refuses(of_accelerate, tmp_path):
    """Of random states it swallows the exception, and restores neither them nor the step."""
    folder = copied(of_accelerate, tmp_path / "checkpoint_2")
    edited(folder / "random_states_0.pkl", lambda s: s.update(note=argparse.Namespace(a=1)))
    assert [f[:2] for f in short(asked(WeightsOnly(), folder))] == [("silent", "random_states_0.pkl")]
    assert resume_with_accelerate(folder).accelerator.step == 0


def test_hyperparameters_that_lightning_refuses(of_lightning, tmp_path):
    """`trainer.fit(ckpt_path=…)` loads with torch's list since torch 2.6."""
    assert asked(WeightsOnly(), of_lightning) == []
    path = tmp_path / "epoch=0.ckpt"
    path.write_bytes(of_lightning.read_bytes())
    edited(path, lambda s: s["hyper_parameters"].update(more=argparse.Namespace(a=1)))
    ((severity, _, message),) = short(asked(WeightsOnly(), path))
    assert severity == "error"
    assert message.endswith("trainer.fit(ckpt_path=…) of Lightning raises UnpicklingError")
    assert raised(resume_with_lightning, path, tmp_path / "out")[0] == "UnpicklingError"


def test_a_script_may_load_everything(fixtures_dir):
    """Where the script calls torch.load itself it may say weights_only=False: a warning."""
    path = fixtures_dir / "plain/train.pth"
    ((severity, _, message),) = short(asked(WeightsOnly(), path))
    assert severity == "warning"
    assert message.endswith("torch.load raises UnpicklingError without weights_only=False")
    assert raised(torch.load, path)[0] == "UnpicklingError"
    assert load(path)["args"] is not None
    ((severity, _, message),) = short(asked(WeightsOnly(), fixtures_dir / "plain/train_pickled.pkl"))
    assert (severity, message.rpartition("; ")[2]) == ("warning", "pickle.load imports them")


def test_a_file_that_runs_code(tmp_path):
    """A global that runs code is an error whoever loads it."""

    class Runs:
        def __reduce__(self):
            return eval, ("1",)

    torch.save({"x": Runs()}, tmp_path / "a.pt")
    ((severity, _, message),) = short(asked(WeightsOnly(), tmp_path / "a.pt"))
    assert severity == "error"
    assert message.startswith("loading it the usual way would run code: ")
    assert "eval" in message


def test_code_in_a_file_of_a_trainer(of_trainer, tmp_path):
    """Where the trainer refuses it, that is said too."""

    class Runs:
        def __reduce__(self):
            return eval, ("1",)

    folder = copied(of_trainer, tmp_path / "checkpoint-2")
    edited(folder / "scheduler.pt", lambda s: s.update(x=Runs()))
    ((severity, where, message),) = short(asked(WeightsOnly(), folder))
    assert (severity, where) == ("error", "scheduler.pt")
    assert message.endswith("; _load_optimizer_and_scheduler of the Trainer raises UnpicklingError")
    assert raised(resume_with_trainer, folder, tmp_path / "out")[0] == "UnpicklingError"


# load.torch-gate


def test_the_gate_of_transformers(of_trainer, fixtures_dir, tmp_path, monkeypatch):
    """With torch before 2.6 transformers refuses to load any pickle; safetensors it takes."""
    from transformers.utils import import_utils  # noqa: PLC0415

    old = {"torch": "2.5.1+cu121", "transformers": "5.24.0"}
    (found,) = asked(TorchGate(), of_trainer, installed=old)
    assert (str(found.severity), found.where) == ("error", "optimizer.pt")
    assert found.message == (
        "transformers 5.24.0 raises ValueError in check_torch_load_is_safe with torch 2.5.1+cu121, before it reads this "
        "file and 3 more"
    )
    monkeypatch.setattr(import_utils, "is_torch_greater_or_equal", lambda *_, **__: False)
    assert raised(resume_with_trainer, of_trainer, tmp_path / "out")[0] == "ValueError"
    assert asked(TorchGate(), of_trainer) == []
    assert asked(TorchGate(), of_trainer, installed=old | {"transformers": "4.51.3"}) == []
    assert asked(TorchGate(), fixtures_dir / "hf_model", installed=old) == []
    assert asked(TorchGate(), fixtures_dir / "plain/train.pth", installed=old) == []


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_the_gate_without_a_release(of_trainer, absent):
    """Where one of the two is not installed, nothing is known."""
    installed = {"torch": "2.5.1", "transformers": "5.24.0"}
    del installed[absent]
    (said,) = asked(TorchGate(), of_trainer, installed=installed)
    assert said == NotChecked(
        code="load.torch-gate", why=f"{absent} is not installed here, so its release is not known"
    )


# load.numpy-core


def named_otherwise(path, old, new):
    """The same file, as another numpy would have written it."""
    with zipfile.ZipFile(path) as archive:
        members = [(one.filename, archive.read(one)) for one in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in members:
            archive.writestr(name, held.replace(old, new) if name.endswith("data.pkl") else held)


@pytest.mark.parametrize("numpy", ["1.24.4", "1.26.4"])
def test_random_states_of_numpy_2_with_numpy_1(of_trainer, of_accelerate, numpy):
    """The trainers allow the name that the installed numpy has: the Trainer raises, Accelerate goes on without."""
    (found,) = asked(NumpyCore(), of_trainer, installed={"numpy": numpy})
    assert (str(found.severity), found.where) == ("error", "rng_state.pth")
    assert found.message.startswith("it was saved with numpy 2: it names numpy._core.multiarray._reconstruct")
    assert found.message.endswith("_load_rng_state of the Trainer raises UnpicklingError")
    assert asked(NumpyCore(), of_trainer) == []
    assert [f[:2] for f in short(asked(NumpyCore(), of_accelerate, installed={"numpy": numpy}))] == [
        ("silent", "random_states_0.pkl")
    ]
    (said,) = asked(NumpyCore(), of_trainer, installed={})
    assert isinstance(said, NotChecked)


def test_random_states_of_numpy_1_with_numpy_2(of_trainer, of_accelerate, tmp_path):
    """numpy 2 finds the old name, torch.load is not told of it."""
    folder = copied(of_trainer, tmp_path / "checkpoint-2")
    named_otherwise(folder / "rng_state.pth", b"numpy._core", b"numpy.core")
    ((severity, where, message),) = short(asked(NumpyCore(), folder))
    assert (severity, where) == ("error", "rng_state.pth")
    assert message.startswith("it was saved with numpy 1: it names numpy.core.multiarray._reconstruct")
    assert message.endswith("_load_rng_state of the Trainer raises UnpicklingError")
    assert raised(resume_with_trainer, folder, tmp_path / "out", 3)[0] == "UnpicklingError"
    folder = copied(of_accelerate, tmp_path / "checkpoint_2")
    named_otherwise(folder / "random_states_0.pkl", b"numpy._core", b"numpy.core")
    assert [f[:2] for f in short(asked(NumpyCore(), folder))] == [("silent", "random_states_0.pkl")]
    assert resume_with_accelerate(folder).accelerator.step == 0


def test_arrays_of_numpy_2_with_numpy_1(tmp_path, monkeypatch):
    """numpy before 1.26.1 has no numpy._core: what may import anything raises ModuleNotFoundError."""
    torch.save({"a": np.arange(3)}, tmp_path / "a.pt")
    (found,) = asked(NumpyCore(), tmp_path / "a.pt", installed={"numpy": "1.24.4"})
    assert found.message.startswith(
        "numpy 1.24.4 has no numpy._core (it came with 1.26.1), and the file names numpy._core"
    )
    assert found.message.endswith("torch.load raises ModuleNotFoundError")
    assert asked(NumpyCore(), tmp_path / "a.pt", installed={"numpy": "1.26.1"}) == []
    monkeypatch.setitem(sys.modules, "numpy._core.multiarray", None)  # as if it were not there
    assert raised(load, tmp_path / "a.pt")[0] == "ModuleNotFoundError"


def test_arrays_of_numpy_1(fixtures_dir):
    """numpy 2 still finds numpy.core, so old arrays load."""
    path = fixtures_dir / "old_torch/2.4.1/checkpoint.pth"
    assert asked(NumpyCore(), path, installed={"numpy": "1.24.4"}) == []
    assert asked(NumpyCore(), path, installed={}) == []
    assert load(path)


# load.missing-class


def test_a_class_of_the_script(tmp_path, monkeypatch):
    """A class of `__main__` is found by no other script: AttributeError."""
    torch.save({"config": of_module("__main__", monkeypatch)}, tmp_path / "a.pt")
    monkeypatch.undo()
    ((severity, _, message),) = short(asked(MissingClass(), tmp_path / "a.pt"))
    assert severity == "warning"
    assert message == (
        "it holds objects of the script that saved it: __main__.Config at config; in another script "
        "torch.load(weights_only=False) raises AttributeError"
    )
    assert raised(load, tmp_path / "a.pt")[0] == "AttributeError"


def test_a_package_that_is_not_here(tmp_path, monkeypatch):
    """A class of a package that is not installed: ModuleNotFoundError. Only its name is looked up."""
    torch.save({"config": of_module("nowhere_at_all", monkeypatch)}, tmp_path / "a.pt")
    monkeypatch.undo()
    ((severity, _, message),) = short(asked(MissingClass(), tmp_path / "a.pt"))
    assert severity == "warning"
    assert message.startswith("the package 'nowhere_at_all' is not installed here, and the file holds objects of it: ")
    assert raised(load, tmp_path / "a.pt")[0] == "ModuleNotFoundError"


def test_classes_that_are_here(of_trainer, fixtures_dir, tmp_path):
    """Python's own, torch's, those of installed packages and Python 2's names are found; TorchScript's are inside."""
    torch.save({"a": argparse.Namespace(), "m": torch.nn.Linear(1, 1)}, tmp_path / "a.pt")
    assert asked(MissingClass(), tmp_path / "a.pt") == []
    assert asked(MissingClass(), of_trainer) == []
    assert asked(MissingClass(), fixtures_dir / "programs/scripted.pt") == []


def test_names_that_are_no_modules(tmp_path, monkeypatch):
    """Whatever a file calls its modules, asking for them does no harm."""
    for name in ("no module", "a\0b", "x" * 300, "1"):
        torch.save({"config": of_module(name, monkeypatch)}, tmp_path / "a.pt")
        assert [f[0] for f in short(asked(MissingClass(), tmp_path / "a.pt"))] == ["warning"]


# load.device-tag


def saved_on(device, path, monkeypatch):
    """A file as a GPU leaves it: the same bytes with its tags."""
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _: device)
    torch.save({"w": torch.zeros(3), "v": torch.zeros(4)}, path)
    monkeypatch.undo()


@pytest.mark.parametrize(("device", "severity"), [("cuda:0", "note"), ("cuda:3", "warning")])
def test_a_tag_of_a_gpu(tmp_path, monkeypatch, device, severity):
    """Without `map_location` torch.load wants that GPU: RuntimeError on a machine without."""
    saved_on(device, tmp_path / "a.pt", monkeypatch)
    ((found, _, message),) = short(asked(DeviceTag(), tmp_path / "a.pt"))
    assert found == severity
    assert message.startswith(f"2 storages (28 bytes) are tagged {device}; ")
    if not torch.cuda.is_available():
        assert raised(torch.load, tmp_path / "a.pt")[0] == "RuntimeError"
    assert torch.load(tmp_path / "a.pt", map_location="cpu")["w"].sum() == 0


def test_trainers_load_to_the_cpu(of_lightning, of_accelerate, tmp_path, monkeypatch):
    """Tags in files of Accelerate and Lightning do not matter, nor tags of a CPU."""
    monkeypatch.setattr(torch.serialization, "location_tag", lambda _: "cuda:1")
    path = tmp_path / "epoch=0.ckpt"
    torch.save(load(of_lightning), path)
    folder = copied(of_accelerate, tmp_path / "checkpoint_2")
    torch.save(load(of_accelerate / "optimizer.bin"), folder / "optimizer.bin")
    monkeypatch.undo()
    assert asked(DeviceTag(), path) == asked(DeviceTag(), folder) == []
    assert raised(resume_with_accelerate, folder) == ("", "")
    assert raised(resume_with_lightning, path, tmp_path / "out", 2) == ("", "")
    torch.save({"w": torch.zeros(3)}, tmp_path / "a.pt")
    assert asked(DeviceTag(), tmp_path / "a.pt") == []
