"""`callback.state`, `lightning.version`."""

import copy
import json
import shutil
from importlib.util import find_spec

import pytest
import torch

from ckpttool.rules.callback_state import CallbackState
from ckpttool.rules.lightning_version import LightningVersion
from tests.rules.asking import judgements
from tests.rules.held import against, alone, brief, edited, said
from tests.validation.resuming import quiet, raised

SOURCE = "lightning/fp16_scaler/last.ckpt"
needs_lightning = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


def without(*path):
    """A change that takes a key away."""

    def change(file):
        holder = file
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]

    return change


def versioned(version):
    """A change of the version."""

    def change(file):
        file["pytorch-lightning_version"] = version

    return change


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file that Lightning saved after an epoch."""
    from tests.conversion.lightning_runs import Lit, trained  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("lightning")
    with quiet():
        trained(Lit(0), 1, folder)
    return folder / "epoch=0.ckpt"


def resumed(file, folder):
    """The Trainer after one epoch more."""
    from tests.conversion.lightning_runs import Lit, trained  # noqa: PLC0415

    with quiet():
        return trained(Lit(9), 2, folder, ckpt_path=str(file))


class TestVersion:
    """Keys that Lightning reads."""

    pytestmark = needs_lightning

    @pytest.mark.parametrize(
        ("change", "where", "words"),
        [
            (without("pytorch-lightning_version"), "pytorch-lightning_version", "pytorch-lightning_version"),
            (without("state_dict"), "state_dict", "state_dict"),
            (without("lr_schedulers"), "lr_schedulers", "Trying to restore learning rate scheduler state"),
            (without("loops", "fit_loop"), "loops.fit_loop", "fit_loop"),
            (versioned("new"), "pytorch-lightning_version", "Invalid version"),
            (versioned(""), "pytorch-lightning_version", "Invalid version"),
            (versioned(None), "pytorch-lightning_version", "Invalid version"),
            (versioned(2), "pytorch-lightning_version", "Invalid version"),
            (
                versioned("1.5.0"),
                "loops.fit_loop.epoch_loop.batch_loop.optimizer_loop.optim_progress",
                "optimizer_loop",
            ),
        ],
    )
    def test_raises(self, saved, tmp_path, change, where, words):
        """Each missing key raises as the finding says."""
        path = edited(saved, tmp_path / "e.ckpt", change)
        (finding,) = alone(LightningVersion(), path)
        assert (finding.severity, finding.where) == ("error", where)
        name, text = raised(resumed, path, tmp_path / "run")
        assert name in ("KeyError", "InvalidVersion")
        assert name in finding.message
        assert words in text

    def test_intact(self, saved, tmp_path):
        """An intact file raises nothing, and one without hyperparameters, epoch or global_step neither."""
        assert alone(LightningVersion(), saved) == []

        def change(file):
            for key in ("epoch", "global_step", "hyper_parameters"):
                del file[key]

        path = edited(saved, tmp_path / "e.ckpt", change)
        assert alone(LightningVersion(), path) == []
        resumed(path, tmp_path / "run")

    @pytest.mark.parametrize("key", ["global_step", "epoch"])
    def test_before_1_6(self, saved, tmp_path, key):
        """A file from before 1.6 without a counter is not migrated."""

        def old(file):
            file["pytorch-lightning_version"] = "1.5.10"
            del file[key], file["loops"]

        path = edited(saved, tmp_path / "e.ckpt", old)
        (finding,) = alone(LightningVersion(), path)
        assert (finding.severity, finding.where) == ("error", key)
        with pytest.raises(KeyError, match=key):
            resumed(path, tmp_path / "run")

    def test_weights_only(self, saved, tmp_path):
        """Of a file of weights alone, which raises, `optimizer.missing` tells, and nothing else."""

        def change(file):
            for key in ("optimizer_states", "lr_schedulers", "callbacks"):
                del file[key]

        path = edited(saved, tmp_path / "e.ckpt", change)
        assert alone(LightningVersion(), path) == []
        (finding,) = [f for f in judgements(path)["e.ckpt"].findings if f.severity in ("error", "silent", "warning")]
        assert (finding.code, finding.severity, finding.where) == ("optimizer.missing", "error", "optimizer_states")
        assert finding.message.startswith("it was saved with weights alone (save_weights_only), so trainer.fit")
        with pytest.raises(KeyError, match="contains only the model"):
            resumed(path, tmp_path / "run")


def test_newer(fixtures_dir, tmp_path):
    """A file of a newer Lightning than is installed is a warning, an older one nothing."""
    path = fixtures_dir / SOURCE
    (finding,) = alone(LightningVersion(), path, installed={"lightning": "2.1.0"})
    assert (finding.severity, finding.where) == ("warning", "pytorch-lightning_version")
    assert finding.message.startswith("it was saved by Lightning 2.6.6, and 2.1.0 is installed")
    assert brief(alone(LightningVersion(), path, installed={"pytorch-lightning": "1.9"})) == [
        ("warning", "pytorch-lightning_version")
    ]
    for installed in ({"lightning": "2.6.6.post1"}, {"lightning": "2.7.0rc1"}, {"lightning": "?"}, {}):
        assert alone(LightningVersion(), path, installed=installed) == []

    def emptied(file):
        file["pytorch-lightning_version"] = "1.5.10"
        del file["loops"]["fit_loop"]

    assert alone(LightningVersion(), edited(path, tmp_path / "old.ckpt", emptied)) == []  # it is put in again


def test_not_lightning(fixtures_dir):
    """Files of others are nothing to this rule."""
    for name in ("plain/train.pth", "plain/weights.pt", "hf_trainer/bert/checkpoint-4", "lightning/fabric.ckpt"):
        assert alone(LightningVersion(), fixtures_dir / name) == []
        assert alone(CallbackState(), fixtures_dir / name) == []


class TestCallbacksAbsent:
    """`callbacks` that is not there."""

    pytestmark = needs_lightning

    @pytest.mark.parametrize("change", [without("callbacks"), lambda file: file.update(callbacks=None)])
    def test_absent(self, saved, tmp_path, change):
        """Lightning resumes and says nothing: what there was is not known, so that it is a warning."""
        assert alone(CallbackState(), saved) == []
        path = edited(saved, tmp_path / "e.ckpt", change)
        (finding,) = alone(CallbackState(), path)
        assert (finding.severity, finding.where) == ("warning", "callbacks")
        resumed(path, tmp_path / "run")

    def test_silent(self, saved, tmp_path):
        """Where another checkpoint shows that a patience was counted, it is lost silently."""

        def stopping(file):
            file["callbacks"]["EarlyStopping{'monitor': 'loss', 'mode': 'min'}"] = {
                "wait_count": 2, "stopped_epoch": 0, "best_score": torch.tensor(0.1), "patience": 3,
            }  # fmt: skip

        other = edited(saved, tmp_path / "other.ckpt", stopping)
        path = edited(saved, tmp_path / "e.ckpt", without("callbacks"))
        (finding,) = [f for f in against(CallbackState(), path, other) if f.where == "callbacks"]
        assert finding.severity == "silent"
        assert "EarlyStopping, kept in another checkpoint of the run, begins afresh" in finding.message
        (finding,) = [f for f in against(CallbackState(), path, saved) if f.where == "callbacks"]
        assert finding.severity == "warning"  # a ModelCheckpoint that monitors nothing

    @pytest.mark.parametrize(
        ("held", "exception"),
        [
            ([], "AttributeError"),
            ("x", "AttributeError"),
            ({"ModelCheckpoint": "x"}, "AttributeError"),
            ({"ModelCheckpoint": {"dirpath": "elsewhere"}}, "KeyError"),
            ({"ModelCheckpoint": {}}, ""),
            ({"ModelCheckpoint": None}, ""),
            ({}, ""),
        ],
    )
    def test_refused(self, saved, tmp_path, held, exception):
        """What is no dict, and a state without what the callback looks up, raises as the finding says."""

        def change(file):
            keys = {key.split("{")[0]: key for key in file["callbacks"]}
            file["callbacks"] = {keys[k]: v for k, v in held.items()} if isinstance(held, dict) else held

        path = edited(saved, tmp_path / "e.ckpt", change)
        found = alone(CallbackState(), path)
        name, _ = raised(resumed, path, tmp_path)
        assert name == exception
        assert [str(f.severity) for f in found] == (["error"] if exception else [])
        assert all(exception in f.message for f in found)

    @pytest.mark.parametrize(("state", "exception"), [("x", "TypeError"), ([1], "TypeError"), ({"a": 1}, "KeyError")])
    def test_early_stopping(self, saved, tmp_path, state, exception):
        """EarlyStopping looks its counters up."""
        from lightning.pytorch.callbacks import EarlyStopping  # noqa: PLC0415

        path = edited(saved, tmp_path / "e.ckpt", lambda file: file["callbacks"].update({"EarlyStopping{}": state}))
        (finding,) = alone(CallbackState(), path)
        assert (finding.severity, finding.where) == ("error", "callbacks: EarlyStopping")
        assert raised(EarlyStopping("loss").load_state_dict, state)[0] == exception
        assert exception in finding.message

    def test_weights_only(self, saved, tmp_path):
        """A file of weights alone has none."""
        path = edited(
            saved, tmp_path / "e.ckpt", lambda file: [file.pop(k) for k in ("callbacks", "optimizer_states")] and file
        )
        assert alone(CallbackState(), path) == []


def renamed(file):
    """The key of ModelCheckpoint with another argument."""
    callbacks = file["callbacks"]
    key = next(k for k in callbacks if k.startswith("ModelCheckpoint"))
    callbacks[key.replace("'mode': 'min'", "'mode': 'max'")] = callbacks.pop(key)


def test_other_arguments(fixtures_dir, tmp_path):
    """A callback under other arguments than in the other checkpoint is not found."""
    source = fixtures_dir / SOURCE
    path = edited(source, tmp_path / "e.ckpt", renamed)
    (finding,) = against(CallbackState(), path, source)
    assert (finding.severity, finding.where) == ("warning", "callbacks: ModelCheckpoint")
    assert finding.message == (
        "ModelCheckpoint is kept under other arguments than in the other checkpoint (here mode: 'max', there mode: 'min'): "
        "a run with those of the other does not find its state"
    )
    assert against(CallbackState(), source, source) == []
    gone = edited(source, tmp_path / "g.ckpt", lambda file: file["callbacks"].clear())
    assert "ModelCheckpoint is in the other checkpoint and not here" in said(against(CallbackState(), gone, source))
    assert against(CallbackState(), source, gone) == []
    assert against(CallbackState(), source, fixtures_dir / "plain/train.pth") == []


@pytest.mark.framework
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
@pytest.mark.filterwarnings("ignore")
def test_state_is_not_found(saved, tmp_path):
    """Lightning looks for a state by the arguments: under others it does not give it back."""
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415
    from lightning.pytorch.trainer.call import _call_callbacks_load_state_dict  # noqa: PLC0415

    file = torch.load(saved, weights_only=False)
    given = []

    class Watched(ModelCheckpoint):
        """Says what it is given."""

        def load_state_dict(self, state_dict):
            given.append(state_dict)

    Watched.__qualname__ = "ModelCheckpoint"
    callback = Watched(dirpath=tmp_path, save_top_k=-1, filename="{epoch}")
    trainer = type("Trainer", (), {"callbacks": [callback]})()
    _call_callbacks_load_state_dict(trainer, file)
    assert len(given) == 1
    other = copy.deepcopy(file)
    renamed(other)
    _call_callbacks_load_state_dict(trainer, other)
    assert len(given) == 1


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ({"EarlyStoppingCallback": {"args": {"early_stopping_patience": 3}, "attributes": {"early_stopping_patience_counter": 2}}}, "silent"),
        ({"EarlyStoppingCallback": [{"args": {}, "attributes": {"early_stopping_patience_counter": 1}}]}, "silent"),
        ({"EarlyStoppingCallback": {"args": {}, "attributes": {"early_stopping_patience_counter": 0}}}, None),
        ({"Own": {"args": {}, "attributes": {"seen": 5, "none": None, "list": []}}}, "warning"),
        ({"Own": {"args": {}, "attributes": {"seen": 0, "text": "", "dict": {}}}}, None),
        ({"TrainerControl": {"args": {"should_save": True}, "attributes": {"a": 1}}}, None),
        ({"Own": 3}, None),
    ],
)  # fmt: skip
def test_trainer(fixtures_dir, tmp_path, kept, expected):
    """Callbacks that counted something, and that the Trainer does not restore unless it is told to."""
    folder = shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", tmp_path / "checkpoint-4")
    place = folder / "trainer_state.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "stateful_callbacks": kept}))
    found = alone(CallbackState(), folder)
    assert [str(f.severity) for f in found] == ([expected] if expected else [])
    if expected == "silent" and "early_stopping_patience" in str(kept["EarlyStoppingCallback"]):
        assert found[0].where == "trainer_state.json: stateful_callbacks.EarlyStoppingCallback"
    (folder / "optimizer.pt").unlink()
    assert alone(CallbackState(), folder) == []


@pytest.mark.framework
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
@pytest.mark.filterwarnings("ignore")
def test_trainer_passes_over():
    """The Trainer leaves the patience that was counted, and takes it where it is told to."""
    from transformers import EarlyStoppingCallback, Trainer, TrainerState  # noqa: PLC0415
    from transformers.trainer_callback import CallbackHandler, TrainerControl  # noqa: PLC0415

    kept = {"args": {"early_stopping_patience": 3}, "attributes": {"early_stopping_patience_counter": 2}}
    for restore, counter in ((False, 0), (True, 2)):
        trainer = Trainer.__new__(Trainer)
        trainer.args = type("Arguments", (), {"restore_callback_states_from_checkpoint": restore})()
        trainer.state = TrainerState(stateful_callbacks={"EarlyStoppingCallback": kept})
        trainer.control = TrainerControl()
        trainer.callback_handler = CallbackHandler([EarlyStoppingCallback(3)], None, None, None, None)
        trainer._load_callback_state()
        (callback,) = [c for c in trainer.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback)]
        assert callback.early_stopping_patience_counter == counter
