"""`lightning.payload`: what lies under the keys of a Lightning checkpoint, and what the Trainer does with it."""

from importlib.util import find_spec

import pytest

from ckpttool.rules.lightning_payload import LightningPayload
from tests.rules.asking import judgements
from tests.rules.held import alone, edited
from tests.validation.resuming import raised, resume_with_lightning, train_with_lightning

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file that Lightning saved after an epoch."""
    return train_with_lightning(tmp_path_factory.mktemp("lightning"), 1) / "epoch=0.ckpt"


def test_untouched(saved, fixtures_dir):
    """Nothing is said of what Lightning wrote, nor of other trainers' files."""
    assert alone(LightningPayload(), saved) == []
    for name in ("lightning/ema/last.ckpt", "lightning/two_optimizers/last.ckpt", "plain/train.pth"):
        if (fixtures_dir / name).exists():
            assert alone(LightningPayload(), fixtures_dir / name) == []


@pytest.mark.parametrize(
    ("key", "value", "exception"),
    [
        ("state_dict", None, "TypeError"),
        ("state_dict", [], "TypeError"),
        ("state_dict", "x", "TypeError"),
        ("state_dict", {}, "RuntimeError"),
        ("optimizer_states", None, "TypeError"),
        ("optimizer_states", 3, "TypeError"),
        ("optimizer_states", "x", "AttributeError"),
        ("optimizer_states", {"state": {}, "param_groups": []}, "AttributeError"),
        ("optimizer_states", (None,), "AttributeError"),
        ("optimizer_states", ((),), "AttributeError"),
        ("optimizer_states", ([],), "TypeError"),
        ("optimizer_states", ({},), "KeyError"),
        ("lr_schedulers", None, "TypeError"),
        ("lr_schedulers", 3, "TypeError"),
        ("lr_schedulers", {"last_epoch": 1}, "ValueError"),
        ("lr_schedulers", [None], "TypeError"),
        ("lr_schedulers", ["x"], "ValueError"),
    ],
)
def test_raises(saved, tmp_path, key, value, exception):
    """The Trainer raises as the finding says."""
    path = edited(saved, tmp_path / "e.ckpt", lambda file: file.update({key: value}))
    (finding, *_) = alone(LightningPayload(), path)
    assert finding.severity == "error"
    assert finding.where.startswith(key)
    assert raised(resume_with_lightning, path, tmp_path / "run")[0] == exception
    assert f"raises {exception}" in finding.message


@pytest.mark.parametrize(
    ("key", "value", "where"),
    [
        ("optimizer_states", {}, "optimizer_states"),
        ("optimizer_states", "", "optimizer_states"),
        ("lr_schedulers", {}, "lr_schedulers"),
        ("lr_schedulers", [], "lr_schedulers"),
        ("lr_schedulers", [{}], "lr_schedulers[0]"),
    ],
)
def test_silent(saved, tmp_path, key, value, where):
    """Of something empty the Trainer restores nothing, and says nothing."""
    path = edited(saved, tmp_path / "e.ckpt", lambda file: file.update({key: value}))
    (finding,) = alone(LightningPayload(), path)
    assert (finding.severity, finding.where) == ("silent", where)
    made = resume_with_lightning(path, tmp_path / "run", epochs=2)
    if key == "optimizer_states":
        assert {int(state["step"]) for state in made.optimizers[0].state.values()} == {6}  # 12 with its state
    else:
        assert made.lr_scheduler_configs[0].scheduler.last_epoch == 1  # 2 with its state


@pytest.mark.parametrize("key", ["epoch", "global_step", "hyper_parameters", "hparams_name"])
@pytest.mark.parametrize("value", [None, "x", [1], {"other": 1}])
def test_what_is_not_read(saved, tmp_path, key, value):
    """Counters at the top and hyperparameters may be anything: the resume does not read them."""
    path = edited(saved, tmp_path / "e.ckpt", lambda file: file.update({key: value}))
    assert alone(LightningPayload(), path) == []
    made = resume_with_lightning(path, tmp_path / "run", epochs=2)
    assert {int(state["step"]) for state in made.optimizers[0].state.values()} == {12}


BAD = ("error", "silent", "warning")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"optimizer_states": [None]}, [("error", "optimizer.structure", "optimizer_states[0]")]),
        ({"optimizer_states": [{}], "global_step": 0, "lr_schedulers": []},
         [("error", "optimizer.structure", "optimizer_states[0]"), ("silent", "lightning.payload", "lr_schedulers")]),
        ({"optimizer_states": [[]]}, [("error", "optimizer.structure", "optimizer_states[0]")]),
        ({"lr_schedulers": [None]}, [("error", "lightning.payload", "lr_schedulers[0]")]),
        ({"lr_schedulers": {}}, [("silent", "lightning.payload", "lr_schedulers")]),
        ({"lr_schedulers": [{}]}, [("silent", "lightning.payload", "lr_schedulers[0]")]),
        ({"state_dict": None, "optimizer_states": None, "lr_schedulers": None},
         [("error", "lightning.payload", "state_dict")]),
        ({"optimizer_states": {}, "lr_schedulers": {}}, [("silent", "lightning.payload", "optimizer_states")]),
        ({"loops": {}}, [("error", "lightning.version", "loops.fit_loop")]),
        ({"loops": None}, [("silent", "progress.missing", "loops")]),
    ],
)  # fmt: skip
def test_one_fault_is_told_once(saved, tmp_path, keys, said):
    """Of all rules one tells of it, and one finding names all keys that are alike."""
    path = edited(saved, tmp_path / "e.ckpt", lambda file: file.update(keys))
    found = judgements(path)["e.ckpt"].findings
    assert [(f.severity, f.code, f.where) for f in found if f.severity in BAD] == said


def test_the_keys_that_are_wrong_too(saved, tmp_path):
    """They are named in the finding of the first."""
    keys = dict.fromkeys(("state_dict", "optimizer_states", "lr_schedulers"))
    (finding,) = alone(LightningPayload(), edited(saved, tmp_path / "e.ckpt", lambda file: file.update(keys)))
    assert finding.message.endswith("raises TypeError; optimizer_states, lr_schedulers are wrong, too")


def test_a_model_without_parameters(saved, tmp_path):
    """An empty state_dict beside an optimizer that has no parameters is what a module without any saves."""

    def change(file):
        file["state_dict"] = {}
        file["optimizer_states"] = []

    assert alone(LightningPayload(), edited(saved, tmp_path / "e.ckpt", change)) == []
