"""What `diff` pairs with what: reordered models, nested ones, wrapped modules, folders that lack a file."""

import shutil

import pytest
import torch
from safetensors.torch import save_file

import ckpttool
from ckpttool.commands._diff.unused import unused_maps
from ckpttool.comparison.parts import Choices
from ckpttool.comparison.sameness import Sameness
from ckpttool.errors import UnsupportedFormat, UsageError
from ckpttool.model import At, Role, Weights
from tests.commands.test_diff import text
from tests.comparison.made import checkpoint, optimizer, ref
from tests.conftest import FIXTURES


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, which every test works in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(order):
    """A model whose layers come in this order, with an optimizer whose state tells the layers apart."""
    model = torch.nn.Module()
    for name in order:
        model.add_module(name, torch.nn.Linear(3, 3))
    made = torch.optim.AdamW(model.parameters())
    for name, parameter in model.named_parameters():
        parameter.data.fill_(ord(name[0]))
        parameter.grad = torch.full_like(parameter, ord(name[0]))
    made.step()
    return {"model": model.state_dict(), "optimizer": made.state_dict()}


def test_a_model_whose_layers_were_reordered():
    """Its optimizer is paired by the names that the model gives; the places, by which torch loads, are a difference."""
    torch.save(trained("abc"), "a.pt")
    torch.save(trained("cab"), "b.pt")
    report = ckpttool.diff("a.pt", "b.pt")
    assert report.verdict is Sameness.DIFFERENT
    optimizer = [*report.document()["parts"]][1]
    assert {change["key"][-1] for change in optimizer["changes"]} == {".place"}
    assert "matched by name, assumed from the order of each model" in text(report)
    matched = [part["matched_by"] for part in report.document()["parts"]]
    assert matched == [None, "assumed name"]


@pytest.mark.parametrize("order", [reversed, sorted])
def test_a_state_dict_whose_keys_were_reordered(order):
    """The optimizer stayed as it is, and so does the answer."""
    whole = trained("cab")
    torch.save(whole, "a.pt")
    torch.save({**whole, "model": {k: whole["model"][k] for k in order(list(whole["model"]))}}, "b.pt")
    report = ckpttool.diff("a.pt", "b.pt")
    assert (report.verdict, "assumed" in text(report)) == (Sameness.IDENTICAL, False)


def test_a_tensor_that_is_none_on_one_side():
    """The others are compared as ever."""
    torch.save({"w": torch.ones(2)}, "a.pt")
    torch.save({"w": torch.ones(2), "x": None}, "b.pt")
    (part,) = ckpttool.diff("a.pt", "b.pt").parts
    assert ([r.name for r in part.tensors], [c.path for c in part.changes]) == (["w"], [("x",)])


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ({"a.b": 1}, {"a": {"b": 1}}),
        ({"encoder.weight": 1, "decoder.weight": 2}, {"encoder": {"weight": 1}, "decoder": {"weight": 2}}),
        ({"encoder.l.weight": 1, "decoder.weight": 2}, {"encoder": {"l": {"weight": 1}}, "decoder": {"weight": 2}}),
    ],
)
def test_nested_dicts_are_dotted_names(flat, nested):
    """In files that torch saved, from both sides."""

    def filled(tree):
        return {k: filled(v) if isinstance(v, dict) else torch.full((2, 2), float(v)) for k, v in tree.items()}

    torch.save(filled(flat), "a.pt")
    torch.save(filled(nested), "b.pt")
    for sides in (("a.pt", "b.pt"), ("b.pt", "a.pt")):
        report = ckpttool.diff(*sides)
        assert report.verdict is Sameness.IDENTICAL
        assert "are held against dotted names" in text(report)
    assert ckpttool.diff("a.pt", "b.pt", no_align=True).exit_code == 1


class Wrapper(torch.nn.Module):
    """As DistributedDataParallel holds its module."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_wrapped_whole_module_against_a_plain_one():
    """What its modules say of themselves is paired as their tensors are."""
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.1))
    torch.save(inner, "a.pt")
    torch.save(Wrapper(inner), "b.pt")
    for sides in (("a.pt", "b.pt"), ("b.pt", "a.pt")):
        assert ckpttool.diff(*sides).verdict is Sameness.IDENTICAL
    inner[1].p = 0.2
    torch.save(Wrapper(inner), "b.pt")
    (part,) = ckpttool.diff("a.pt", "b.pt").parts
    assert [(c.path, c.left, c.right) for c in part.changes] == [(("1.__dict__", "p"), 0.1, 0.2)]


def test_a_map_without_effect_is_said():
    """In text and in JSON; it is no error."""
    torch.save({"backbone.w": torch.ones(2)}, "a.pt")
    torch.save({"model.w": torch.ones(2)}, "b.pt")

    def notes(*maps):
        report = ckpttool.diff("a.pt", "b.pt", map=list(maps))
        assert all(note in text(report) for note in report.notes)
        return report.document()["notes"]

    assert notes("backbone=model") == []
    assert notes("back=x", "xbone=model") == []
    assert notes("bakbone=model") == ["--map 'bakbone=model' matches no name"]
    assert notes("model=backbone") == [
        "--map 'model=backbone' matches no name of the left side; the right side has some"
    ]
    assert notes("backbone=body") == ["--map 'backbone=body' gives no name that the right side has"]
    with pytest.raises(UsageError, match="--map and --no-align do not go together"):
        ckpttool.diff("a.pt", "b.pt", map=["a=b"], no_align=True)


def test_a_map_for_other_names_than_those_of_tensors():
    """Extra entries and parameters of optimizers have names too."""
    side = checkpoint(
        weights=(Weights(at=At(""), role=Role.MODEL, tensors={"w": ref(torch.ones(1))}, extra={"x._extra_state": 1}),),
        optimizers=(optimizer((0, 1), names={0: "fc.w"}),),
    )
    for old, said in (("fc", []), ("^x", []), ("q", ["--map 'q=q' matches no name"])):
        assert [*unused_maps(side, side, Choices(maps=(f"{old}={old.strip('^')}",)))] == said


@pytest.mark.parametrize(
    ("place", "file", "roles"),
    [
        ("accelerate/run/checkpoints/checkpoint_1", "random_states_0.pkl", {Role.RNG, Role.PROGRESS}),
        ("accelerate/run/checkpoints/checkpoint_1", "optimizer.bin", {Role.OPTIMIZER}),
        ("hf_trainer/bert/checkpoint-4", "trainer_state.json", {Role.PROGRESS, Role.CUSTOM}),
        ("hf_trainer/bert/checkpoint-4", "rng_state.pth", {Role.RNG}),
    ],
)
def test_a_folder_that_lacks_one_file_lacks_one_part(tmp_path, place, file, roles):
    """The others stay in their roles, and equal."""
    shutil.copytree(FIXTURES / place, tmp_path / "b")
    (tmp_path / "b" / file).unlink()
    report = ckpttool.diff(FIXTURES / place, tmp_path / "b")
    assert {p.role for p in report.parts if p.differs(report.choices)} == roles
    assert all(p.side == "left" for p in report.parts if p.differs(report.choices))
    assert report.left.layout == report.right.layout
    said = [note for note in report.notes if file in note]
    assert len(said) == (file != "rng_state.pth")


def test_shards_whose_index_is_missing_are_the_same_model(here):
    """What is missing is said."""
    whole = {"a.w": torch.ones(2), "b.w": torch.zeros(3)}
    save_file(whole, "whole.safetensors")
    shards = here / "shards"
    shards.mkdir()
    for n, name in enumerate(whole, 1):
        save_file({name: whole[name]}, shards / f"model-0000{n}-of-00002.safetensors")
    report = ckpttool.diff("whole.safetensors", shards)
    assert (report.verdict, len(report.parts)) == (Sameness.IDENTICAL, 1)
    assert [*report.notes] == ["the right side: the index of 2 shards is missing; they are read as one model"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_distributed_checkpoint_says_how_to_make_one_file_of_it(side):
    """Which side, why, and the next step."""
    folder = FIXTURES / "dcp/fsdp2_two_process"
    torch.save({"w": torch.ones(2)}, "a.pt")
    with pytest.raises(
        UnsupportedFormat, match=rf"the {side} side: a torch.distributed.checkpoint of .* tensors"
    ) as found:
        ckpttool.diff(*(("a.pt", folder) if side == "right" else (folder, "a.pt")))
    assert "dcp_to_torch" in found.value.hint
    assert found.value.where == str(folder)


def test_a_run_of_one_checkpoint_names_it(here):
    """There is one, but it is not the folder itself."""
    shutil.copytree(FIXTURES / "accelerate/run/checkpoints/checkpoint_1", here / "run/checkpoint_1")
    with pytest.raises(UsageError, match="the left side holds 1 checkpoint, in a folder below or as a file") as found:
        ckpttool.diff("run", "run/checkpoint_1")
    assert "ckpt diff run/checkpoint_1" in found.value.hint
