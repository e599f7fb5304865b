"""`trainer.state`: each entry of `trainer_state.json` changed, and the Trainer told to go on from it."""

import json
import shutil
from importlib.util import find_spec

import pytest
import torch

from ckpttool.rules.container_unreadable import Unreadable
from ckpttool.rules.trainer_state import TrainerState
from tests.rules.held import alone, brief, edited
from tests.validation.resuming import quiet, raised, trainer

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of four steps, two an epoch, a checkpoint after every second and third."""
    folder = tmp_path_factory.mktemp("trainer")
    for steps, every in ((2, 2), (3, 3)):
        made = trainer(folder, steps, fp16=False, eval_strategy="steps", eval_steps=4)
        made.args.save_steps = every
        made.accelerator.scaler = None
        with quiet():
            made.train()
    return folder


@pytest.fixture
def folder(runs, tmp_path):
    """A copy of the checkpoint within the second epoch."""
    return shutil.copytree(runs / "checkpoint-3", tmp_path / "checkpoint-3")


def resume(folder, output, **arguments):
    """Go on to the fifth step with the arguments that it was saved with."""
    made = trainer(output, 5, seed=9, fp16=False, eval_strategy="steps", eval_steps=4, **arguments)
    made.accelerator.scaler = None
    with quiet():
        made.train(resume_from_checkpoint=str(folder))
    return made


def tell(folder, **values):
    """Change `trainer_state.json`; `...` takes a key away."""
    place = folder / "trainer_state.json"
    state = {key: value for key, value in {**json.loads(place.read_text()), **values}.items() if value is not ...}
    place.write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize(
    ("values", "exception"),
    [
        ({"global_step": None}, "TypeError"),
        ({"global_step": "3"}, "TypeError"),
        ({"global_step": 3.0}, "TypeError"),  # within an epoch
        ({"global_step": float("nan")}, "ValueError"),
        ({"train_batch_size": ...}, "TypeError"),
        ({"train_batch_size": None}, "TypeError"),
        ({"train_batch_size": "4"}, "TypeError"),
        ({"unknown": 1}, "TypeError"),
        ({"stateful_callbacks": "x"}, "TypeError"),
        ({"stateful_callbacks": 3}, "TypeError"),
        ({"stateful_callbacks": [{}]}, "TypeError"),
        ({"log_history": {}}, "AttributeError"),
        ({"log_history": "x"}, "AttributeError"),
        ({"total_flos": None}, "TypeError"),
        ({"best_model_checkpoint": []}, "TypeError"),
        ({"logging_steps": None}, "TypeError"),
        ({"logging_steps": 0}, "ZeroDivisionError"),
        ({"save_steps": "2"}, "TypeError"),
        ({"eval_steps": None}, "TypeError"),
        ({"eval_steps": 0}, "ZeroDivisionError"),
    ],
)
def test_raises(folder, tmp_path, values, exception):
    """The Trainer raises as the finding says."""
    (finding,) = alone(TrainerState(), tell(folder, **values))
    assert (finding.severity, finding.where) == ("error", f"trainer_state.json: {next(iter(values))}")
    assert raised(resume, folder, tmp_path / "out")[0] == exception
    assert finding.message.endswith(f"raises {exception}")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"log_history": None}, {"log_history": ...}, {"log_history": []},
        {"train_batch_size": 8}, {"train_batch_size": 2.0}, {"save_steps": 0}, {"logging_steps": 2.0},
        {"epoch": None}, {"epoch": "x"}, {"max_steps": None}, {"num_train_epochs": []}, {"trial_name": 3},
        {"is_world_process_zero": None}, {"num_input_tokens_seen": None}, {"best_metric": []},
        {"best_model_checkpoint": "gone"}, {"best_global_step": "x"}, {"total_flos": 0},
    ],
)  # fmt: skip
def test_what_the_trainer_takes(folder, tmp_path, values):
    """An absent log, another batch size, and what is written again at once are nothing."""
    assert alone(TrainerState(), tell(folder, **values)) == []
    made = resume(folder, tmp_path / "out")
    assert made.state.global_step == 5
    assert {int(state["step"]) for state in made.optimizer.state_dict()["state"].values()} == {5}


def test_a_float_at_the_end_of_an_epoch(runs, tmp_path):
    """Where no batch is to be skipped a step with a point is taken; also where the arguments skip none."""
    folder = tell(shutil.copytree(runs / "checkpoint-2", tmp_path / "checkpoint-2"), global_step=2.0)
    assert alone(TrainerState(), folder) == []
    assert resume(folder, tmp_path / "out").state.global_step == 5
    within = tell(shutil.copytree(runs / "checkpoint-3", tmp_path / "checkpoint-3"), global_step=3.0)
    edited(within / "training_args.bin", within / "training_args.bin", lambda a: setattr(a, "ignore_data_skip", True))
    assert alone(TrainerState(), within) == []
    assert resume(within, tmp_path / "skip", ignore_data_skip=True).state.global_step == 5


def test_beyond_64_bits(folder, tmp_path):
    """A step of no end: the Trainer ends at once and says nothing."""
    assert brief(alone(TrainerState(), tell(folder, global_step=2**70))) == [
        ("silent", "trainer_state.json: global_step")
    ]
    assert resume(folder, tmp_path / "out").state.global_step == 2**70


def test_by_the_arguments(folder):
    """What is not done by steps is not asked for; counting tokens asks for a number."""
    tell(folder, eval_steps=None, logging_steps=None, num_input_tokens_seen=None)
    assert len(alone(TrainerState(), folder)) == 2

    def change(arguments):
        arguments.eval_strategy = arguments.logging_strategy = "epoch"
        arguments.include_num_input_tokens_seen = "all"

    edited(folder / "training_args.bin", folder / "training_args.bin", change)
    assert brief(alone(TrainerState(), folder)) == [("error", "trainer_state.json: num_input_tokens_seen")]
    (folder / "training_args.bin").unlink()
    assert brief(alone(TrainerState(), folder)) == [("error", "trainer_state.json: logging_steps")]


@pytest.mark.parametrize("kept", [..., None, {}, {"Own": {"args": {}, "attributes": {}}}])
def test_without_the_control(folder, tmp_path, kept):
    """A run that goes on to save raises when it does; one that saves nothing does not."""
    tell(folder, stateful_callbacks=kept)
    (finding,) = alone(TrainerState(), folder)
    assert (finding.severity, finding.where) == ("error", "trainer_state.json: stateful_callbacks.TrainerControl")
    assert raised(resume, folder, tmp_path / "out") == ("KeyError", "'TrainerControl'")
    assert finding.message.endswith("raises KeyError")
    edited(folder / "training_args.bin", folder / "training_args.bin", saving_nothing)
    assert alone(TrainerState(), folder) == []
    assert resume(folder, tmp_path / "nothing", save_strategy="no").state.global_step == 5


def saving_nothing(arguments):
    """Change the arguments."""
    arguments.save_strategy = "no"


@pytest.mark.parametrize(
    ("kept", "exception"),
    [
        ({"TrainerControl": None}, "AttributeError"),
        ({"TrainerControl": {"args": {"bad": 1}}}, "TypeError"),
        ({"TrainerControl": {}}, ""),
        ({"TrainerControl": [{"args": {"should_save": True}}]}, ""),
    ],
)
def test_callbacks_that_are_restored(folder, tmp_path, kept, exception):
    """Where the arguments restore callbacks, their states are taken apart."""
    tell(folder, stateful_callbacks=kept)
    assert alone(TrainerState(), folder) == []

    def change(arguments):
        arguments.restore_callback_states_from_checkpoint = True

    edited(folder / "training_args.bin", folder / "training_args.bin", change)
    found = alone(TrainerState(), folder)
    assert [str(f.severity) for f in found] == (["error"] if exception else [])
    name, _ = raised(
        lambda: resume(folder, tmp_path / "out", restore_callback_states_from_checkpoint=True),
    )
    assert name == exception
    assert all(f.message.endswith(f"raises {exception}") for f in found)


def test_of_a_newer_release(folder):
    """A name that a newer release may know is a warning."""
    tell(folder, unknown=1)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "transformers_version": "6.1.0"}))
    assert brief(alone(TrainerState(), folder)) == [("warning", "trainer_state.json: unknown")]


@pytest.mark.parametrize(
    ("spoil", "exception"),
    [
        (lambda b: b"\xef\xbb\xbf" + b, "JSONDecodeError"),
        (lambda b: b.decode().encode("utf-16"), "UnicodeDecodeError"),
        (lambda b: b[:20], "JSONDecodeError"),
        (lambda b: b"[" + b + b"]", "TypeError"),
        (lambda _: b"null", "TypeError"),
    ],
)
def test_no_json(folder, tmp_path, spoil, exception):
    """A byte order mark, another encoding, and JSON that is no object raise, each in its way."""
    place = folder / "trainer_state.json"
    place.write_bytes(spoil(place.read_bytes()))
    assert alone(TrainerState(), folder) == []
    (finding,) = [f for f in alone(Unreadable(), folder) if f.where == "trainer_state.json"]
    assert raised(resume, folder, tmp_path / "out")[0] == exception
    assert finding.message.endswith(f"raises {exception}")


def test_others(fixtures_dir):
    """Folders of others, and weights alone that the Trainer saved."""
    for name in ("accelerate/two_process", "plain/train.pth", "hf_trainer/weights_only/checkpoint-4"):
        assert alone(TrainerState(), fixtures_dir / name) == []
    assert torch.load(fixtures_dir / "plain/train.pth", weights_only=False)
