"""`rng.unusable`: states that generators do not take, tried with the generator and with each trainer."""

import random
import shutil
import struct
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from ckpttool.rules.load_weights_only import WeightsOnly
from ckpttool.rules.rng_missing import RngMissing
from ckpttool.rules.rng_unusable import RngUnusable
from tests.rules.held import alone, brief, edited
from tests.validation.resuming import raised, resume_with_trainer

TORCH = torch.get_rng_state()
PYTHON = random.Random(0).getstate()
NUMPY = np.random.RandomState(0).get_state()
SET = {"torch": torch.set_rng_state, "python": random.setstate, "numpy": np.random.set_state}


@pytest.fixture(autouse=True)
def _restored():
    """The generators of the tests are as they were."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    yield
    torch.set_rng_state(kept[0])
    random.setstate(kept[1])
    np.random.set_state(kept[2])  # noqa: NPY002


def words(convert):
    """Numpy's state with its words changed."""
    return (NUMPY[0], convert(NUMPY[1]), *NUMPY[2:])


def numbered(place, value):
    """Numpy's state with one of its numbers changed."""
    return tuple(value if n == place else kept for n, kept in enumerate(NUMPY))


STATES = {
    "torch": (
        TORCH, TORCH[:5048], TORCH[:16], TORCH[:0], torch.cat([TORCH, TORCH]), TORCH.view(1, -1),
        torch.stack([TORCH, TORCH], 1)[:, 0], TORCH.long(), TORCH.float(), TORCH.bool(), TORCH.to("meta"), TORCH.numpy(),
        None, 5, {}, bytes(3), "x", TORCH.tolist(),
    ),
    "python": (
        PYTHON, list(PYTHON), (2, *PYTHON[1:]), (2, list(PYTHON[1]), None), (1, *PYTHON[1:]), (True, *PYTHON[1:]),
        PYTHON[:2], (*PYTHON, 1), (), (3, list(PYTHON[1]), None), (3, PYTHON[1][:624], None), (3, (*PYTHON[1], 1), None),
        (3, (1.0, *PYTHON[1][1:]), None), (3, (-1, *PYTHON[1][1:]), None), (3, (2**70, *PYTHON[1][1:]), None),
        (3, (*PYTHON[1][:624], 625), None), (3, (*PYTHON[1][:624], -1), None), (3, None, None), (3, PYTHON[1], 0.5),
        None, 3, {}, "x",
    ),
    "numpy": (
        NUMPY, list(NUMPY), NUMPY[:3], NUMPY[:4], NUMPY[:2], (*NUMPY, 1), (), ("PCG64", *NUMPY[1:]),
        words(lambda w: w[:623]), words(lambda w: np.append(w, w)), words(lambda w: w.tolist()), words(lambda _: None),
        words(lambda w: w.reshape(2, 312)), words(lambda w: w.astype(np.int64)), words(lambda w: w.astype(np.int32)),
        words(lambda w: w.astype(np.float64)), words(torch.from_numpy), words(lambda w: w.astype(">u4")),
        numbered(2, None), numbered(2, "3"), numbered(2, 3.0), numbered(3, None), numbered(3, "x"), numbered(4, None),
        numbered(4, 0), np.random.RandomState(0).get_state(legacy=False), {}, None, 3, "MT19937",
    ),
}  # fmt: skip
CASES = [(generator, n) for generator, states in STATES.items() for n in range(len(states))]


@pytest.mark.parametrize(("generator", "index"), CASES, ids=[f"{g}-{n}" for g, n in CASES])
def test_a_script(tmp_path, generator, index):
    """What a script's file holds raises exactly what the finding says, and a state that is taken is not told of."""
    state = STATES[generator][index]
    torch.save({f"{generator}_rng_state": state}, tmp_path / "c.pt")
    found = alone(RngUnusable(), tmp_path / "c.pt")
    name, _ = raised(SET[generator], state)
    assert [str(f.severity) for f in found] == (["error"] if name else [])
    if name:
        assert found[0].where == f"{generator}_rng_state"
        assert found[0].message.endswith(f" raises {name}")


@pytest.mark.parametrize("state", [*(words(lambda w, t=t: w.astype(t)) for t in ("f4", "u1")), numbered(2, 700)])
def test_other_numbers(tmp_path, state):
    """numpy takes words that were rounded, and a position beyond them, and draws something else."""
    torch.save({"numpy_rng_state": state}, tmp_path / "c.pt")
    assert brief(alone(RngUnusable(), tmp_path / "c.pt")) == [("silent", "numpy_rng_state")]
    np.random.set_state(state)  # noqa: NPY002


def head(offset, form, value):
    """Torch's state with one of the numbers before its words changed."""
    data = bytearray(TORCH.tolist())
    struct.pack_into(form, data, offset, value)
    return torch.tensor(list(data), dtype=torch.uint8)


HEADS = {
    "all zero": torch.zeros_like(TORCH),
    "all ones": torch.full_like(TORCH, 255),
    **{f"left {n}": head(8, "<i", n) for n in (-1, 0, 1, 624, 625)},
    **{f"seeded {n}": head(12, "<i", n) for n in (0, 2)},
    **{f"next {n}": head(16, "<Q", n) for n in (0, 624, 625, 1 << 32)},
}


@pytest.mark.parametrize("name", HEADS)
def test_the_numbers_before_the_words(tmp_path, name):
    """torch looks at what is left, at the place of the next word and whether it was seeded, and at nothing else."""
    torch.save({"rng": {"torch": HEADS[name]}}, tmp_path / "c.pt")
    found = alone(RngUnusable(), tmp_path / "c.pt")
    exception, _ = raised(torch.set_rng_state, HEADS[name])
    assert [f.message.endswith(f"torch.set_rng_state raises {exception}") for f in found] == [True] * bool(exception)


BARE = ("rng", "rng_state", "random_state", "generator_state", "extra/rng")


@pytest.mark.parametrize("key", BARE)
@pytest.mark.parametrize(("generator", "index"), CASES, ids=[f"{g}-{n}" for g, n in CASES])
def test_keys_that_name_no_generator(tmp_path, key, generator, index):
    """Whose state it is is told by its form; where that tells nothing there is no error."""
    state = STATES[generator][index]
    outer, _, inner = key.partition("/")
    torch.save({outer: {inner: state} if inner else state, "step": 1}, tmp_path / "c.pt")
    found = alone(RngUnusable(), tmp_path / "c.pt")
    name, _ = raised(SET[generator], state)
    if not name:
        assert found == []
    for finding in found:
        if str(finding.severity) == "error":
            assert finding.message.endswith(f"{name}")


@pytest.mark.parametrize("state", [TORCH[:100].clone(), TORCH * 0, TORCH.long(), TORCH.numpy(), [TORCH, TORCH * 0]])
@pytest.mark.parametrize("key", [*BARE, "torch_rng", "cpu_rng_state"])
def test_states_of_torch_that_it_refuses(tmp_path, key, state):
    """Under whatever usual key: cut, zeroed, of another type."""
    outer, _, inner = key.partition("/")
    torch.save({outer: {inner: state} if inner else state, "step": 1}, tmp_path / "c.pt")
    (finding,) = alone(RngUnusable(), tmp_path / "c.pt")
    bad = state[1] if isinstance(state, list) else state
    assert (str(finding.severity), raised(torch.set_rng_state, bad)[0]) == ("error", finding.message.rsplit(" ", 1)[1])


@pytest.mark.parametrize("state", [None, TORCH.tolist(), TORCH[:16]])
def test_what_may_be_no_state_of_torch(tmp_path, state):
    """torch refuses it, and a script may look before, make a tensor of it, or give it to CUDA's generator."""
    torch.save({"rng": state, "step": 1}, tmp_path / "c.pt")
    assert brief(alone(RngUnusable(), tmp_path / "c.pt")) == [("warning", "rng")]
    assert raised(torch.set_rng_state, state)[0]


@pytest.mark.parametrize("state", [5, "x", torch.zeros(2, dtype=torch.uint32), {"seed": 3}, [TORCH[:16]]])
def test_seeds_and_keys_and_states_of_devices(tmp_path, state):
    """These are no states of torch on the CPU."""
    torch.save({"rng": state, "step": 1}, tmp_path / "c.pt")
    assert alone(RngUnusable(), tmp_path / "c.pt") == []


@pytest.mark.parametrize(
    "kept",
    [
        {"torch_rng_states": [TORCH, TORCH], "python_rng_states": [PYTHON, PYTHON]},  # by rank
        {"random_state": 42, "torch_seed": 1, "generator": {"weight": TORCH}, "rng_seed": 3},  # seeds and a GAN
        {"cuda_rng_state": None, "rng": {"cuda": [], "mps": None}},  # devices that were not there
        {"numpy_rng_state": np.random.default_rng(0).bit_generator.state, "np_rng": np.random.default_rng(0)},
        {"python_rng": random.Random(0), "rng_state": TORCH, 3: None, "rng": {}},
        {"cuda_rng_state": [TORCH[:16].clone()] * 2, "rng": {"cuda": TORCH[:8].clone()}},
    ],
)
def test_what_scripts_keep(tmp_path, kept):
    """Seeds, objects, states by rank and devices that were not there are nothing."""
    torch.save(kept, tmp_path / "c.pt")
    assert alone(RngUnusable(), tmp_path / "c.pt") == []


def test_devices(tmp_path):
    """A state of a CUDA device has 16 bytes; torch before 1.8 wrote 816."""
    torch.save({"rng": {"cuda": [torch.zeros(816, dtype=torch.uint8)]}, "cuda_rng_state": 3}, tmp_path / "c.pt")
    found = alone(RngUnusable(), tmp_path / "c.pt")
    assert brief(found) == [("error", "rng.cuda"), ("error", "cuda_rng_state")]
    assert "it has 816 bytes, not 16: torch.cuda.set_rng_state raises RuntimeError" in found[0].message


def test_missing_says_nothing_beside(tmp_path):
    """Where a state is there and unusable it is not called missing."""
    model = torch.nn.Linear(2, 2)
    adam = torch.optim.AdamW(model.parameters())
    kept = {"model": model.state_dict(), "optimizer": adam.state_dict(), "step": 1, "torch_rng_state": TORCH.long()}
    torch.save(kept, tmp_path / "c.pt")
    assert alone(RngMissing(), tmp_path / "c.pt") == []


TRAINER = [
    (lambda s: s.pop("python"), "python", "KeyError"),
    (lambda s: s.pop("numpy"), "numpy", "KeyError"),
    (lambda s: s.pop("cpu"), "cpu", "KeyError"),
    (lambda s: s.update(cpu=s["cpu"].long()), "cpu", "TypeError"),
    (lambda s: s.update(cpu=s["cpu"][:16].clone()), "cpu", "RuntimeError"),
    (lambda s: s.update(python=(3, s["python"][1][:624], None)), "python", "ValueError"),
    (lambda s: s.update(numpy=None), "numpy", "TypeError"),
    (lambda s: s.update(numpy=words(lambda w: w.astype(np.int64))), "numpy[1]", "UnpicklingError"),
    (lambda s: s.update(numpy=words(lambda w: w.astype(np.float32))), "numpy[1]", "UnpicklingError"),
    (lambda s: s.update(cpu=TORCH.numpy()), "cpu", "UnpicklingError"),
    (lambda s: s.update(other=[np.array([None, 1])]), "other[0]", "UnpicklingError"),
    (lambda s: s.update(other=np.zeros(3, np.uint32), numpy=words(lambda w: w.astype(">u4"))), "", ""),
    (lambda _: None, "", ""),
    (lambda s: s.update(numpy=list(s["numpy"]), python=list(s["python"])), "", ""),
]


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs Transformers")
class TestTrainer:
    """`rng_state.pth`."""

    @pytest.fixture
    def folder(self, fixtures_dir, tmp_path):
        """A Trainer's folder."""
        return shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", tmp_path / "checkpoint-4")

    def load(self, folder):
        """What the Trainer does with it."""
        from transformers import Trainer  # noqa: PLC0415
        from transformers.training_args import ParallelMode  # noqa: PLC0415

        made = Trainer.__new__(Trainer)
        made.args = type("Arguments", (), {"world_size": 1, "parallel_mode": ParallelMode.NOT_PARALLEL})()
        made._load_rng_state(str(folder))

    @pytest.mark.parametrize(("change", "key", "exception"), TRAINER)
    def test_states(self, folder, change, key, exception):
        """The Trainer raises as the finding says."""
        edited(folder / "rng_state.pth", folder / "rng_state.pth", lambda states: (change(states), None)[1])
        found = alone(RngUnusable(), folder)
        assert brief(found) == ([("error", f"rng_state.pth: {key}")] if key else [])
        assert raised(self.load, folder)[0] == exception
        assert all(f"raises {exception}, in _load_rng_state" in f.message for f in found)

    @pytest.mark.parametrize(
        ("content", "exception"),
        [
            (None, "TypeError"), ([], "TypeError"), (True, "TypeError"), (3, "TypeError"), ("python", "TypeError"),
            (b"x", "TypeError"), (PYTHON, "TypeError"), (TORCH, "IndexError"), (torch.tensor(3), "IndexError"),
            (torch.zeros(3, 2), "IndexError"), (torch.zeros(3).to_sparse(), "IndexError"), (NUMPY[1], "IndexError"),
            (np.zeros(3), "UnpicklingError"),
        ],
    )  # fmt: skip
    def test_no_dict(self, folder, content, exception):
        """A file of something else raises TypeError; a tensor and an array, which take indices, IndexError."""
        torch.save(content, folder / "rng_state.pth")
        (finding,) = alone(RngUnusable(), folder)
        assert (finding.severity, finding.where) == ("error", "rng_state.pth")
        assert f" raises {exception}" in finding.message
        assert raised(self.load, folder)[0] == exception

    def test_other_numbers(self, folder):
        """A position beyond numpy's words is taken, and other numbers are drawn."""
        edited(folder / "rng_state.pth", folder / "rng_state.pth", lambda s: s.update(numpy=numbered(2, 700)))
        assert brief(alone(RngUnusable(), folder)) == [("silent", "rng_state.pth: numpy")]
        self.load(folder)

    def test_what_torch_does_not_load(self, folder):
        """Where torch refuses a class no state is looked up, and `load.weights-only` tells of it alone."""
        edited(folder / "rng_state.pth", folder / "rng_state.pth", lambda s: s.update(cpu=None, at=np.float64(1)))
        assert alone(RngUnusable(), folder) == []
        (finding,) = alone(WeightsOnly(), folder)
        assert finding.message.endswith(" raises UnpicklingError")
        assert raised(self.load, folder)[0] == "UnpicklingError"

    def test_device(self, folder):
        """A state of a device is logged where there is such a device, and passed over where there is none."""
        states = {"cuda": torch.zeros(816, dtype=torch.uint8)}
        edited(folder / "rng_state.pth", folder / "rng_state.pth", lambda s: s.update(states))
        assert brief(alone(RngUnusable(), folder)) == [("silent", "rng_state.pth: cuda")]
        self.load(folder)

    def test_through_the_whole_resume(self, tmp_path):
        """The exception ends `train`."""
        from tests.validation.resuming import train_with_trainer  # noqa: PLC0415

        folder = train_with_trainer(tmp_path / "run", steps=2) / "checkpoint-2"
        edited(folder / "rng_state.pth", folder / "rng_state.pth", lambda s: s.update(cpu=None))
        assert raised(resume_with_trainer, folder, tmp_path / "out")[0] == "TypeError"


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("accelerate") is None, reason="needs Accelerate")
class TestAccelerate:
    """`random_states_0.pkl`: one `try` around all of it."""

    @pytest.fixture
    def folder(self, tmp_path):
        """What a run saved after three batches."""
        from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

        run = Run(0)
        run.train(3)
        run.accelerator.save_state(f"{tmp_path}/c")
        return tmp_path / "c"

    def loaded(self, folder):
        """Which generators a run of another seed takes over, and its step."""
        from tests.conversion.accelerate_runs import Run  # noqa: PLC0415

        run = Run(7)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        run.accelerator.load_state(str(folder))
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        names = ("python", "numpy", "torch")
        return {n for n, a, b in zip(names, before, after, strict=True) if a != b}, run.accelerator.step

    @pytest.mark.parametrize(
        ("change", "key", "lost"),
        [
            (lambda _: None, "", ()),
            (lambda s: s.pop("random_state"), "random_state", ("python", "numpy", "torch")),
            (lambda s: s.update(numpy_random_seed=None), "numpy_random_seed", ("numpy", "torch")),
            (lambda s: s.update(torch_manual_seed=TORCH[:16].clone()), "torch_manual_seed", ("torch",)),
            (lambda s: s.update(other=np.zeros(3, np.uint32)), "", ()),
        ],
    )
    def test_states(self, folder, change, key, lost):
        """What raises and all after it is not restored; the step was taken before."""
        file = folder / "random_states_0.pkl"
        edited(file, file, lambda states: (change(states), None)[1])
        found = alone(RngUnusable(), folder)
        assert brief(found) == ([("silent", f"random_states_0.pkl: {key}")] if key else [])
        taken, step = self.loaded(folder)
        assert taken == {"python", "numpy", "torch"} - set(lost)
        assert step == 3
        assert all(f.message.endswith(f"not restored are {', '.join(lost)}") for f in found)

    def test_no_dict(self, folder):
        """Of a file of something else nothing is restored, and the step stays at 0."""
        torch.save(3, folder / "random_states_0.pkl")
        (finding,) = alone(RngUnusable(), folder)
        assert (finding.severity, finding.where) == ("silent", "random_states_0.pkl")
        assert finding.message.endswith("Accelerate's step stays at 0")
        assert self.loaded(folder) == (set(), 0)

    def test_array(self, folder):
        """An array that torch does not load: nothing of the file is restored."""
        states = {"numpy_random_seed": words(lambda w: w.astype(np.int64))}
        edited(folder / "random_states_0.pkl", folder / "random_states_0.pkl", lambda s: s.update(states))
        (finding,) = alone(RngUnusable(), folder)
        assert (finding.severity, finding.where) == ("silent", "random_states_0.pkl: numpy_random_seed[1]")
        assert "torch.load raises UnpicklingError" in finding.message
        assert finding.message.endswith("not restored are python, numpy, torch, and Accelerate's step stays at 0")
        assert self.loaded(folder) == (set(), 0)

    def test_without_a_step(self, folder):
        """Old folders keep no step."""
        file = folder / "random_states_0.pkl"
        edited(file, file, lambda s: [s.pop(key) for key in ("step", "random_state")] and s)
        (finding,) = alone(RngUnusable(), folder)
        assert finding.message.endswith("not restored are python, numpy, torch, and Accelerate's step stays at 0")
