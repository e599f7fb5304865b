"""Values that no trainer writes: rules pass them over, and nothing but an error of ours leaves them."""

import json
import shutil
from contextlib import closing

import pytest
import torch
from torch import nn

from ckpttool.errors import FileChanged
from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked, Scan
from ckpttool.rules import RULES
from ckpttool.rules.ema_equal import EmaEqual
from ckpttool.rules.model_tied import Tied
from tests.conversion.runs import net
from tests.rules.held import against, alone, edited

HUGE = 10**5000
STRANGE = [HUGE, -HUGE, float("nan"), float("inf"), "x" * 10_000, [[1]], {"a": {}}, None, (1,), b"x", {1, 2}, True]
KEYS = (
    "fp16", "bf16", "mixed_precision", "precision", "dtype", "amp_dtype", "use_ema", "ema_decay", "model_ema", "vocab_size",
    "tie_word_embeddings", "architectures", "peft_type", "r", "rank_pattern", "target_modules", "distributed_state",
    "restore_callback_states_from_checkpoint",
)  # fmt: skip
ROOMS = ("model.", "scaler.", "rng.", "ema.", "callback.", "lightning.", "data.workers", "container.custom-count")
MINE = [rule for rule in RULES if rule.code.startswith(ROOMS)]


class Odd:
    """An object of a class of its own that holds itself."""

    def __init__(self):
        self.me = self


def script(path, value):
    """A checkpoint in which everything is strange."""
    model = nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters())
    scaler = {
        **torch.amp.GradScaler("cpu").state_dict(),
        "_growth_tracker": value,
        "growth_interval": value,
        "scale": value,
    }
    main = {"_num_workers": value}
    loader = {"_snapshot": {"_main_snapshot": main, "_worker_snapshots": {value: 1} if hashable(value) else value,
                            "_last_yielded_worker_id": value}, "_steps_since_snapshot": value}  # fmt: skip
    torch.save(
        {"model": model.state_dict(), "ema": {"shadow": model.state_dict(), "num_updates": value}, "step": value,
         "optimizer": adam.state_dict(), "args": dict.fromkeys(KEYS, value), "scaler": scaler, "dataloader": loader,
         "rng": value},
        path,
    )  # fmt: skip
    return path


def hashable(value):
    try:
        hash(value)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("value", [*STRANGE, Odd()], ids=lambda v: type(v).__name__)
def test_scripts(tmp_path, value):
    """Strange numbers and types where rules look."""
    path = script(tmp_path / "c.pt", value)
    torch.save({"model": net().state_dict()}, tmp_path / "o.pt")
    for rule in MINE:
        for finding in [*alone(rule, path, values=True), *against(rule, path, tmp_path / "o.pt", values=True)]:
            assert finding.code == rule.code


@pytest.mark.parametrize("value", [*STRANGE, Odd()], ids=lambda v: type(v).__name__)
def test_lightning(tmp_path, fixtures_dir, value):
    """Strange keys and values of a Lightning file."""

    def change(file):
        file["pytorch-lightning_version"] = file["loops"]["fit_loop"] = file["lr_schedulers"] = value
        file["callbacks"] = {value: value, "A{'x': 1}": value} if hashable(value) else value

    source = fixtures_dir / "lightning/ema/last.ckpt"
    path = edited(source, tmp_path / "c.ckpt", change)
    for rule in MINE:
        for finding in [*alone(rule, path), *against(rule, path, source), *against(rule, source, path)]:
            assert finding.code == rule.code


@pytest.mark.parametrize("value", [HUGE % 10**4000, 1e308, "x", [[1]], {"a": {}}, None, True])
def test_json(tmp_path, fixtures_dir, value):
    """Strange values in the JSON files of a Trainer's folder."""
    folder = shutil.copytree(fixtures_dir / "hf_trainer/lora/checkpoint-4", tmp_path / "checkpoint-4")
    text = json.dumps(value)
    for name, keys in (
        ("adapter_config.json", KEYS),
        ("config.json", KEYS),
        ("trainer_state.json", ("stateful_callbacks",)),
    ):
        (folder / name).write_text("{" + ", ".join(f'"{key}": {text}' for key in keys) + "}")
    for rule in MINE:
        for finding in alone(rule, folder, values=True):
            assert finding.code == rule.code


def test_values_that_cannot_be_read(tmp_path):
    """Tensors that unroll beyond the limits are not compared, which is said and stops nothing."""
    wide = torch.zeros(1).expand(10**12)
    adam = torch.optim.AdamW(nn.Linear(2, 2).parameters())
    path = tmp_path / "c.pt"
    torch.save(
        {
            "model": {"a.weight": wide},
            "ema": {"a.weight": torch.ones(1).expand(10**12)},
            "optimizer": adam.state_dict(),
        },
        path,
    )
    shared = torch.zeros(1).expand(10**12)
    torch.save({"model": {"a.weight": shared, "b.weight": shared}}, tmp_path / "tied.pt")
    torch.save({"model": {"a.weight": wide, "b.weight": torch.ones(1).expand(10**12)}}, tmp_path / "apart.pt")
    with (
        closing(open_path(path)) as one,
        closing(open_path(tmp_path / "apart.pt")) as apart,
        closing(open_path(tmp_path / "tied.pt")) as tied,
    ):
        cases = [
            (EmaEqual(), Case(checkpoint=one, values=Scan())),
            (Tied(), Case(checkpoint=apart, other=tied, values=Scan())),
        ]
        for rule, case in cases:
            (found,) = rule.check(case)
            assert isinstance(found, NotChecked)
            assert found.why.startswith("values could not be read: ")


def test_file_that_changes(tmp_path):
    """A file that is written to while it is read is an error of the whole, not of one rule."""
    path, other = tmp_path / "apart.pt", tmp_path / "tied.pt"
    torch.save({"model": net().state_dict(), "ema": net(1).state_dict()}, path)
    torch.save({"model": net(tied=True).state_dict()}, other)
    for rule in (EmaEqual(), Tied()):
        with closing(open_path(path)) as one, closing(open_path(other)) as tied:
            path.write_bytes(path.read_bytes()[:200])
            with pytest.raises(FileChanged):
                list(rule.check(Case(checkpoint=one, other=tied, values=Scan())))
        torch.save({"model": net().state_dict(), "ema": net(1).state_dict()}, path)
