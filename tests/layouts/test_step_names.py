"""Steps in the names of files and folders."""

import pytest

from ckpttool.layouts import is_trainer_folder, says_step, step_in_name


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500), ("checkpoint_3", 3), ("global_step3", 3), ("global_step3_universal", 3), ("step-2", 2),
        ("iter_0000010", 10), ("epoch=1-step=8.ckpt", 8), ("ep1-ba4-rank0.pt", 4), ("epoch_7.pth", 7), ("model_100.pt", 100),
        ("100", 100), ("last.ckpt", None), ("model-00001-of-00003.safetensors", None), ("tmp-checkpoint-12", 12),
        ("ckpt_step_1000.pt", 1000), ("step" + "9" * 40, 10**18 - 1),
    ],
)  # fmt: skip
def test_the_number_that_counts_steps(name, step):
    """Of several numbers the one that counts steps; shards are no steps."""
    assert step_in_name(name) == step


def test_folders_of_a_run():
    """A folder belongs to a run where its name has a word for steps, or is a number."""
    assert says_step("1000")
    assert says_step("epoch_3")
    assert not says_step("mp_rank_00")
    assert not says_step("optimizer_0")
    assert is_trainer_folder("checkpoint-500")
    assert is_trainer_folder("tmp-checkpoint-500")
    assert not is_trainer_folder("checkpoint")
