"""`lightning.loops`: each counter of the loops changed, and the run that goes on from it held against the untouched."""

import contextlib
import copy
from importlib.util import find_spec
from itertools import count

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from ckpttool.rules.lightning_loops import LightningLoops
from tests.rules.held import alone
from tests.validation.resuming import quiet

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("lightning") is None, reason="needs Lightning"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]
EPOCHS, BATCHES = "epoch_progress", "epoch_loop.batch_progress"
AUTOMATIC = "epoch_loop.automatic_optimization.optim_progress"
MANUAL = "epoch_loop.manual_optimization.optim_step_progress"


def fit(folder, epochs, *, by_hand=False, **more):
    """A Trainer of a model of one layer over six batches; a file after nine steps and after each epoch."""
    import lightning  # noqa: PLC0415
    from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: PLC0415

    class Lit(lightning.LightningModule):
        """A layer that is trained, by Lightning or by hand."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = torch.nn.Linear(4, 1)
            self.automatic_optimization = not by_hand

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).pow(2).mean()
            if by_hand:
                adam = self.optimizers()
                adam.zero_grad()
                self.manual_backward(loss)
                adam.step()
            return loss

        def configure_optimizers(self):
            adam = torch.optim.Adam(self.parameters(), lr=0.1)
            return [adam], [torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)]

    keepers = [
        ModelCheckpoint(dirpath=folder, save_top_k=-1, every_n_train_steps=9, filename="mid-{step}"),
        ModelCheckpoint(dirpath=folder, save_top_k=-1, filename="end-{epoch}"),
    ]
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(24, 4, generator=generator)), batch_size=4)
    with quiet():
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=keepers,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Lit(), loader, **more)
    return trainer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """By name: a file in the middle of the second epoch, one at its end, one at its end that was trained by hand."""
    folder = tmp_path_factory.mktemp("loops")
    fit(folder / "a", 2)
    fit(folder / "m", 2, by_hand=True)
    return {
        "mid": folder / "a/mid-step=9.ckpt",
        "end": folder / "a/end-epoch=1.ckpt",
        "hand": folder / "m/end-epoch=1.ckpt",
    }


def outcome(file, folder, kind):
    """What a run that goes on from a file ends with; the name of the exception's class where it raises."""
    try:
        trainer = fit(folder, 3, by_hand=kind == "hand", ckpt_path=str(file), weights_only=False)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return type(error).__name__
    return trainer.lightning_module.layer.weight.detach().clone(), trainer.optimizers[0].state_dict()


@pytest.fixture(scope="module")
def baselines(files, tmp_path_factory):
    """What runs from the untouched files end with."""
    return {kind: outcome(file, tmp_path_factory.mktemp("base"), kind) for kind, file in files.items()}


@pytest.fixture
def tried(files, baselines, tmp_path):
    """Finding severities of a changed file, and what became of the run."""
    numbers = count()

    def attempt(kind, change):
        content = copy.deepcopy(torch.load(files[kind], weights_only=False))
        change(content)
        path = tmp_path / f"{next(numbers)}.ckpt"
        torch.save(content, path)
        found = [f for f in alone(LightningLoops(), path) if f.severity in ("error", "silent")]
        ended = outcome(path, tmp_path / f"run{next(numbers)}", kind)
        if isinstance(ended, str):
            return found, ended
        steps = {int(state["step"]) for state in ended[1]["state"].values()}
        expected = {int(state["step"]) for state in baselines[kind][1]["state"].values()}
        same = torch.equal(ended[0], baselines[kind][0]) and steps == expected
        return found, "same" if same else "other"

    return attempt


def agree(found, became):
    """Whether the findings say what became of the run."""
    if became in ("same", "other"):
        return [str(f.severity) for f in found] == ([] if became == "same" else ["silent"])
    return bool(found) and all(f.severity == "error" and f"raises {became}" in f.message for f in found)


@pytest.mark.parametrize("kind", ["mid", "end", "hand"])
def test_untouched(tried, kind):
    """Nothing is said of what Lightning wrote, in the middle and at the end of an epoch."""
    assert tried(kind, lambda _: None) == ([], "same")


@pytest.mark.parametrize("kind", ["mid", "end", "hand"])
def test_each_entry(tried, files, kind):
    """Each entry of the loops absent, None, empty, or a text."""
    for name in torch.load(files[kind], weights_only=False)["loops"]["fit_loop"]:
        for value in (..., None, {}, "x"):

            def change(content, name=name, value=value):
                content["loops"]["fit_loop"][name] = value
                if value is ...:
                    del content["loops"]["fit_loop"][name]

            found, became = tried(kind, change)
            assert agree(found, became), (kind, name, value, became, found)


@pytest.mark.parametrize("entry", [EPOCHS, BATCHES, MANUAL])
@pytest.mark.parametrize(
    "value",
    [None, 3, 1j, "x", b"x", [1], ["abc"], [[[], 1]], torch.zeros(2), torch.tensor(1), {}, "", [], [["a", 1]]],
    ids=repr,
)
def test_each_half(tried, entry, value):
    """`total` and `current` of another kind; what is empty updates nothing, and the counters are 0."""
    for which in ("total", "current"):
        found, became = tried("mid", lambda c, which=which: c["loops"]["fit_loop"][entry].update({which: value}))
        assert agree(found, became), (entry, which, value, became, found)


@pytest.mark.parametrize("kind", ["mid", "end", "hand"])
@pytest.mark.parametrize("entry", [EPOCHS, BATCHES, AUTOMATIC, MANUAL, "epoch_loop.scheduler_progress"])
def test_each_counter(tried, files, kind, entry):
    """Each counter absent, a text, None, one more, and below zero."""
    content = torch.load(files[kind], weights_only=False)["loops"]["fit_loop"][entry]
    inside = ("optimizer", "step") if entry == AUTOMATIC else ()
    for which in ("total", "current"):
        holder = content["optimizer"]["step"] if inside else content
        for key, number in holder[which].items():
            for value in (..., "3", None, number + 1, -1):

                def change(content, which=which, key=key, value=value):
                    place = content["loops"]["fit_loop"][entry]
                    for step in (*inside, which):
                        place = place[step]
                    place[key] = value
                    if value is ...:
                        del place[key]

                found, became = tried(kind, change)
                assert agree(found, became), (kind, entry, which, key, value, became, found)


@pytest.mark.parametrize(
    ("loops", "exception"),
    [
        ([], "TypeError"), ("x", "TypeError"), ({"fit_loop": None}, "AttributeError"), ({"fit_loop": "x"}, "AttributeError"),
        ({"fit_loop": {}}, "other"), ({"fit_loop": [1]}, "other"), ({"fit_loop": {"x.epoch_progress": {}}}, "other"),
    ],
)  # fmt: skip
def test_the_whole(tried, loops, exception):
    """`loops` and `fit_loop` of another kind, and with other keys."""
    found, became = tried("end", lambda content: content.update(loops=loops))
    assert became == exception
    assert agree(found, became)


def test_another_epoch(tried):
    """All counters of the running epoch moved: Lightning takes another epoch."""

    def change(content):
        current = content["loops"]["fit_loop"][EPOCHS]["current"]
        current.update({key: number - 1 for key, number in current.items()})

    found, became = tried("end", change)
    assert agree(found, became)
    assert became == "other"


@pytest.mark.parametrize(("value", "severities"), [(True, []), ("x", ["silent"])])
def test_last_batch(tried, value, severities):
    """A word for whether the batch was the last is taken for yes."""
    found, became = tried("mid", lambda content: content["loops"]["fit_loop"][BATCHES].update(is_last_batch=value))
    assert became == "other"
    assert [str(f.severity) for f in found] == severities


def test_no_steps(tried, files, tmp_path):
    """Without the count of steps a run of epochs is the same; only `max_steps` and saves by steps move."""
    found, became = tried("end", lambda content: content["loops"]["fit_loop"].pop(AUTOMATIC))
    assert (found, became) == ([], "same")
    content = torch.load(files["end"], weights_only=False)
    del content["loops"]["fit_loop"][AUTOMATIC]
    torch.save(content, tmp_path / "n.ckpt")
    (finding,) = alone(LightningLoops(), tmp_path / "n.ckpt")
    assert (finding.severity, finding.where) == ("warning", f"loops.fit_loop.{AUTOMATIC}")


def test_after_a_crash(tmp_path):
    """A file of a batch that raised: Lightning takes that batch again, as it should."""
    import lightning  # noqa: PLC0415
    from lightning.pytorch.callbacks import OnExceptionCheckpoint  # noqa: PLC0415
    from lightning.pytorch.demos.boring_classes import BoringModel  # noqa: PLC0415

    class Crashing(BoringModel):
        """Raises once."""

        def training_step(self, batch, batch_idx):
            if self.current_epoch == 1 and batch_idx == 3:
                raise RuntimeError
            return super().training_step(batch, batch_idx)

    with quiet(), contextlib.suppress(RuntimeError):
        lightning.Trainer(
            max_epochs=3, limit_train_batches=6, limit_val_batches=0, accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[OnExceptionCheckpoint(tmp_path, "crash")],
        ).fit(Crashing())  # fmt: skip
    assert alone(LightningLoops(), tmp_path / "crash.ckpt") == []
