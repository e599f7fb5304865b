"""`scaler.fields`: states of GradScaler with one thing changed, said and really loaded."""

import math

import pytest
import torch

from tests.rules.loops import Loop, said, saved


def state(**changes):
    found = {**torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3).state_dict(), **changes}
    return {k: v for k, v in found.items() if v is not ...}


def stepped(kept):
    """The name of what a load or the steps after it raise; else the scale, and whether weights moved to numbers."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    adam, made = torch.optim.AdamW(model.parameters(), 1e-2), torch.amp.GradScaler("cpu")
    before = model.weight.detach().clone()
    try:
        made.load_state_dict(kept)
        for _ in range(5):
            adam.zero_grad()
            made.scale(model(torch.ones(4, 3)).pow(2).mean()).backward()
            made.step(adam)
            made.update()
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return type(error).__name__
    return made.get_scale(), bool(model.weight.isfinite().all()) and not torch.equal(before, model.weight)


RAISES = [
    *((key, ..., "KeyError") for key in state()),
    *((key, None, "TypeError") for key in state()),
    *((key, "x", "TypeError") for key in state()),
    ("scale", 1e39, "RuntimeError"),
    ("scale", 10**30, "OverflowError"),
    ("growth_interval", 3.0, "TypeError"),
    ("growth_interval", True, "TypeError"),
    ("growth_interval", 10**30, "ValueError"),
    ("_growth_tracker", math.nan, "RuntimeError"),
    ("_growth_tracker", 10**30, "OverflowError"),
]


@pytest.mark.parametrize(("key", "value", "raised"), RAISES)
def test_raises(tmp_path, key, value, raised):
    """torch raises what the finding names."""
    kept = state(**{key: value})
    assert stepped(kept) == raised
    ((severity, where, words),) = said("scaler.fields", saved(Loop(None).content(scaler=kept), tmp_path))
    assert (severity, where) == ("error", f"scaler.{key}")
    assert raised in words


@pytest.mark.parametrize(("key", "value", "severity"), [
    ("growth_factor", 0.0, "silent"), ("backoff_factor", 2.0, "silent"), ("backoff_factor", math.nan, "silent"),
    ("growth_factor", math.nan, "warning"), ("growth_interval", 0, "warning"), ("growth_factor", 0.5, "warning"),
])  # fmt: skip
def test_factors_that_spoil_the_scale(tmp_path, key, value, severity):
    """A factor of 0 makes weights NaN when the scale should grow; others keep it from growing or falling."""
    kept = state(**{key: value})
    if key == "growth_factor" and value == 0:
        assert stepped(kept) == (0.0, False)
    assert [s for s, _, _ in said("scaler.fields", saved(Loop(None).content(scaler=kept), tmp_path))] == [severity]


@pytest.mark.parametrize("value", [math.inf, math.nan, 0.0])
def test_scale_with_which_nothing_is_learnt(tmp_path, value):
    """Every step is skipped, or makes weights NaN, and nothing is said."""
    kept = state(scale=value)
    assert stepped(kept)[1] is False
    assert [s for s, _, _ in said("scaler.collapsed", saved(Loop(None).content(scaler=kept), tmp_path))] == ["silent"]


def test_states_that_are_right(tmp_path):
    """As torch wrote it, with a scale kept as a tensor, and disabled."""
    for kept in (state(), state(scale=torch.tensor(512.0)), state(growth_factor=1.0), {}):
        assert said("scaler.fields", saved(Loop(None).content(scaler=kept), tmp_path)) == []


def test_empty_state_of_lightning(tmp_path, fixtures_dir):
    """Lightning writes the key only with a scale in it."""
    content = torch.load(fixtures_dir / "lightning/ema/last.ckpt", weights_only=False)
    content["MixedPrecision"] = {}
    ((severity, where, words),) = said("scaler.empty", saved(content, tmp_path, "a.ckpt"))
    assert (severity, where) == ("error", "MixedPrecision")
    assert "RuntimeError" in words
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        torch.amp.GradScaler("cpu").load_state_dict({})
