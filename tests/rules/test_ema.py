"""`ema.missing`, `ema.only`, `ema.equal`."""

import copy
from argparse import Namespace
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from ckpttool.rules.ema_equal import EmaEqual
from ckpttool.rules.ema_missing import EmaMissing
from ckpttool.rules.ema_only import EmaOnly
from tests.conversion.runs import sentences
from tests.rules.held import against, alone, brief, edited, said

TIMM = "timm/last.pth.tar"


def trained(steps, seed=0):
    """A model, its average and its optimizer after so many steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    adam = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(5, 3)).sum().backward()
        adam.step()
        adam.zero_grad()
        average.update_parameters(model)
    return model, average, adam


def saved(path, *, model=None, average=None, adam=None, **more):
    """A checkpoint of what is given."""
    parts = {"model": model, "ema": average, "optimizer": adam}
    torch.save(
        {**{k: v if isinstance(v, dict) else v.state_dict() for k, v in parts.items() if v}, "step": 3, **more}, path
    )
    return path


@pytest.mark.parametrize(
    ("arguments", "severity"),
    [
        ({"use_ema": True}, "warning"),
        ({"ema_decay": 0.999}, "warning"),
        ({"ema_decay": 0.0}, None),
        ({"ema_decay": True}, None),
        ({"use_ema": False, "ema_decay": 0.999}, None),
        ({"lr": 0.1}, None),
    ],
)
def test_asked_for(tmp_path, arguments, severity):
    """Arguments that ask for an average, and none there."""
    model, average, adam = trained(3)
    found = alone(EmaMissing(), saved(tmp_path / "c.pt", model=model, adam=adam, args=arguments))
    assert [str(f.severity) for f in found] == ([severity] if severity else [])
    assert alone(EmaMissing(), saved(tmp_path / "e.pt", model=model, adam=adam, average=average, args=arguments)) == []
    assert alone(EmaMissing(), saved(tmp_path / "w.pt", model=model, args=arguments)) == []


def test_timm(fixtures_dir, tmp_path):
    """timm's `model_ema` without `state_dict_ema`: what it averages from then is `state_dict`."""

    def without(file):
        file["args"] = Namespace(**{**vars(file["args"]), "model_ema": True})
        del file["state_dict_ema"]

    path = edited(fixtures_dir / TIMM, tmp_path / "last.pth.tar", without)
    (finding,) = alone(EmaMissing(), path)
    assert (finding.severity, finding.where) == ("silent", "model_ema")
    assert finding.message == "model_ema=True, and state_dict_ema is not there: timm averages anew from state_dict"
    assert alone(EmaMissing(), fixtures_dir / TIMM) == []


def test_sibling_has_one(tmp_path):
    """Another checkpoint of the run has an average."""
    model, average, adam = trained(3)
    saved(tmp_path / "step_1.pt", model=model, adam=adam, average=average)
    saved(tmp_path / "step_2.pt", model=model, adam=adam)
    (finding,) = alone(EmaMissing(), tmp_path, run="step_2.pt")
    assert finding.severity == "warning"
    assert finding.message == "step_1.pt of the same run has averaged weights, and none are here"
    assert alone(EmaMissing(), tmp_path, run="step_1.pt") == []


def test_lightning_lacks_a_key(fixtures_dir, tmp_path):
    """WeightAveraging among the callbacks without what it keeps."""
    source = fixtures_dir / "lightning/ema/last.ckpt"
    assert alone(EmaMissing(), source) == []
    path = edited(source, tmp_path / "a.ckpt", lambda file: file.pop("current_model_state") and file)
    (finding,) = alone(EmaMissing(), path)
    assert (finding.severity, finding.where) == ("silent", "current_model_state")
    assert "EMAWeightAveraging was among the callbacks, and current_model_state is not there" in finding.message
    path = edited(path, tmp_path / "b.ckpt", lambda file: file.pop("averaging_state") and file)
    assert "current_model_state and averaging_state are not there" in said(alone(EmaMissing(), path))
    assert alone(EmaMissing(), fixtures_dir / "lightning/fp16_scaler/last.ckpt") == []


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning")
def test_lightning_goes_on(tmp_path):
    """Lightning resumes from it: the trained weights begin as the averaged ones."""
    import lightning  # noqa: PLC0415

    from tests.conversion.lightning_runs import Lit  # noqa: PLC0415
    from tests.conversion.lightning_runs import trained as fit  # noqa: PLC0415
    from tests.validation.resuming import quiet  # noqa: PLC0415

    begun = []

    class Watch(lightning.Callback):
        """Keeps the weights that training begins with."""

        def on_train_start(self, trainer, module):  # noqa: ARG002
            begun.append(copy.deepcopy(module.state_dict()))

    with quiet():
        fit(Lit(0), 1, tmp_path / "run", averaging=True)
        source = tmp_path / "run/epoch=0.ckpt"
        path = edited(source, tmp_path / "a.ckpt", lambda file: file.pop("current_model_state") and file)
        assert brief(alone(EmaMissing(), path)) == [("silent", "current_model_state")]
        from lightning.pytorch.callbacks import EMAWeightAveraging  # noqa: PLC0415

        for file in (source, path):
            trainer = lightning.Trainer(
                max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
                enable_checkpointing=False, callbacks=[EMAWeightAveraging(decay=0.8), Watch()],
            )  # fmt: skip
            trainer.fit(Lit(1), DataLoader(sentences(8), batch_size=4), ckpt_path=str(file))
    file = torch.load(source, weights_only=False)
    name = "model.embed.weight"
    assert torch.equal(begun[0][name], file["current_model_state"][name])
    assert torch.equal(begun[1][name], file["state_dict"][name])
    assert not torch.equal(begun[0][name], begun[1][name])


def test_only(tmp_path, fixtures_dir):
    """An optimizer with averaged weights alone; with the trained ones, or with weights alone, nothing."""
    model, average, adam = trained(3)
    (finding,) = alone(EmaOnly(), saved(tmp_path / "c.pt", average=average, adam=adam))
    assert (finding.severity, finding.where) == ("warning", "ema")
    assert alone(EmaOnly(), saved(tmp_path / "b.pt", model=model, average=average, adam=adam)) == []
    assert alone(EmaOnly(), saved(tmp_path / "e.pt", average=average)) == []
    assert alone(EmaOnly(), fixtures_dir / TIMM) == []
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    other.load_state_dict(average.module.state_dict())  # the resume goes on from the average, and torch says nothing
    adam = torch.optim.AdamW(other.parameters())
    adam.load_state_dict(torch.load(tmp_path / "c.pt")["optimizer"])
    assert not torch.equal(other[0].weight, model[0].weight)


def test_equal(tmp_path):
    """The trained weights overwritten with the average after several updates, as an evaluation does that restores nothing."""
    model, average, adam = trained(3)
    assert alone(EmaEqual(), saved(tmp_path / "c.pt", model=model, average=average, adam=adam), values=True) == []
    model.load_state_dict(average.module.state_dict())
    path = saved(tmp_path / "e.pt", model=model, average=average, adam=adam)
    (finding,) = alone(EmaEqual(), path, values=True)
    assert (finding.severity, finding.where) == ("silent", "ema")
    assert finding.message == (
        "all 4 averaged tensors equal the trained ones (bit for bit) after 3 updates: a copy, or the trained weights were "
        "overwritten with the average"
    )


def test_equal_without_a_count(tmp_path):
    """Without a count of updates it is a warning, since averaging may begin later; after one update it is right."""
    model, average, adam = trained(3)
    state = model.state_dict()
    found = alone(
        EmaEqual(), saved(tmp_path / "c.pt", model=state, average=copy.deepcopy(state), adam=adam), values=True
    )
    assert brief(found) == [("warning", "ema")]
    assert "unless averaging has not begun yet" in said(found)
    path = saved(tmp_path / "s.pt", model=state, average=state, adam=adam)
    assert "(one memory)" in said(alone(EmaEqual(), path, values=True))
    model, average, adam = trained(1)
    assert alone(EmaEqual(), saved(tmp_path / "o.pt", model=model, average=average, adam=adam), values=True) == []
    state = model.state_dict()
    assert alone(EmaEqual(), saved(tmp_path / "f.pt", model=state, average=dict(state), adam=adam), values=True) == []


def test_unlike(tmp_path):
    """An average of other names, shapes or types is not equal."""
    model, _, adam = trained(3)
    state = model.state_dict()
    for other in (
        {**state, "more.weight": torch.zeros(2)},
        {**state, "0.weight": torch.zeros(1, 1)},
        {name: tensor.double() for name, tensor in state.items()},
        {"0.weight": torch.zeros(4, 3, dtype=torch.int32), "1.weight": torch.zeros(0, 2)},
    ):
        path = saved(tmp_path / "u.pt", model=state, average=other, adam=adam)
        assert alone(EmaEqual(), path, values=True) == []


def test_still(tmp_path):
    """The average stayed bit for bit while the model moved: it is not updated any more."""
    model, average, adam = trained(3)
    then = saved(tmp_path / "then.pt", model=model, average=average, adam=adam)
    model(torch.randn(5, 3)).sum().backward()
    adam.step()
    now = saved(tmp_path / "now.pt", model=model, average=average, adam=adam)
    (finding,) = against(EmaEqual(), now, then, values=True)
    assert (finding.severity, finding.where) == ("silent", "ema")
    average.update_parameters(model)
    moved = saved(tmp_path / "moved.pt", model=model, average=average, adam=adam)
    assert against(EmaEqual(), moved, then, values=True) == []
    assert against(EmaEqual(), then, then, values=True) == []


def test_count_beside(fixtures_dir, tmp_path):
    """Lightning counts updates in `averaging_state`, others in a counter of their own."""

    def overwritten(file):
        file["current_model_state"] = copy.deepcopy(file["state_dict"])

    path = edited(fixtures_dir / "lightning/ema/last.ckpt", tmp_path / "e.ckpt", overwritten)
    (finding,) = alone(EmaEqual(), path, values=True)
    assert finding.severity == "silent"
    assert "updates" in finding.message
    assert alone(EmaEqual(), fixtures_dir / "lightning/ema/last.ckpt", values=True) == []
    model, _, adam = trained(3)
    state = model.state_dict()
    shadow = {"shadow": copy.deepcopy(state), "num_updates": 40}
    path = tmp_path / "own.pt"
    torch.save({"model": state, "ema": shadow, "optimizer": adam.state_dict(), "step": 3}, path)
    assert "after 40 updates" in said(alone(EmaEqual(), path, values=True))
