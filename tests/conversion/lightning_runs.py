"""Runs of Lightning that save files and are resumed from them. Imports the framework, nothing of the package under test."""

import lightning
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader

from tests.conversion.runs import load, loss_of, net, sentences


class Lit(lightning.LightningModule):
    """The tiny model, with hyperparameters and a schedule."""

    def __init__(self, seed=0, tied=True):  # noqa: FBT002  # Lightning saves the arguments
        super().__init__()
        self.save_hyperparameters()
        self.model = net(seed, tied=tied)

    def training_step(self, batch, _):
        loss = loss_of(self.model, batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        adam = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return [adam], [torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)]


def trained(module, epochs, folder, *, averaging=False, **resume):
    """A Trainer that has run so many epochs, a checkpoint after each, from a checkpoint or from the start."""
    # On a CPU Lightning makes no loss scale.
    scale = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    keeper = ModelCheckpoint(dirpath=folder, save_top_k=-1, filename="{epoch}")
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[keeper, *([EMAWeightAveraging(decay=0.8)] if averaging else [])], plugins=[MixedPrecision("16-mixed", device="cpu", scaler=scale)],
    )  # fmt: skip
    torch.manual_seed(6)  # dropout of what follows
    trainer.fit(module, DataLoader(sentences(), batch_size=4), **resume)
    return trainer


def resumed(checkpoint, folder):
    """What Lightning saves after one epoch more, by a module and a Trainer that are new; without paths of folders."""
    trained(Lit(9), 3, folder, ckpt_path=str(checkpoint))
    end = load(folder / "epoch=2.ckpt")
    assert end["epoch"] == 2
    assert end["global_step"] == 18
    assert "MixedPrecision" in end
    for state in end["callbacks"].values():
        for key in [key for key in state if "path" in key or "dir" in key or key == "best_k_models"]:
            del state[key]
    return end
