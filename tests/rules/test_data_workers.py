"""`data.workers`."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from ckpttool.rules.data_workers import DataWorkers
from tests.rules.held import alone, brief, said


def position(workers, had, *, last=0, names=None):
    """What a StatefulDataLoader of torchdata keeps, of so many workers."""
    state = {"worker_id": 0, "dataset_state": None, "fetcher_state": None}
    return {
        "_snapshot": {
            "_snapshot_step": 3,
            "_last_yielded_worker_id": last,
            "_main_snapshot": {"_num_workers": had, "_sampler_iter_state": None, "_base_seed": 7},
            "_worker_snapshots": {name: dict(state) for name in names or [f"worker_{n}" for n in range(workers)]},
        },
        "_steps_since_snapshot": 0,
        "_iterator_finished": False,
    }


def saved(path, loader):
    model = nn.Linear(2, 2)
    torch.save({"model": model.state_dict(), "dataloader": loader, "step": 3}, path)
    return path


@pytest.mark.parametrize(
    ("loader", "severity", "words"),
    [
        (position(3, 3), "note", "the position is that of 3 loader workers: another number raises AssertionError"),
        (position(2, 3), "silent", "states of 2 workers, and the loader had 3: worker_2 begins at the start of its data"),
        (position(0, 2, names=["worker_0", "worker_2"]), "error", "states of 2 workers are there without worker_1"),
        (position(4, 3), "warning", "states of 4 workers, and the loader had 3: the rest is left"),
        (position(0, 0), None, ""),
        ({"_num_yielded": 3, "_sampler_iter_yielded": 3, "_iterator_finished": False}, None, ""),
        ({**position(1, 1), "_snapshot": 5}, None, ""),
    ],
)  # fmt: skip
def test_workers(tmp_path, loader, severity, words):
    """States of workers against the number that the loader had."""
    found = alone(DataWorkers(), saved(tmp_path / "c.pt", loader))
    assert brief(found) == ([(severity, "dataloader")] if severity else [])
    assert words in said(found)


def test_last_worker(tmp_path):
    """The last worker that gave a batch is one of those that there were."""
    found = alone(DataWorkers(), saved(tmp_path / "c.pt", position(2, 2, last=2)))
    assert brief(found) == [("note", "dataloader"), ("warning", "dataloader")]
    assert "the last worker that gave a batch is 2, and there were 2" in said(found)


def test_real_loader(fixtures_dir):
    """A loader without workers has no states of them."""
    assert alone(DataWorkers(), fixtures_dir / "accelerate/stateful_loader") == []


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("torchdata") is None, reason="needs torchdata")
class TestTorchdata:
    """What torchdata's loader does with such states."""

    @staticmethod
    def after_three(workers=2):
        from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

        loader = StatefulDataLoader(list(range(24)), batch_size=2, num_workers=workers)
        for _, _ in zip(range(3), loader, strict=False):
            pass
        return loader.state_dict()

    @staticmethod
    def going_on(state, workers=2):
        from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

        loader = StatefulDataLoader(list(range(24)), batch_size=2, num_workers=workers)
        loader.load_state_dict(state)
        return [batch.tolist() for batch in loader]

    def test_as_it_was(self, tmp_path):
        """The same number of workers goes on, another raises."""
        state = self.after_three()
        assert brief(alone(DataWorkers(), saved(tmp_path / "c.pt", state))) == [("note", "dataloader")]
        assert self.going_on(state)[0] == [6, 7]
        for workers in (0, 1, 3):
            with pytest.raises(AssertionError):
                self.going_on(state, workers)

    def test_gap(self, tmp_path):
        """A worker that is missing below another raises AssertionError."""
        state = self.after_three()
        del state["_snapshot"]["_worker_snapshots"]["worker_0"]
        assert brief(alone(DataWorkers(), saved(tmp_path / "c.pt", state))) == [("error", "dataloader")]
        with pytest.raises(AssertionError):
            self.going_on(state)

    def test_last_missing(self, tmp_path):
        """The last worker's state missing goes unsaid."""
        state = self.after_three()
        del state["_snapshot"]["_worker_snapshots"]["worker_1"]
        assert brief(alone(DataWorkers(), saved(tmp_path / "c.pt", state))) == [("silent", "dataloader")]
        self.going_on(state)

    def test_one_too_many(self, tmp_path):
        """A worker more than the loader has is left."""
        state = self.after_three()
        snapshots = state["_snapshot"]["_worker_snapshots"]
        snapshots["worker_2"] = snapshots["worker_1"]
        assert brief(alone(DataWorkers(), saved(tmp_path / "c.pt", state))) == [("warning", "dataloader")]
        assert self.going_on(state)[0] == [6, 7]
