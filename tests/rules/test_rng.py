"""`rng.missing`, `rng.world-size`."""

import random
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from ckpttool.facts import ScriptFacts
from ckpttool.rules.rng_missing import RngMissing
from ckpttool.rules.rng_world_size import RngWorldSize
from tests.rules.held import against, alone, brief, edited, said

TWO = "accelerate/two_process"


def script(path, **more):
    """What a script saves: model, optimizer, step, and what is given."""
    model = nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters())
    torch.save({"model": model.state_dict(), "optimizer": adam.state_dict(), "step": 1, **more}, path)
    return path


@pytest.fixture
def two(fixtures_dir, tmp_path):
    """A folder that two processes saved."""
    return shutil.copytree(fixtures_dir / TWO, tmp_path / "two")


@pytest.fixture
def bert(fixtures_dir, tmp_path):
    """A Trainer's folder."""
    return shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", tmp_path / "checkpoint-4")


def test_rank_missing(two):
    """Of two ranks the first is missing: rank 0 goes on with other numbers, and nobody says so."""
    assert alone(RngMissing(), two) == []
    (two / "random_states_0.pkl").unlink()
    (finding,) = alone(RngMissing(), two)
    assert (finding.severity, finding.where) == ("silent", "random_states_0.pkl")
    assert finding.message.startswith("random_states_0.pkl is missing of 2 ranks: the random generators do not go on")


def test_all_missing(two):
    """Accelerate always saves them, so that none at all is silent too."""
    for file in two.glob("random_states_*.pkl"):
        file.unlink()
    (finding,) = alone(RngMissing(), two)
    assert (finding.severity, finding.where) == ("silent", "random_states_0.pkl")
    assert "missing of 1 rank:" in finding.message


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
def test_accelerate_says_nothing(tmp_path):
    """Accelerate loads a folder without random states, and the generators stay where the program had them."""
    from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

    run = Run(0)
    run.train(1)
    run.accelerator.save_state(f"{tmp_path}/c")
    (tmp_path / "c/random_states_0.pkl").unlink()
    assert brief(alone(RngMissing(), tmp_path / "c")) == [("silent", "random_states_0.pkl")]
    other = Run(7)
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    other.accelerator.load_state(str(tmp_path / "c"))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (np.random.get_state()[1] == before[2]).all()  # noqa: NPY002
    assert other.accelerator.step == 0


def test_trainer(bert):
    """A Trainer's folder with an optimizer and without rng_state.pth; one of weights alone needs none."""
    assert alone(RngMissing(), bert) == []
    (bert / "rng_state.pth").unlink()
    (finding,) = alone(RngMissing(), bert)
    assert (finding.severity, finding.where) == ("silent", "rng_state.pth")
    for name in ("optimizer.pt", "scheduler.pt", "scaler.pt"):
        (bert / name).unlink()
    assert alone(RngMissing(), bert) == []


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
def test_trainer_ranks(bert):
    """The Trainer's arguments say how many processes there were, and each looks for a file of its own."""
    from transformers import Trainer  # noqa: PLC0415

    def of_two(settings):
        settings.distributed_state.num_processes = 2

    edited(bert / "training_args.bin", bert / "training_args.bin", of_two)
    (finding,) = alone(RngMissing(), bert)
    assert finding.message.startswith(
        "rng_state_0.pth, rng_state_1.pth are missing of 2 ranks (training_args.bin says 2)"
    )
    shutil.copy(bert / "rng_state.pth", bert / "rng_state_0.pth")
    assert brief(alone(RngMissing(), bert)) == [("silent", "rng_state_1.pth")]
    trainer = Trainer.__new__(Trainer)
    trainer.args = type("Arguments", (), {"world_size": 2, "process_index": 1})()
    before = torch.get_rng_state()
    trainer._load_rng_state(str(bert))  # says nothing but a line at INFO
    assert torch.equal(torch.get_rng_state(), before)
    shutil.copy(bert / "rng_state.pth", bert / "rng_state_1.pth")
    assert alone(RngMissing(), bert) == []


def test_shards_say_the_ranks(two):
    """Files of DCP by rank say that there were three processes."""
    (two / "optimizer_0").mkdir()
    for rank in range(3):
        (two / f"optimizer_0/__{rank}_0.distcp").write_bytes(b"x")
    (finding,) = alone(RngMissing(), two)
    assert finding.message.startswith("random_states_2.pkl is missing of 3 ranks (3 files of shards say 3)")


def test_fewer_than_siblings(fixtures_dir, tmp_path):
    """A sibling with random states of more ranks is a warning: fewer processes may have saved."""
    run = shutil.copytree(fixtures_dir / "accelerate/run/checkpoints", tmp_path / "checkpoints")
    assert alone(RngMissing(), run, run="checkpoint_2") == []
    shutil.copy(run / "checkpoint_1/random_states_0.pkl", run / "checkpoint_1/random_states_1.pkl")
    assert brief(alone(RngMissing(), run, run="checkpoint_2")) == [("warning", "random_states_1.pkl")]
    assert alone(RngMissing(), run, run="checkpoint_1") == []


def test_trainer_of_more_ranks_before(fixtures_dir, tmp_path):
    """A single file of random states beside a sibling of two ranks."""
    run = shutil.copytree(fixtures_dir / "hf_trainer/bert", tmp_path / "bert")
    for rank in range(2):
        shutil.copy(run / "checkpoint-2/rng_state.pth", run / f"checkpoint-2/rng_state_{rank}.pth")
    assert brief(alone(RngMissing(), run, run="checkpoint-4")) == [("warning", "rng_state_1.pth")]


def test_scripts(tmp_path, fixtures_dir):
    """A script that saved none is a warning, a trainer that never does a note; loose files and weights are nothing."""
    (finding,) = alone(RngMissing(), script(tmp_path / "c.pt"))
    assert finding.severity == "warning"
    assert alone(RngMissing(), script(tmp_path / "r.pt", rng={"torch": torch.get_rng_state()})) == []
    (note,) = alone(RngMissing(), fixtures_dir / "lightning/fp16_scaler/last.ckpt")
    assert note.severity == "note"
    assert note.message.endswith("the trainer saves none by itself")
    assert alone(RngMissing(), fixtures_dir / "plain/weights.pt") == []
    assert alone(RngMissing(), fixtures_dir / "optimizers/AdamW.pt") == []
    assert alone(RngMissing(), fixtures_dir / "dcp/single") == []


def cuda(count):
    return [torch.zeros(16, dtype=torch.uint8) for _ in range(count)]


def with_cuda(folder, rank, count):
    file = folder / f"random_states_{rank}.pkl"
    edited(file, file, lambda states: states.update(torch_cuda_manual_seed=cuda(count)))


def test_other_devices_by_rank(two):
    """Ranks with states of different numbers of CUDA devices."""
    assert alone(RngWorldSize(), two) == []
    with_cuda(two, 0, 2)
    with_cuda(two, 1, 2)
    assert alone(RngWorldSize(), two) == []
    with_cuda(two, 1, 1)
    (finding,) = alone(RngWorldSize(), two)
    assert (finding.severity, finding.where) == ("warning", "random_states_0.pkl")
    assert "(rank 0: 2, rank 1: 1)" in finding.message


def test_fewer_states_than_devices(tmp_path):
    """Tensors that lay on a device beyond those that have a state."""
    path = script(tmp_path / "c.pt", rng={"cuda": cuda(2)})
    assert alone(RngWorldSize(), path) == []
    from ckpttool import convert  # noqa: PLC0415

    convert(str(path), str(tmp_path / "g.pt"), map_location="cuda:3")
    (finding,) = alone(RngWorldSize(), tmp_path / "g.pt")
    assert finding.message == "tensors lay on cuda:3, and states of 2 CUDA devices are there"


def test_against_another(two, fixtures_dir, tmp_path):
    """Random states of another number of processes or devices than the other checkpoint has."""
    one = shutil.copytree(fixtures_dir / "accelerate/run/checkpoints/checkpoint_2", tmp_path / "one")
    (finding,) = against(RngWorldSize(), one, two)
    assert (finding.severity, finding.where) == ("warning", "random_states_0.pkl")
    assert finding.message == "it holds random states of 1 rank, the other checkpoint of 2"
    assert against(RngWorldSize(), two, two) == []
    with_cuda(one, 0, 4)
    assert "4 CUDA devices" in said(against(RngWorldSize(), one, two))
    assert alone(RngWorldSize(), fixtures_dir / "plain/weights.pt") == []


def test_for_a_script(two, tmp_path):
    """More processes than have a file are silent, fewer a warning."""
    assert brief(alone(RngWorldSize(), two, facts=ScriptFacts(world_size=4))) == [("silent", "random_states_0.pkl")]
    assert brief(alone(RngWorldSize(), two, facts=ScriptFacts(world_size=1))) == [("warning", "random_states_0.pkl")]
    assert alone(RngWorldSize(), two, facts=ScriptFacts(world_size=2)) == []
    path = script(tmp_path / "r.pt", rng={"torch": torch.get_rng_state()})
    assert alone(RngWorldSize(), path, facts=ScriptFacts(world_size=2)) == []
