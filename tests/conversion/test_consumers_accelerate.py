"""Accelerate loads the folders that come out, and goes on as from the one that went in."""

from importlib.util import find_spec

import pytest
import torch

from tests.canonical import first_difference
from tests.conversion.accelerate_runs import Run, resumed
from tests.conversion.runs import alone, converted

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks about themselves
]


@pytest.fixture(scope="module", params=[1, 2])
def saved(request, tmp_path_factory):
    """A folder, of how many models, and how the run goes on from it."""
    models, folder = request.param, tmp_path_factory.mktemp("accelerate") / "checkpoint_0"
    run = Run(5, models)
    run.train(3)
    run.save(folder)
    names = {path.name for path in folder.iterdir()}
    assert {"pytorch_model.bin", "sampler.bin", "scaler.pt", "custom_checkpoint_0.pkl", "random_states_0.pkl"} <= names
    assert ("pytorch_model_1.bin" in names) == (models == 2)
    return folder, models, resumed(folder, models)


def same(saved, folder):
    """A run resumed from a folder holds what one resumed from the original holds, and has the same losses."""
    _, models, (state, losses) = saved
    assert models * 4 == len(losses)
    mine, after = resumed(folder, models)
    assert first_difference(state, mine) is None
    assert losses == after


def test_weights_as_safetensors(saved, tmp_path):
    """The default: the weights become safetensors, the rest is as it was, and `load_state` takes it."""
    folder = converted(saved[0], f"{tmp_path}/safe/")
    names = {path.name for path in folder.iterdir()}
    assert "model.safetensors" in names
    assert not any(name.startswith("pytorch_model") for name in names)
    same(saved, folder)


def test_the_same_back(saved, tmp_path):
    """And back: the weights have their old names, and both tied names."""
    back = converted(converted(saved[0], f"{tmp_path}/safe/"), f"{tmp_path}/back/", to="torch")
    assert {path.name for path in back.iterdir()} == {path.name for path in saved[0].iterdir()}
    same(saved, back)


def test_everything_there_and_back(saved, tmp_path):
    """Every pickle becomes safetensors and JSON; back again each file is there, equal, and `load_state` takes it."""
    there = converted(saved[0], f"{tmp_path}/all/", everything=True)
    assert {path.suffix for path in there.iterdir()} == {".json", ".safetensors"}
    back = converted(there, f"{tmp_path}/back/", to="torch")
    assert {path.name for path in back.iterdir()} == {path.name for path in saved[0].iterdir()}
    for path in saved[0].iterdir():
        before, after = (torch.load(p, weights_only=False) for p in (path, back / path.name))
        assert first_difference(before, after) is None, path.name
    same(saved, back)


def test_a_process_without_the_package_loads_it(saved, tmp_path):
    """A new process that cannot import the package resumes to the same losses."""
    back = converted(converted(saved[0], f"{tmp_path}/all/", everything=True), f"{tmp_path}/back/", to="torch")
    code = (
        "import json\nfrom tests.conversion.accelerate_runs import resumed\n"
        "print(json.dumps(resumed(sys.argv[1], int(sys.argv[2]))[1]))"
    )
    assert alone(code, back, saved[1]) == saved[2][1]
    assert not any(b"ckpttool" in path.read_bytes() for path in back.iterdir())


def test_a_folder_that_accelerate_wrote_as_safetensors(tmp_path):
    """Such a folder becomes torch files that a model without tied weights loads, and goes back to what it was."""
    run = Run(5)
    run.train(2)
    run.accelerator.save_state(tmp_path / "safe")
    want = resumed(tmp_path / "safe")
    there = converted(tmp_path / "safe", f"{tmp_path}/all/", everything=True)
    back = converted(there, f"{tmp_path}/back/", to="torch")
    assert {path.name for path in back.iterdir()} == {path.name for path in (tmp_path / "safe").iterdir()}
    got = resumed(back)
    assert first_difference(want[0], got[0]) is None
    assert want[1] == got[1]


def test_shards_of_save_model(tmp_path):
    """`load_checkpoint_in_model` reads shards and their index, of whichever format."""
    from accelerate import load_checkpoint_in_model  # noqa: PLC0415  # it takes seconds

    run = Run(5, models=2)
    model = run.accelerator.unwrap_model(run.models[1])
    run.accelerator.save_model(model, tmp_path / "bin", max_shard_size="1KB", safe_serialization=False)
    assert len(list((tmp_path / "bin").iterdir())) > 3
    safe = converted(tmp_path / "bin", f"{tmp_path}/safe/")
    for folder in (safe, converted(safe, f"{tmp_path}/back/", to="torch")):
        fresh = Run(9, models=2).models[1]
        load_checkpoint_in_model(fresh, folder)
        assert first_difference(model.state_dict(), fresh.state_dict()) is None
