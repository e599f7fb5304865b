"""`scaler.missing`, `scaler.empty`, `scaler.collapsed`, `scaler.unused`."""

import enum
import shutil
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from ckpttool.rules.scaler_collapsed import ScalerCollapsed
from ckpttool.rules.scaler_empty import ScalerEmpty
from ckpttool.rules.scaler_missing import ScalerMissing
from ckpttool.rules.scaler_unused import ScalerUnused
from tests.rules.held import alone, brief, edited, said

RUN = "accelerate/run/checkpoints"


class Mode(enum.Enum):
    """A precision as some arguments keep it."""

    HALF = "fp16"


def scaler(**changes):
    return {**torch.amp.GradScaler("cpu", init_scale=1024.0).state_dict(), **changes}


def script(path, **more):
    """What a script saves: model, optimizer, and what is given."""
    model = nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters())
    torch.save({"model": model.state_dict(), "optimizer": adam.state_dict(), "step": 1, **more}, path)
    return path


@pytest.mark.parametrize(
    ("arguments", "severity"),
    [
        ({"fp16": True}, "note"),
        ({"mixed_precision": "fp16"}, "note"),
        ({"precision": 16}, "note"),
        ({"dtype": "float16"}, "note"),
        ({"dtype": torch.float16}, "note"),
        ({"mixed_precision": Mode.HALF}, "note"),
        ({"bf16": True}, None),
        ({"precision": "bf16-mixed"}, None),
        ({"precision": 64}, None),
        ({"amp_dtype": True}, None),
        ({"lr": 0.1}, None),
    ],
)
def test_missing_by_arguments(tmp_path, arguments, severity):
    """Arguments that say float16 are a note without a trace of a GPU; bfloat16 and silence are nothing."""
    found = alone(ScalerMissing(), script(tmp_path / "c.pt", args=arguments))
    assert [str(f.severity) for f in found] == ([severity] if severity else [])


def test_missing_on_gpu(tmp_path):
    """With the state of a CUDA generator beside it, a script's float16 run without a loss scale is a warning."""
    path = script(tmp_path / "c.pt", args={"fp16": True}, rng={"cuda": torch.zeros(16, dtype=torch.uint8)})
    (finding,) = alone(ScalerMissing(), path)
    assert (finding.severity, finding.where) == ("warning", "fp16")
    assert finding.message.startswith("fp16=True was trained on a GPU (the state of cuda), and no loss scale is there")
    assert alone(ScalerMissing(), script(tmp_path / "d.pt", args={"fp16": True}, scaler=scaler())) == []
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    assert alone(ScalerMissing(), tmp_path / "w.pt") == []


def test_missing_by_device_tag(tmp_path):
    """Tensors of cuda:0 are a trace of a GPU too."""
    path = script(tmp_path / "c.pt", args={"fp16": True})
    from ckpttool import convert  # noqa: PLC0415

    convert(str(path), str(tmp_path / "g.pt"), map_location="cuda:0")
    (finding,) = alone(ScalerMissing(), tmp_path / "g.pt")
    assert finding.severity == "warning"
    assert "tensors of cuda:0" in finding.message


def trainer_folder(fixtures_dir, tmp_path, **arguments):
    """A Trainer's folder whose arguments are changed; they are pickled objects, and loaded here as what they are."""
    folder = tmp_path / "checkpoint-4"
    shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", folder)

    def change(settings):
        for name, value in arguments.items():
            object.__setattr__(settings, name, value)

    edited(folder / "training_args.bin", folder / "training_args.bin", change)
    return folder


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
class TestTrainer:
    """In folders of the Trainer."""

    def test_missing(self, fixtures_dir, tmp_path):
        """fp16=True on a GPU without scaler.pt is silent: it is always saved there."""
        folder = trainer_folder(fixtures_dir, tmp_path, fp16=True, mixed_precision="fp16")
        assert alone(ScalerUnused(), folder) == alone(ScalerMissing(), folder) == []
        (folder / "scaler.pt").unlink()
        assert brief(alone(ScalerMissing(), folder)) == [("note", "scaler.pt")]
        edited(
            folder / "rng_state.pth",
            folder / "rng_state.pth",
            lambda state: state.update(cuda=torch.zeros(16, dtype=torch.uint8)),
        )
        (finding,) = alone(ScalerMissing(), folder)
        assert (finding.severity, finding.where) == ("silent", "scaler.pt")

    def test_missing_goes_unsaid(self, fixtures_dir, tmp_path):
        """The Trainer loads without scaler.pt and says nothing: the scale is where a new scaler starts."""
        folder = trainer_folder(fixtures_dir, tmp_path)
        made = loaded_scaler(folder, torch.amp.GradScaler("cpu"))
        assert made.state_dict()["scale"] == 512
        (folder / "scaler.pt").unlink()
        made = loaded_scaler(folder, torch.amp.GradScaler("cpu"))
        assert made.state_dict()["scale"] == 65536

    def test_missing_where_fp16_was_off(self, fixtures_dir, tmp_path):
        """Arguments that say float32 make no loss scale, whatever another checkpoint has."""
        run = tmp_path / "bert"
        shutil.copytree(fixtures_dir / "hf_trainer/bert", run)
        (run / "checkpoint-4/scaler.pt").unlink()
        assert alone(ScalerMissing(), run, run="checkpoint-4") == []

    def test_unused(self, fixtures_dir, tmp_path):
        """scaler.pt beside arguments without fp16: where the script makes no scaler, the Trainer raises."""
        folder = trainer_folder(fixtures_dir, tmp_path)
        (finding,) = alone(ScalerUnused(), folder)
        assert (finding.severity, finding.where) == ("warning", "scaler.pt")
        with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'load_state_dict'"):
            loaded_scaler(folder, None)
        assert "AttributeError: 'NoneType' object has no attribute 'load_state_dict' in _load_scaler" in finding.message
        (tmp_path / "bf16").mkdir()
        folder = trainer_folder(fixtures_dir, tmp_path / "bf16", bf16=True)
        assert said(alone(ScalerUnused(), folder)).startswith("bf16=True in training_args.bin")
        (tmp_path / "ds").mkdir()
        folder = trainer_folder(fixtures_dir, tmp_path / "ds", deepspeed="ds.json")
        assert alone(ScalerUnused(), folder) == []

    def test_empty(self, fixtures_dir, tmp_path):
        """An empty scaler.pt with fp16=True raises in a Trainer whose scaler is enabled."""
        folder = trainer_folder(fixtures_dir, tmp_path, fp16=True)
        torch.save({}, folder / "scaler.pt")
        (finding,) = alone(ScalerEmpty(), folder)
        assert (finding.severity, finding.where) == ("error", "scaler.pt")
        with pytest.raises(RuntimeError, match="The source state dict is empty"):
            loaded_scaler(folder, torch.amp.GradScaler("cpu"))


def loaded_scaler(folder, made):
    """What the Trainer's own method loads into a scaler."""
    from transformers import Trainer  # noqa: PLC0415

    trainer = Trainer.__new__(Trainer)
    trainer.accelerator = type("Accelerator", (), {"scaler": made})()
    trainer._load_scaler(str(folder))
    return trainer.accelerator.scaler


def test_missing_of_a_run(fixtures_dir, tmp_path):
    """A sibling's scaler.pt that is missing here: Accelerate raises FileNotFoundError."""
    shutil.copytree(fixtures_dir / RUN, tmp_path / "checkpoints")
    (tmp_path / "checkpoints/checkpoint_1/scaler.pt").unlink()
    (finding,) = alone(ScalerMissing(), tmp_path / "checkpoints", run="checkpoint_1")
    assert (finding.severity, finding.where) == ("error", "scaler.pt")
    assert "raises FileNotFoundError: scaler.pt in load_accelerator_state" in finding.message
    assert alone(ScalerMissing(), tmp_path / "checkpoints", run="checkpoint_2") == []


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
@pytest.mark.parametrize(("change", "raised"), [("gone", FileNotFoundError), ("empty", RuntimeError)])
def test_accelerate_raises(tmp_path, change, raised):
    """Accelerate raises as the findings say, on a folder that it saved itself."""
    from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

    run = Run(0)
    run.train(2)
    for number in range(2):
        run.accelerator.save_state(f"{tmp_path}/checkpoints/checkpoint_{number}")
    place = tmp_path / "checkpoints/checkpoint_1/scaler.pt"
    if change == "gone":
        place.unlink()
        assert brief(alone(ScalerMissing(), place.parents[1], run="checkpoint_1")) == [("error", "scaler.pt")]
    else:
        torch.save({}, place)
        assert brief(alone(ScalerEmpty(), place.parents[1], run="checkpoint_1")) == [("error", "scaler.pt")]
    with pytest.raises(raised, match=r"scaler.pt|The source state dict is empty"):
        Run(7).accelerator.load_state(str(place.parent))


def test_missing_of_other_runs(fixtures_dir, tmp_path):
    """In a run of Lightning it is silent, since it always saves it; in a run of a script a warning."""
    for name in ("epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"):
        shutil.copy(fixtures_dir / "lightning/fp16_scaler" / name, tmp_path / name)
    place = tmp_path / "epoch=1-step=8.ckpt"
    edited(place, place, lambda file: file.pop("MixedPrecision") and file)
    assert brief(alone(ScalerMissing(), tmp_path, run=place.name)) == [("silent", "MixedPrecision")]
    (tmp_path / "own").mkdir()
    script(tmp_path / "own/step_1.pt", scaler=scaler())
    script(tmp_path / "own/step_2.pt")
    assert brief(alone(ScalerMissing(), tmp_path / "own", run="step_2.pt")) == [("warning", "scaler")]


def test_empty(tmp_path, fixtures_dir):
    """`{}` is a note without evidence of float16, an error with it, and a disabled object says nothing."""
    (note,) = alone(ScalerEmpty(), fixtures_dir / "plain/scaler_disabled.pt")
    assert (note.severity, note.where) == ("note", "scaler")
    (finding,) = alone(ScalerEmpty(), script(tmp_path / "c.pt", scaler={}, args={"fp16": True}))
    assert (finding.severity, finding.where) == ("error", "scaler")
    assert finding.message == (
        "it holds {}, what a disabled scaler saves, and fp16=True: an enabled one raises RuntimeError in "
        "GradScaler.load_state_dict (torch/amp/grad_scaler.py): The source state dict is empty"
    )
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        torch.amp.GradScaler("cpu").load_state_dict(torch.load(tmp_path / "c.pt", weights_only=False)["scaler"])
    assert brief(alone(ScalerEmpty(), script(tmp_path / "b.pt", scaler={}, args={"bf16": True}))) == [
        ("note", "scaler")
    ]
    assert alone(ScalerEmpty(), script(tmp_path / "o.pt", scaler=torch.amp.GradScaler("cpu", enabled=False))) == []
    assert alone(ScalerEmpty(), script(tmp_path / "e.pt", scaler=scaler())) == []


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"scale": 0.000244140625}, "warning", "the scale is 0.000244141: it halves"),
        ({"scale": 1.0}, "warning", "the scale is 1: it halves"),
        ({"scale": 0.0}, "silent", "the first step makes weights NaN"),
        ({"scale": float("inf")}, "silent", "the scale is inf"),
        ({"scale": 128.0, "min_scale": 128.0}, "warning", "the scale is its least, 128"),
        ({"scale": 1000.0}, "note", "the scale is 1000, which only a start of its own"),
        ({"_growth_tracker": 2000}, "warning", "the growth tracker is 2,000, and it runs from 0 to below 2,000"),
        ({"_growth_tracker": -1}, "warning", "the growth tracker is -1"),
        ({"scale": 2.0}, None, ""),
        ({"scale": 1000.0, "growth_factor": 1.5}, None, ""),
        ({"_growth_tracker": 1999}, None, ""),
    ],
)
def test_collapsed(tmp_path, changes, severity, words):
    """Scales that fell, and trackers that no scaler comes to."""
    found = alone(ScalerCollapsed(), script(tmp_path / "c.pt", scaler=scaler(**changes)))
    assert brief(found) == ([(severity, "scaler")] if severity else [])
    assert words in said(found)


def test_collapsed_loads(tmp_path):
    """torch takes a scale of 0 without a word, and the first step makes weights NaN."""
    path = script(tmp_path / "c.pt", scaler=scaler(scale=0.0))
    made = torch.amp.GradScaler("cpu")
    made.load_state_dict(torch.load(path)["scaler"])
    model = nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    made.scale(model(torch.ones(1, 2)).sum()).backward()
    made.step(sgd)
    assert model.weight.isnan().all()


def test_static_scales(tmp_path, fixtures_dir):
    """A scale that never changes is 1 for a reason: DeepSpeed's for bfloat16, ZeRO 0's, apex at O0."""
    assert alone(ScalerCollapsed(), fixtures_dir / "deepspeed/zero2_bf16/global_step3") == []
    assert (
        alone(ScalerCollapsed(), script(tmp_path / "z.pt", optim={"cur_scale": 1, "dynamic_loss_scale": False})) == []
    )
    assert (
        alone(ScalerCollapsed(), script(tmp_path / "a.pt", amp={"loss_scaler0": {"loss_scale": 1.0, "unskipped": 3}}))
        == []
    )
    assert brief(alone(ScalerCollapsed(), script(tmp_path / "d.pt", optim={"cur_scale": 1, "scale_factor": 2.0}))) == [
        ("warning", "optim")
    ]
    assert alone(ScalerCollapsed(), fixtures_dir / "plain/scaler_disabled.pt") == []


def test_unused_in_lightning(fixtures_dir, tmp_path):
    """Lightning 2 does not restore the state under the plugin's name of Lightning 1."""
    source = fixtures_dir / "lightning/fp16_scaler/last.ckpt"
    assert alone(ScalerUnused(), source) == []

    def rename(file):
        file["NativeMixedPrecisionPlugin"] = file.pop("MixedPrecision")

    (finding,) = alone(ScalerUnused(), edited(source, tmp_path / "old.ckpt", rename))
    assert (finding.severity, finding.where) == ("silent", "NativeMixedPrecisionPlugin")
    assert finding.message.startswith(
        "Lightning 2 looks for MixedPrecision, so the loss scale of 4,096 under NativeMixedPrecisionPlugin is not restored"
    )

    def own(file):
        file["own_scaler"] = file.pop("MixedPrecision")  # which the module loads itself

    assert alone(ScalerUnused(), edited(source, tmp_path / "own.ckpt", own)) == []


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
def test_lightning_says_nothing(tmp_path):
    """Lightning goes on from such a file without a word, with the scale that a new scaler has."""
    from lightning.pytorch.plugins import MixedPrecision  # noqa: PLC0415

    from tests.conversion.lightning_runs import Lit, trained  # noqa: PLC0415
    from tests.validation.resuming import quiet  # noqa: PLC0415

    seen = []

    class Watched(MixedPrecision):
        """Keeps what it is given."""

        def load_state_dict(self, state_dict):
            seen.append(state_dict)
            super().load_state_dict(state_dict)

    Watched.__qualname__ = "MixedPrecision"
    with quiet():
        trained(Lit(0), 1, tmp_path / "run")
        source = tmp_path / "run/epoch=0.ckpt"

        def rename(file):
            file["NativeMixedPrecisionPlugin"] = file.pop("MixedPrecision")

        old = edited(source, tmp_path / "old.ckpt", rename)
        for file, count in ((source, 1), (old, 1)):
            import lightning  # noqa: PLC0415

            plugin = Watched("16-mixed", device="cpu", scaler=torch.amp.GradScaler("cpu"))
            trainer = lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                enable_checkpointing=False, plugins=[plugin],
            )  # fmt: skip
            trainer.fit(Lit(1), [torch.zeros(1, 6, dtype=torch.long)], ckpt_path=str(file))
            assert len(seen) == count  # of the second file none


def test_unused_in_scripts(tmp_path):
    """A loss scale beside arguments that say bfloat16 is a warning; beside float16 or none it is in use."""
    assert brief(alone(ScalerUnused(), script(tmp_path / "b.pt", scaler=scaler(), args={"bf16": True}))) == [
        ("warning", "scaler")
    ]
    assert alone(ScalerUnused(), script(tmp_path / "h.pt", scaler=scaler(), args={"fp16": True})) == []
    assert alone(ScalerUnused(), script(tmp_path / "n.pt", scaler=scaler())) == []
    assert (
        alone(ScalerUnused(), script(tmp_path / "m.pt", scaler=torch.amp.GradScaler("cpu"), args={"bf16": True})) == []
    )
