"""container.misplaced, and files of another format: each held against what the framework does."""

import pickle
import shutil
from importlib.util import find_spec

import pytest
import torch

from ckpttool.rules import RULES
from ckpttool.rules.container_misplaced import Misplaced
from ckpttool.rules.container_unreadable import Unreadable
from tests.rules.asking import asked, judgements, of_run, short
from tests.validation.resuming import (
    copied,
    raised,
    resume_with_accelerate,
    resume_with_trainer,
    train_with_accelerate,
    train_with_trainer,
)

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Accelerate and Transformers"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]
NONE = ("", "")
BAD = ("error", "silent")


@pytest.fixture(scope="module")
def of_trainer(tmp_path_factory):
    """A folder of the Trainer, after four steps."""
    return train_with_trainer(tmp_path_factory.mktemp("trainer") / "run", 4) / "checkpoint-4"


@pytest.fixture(scope="module")
def of_accelerate(tmp_path_factory):
    """A run of Accelerate: checkpoint_0 to _2."""
    return train_with_accelerate(tmp_path_factory.mktemp("accelerate")) / "checkpoints"


def renamed(old, new):
    return lambda folder: shutil.move(folder / old, folder / new)


def swapped(one, other):
    def change(folder):
        shutil.move(folder / one, folder / "x")
        shutil.move(folder / other, folder / one)
        shutil.move(folder / "x", folder / other)

    return change


def holding(file, value):
    return lambda folder: torch.save(value, folder / file)


def pickled(file, protocol):
    """The same value as `pickle.dump` writes it."""

    def change(folder):
        value = torch.load(folder / file, weights_only=False)
        (folder / file).write_bytes(pickle.dumps(value, protocol=protocol))

    return change


def resumed_trainer(folder, tmp_path):
    """What the Trainer raises, and where it restored: the optimizer's steps and the loss scale after one step more."""
    made = resume_with_trainer(folder, tmp_path / "out", 5)
    steps = {int(s["step"]) for s in made.optimizer.state.values()}
    return steps, made.accelerator.scaler.get_scale()


@pytest.mark.parametrize(
    ("change", "where", "raises"),
    [
        (renamed("model.safetensors", "model2.safetensors"), "model2.safetensors", "ValueError"),
        (renamed("optimizer.pt", "optimizer.bin"), "optimizer.bin", "FileNotFoundError"),
        (swapped("optimizer.pt", "scheduler.pt"), "optimizer.pt", "KeyError ('param_groups')"),
        (swapped("scaler.pt", "scheduler.pt"), "scheduler.pt", "KeyError ('lr_lambdas')"),
        (holding("optimizer.pt", {}), "optimizer.pt", "KeyError ('param_groups')"),
        (holding("optimizer.pt", []), "optimizer.pt", "TypeError"),
        (holding("optimizer.pt", True), "optimizer.pt", "AttributeError"),
        (holding("scheduler.pt", {}), "scheduler.pt", "KeyError ('lr_lambdas')"),
        (holding("scheduler.pt", {"a": 1}), "scheduler.pt", "KeyError ('lr_lambdas')"),
        (holding("scheduler.pt", []), "scheduler.pt", "TypeError"),
        (holding("scheduler.pt", False), "scheduler.pt", "AttributeError"),
        (holding("scaler.pt", True), "scaler.pt", "TypeError"),
        (holding("scaler.pt", []), "scaler.pt", "RuntimeError (The source state dict is empty)"),
        (holding("scaler.pt", {"a": 1}), "scaler.pt", "KeyError ('scale')"),
        (holding("scaler.pt", torch.ones(2)), "scaler.pt", "IndexError"),
    ],
)  # fmt: skip
def test_the_trainer_raises(of_trainer, tmp_path, change, where, raises):
    """The very exception that is named, and nothing else is said to be missing."""
    folder = copied(of_trainer, tmp_path / "checkpoint-4")
    change(folder)
    told = {w: m for s, w, m in short(asked(Misplaced(), folder)) if s == "error"}
    assert f" raises {raises}" in told[where]
    exception, _, text = raises.rstrip(")").partition(" (")
    kind, said = raised(resume_with_trainer, folder, tmp_path / "out")
    assert (kind, text in said) == (exception, True)
    others = [f for rule in RULES for f in short(asked(rule, folder)) if f[0] in BAD and "is missing" in f[2]]
    assert others == []


@pytest.mark.parametrize(
    ("change", "where", "lost"),
    [
        (renamed("scheduler.pt", "scheduler.bin"), "scheduler.bin", "optimizer"),
        (renamed("optimizer.pt", "optimizer_0.pt"), "optimizer_0.pt", "optimizer"),
        (renamed("scaler.pt", "scaler.bin"), "scaler.bin", "scale"),
        (renamed("rng_state.pth", "rng_state_0.pth"), "rng_state_0.pth", ""),
    ],
)
def test_the_trainer_goes_on_without_a_word(of_trainer, tmp_path, change, where, lost):
    """Of a pair of which one is not there it restores neither; the others are passed by."""
    saved = torch.load(of_trainer / "scaler.pt", weights_only=True)
    saved["scale"] = 32.0
    folder = copied(of_trainer, tmp_path / "checkpoint-4")
    torch.save(saved, folder / "scaler.pt")
    assert asked(Misplaced(), folder) == []
    assert resumed_trainer(folder, tmp_path) == ({5}, 32.0 if saved["_growth_tracker"] < 2 else 64.0)
    change(folder)
    ((severity, place, _),) = short(asked(Misplaced(), folder))
    assert (severity, place) == ("silent", where)
    steps, scale = resumed_trainer(folder, tmp_path)
    assert (steps == {1}) is (lost == "optimizer")
    assert (scale >= 256) is (lost == "scale")


def test_what_is_no_fault_of_the_trainer(of_trainer, tmp_path):
    """A copy beside, FSDP's `optimizer.bin`, and random states of two processes."""
    folder = copied(of_trainer, tmp_path / "checkpoint-4")
    shutil.copy(folder / "optimizer.pt", folder / "optimizer.bin")
    shutil.copy(folder / "model.safetensors", folder / "model2.safetensors")
    shutil.copy(folder / "rng_state.pth", folder / "rng_state_0.pth")
    assert asked(Misplaced(), folder) == []
    assert raised(resume_with_trainer, folder, tmp_path / "out", 5) == NONE
    (folder / "optimizer.pt").unlink()
    (folder / "training_args.bin").unlink()  # so nothing says that FSDP was not used
    shutil.move(folder / "rng_state.pth", folder / "rng_state_1.pth")
    assert asked(Misplaced(), folder) == []


@pytest.mark.parametrize(
    ("change", "where", "exception"),
    [
        (renamed("model.safetensors", "model2.safetensors"), "model2.safetensors", "FileNotFoundError"),
        (renamed("model.safetensors", "model_0.safetensors"), "model_0.safetensors", "FileNotFoundError"),
        (renamed("optimizer.bin", "optimizer_0.bin"), "optimizer_0.bin", "FileNotFoundError"),
        (renamed("scheduler.bin", "scheduler_0.bin"), "scheduler_0.bin", "FileNotFoundError"),
        (renamed("scheduler.bin", "scheduler.pt"), "scheduler.pt", "FileNotFoundError"),
        (renamed("scaler.pt", "scaler.bin"), "scaler.bin", "FileNotFoundError"),
        (swapped("optimizer.bin", "scheduler.bin"), "optimizer.bin", "KeyError"),
        (swapped("optimizer.bin", "custom_checkpoint_0.pkl"), "optimizer.bin", "KeyError"),
        (holding("optimizer.bin", None), "optimizer.bin", "AttributeError"),
        (holding("scheduler.bin", True), "scheduler.bin", "TypeError"),
        (holding("scheduler.bin", "text"), "scheduler.bin", "ValueError"),
    ],
)  # fmt: skip
def test_accelerate_raises(of_accelerate, tmp_path, change, where, exception):
    """`load_state` counts from `optimizer.bin` on to `optimizer_1.bin`, and asks for each of its files."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    change(folder)
    told = {w: m for s, w, m in short(asked(Misplaced(), folder)) if s == "error"}
    assert f"raises {exception}" in told[where]
    assert raised(resume_with_accelerate, folder)[0] == exception


@pytest.mark.parametrize("value", [{}, [], "an optimizer"])
def test_a_scheduler_of_accelerate_that_takes_nothing(of_accelerate, tmp_path, value):
    """Most schedulers update their attributes with what they get; where the others of the run tell, no class is in doubt."""
    run = copied(of_accelerate, tmp_path / "run")
    folder = run / "checkpoint_2"
    if value == "an optimizer":
        shutil.copy(folder / "optimizer.bin", folder / "scheduler.bin")
    else:
        torch.save(value, folder / "scheduler.bin")
    ((severity, where, message),) = short(asked(Misplaced(), folder))
    assert (severity, where) == ("silent", "scheduler.bin")
    assert "takes nothing from it and says nothing (where it is a LambdaLR, it raises " in message
    ((severity, _, message),) = short(of_run(Misplaced(), run, "checkpoint_2"))
    assert (severity, message.endswith("takes nothing from it and says nothing")) == ("silent", True)
    made = resume_with_accelerate(folder)
    assert made.schedulers[0].scheduler.last_epoch == 0


def test_a_position_in_the_data_that_is_not_found(fixtures_dir, tmp_path):
    """A loader's file of the wrong number is passed by: `load_state` asks whether it is there."""
    folder = copied(fixtures_dir / "accelerate/stateful_loader", tmp_path / "folder")
    assert asked(Misplaced(), folder) == []
    renamed("dl_state_dict.bin", "dl_state_dict_0.bin")(folder)
    ((severity, where, message),) = short(asked(Misplaced(), folder))
    assert (severity, where) == ("silent", "dl_state_dict_0.bin")
    assert message.endswith("it goes on from the first batch without a word")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({3, 4}, "a value of type set; load_accelerator_state of Accelerate raises TypeError"),
        (3.5, "a value of type float; load_accelerator_state of Accelerate raises AttributeError"),
        ({1: 2, "b": 3}, "a dict of 1, 'b'; load_accelerator_state of Accelerate raises KeyError ('param_groups')"),
    ],
)
def test_what_an_optimizers_file_holds_in_words(of_accelerate, tmp_path, value, said):
    """Its type, or the first of its keys."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    torch.save(value, folder / "optimizer.bin")
    assert [m for _, w, m in short(asked(Misplaced(), folder)) if w == "optimizer.bin"] == [f"it holds {said}"]
    assert raised(resume_with_accelerate, folder)[0] in said


def test_objects_are_left_to_others(of_accelerate, tmp_path):
    """Whether an object of a class loads is for other rules to tell."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    for name in ("optimizer.bin", "scheduler.bin", "scaler.pt"):
        torch.save(torch.nn.Linear(1, 1), folder / name)
    assert asked(Misplaced(), folder) == []


def test_optimizers_in_pieces(of_trainer, tmp_path):
    """One of each rank has the number of ranks in its name, and is read by XLA's FSDP."""
    folder = copied(of_trainer, tmp_path / "checkpoint-4")
    renamed("optimizer.pt", "rank0-of-1-optimizer.pt")(folder)
    assert asked(Misplaced(), folder) == []


def test_what_is_no_fault_of_accelerate(of_accelerate, fixtures_dir, tmp_path):
    """A second model, weights that a hook saved elsewhere, an optimizer of several in one dict."""
    assert asked(Misplaced(), of_accelerate / "checkpoint_2") == []
    assert asked(Misplaced(), fixtures_dir / "accelerate/two_models") == []
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    (folder / "unet").mkdir()
    shutil.move(folder / "model.safetensors", folder / "unet/diffusion_pytorch_model.safetensors")
    optimizer = torch.load(folder / "optimizer.bin", weights_only=True)
    torch.save({"muon": optimizer, "adam": optimizer}, folder / "optimizer.bin")
    assert asked(Misplaced(), folder) == []


@pytest.mark.parametrize(
    ("change", "where", "exception"),
    [
        (pickled("custom_checkpoint_0.pkl", 2), "custom_checkpoint_0.pkl", "RuntimeError"),
        (pickled("custom_checkpoint_0.pkl", 5), "custom_checkpoint_0.pkl", "RuntimeError"),
        (pickled("scheduler.bin", 2), "scheduler.bin", "RuntimeError"),
        (pickled("scheduler.bin", 4), "scheduler.bin", "UnpicklingError"),
        (pickled("optimizer.bin", 2), "optimizer.bin", "UnpicklingError"),
        (holding("model.safetensors", {"a": torch.ones(1)}), "model.safetensors", "SafetensorError"),
        (renamed("model.safetensors", "pytorch_model.bin"), "pytorch_model.bin", "UnpicklingError"),
    ],
)  # fmt: skip
def test_a_file_of_another_format(of_accelerate, tmp_path, change, where, exception):
    """What we can read, and the trainer's library cannot: a plain pickle, safetensors and torch's own interchanged."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    change(folder)
    ((severity, place, message),) = short(asked(Unreadable(), folder))
    assert (severity, place) == ("error", where)
    assert message.endswith(f" raises {exception}")
    assert raised(resume_with_accelerate, folder)[0] == exception


def test_a_plain_pickle_of_random_states(of_accelerate, fixtures_dir, tmp_path):
    """Accelerate passes it by; a script's own file may be loaded with pickle, so nothing is said of it."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    pickled("random_states_0.pkl", 4)(folder)
    ((severity, where, _),) = short(asked(Unreadable(), folder))
    assert (severity, where) == ("silent", "random_states_0.pkl")
    assert resume_with_accelerate(folder).accelerator.step == 0
    assert asked(Unreadable(), fixtures_dir / "plain/train_pickled.pkl") == []
    assert asked(Unreadable(), fixtures_dir / "dcp/single") == []


def _loader_run():
    """A run of Accelerate with a stateful loader of twenty samples, two a batch, of which nothing is shuffled."""
    from accelerate import Accelerator  # noqa: PLC0415
    from accelerate.state import AcceleratorState, GradientState  # noqa: PLC0415
    from accelerate.utils import DataLoaderConfiguration  # noqa: PLC0415

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    stateful = DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = Accelerator(cpu=True, dataloader_config=stateful)
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(20, 1))
    return accelerator, accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=2))


@pytest.mark.parametrize(
    ("value", "exception"),
    [({}, ""), (None, ""), ([], "AssertionError"), ((), "AssertionError"), ("", "AssertionError"),
     ({"a": 1}, "AssertionError"), (0, "TypeError"), (torch.zeros(3), "RuntimeError")],
)  # fmt: skip
def test_what_a_stateful_loader_takes(tmp_path, value, exception):
    """It takes anything: of nothing it begins at the first batch and says nothing, anything else raises there."""
    accelerator, loader = _loader_run()
    for number, _ in enumerate(loader):
        if number == 2:
            accelerator.save_state(str(tmp_path / "folder"))
            break
    assert asked(Misplaced(), tmp_path / "folder") == []
    torch.save(value, tmp_path / "folder/dl_state_dict.bin")
    ((severity, where, message),) = short(asked(Misplaced(), tmp_path / "folder"))
    assert (severity, where) == ("error" if exception else "silent", "dl_state_dict.bin")
    accelerator, loader = _loader_run()
    accelerator.load_state(str(tmp_path / "folder"))
    kind, _ = raised(lambda: next(iter(loader)))
    assert kind == exception
    if exception:
        assert message.endswith(f"the first batch raises {exception}")
    else:
        assert next(iter(loader))[0][0].item() == 0.0


@pytest.mark.parametrize(
    ("value", "beside", "said"),
    [({}, True, True), ([], True, True), (0, True, True), (None, True, True), (None, False, True), ({}, False, False),
     ({"a": 1}, True, False)],
)  # fmt: skip
def test_the_state_of_a_registered_object(of_accelerate, tmp_path, value, beside, said):
    """Its class decides; a warning where it holds None, or nothing where the others of the run hold a state."""
    run = copied(of_accelerate, tmp_path / "run")
    torch.save(value, run / "checkpoint_2/custom_checkpoint_0.pkl")
    found = short(of_run(Misplaced(), run, "checkpoint_2") if beside else asked(Misplaced(), run / "checkpoint_2"))
    assert [f[:2] for f in found] == ([("warning", "custom_checkpoint_0.pkl")] if said else [])
    assert not beside or not said or "another checkpoint of the run has a dict of 'decay'" in found[0][2]


def test_a_scheduler_without_any_key_of_one(of_accelerate, tmp_path):
    """A dict of other keys is taken, and the schedule starts over: a warning, where the run tells its class silent."""
    run = copied(of_accelerate, tmp_path / "run")
    torch.save({"a": 1}, run / "checkpoint_2/scheduler.bin")
    assert [f[:2] for f in short(asked(Misplaced(), run / "checkpoint_2"))] == [("warning", "scheduler.bin")]
    assert [f[:2] for f in short(of_run(Misplaced(), run, "checkpoint_2"))] == [("silent", "scheduler.bin")]
    assert resume_with_accelerate(run / "checkpoint_2").schedulers[0].scheduler.last_epoch == 0


@pytest.mark.parametrize(
    ("file", "value", "code"),
    [
        ("optimizer.bin", {}, "container.misplaced"),
        ("scheduler.bin", {}, "container.misplaced"),
        ("scheduler.bin", [], "container.misplaced"),
        ("scheduler.bin", None, "container.misplaced"),
        ("scaler.pt", {}, "scaler.empty"),
        ("scaler.pt", [], "container.misplaced"),
        ("random_states_0.pkl", {}, "rng.unusable"),
        ("random_states_0.pkl", None, "rng.unusable"),
    ],
)
def test_one_fault_is_told_once(of_accelerate, tmp_path, file, value, code):
    """A file of Accelerate's that was emptied: one finding, which says what becomes of it."""
    folder = copied(of_accelerate / "checkpoint_2", tmp_path / "checkpoint_2")
    torch.save(value, folder / file)
    found = [f for f in judgements(folder)["checkpoint_2"].findings if f.severity in (*BAD, "warning")]
    assert [(f.code, f.where) for f in found] == [(code, file)]
    exception, _ = raised(resume_with_accelerate, folder)
    assert (found[0].severity == "error") is bool(exception)
    assert exception in found[0].message


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "training_args.bin"])
@pytest.mark.parametrize("value", [torch.ones(3), {"a": torch.ones(3)}, [torch.ones(3)]])
def test_tensors_in_a_file_of_states_are_no_model(of_trainer, tmp_path, file, value):
    """They are nothing that the Trainer would load as weights, and no rule about weights speaks of them."""
    folder = copied(of_trainer, tmp_path / "checkpoint-4")
    torch.save(value, folder / file)
    found = judgements(folder)["checkpoint-4"].findings
    assert not [f for f in found if f.code.startswith("model.")]
    if file != "training_args.bin":  # which a resume does not read
        assert [f.where for f in found if f.severity == "error"] == [file]
