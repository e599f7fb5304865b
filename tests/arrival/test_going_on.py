"""Where a run goes on by its own counters, held against the steps that its optimizer and its schedule have taken."""

import pytest

from ckpttool.facts import CounterFact, LoaderFact
from tests.arrival.living import codes, judged
from tests.arrival.runs import resumed, saved

TAKEN = 5  # steps of the run that is saved


def counting(**values):
    """Counters in the script's own variables."""
    return tuple(CounterFact(name=n, value=v, where="train.py:9 main", own=True) for n, v in values.items())


def said(path, counters, *, step=TAKEN, loaders=(), **more):
    """Severities of `progress.inconsistent` of a resume; `step` is what the file says."""

    def change(state):
        if step is None:
            del state["step"]
        else:
            state["step"] = step

    run = saved(path, change=change)
    run = resumed(path) if step is not None else run
    judgement = judged(path, run.facts(path, counters=counters, loaders=loaders, **more))
    return [f.severity.value for f in judgement.findings if f.code == "progress.inconsistent"]


@pytest.mark.parametrize("live", [TAKEN - 1, TAKEN, TAKEN + 1])
def test_counted_before_or_after_a_step(tmp_path, live):
    """Scripts count a step before it or after it, from 0 or from 1."""
    assert said(tmp_path / "last.pt", counting(step=live), step=live) == []


def test_a_counter_that_begins_again(tmp_path):
    """The file's counter was set to 0 and the script believes it."""
    assert said(tmp_path / "last.pt", counting(step=0), step=0) == ["silent"]


def test_no_counter_was_ever_saved(tmp_path):
    """What a script never saves it cannot restore: no more than a warning."""
    assert said(tmp_path / "last.pt", counting(step=0), step=None) == ["warning"]


def test_the_name_of_the_file_gives_the_step(tmp_path):
    """A script that takes its step from the name goes wrong where the file was renamed."""
    assert said(tmp_path / "step-0000.pt", counting(step=0), step=None) == ["silent"]


@pytest.mark.parametrize(("name", "expected"), [("last.pt", []), ("ckpt-5.pt", ["silent"])])
def test_a_multiple_may_count_batches(tmp_path, name, expected):
    """Four batches to a step are everyday; not where the file's name says the steps that the optimizer took."""
    assert said(tmp_path / name, counting(it=4 * TAKEN), step=4 * TAKEN) == expected


def test_one_counter_that_fits_is_enough(tmp_path):
    """Another one may count within the epoch, or something else."""
    assert said(tmp_path / "last.pt", counting(global_step=TAKEN, it=0)) == []


def test_a_small_count_beside_an_epoch(tmp_path):
    """It may be the step within an epoch whose length is not known."""
    assert said(tmp_path / "last.pt", counting(epoch=1, step=2), step=None) == []


def test_settings_count_nothing(tmp_path):
    """`--step 40` among the arguments is no counter, nor what a library keeps for itself."""
    given = CounterFact(name="step", value=40, where="Namespace of main", own=True, given=True)
    foreign = CounterFact(name="step", value=0, where="Accelerator of main")
    assert said(tmp_path / "last.pt", (given, foreign, *counting(step=TAKEN))) == []


def loader(batches, skipped=0, given=1):
    return (LoaderFact(id="d0", cls="DataLoader", batches=batches, samples=batches * 8, given=given, skipped=skipped),)


@pytest.mark.parametrize(
    ("epoch", "agreed", "expected"),
    [(1, True, []), (2, True, []), (0, True, ["silent"]), (0, False, ["warning"]), (4, False, ["silent"])],
    ids=["from 0", "from 1", "the last one again", "again, by one witness", "far"],
)
def test_the_epoch_that_is_begun(tmp_path, epoch, agreed, expected):
    """After exactly one epoch the next begins; one repeated is a warning where only the optimizer tells of it."""
    more = {} if agreed else {"schedulers": ()}
    found = said(tmp_path / "last.pt", counting(epoch=epoch), step=None, loaders=loader(TAKEN), **more)
    assert found == expected


@pytest.mark.parametrize(
    ("epoch", "skipped", "expected"),
    [(0, TAKEN, []), (1, TAKEN, []), (0, TAKEN - 1, ["silent"]), (0, 2, ["silent"]), (3, TAKEN, ["silent"])],
)
def test_batches_that_are_passed_over(tmp_path, epoch, skipped, expected):
    """The epoch and the batches passed over make the batches that were seen."""
    found = said(tmp_path / "last.pt", counting(epoch=epoch), step=None, loaders=loader(8, skipped))
    assert found == expected


def test_an_epoch_begun_again_in_the_middle(tmp_path):
    """A script that passes over nothing begins the epoch again: that is told by `data.not-restored`, if at all."""
    assert said(tmp_path / "last.pt", counting(epoch=0), step=None, loaders=loader(8)) == []


def test_batch_norm_and_schedule_agree_without_adam(tmp_path):
    """SGD counts no steps; epochs of the schedule and batches seen by batch norm tell the same."""
    import torch  # noqa: PLC0415  # beside the run that it builds

    from tests.arrival import runs  # noqa: PLC0415

    def facts(epoch):
        run = runs.made(optimizer=torch.optim.SGD, lr=0.01, momentum=0.9)
        run.scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, 2)
        schedule, run.scheduler = run.scheduler, type("", (), {"step": lambda _: None})()
        run.steps(10)
        schedule.step()
        schedule.step()
        run.scheduler = schedule
        path = tmp_path / "last.pt"
        state = run.state() | {"epoch": epoch}
        del state["step"]
        torch.save(state, path)
        return judged(path, run.facts(path, counters=counting(epoch=epoch), loaders=loader(5)))

    assert "progress.inconsistent" not in codes(facts(2), "silent")
    assert "progress.inconsistent" in codes(facts(0), "silent")


@pytest.mark.parametrize(
    ("counters", "expected"),
    [({"batch": 3}, ["silent"]), ({"batch": 0}, []), ({"batch": 1}, []), ({"batch": TAKEN}, []), ({"batch": 40}, [])],
)
def test_no_more_steps_than_batches(tmp_path, counters, expected):
    """In the first epoch there were as many batches as steps, or more; one begun again stands at its first batch."""
    live = counting(epoch=0, updates=TAKEN, **counters)
    assert said(tmp_path / "last.pt", live, step=None) == expected


def test_a_multiple_where_nothing_accumulates(tmp_path):
    """A script whose source has no word of accumulation takes one batch a step."""
    assert said(tmp_path / "last.pt", counting(it=2 * TAKEN), step=2 * TAKEN, accumulates=False) == ["silent"]


def test_a_name_that_is_never_begun_again(tmp_path):
    """`updates` counts on from epoch to epoch."""
    assert said(tmp_path / "last.pt", counting(epoch=1, updates=0), step=None) == ["warning"]
