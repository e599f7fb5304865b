"""The page about the format shows what the code writes."""

import re
from pathlib import Path

from ckpttool import structures
from ckpttool.structures import builders, properties
from ckpttool.structures.scalars import PLAIN_TAGS
from ckpttool.values import ORDERED_DICT, GlobalRef, Record
from tests.structures.trees import scalar, storage, view

_PAGE = Path(__file__).parents[2] / "docs" / "formats" / "structure.md"


def example() -> str:
    """A small training checkpoint: tied weights, an optimizer, a scheduler's object."""
    weights = Record(ORDERED_DICT)
    embedding = storage(24)
    weights["embed.weight"] = view(embedding, "float32", (2, 3))
    weights["norm.bias"] = view(storage(6, location="cuda:0"), "bfloat16", (3,))
    weights["head.weight"] = view(embedding, "float32", (2, 3))
    moments = {"step": view(storage(4), "float32", ()), "exp_avg": view(storage(24), "float32", (3, 2), stride=(1, 3))}
    tree = {
        "model": weights,
        "optimizer": {"state": {0: moments}, "param_groups": [{"lr": 3e-4, "betas": (0.9, 0.999), "params": [0]}]},
        "best": scalar("<f8", bytes.fromhex("000000000000e83f")),
        "run": GlobalRef("my_project.runs", "Baseline"),
    }
    parts = (
        structures.Part(document=structures.MAIN, tensors="state.safetensors"),
        structures.Part(path=("model",), tensors="model.safetensors"),
        structures.Part(path=("optimizer",), tensors="optimizer.safetensors"),
    )
    made = structures.encode(tree, name="last.pt", container="torch-zip", protocol=2, parts=parts)
    return "".join(made.main.text())


def test_the_example_is_what_is_written() -> None:
    """It is made by `example` in this file."""
    shown = re.search(r"```json\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == example()


def test_every_tag_and_every_property_is_explained() -> None:
    """None is missing on the page."""
    page = _PAGE.read_text(encoding="utf-8")
    tags = {*builders.BUILDERS, *PLAIN_TAGS, "$ref", "$file", "$below", "$tensor", "$id"} - {"list", "dict"}
    assert [tag for tag in sorted(tags) if tag not in page] == []
    assert [name for name in properties.PROPERTIES if f"`{name}`" not in page] == []
