"""Files of PyTorch Lightning."""

from ckpttool.layouts import LAYOUTS
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Contents, Role
from ckpttool.opening import open_checkpoint
from ckpttool.protocols import Found
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef
from tests.layouts.trees import tensor


def test_a_file_with_a_scaler(fixtures_dir):
    """The precision plugin keeps it under its own name; loops, callbacks and arguments have their places."""
    with open_checkpoint(fixtures_dir / "lightning/fp16_scaler/last.ckpt") as c:
        assert (c.layout, c.writer) == ("lightning", "Lightning 2.6.6")
        assert [(s.name, s.at.path) for s in c.scalers] == [("MixedPrecision", ("MixedPrecision",))]
        assert [o.name for o in c.optimizers] == ["optimizer_states[0]"]
        assert c.optimizers[0].names_from == "order"
        assert [s.name for s in c.schedulers] == ["lr_schedulers[0]"]
        counters = {x.name: x.value for x in c.counters}
        assert (counters["epoch"], counters["global_step"], counters["completed_epochs"]) == (1, 8, 1)
        assert c.config["learning_rate"] == 0.001
        assert [d.name for d in c.data] == ["loops"]
        assert [x.name for x in c.custom] == ["callbacks.ModelCheckpoint"]
        assert c.about == {"hparams_name": "kwargs", "pytorch-lightning_version": "2.6.6"}


def test_weight_averaging_saves_the_copy_as_state_dict(fixtures_dir):
    """What was trained is `current_model_state`, and the optimizer's names come from there."""
    with open_checkpoint(fixtures_dir / "lightning/ema/last.ckpt") as c:
        assert [(w.name, w.role) for w in c.weights] == [("state_dict", Role.EMA), ("current_model_state", Role.MODEL)]
        assert c.optimizers[0].groups[0].names[0] == "model.embed.weight"


def test_two_optimizers_share_one_model(fixtures_dir):
    """One entry an optimizer, and keys of the user's own."""
    with open_checkpoint(fixtures_dir / "lightning/two_optimizers/last.ckpt") as c:
        assert [o.groups[0].names for o in c.optimizers] == [
            ("generator.weight", "generator.bias"),
            ("discriminator.weight", "discriminator.bias"),
        ]
        assert "epoch_note" in [x.name for x in c.custom]


def test_fabric_leaves_no_mark(fixtures_dir):
    """Its files hold the user's keys alone, and are plain."""
    with open_checkpoint(fixtures_dir / "lightning/fabric.ckpt") as c:
        assert c.layout == "plain"


def recognised(root):
    source = BytesSource(b"", "x.ckpt")
    contents = Contents(name="x.ckpt", container="torch-zip", source=source, root=root)
    found = Found(path="x.ckpt", contents=contents, open=lambda _: contents, limits=DEFAULT_LIMITS)
    return next(c for layout in LAYOUTS if (c := layout.recognise(found)) is not None)


def test_old_files_have_classes_for_keys():
    """Lightning 1.2 keyed callbacks by their class, and had no loops."""
    callbacks = {GlobalRef("pytorch_lightning", "ModelCheckpoint"): {"best_model_score": 0.5}}
    c = recognised(
        {"pytorch-lightning_version": "1.2.10", "callbacks": callbacks, "state_dict": {"a.w": tensor(2)}, "epoch": 2}
    )
    assert [x.name for x in c.custom] == ["callbacks.ModelCheckpoint"]
    assert [(x.name, x.value) for x in c.counters] == [("epoch", 2), ("best", 0.5)]
    assert not c.data


def test_a_version_of_another_kind_is_left_out():
    """Whatever the file holds in its place."""
    c = recognised({"pytorch-lightning_version": 3, "loops": 4, "other": {"current": 1}})
    assert (c.writer, c.data) == ("Lightning", ())
    c = recognised(
        {
            "pytorch-lightning_version": "2",
            "current_model_state": {"a.w": tensor(2)},
            "state_dict": {"a.w": tensor(2)},
            "teacher": {"a.w": tensor(2)},
        }
    )
    assert [w.role for w in c.weights] == [Role.MODEL, Role.EMA, Role.MODEL]


def test_loops_progress_is_no_loader():
    """Lightning 1.6 keeps `dataloader_progress` inside the loops."""
    loops = {
        "fit_loop": {"epoch_progress": {"total": {"completed": 3}}, "dataloader_progress": {"total": {"ready": 1}}}
    }
    c = recognised({"pytorch-lightning_version": "1.6.5", "loops": loops, "sampler": {"epoch": 1}})
    assert [d.name for d in c.data] == ["sampler", "loops"]
    assert [(x.name, x.value) for x in c.counters] == [("completed_epochs", 3)]
