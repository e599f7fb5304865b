"""Words of keys and file names."""

import pytest

from ckpttool.layouts import _words as words
from ckpttool.layouts._spots import key_text
from ckpttool.model import Role


@pytest.mark.parametrize(
    "key",
    [
        "ema",
        "model_ema",
        "ema_model",
        "state_dict_ema",
        "EMA",
        "averaged_model",
        "shadow",
        "swa_model",
        "average_model_state",
    ],
)
def test_keys_of_averaged_copies(key):
    """Trainers call an averaged copy by these names."""
    assert words.is_ema(key)


@pytest.mark.parametrize("key", ["model", "schema", "semantic", "dilemma", "gemma"])
def test_ema_inside_a_word_is_no_averaged_copy(key):
    """`schema` is not an averaged copy."""
    assert not words.is_ema(key)


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("epoch", "epoch"), ("iter_num", "global_step"), ("global_step", "global_step"), ("step", "step"),
        ("best_metric", "best"), ("best_val_loss", "best"), ("best_epoch", "best_step"), ("num_input_tokens_seen", "tokens"),
        ("Epoch", "epoch"), ("learning_rate", ""),
    ],
)  # fmt: skip
def test_counters_have_one_word_of_ours(key, word):
    """Whatever a trainer calls it, a counter has one word here, and other keys have none."""
    assert words.counter(key) == word


@pytest.mark.parametrize(
    ("file", "role"),
    [
        ("scaler.pt", Role.SCALER), ("out/optimizer.bin", Role.OPTIMIZER), ("scheduler.pt", Role.SCHEDULER),
        ("random_states_0.pkl", Role.RNG), ("rng_state.pth", Role.RNG), ("dl_state_dict.bin", Role.DATA),
        ("custom_checkpoint_0.pkl", Role.CUSTOM), ("training_args.bin", Role.CONFIG), ("config.json", Role.CONFIG),
        ("model_ema.pt", Role.EMA), ("model.safetensors", Role.MODEL), ("trainer_state.json", Role.PROGRESS),
        ("latest", Role.PROGRESS), ("README.md", Role.OTHER),
    ],
)  # fmt: skip
def test_a_file_name_says_what_it_is_for(file, role):
    """By its stem, for files whose content does not tell."""
    assert words.role_of_file(file) is role


def test_lists_of_names_are_cut():
    """Five names fit a line; the others are counted."""
    assert words.some(["a", "b"]) == "a, b"
    assert words.some(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert (words.count(1, "file"), words.count(1_024, "file")) == ("1 file", "1,024 files")


def test_models_are_told_from_layers():
    """`netG` is a model; `net.0` is a layer's path."""
    assert words.is_model("netG")
    assert not words.is_model("net.0")
    assert words.is_shard("model-00001-of-00003.safetensors")
    assert not words.is_shard("model_1.safetensors")


def test_a_key_of_thousands_of_digits_has_a_name():
    """Python refuses to spell such an integer in decimal; a hostile file may have it as a key."""
    assert key_text(7) == "7"
    assert key_text(1 << 20_000) == hex(1 << 20_000)
