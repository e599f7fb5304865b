"""Layouts do not claim each other's checkpoints."""

from pathlib import Path

import pytest

from ckpttool import containers
from ckpttool.layouts import LAYOUTS
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.opening.files import FolderFiles
from ckpttool.protocols import Found
from ckpttool.sources import FileSource, Folder

CLAIMED = {
    "accelerate/run/checkpoints/checkpoint_0": ["accelerate"],
    "accelerate/two_models": ["accelerate"],
    "accelerate/sharded_bin": [],
    "hf_trainer/bert/checkpoint-4": ["hf-trainer", "hf-model"],
    "hf_trainer/lora/checkpoint-4": ["hf-trainer", "peft"],
    "hf_model": ["hf-model"],
    "deepspeed/zero2_bf16/global_step3": ["deepspeed"],
    "dcp/single": ["dcp"],
    "lightning/fp16_scaler/last.ckpt": ["lightning"],
    "lightning/fabric.ckpt": [],
    "timm/last.pth.tar": ["timm"],
    "plain/nanogpt.pt": ["nanogpt"],
    "plain/train.pth": [],
    "plain/objects.pt": [],
}


def found_at(path: Path) -> Found:
    if path.is_dir():
        folder = Folder(path)
        return Found(
            path=str(path), folder=folder, open=FolderFiles(folder, DEFAULT_LIMITS).open, limits=DEFAULT_LIMITS
        )
    contents = containers.read(FileSource(path))
    return Found(path=str(path), contents=contents, open=lambda _: contents, limits=DEFAULT_LIMITS)


@pytest.mark.parametrize("place", CLAIMED)
def test_only_its_own_layout_claims_a_checkpoint(fixtures_dir, place):
    """The Trainer's folder is a model's folder with more in it, so it is asked first; the last layout takes all."""
    found = found_at(fixtures_dir / place)
    claims = [layout.name for layout in LAYOUTS if layout.recognise(found) is not None]
    assert claims == [*CLAIMED[place], "plain"]


def test_layouts_have_names_of_their_own():
    """They are what `layout` says in a report."""
    names = [layout.name for layout in LAYOUTS]
    assert len(set(names)) == len(names)
    assert names[-1] == "plain"
