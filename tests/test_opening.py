"""From a path to a checkpoint, or to a run of them."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from ckpttool.blocks import FindingLog, Severity
from ckpttool.elements import number
from ckpttool.errors import CkptError, FileChanged, NotACheckpoint, PathNotFound, UsageError
from ckpttool.limits import Limits
from ckpttool.model import Checkpoint, Contents, Run
from ckpttool.opening import open_checkpoint, open_path
from ckpttool.opening.files import _no_files
from ckpttool.opening.runs import listing
from ckpttool.opening.siblings import completeness
from ckpttool.sources import BytesSource, FileSource, Folder
from tests.layouts.trees import adam


def training(step, **extra):
    model = torch.nn.Linear(2, 3)
    return {"model": model.state_dict(), "optimizer": adam(model, lr=0.1).state_dict(), "global_step": step, **extra}


def names(run):
    return [Path(c.path).name for c in run.checkpoints]


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def run_of_files(tmp_path):
    for step in (30, 4, 200):
        torch.save(training(step), tmp_path / f"ckpt_{step}.pt")
    return tmp_path


def test_a_file_is_a_checkpoint(fixtures_dir):
    """It is open, lazily: values are read when they are asked for, and not after closing."""
    opened = open_path(fixtures_dir / "plain/train.pth")
    assert isinstance(opened, Checkpoint)
    assert number(opened.optimizers[0].state[0]["step"]) == 5
    opened.check_unchanged()
    opened.close()
    with pytest.raises(UsageError, match="closed"):
        opened.contents[""].storages[0].read()


@pytest.mark.parametrize("path", ["missing.pt", "missing/below.pt", "nul\0.pt"])
def test_what_is_not_there_is_said(tmp_path, path):
    """Whatever the path holds."""
    with pytest.raises(PathNotFound):
        open_path(tmp_path / path)


def test_what_is_no_checkpoint_is_said(tmp_path):
    """And the file is closed again; a pipe is not waited for."""
    (tmp_path / "a.pt").write_text("hello")
    with pytest.raises(NotACheckpoint):
        open_path(tmp_path / "a.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(CkptError, match="pipe"):
        open_path(tmp_path / "pipe.pt")


def test_an_index_that_is_broken_is_said(tmp_path):
    """With its folder closed."""
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(CkptError):
        open_path(tmp_path / "model.safetensors.index.json")


def test_a_file_that_changes_while_it_is_read_is_said(tmp_path, monkeypatch):
    """An answer about it would not be true."""
    path = tmp_path / "a.pt"
    torch.save(training(1), path)
    checkpoint = open_checkpoint(path)
    path.write_bytes(b"other")
    with pytest.raises(FileChanged):
        checkpoint.check_unchanged()
    checkpoint.close()
    torch.save(training(1), path)
    real = FileSource.check_unchanged

    def replaced(source):
        path.write_bytes(b"other")
        real(source)

    monkeypatch.setattr(FileSource, "check_unchanged", replaced)
    with pytest.raises(FileChanged):
        open_path(path)
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        shutil.copy(path, tmp_path / f"checkpoint-{step}/a.bin")
    torch.save(training(1), tmp_path / "checkpoint-1/a.bin")
    path = tmp_path / "checkpoint-1/a.bin"
    with pytest.raises(FileChanged):
        open_path(tmp_path)
    with pytest.raises(FileChanged):
        open_path(tmp_path / "checkpoint-1")


def test_a_run_of_files_is_in_step_order(run_of_files):
    """Two hundred comes last, and its own number is the step."""
    with open_path(run_of_files) as run:
        assert isinstance(run, Run)
        assert names(run) == ["ckpt_4.pt", "ckpt_30.pt", "ckpt_200.pt"]
        assert run.steps == (4, 30, 200)
        assert run.complete == (True, True, True)
        assert run.newest_complete == 2
        assert run.layout == "plain"
        assert not run.problems
        assert run.checkpoints[2].optimizers[0].names_from == "shapes"


def test_one_checkpoint_is_wanted_and_the_folder_holds_several(run_of_files):
    """The error names the newest complete one."""
    with pytest.raises(UsageError, match="3 checkpoints") as error:
        open_checkpoint(run_of_files)
    assert error.value.hint.endswith("ckpt_200.pt")
    for file in run_of_files.iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    (run_of_files / "checkpoint-1").mkdir()
    (run_of_files / "checkpoint-1/a.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match="1 checkpoints") as error:
        open_checkpoint(run_of_files)
    assert error.value.hint == "none is complete"


def test_a_damaged_member_stays_in_the_run(run_of_files):
    """Cut short it is the newest, and not the newest complete one."""
    cut = run_of_files / "ckpt_900.pt"
    torch.save(training(900), cut)
    cut.write_bytes(cut.read_bytes()[:500])
    with open_path(run_of_files) as run:
        assert names(run)[-1] == "ckpt_900.pt"
        assert run.steps[-1] == 900
        assert run.complete == (True, True, True, False)
        assert run.newest_complete == 2
        assert run.checkpoints[-1].problems[0].severity is Severity.ERROR


def test_a_member_that_lacks_a_part_is_not_complete(run_of_files):
    """Weights alone do not resume, where the siblings hold an optimizer; other files are named beside."""
    torch.save({"model": torch.nn.Linear(2, 3).state_dict(), "global_step": 999}, run_of_files / "weights_999.pt")
    torch.save({"x": 1}, run_of_files / "other.pt")
    (run_of_files / "log.txt").write_text("x")
    with open_path(run_of_files) as run:
        assert run.complete == (True, True, True, False)
        beside, lacking = run.problems
        assert (beside.code, beside.message) == ("run.beside", "beside the checkpoints lie other.pt")
        assert (lacking.code, lacking.severity, lacking.where) == (
            "run.incomplete", Severity.WARNING, "weights_999.pt",
        )  # fmt: skip
        assert lacking.message.endswith(": optimizer")


def test_a_single_whole_file_in_a_folder_is_a_run_of_one(tmp_path):
    """Training state with an optimizer; weights by themselves are a folder of weights."""
    torch.save(training(3), tmp_path / "last.pt")
    with open_path(tmp_path) as run:
        assert (names(run), run.steps) == (["last.pt"], (3,))
    torch.save({"a.w": torch.ones(2)}, tmp_path / "last.pt")
    with open_path(tmp_path) as checkpoint:
        assert isinstance(checkpoint, Checkpoint)


def test_two_models_side_by_side_are_no_run(tmp_path):
    """A generator and a discriminator have other names."""
    for name, model in (("g", torch.nn.Linear(2, 2)), ("d", torch.nn.Sequential(torch.nn.Linear(2, 2)))):
        torch.save({"model": model.state_dict(), "optimizer": adam(model).state_dict()}, tmp_path / f"{name}.pt")
    with open_path(tmp_path) as checkpoint:
        assert isinstance(checkpoint, Checkpoint)
        assert [o.groups[0].names[0] for o in checkpoint.optimizers] == ["0.weight", "weight"]


def test_epochs_order_where_there_are_no_steps(tmp_path):
    """The measure is the one that most of the files have; a file without it comes first."""
    for epoch in (2, 10, 1):
        torch.save({"model": {"a.w": torch.ones(2)}, "epoch": epoch}, tmp_path / f"{'abcdefghijk'[epoch]}.pt")
    torch.save({"model": {"a.w": torch.ones(2)}}, tmp_path / "0.pt")
    with open_path(tmp_path) as run:
        assert run.steps == (None, 1, 2, 10)
        assert names(run)[0] == "0.pt"


def test_lightning_files_are_a_run(fixtures_dir):
    """Also below `checkpoints/`, where its logger puts them."""
    with open_path(fixtures_dir / "lightning/fp16_scaler") as run:
        assert (run.layout, run.steps) == ("lightning", (4, 8, 8))
        assert names(run)[-1] == "last.ckpt"


def test_of_copies_of_one_step_the_last_is_the_last(fixtures_dir):
    """timm links `last` and `model_best` to the same file; resuming is from `last`."""
    with open_path(fixtures_dir / "timm") as run:
        assert names(run) == ["checkpoint-0.pth.tar", "model_best.pth.tar", "checkpoint-1.pth.tar", "last.pth.tar"]
        assert run.newest_complete == 3


def test_checkpoints_below_a_folder_of_that_name(tmp_path, fixtures_dir):
    """`version_0/checkpoints/*.ckpt` and `checkpoints/checkpoint_N/` are found from above."""
    shutil.copytree(fixtures_dir / "lightning/ema", tmp_path / "version_0/checkpoints")
    (tmp_path / "version_0/metrics.csv").write_text("x")
    with open_path(tmp_path / "version_0") as run:
        assert len(run.checkpoints) == 3
    with open_path(fixtures_dir / "accelerate/run") as run:
        assert names(run) == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
        assert run.layout == "accelerate"
        assert run.steps == tuple(sorted(run.steps))
        assert all(run.complete)


def test_the_trainers_run_folder_may_hold_the_final_model(tmp_path, fixtures_dir):
    """The checkpoints are the run, the model is named beside; a folder that is left over stays visible."""
    shutil.copytree(fixtures_dir / "hf_trainer/bert", tmp_path, dirs_exist_ok=True)
    shutil.copy(fixtures_dir / "hf_trainer/bert/checkpoint-4/model.safetensors", tmp_path)
    shutil.copy(fixtures_dir / "hf_trainer/bert/checkpoint-4/trainer_state.json", tmp_path)
    (tmp_path / "tmp-checkpoint-6").mkdir()
    (tmp_path / "tmp-checkpoint-6/model.safetensors").write_bytes(b"\0")
    (tmp_path / "checkpoint-8").mkdir()
    with open_path(tmp_path) as run:
        assert names(run) == ["checkpoint-2", "checkpoint-4", "tmp-checkpoint-6", "checkpoint-8"]
        assert run.steps == (2, 4, 6, 8)
        assert run.complete == (True, True, False, False)
        assert run.checkpoints[-1].problems[0].message == "the folder is empty"
        assert [p.message for p in run.problems] == ["beside the checkpoints lie model.safetensors"]


def test_the_pointer_file_says_which_one_the_trainer_loads(tmp_path, fixtures_dir):
    """DeepSpeed's `latest` names a folder, whatever it is called; one that is gone is an error."""
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16", tmp_path, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "global_step3", tmp_path / "my_tag")
    (tmp_path / "my_notes").mkdir()
    with open_path(tmp_path) as run:
        assert names(run) == ["global_step3", "my_tag"]
        assert [(p.code, p.severity) for p in run.problems] == [("run.pointer", Severity.NOTE)]
    (tmp_path / "latest").write_text("global_step9")
    with open_path(tmp_path) as run:
        assert [(p.code, p.severity) for p in run.problems] == [("run.pointer-missing", Severity.ERROR)]


@pytest.mark.parametrize(
    ("said", "code"), [("10", "run.pointer"), ("release", "run.pointer"), ("20", "run.pointer-missing")]
)
def test_megatrons_pointer_is_a_number(tmp_path, said, code):
    """Of `iter_0000010`, or the word `release`."""
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(said)
    (tmp_path / "iter_0000010/mp_rank_00").mkdir(parents=True)
    torch.save(
        {"iteration": 10, "model": {"a.w": torch.ones(2)}}, tmp_path / "iter_0000010/mp_rank_00/model_optim_rng.pt"
    )
    with open_path(tmp_path) as run:
        assert (run.layout, run.steps) == ("megatron", (10,))
        assert [p.code for p in run.problems] == [code]


def test_a_pointer_that_leaves_the_folder_is_not_followed(tmp_path, fixtures_dir):
    """Whatever it links to is not read."""
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16", tmp_path / "run")
    (tmp_path / "run/latest").unlink()
    (tmp_path / "secret").write_text("global_step3")
    (tmp_path / "run/latest").symlink_to(tmp_path / "secret")
    with open_path(tmp_path / "run") as run:
        assert [(p.code, p.severity) for p in run.problems] == [("file.damaged", Severity.WARNING)]


def test_numbered_folders_are_a_run_unless_the_folder_is_a_checkpoint(tmp_path):
    """A Trainer with DeepSpeed keeps `global_step3/` inside its own checkpoint."""
    (tmp_path / "step-1").mkdir()
    torch.save({"model": {"a.w": torch.ones(2)}}, tmp_path / "step-1/a.pt")
    with open_path(tmp_path) as run:
        assert names(run) == ["step-1"]
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    with open_path(tmp_path) as checkpoint:
        assert checkpoint.layout == "hf-trainer"
    (tmp_path / "trainer_state.json").unlink()
    torch.save({}, tmp_path / "random_states_0.pkl")
    with open_path(tmp_path) as checkpoint:
        assert checkpoint.layout == "accelerate"


def test_many_checkpoints_do_not_use_up_the_descriptors(tmp_path):
    """Files of older checkpoints are closed, and opened again when their values are read."""
    for step in range(40):
        torch.save(training(step), tmp_path / f"ckpt_{step}.pt")
    before = descriptors()
    with open_path(tmp_path) as run:
        assert descriptors() - before <= 17
        oldest = run.checkpoints[0]
        assert number(oldest.optimizers[0].state[0]["step"]) == 1
    (tmp_path / "loose").mkdir()
    for n in range(80):
        torch.save({f"m{n}.w": torch.ones(2)}, tmp_path / f"loose/{'x' * (n + 1)}.pt")
    before = descriptors()
    with open_path(tmp_path / "loose") as checkpoint:
        assert len(checkpoint.weights) == 80
        assert descriptors() - before <= 65


def test_a_released_file_that_was_replaced_is_said(tmp_path):
    """What is read later has to be the same file."""
    path = tmp_path / "a.pt"
    torch.save(training(1), path)
    folder = Folder(tmp_path)
    source = folder.open("a.pt")
    folder.release()
    path.write_bytes(b"other")
    with pytest.raises(FileChanged):
        folder.check_unchanged()
    with pytest.raises(FileChanged):
        source.view()
    folder.close()


def test_a_folder_that_cannot_be_listed_is_a_checkpoint_with_findings(tmp_path):
    """Limits and unreadable members do not end the run."""
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        for n in range(step * 2):
            torch.save({"w": torch.ones(2)}, tmp_path / f"checkpoint-{step}/{n}.bin")
    with open_path(tmp_path, Limits(files=2)) as run:
        assert [c.layout for c in run.checkpoints] == ["plain", ""]
        assert run.complete == (True, False)
        assert "more than 2 files" in run.checkpoints[1].problems[0].message
    with pytest.raises(CkptError, match="more than 2 files"):
        open_path(tmp_path / "checkpoint-2", Limits(files=2))


def test_a_failure_in_the_middle_of_a_run_closes_what_was_open(run_of_files, monkeypatch):
    """A file that changes ends the whole reading."""
    real, seen = FileSource.check_unchanged, []

    def second_fails(source):
        seen.append(source)
        if len(seen) == 5:  # three files in the folder, then one by one
            raise FileChanged("changed")
        real(source)

    monkeypatch.setattr(FileSource, "check_unchanged", second_fails)
    before = descriptors()
    with pytest.raises(FileChanged):
        open_path(run_of_files)
    assert descriptors() == before


def test_what_is_no_folder_lists_as_empty(tmp_path):
    """A folder that cannot be listed says so when it is opened."""
    (tmp_path / "file").touch()
    assert listing(tmp_path / "file").files == []


def test_a_single_file_has_no_others():
    """A layout that asks for them is told so."""
    with pytest.raises(PathNotFound, match="a single file"):
        _no_files("x")


def test_a_damaged_member_without_a_number_comes_first_unless_it_is_the_last(tmp_path):
    """Nothing says where it belongs; `last` is what would be resumed from."""
    for step in (3, 5):
        torch.save(training(step), tmp_path / f"{'x' * step}.pt")
    for name in ("a.pt", "last.pt"):
        (tmp_path / name).write_bytes(b"PK")
    with open_path(tmp_path) as run:
        assert names(run) == ["a.pt", "xxx.pt", "xxxxx.pt", "last.pt"]
        assert run.steps == (None, 3, 5, None)
        assert run.complete == (False, True, True, False)


def test_folders_that_may_not_be_listed_are_said(tmp_path, monkeypatch):
    """The folder itself ends the reading, one below is a finding."""
    (tmp_path / "below").mkdir()
    torch.save(training(3), tmp_path / "a.pt")
    real = os.scandir

    def denied(path):
        if Path(path).name == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", denied)
    closed = "below"
    with open_path(tmp_path) as run:
        assert len(run.checkpoints) == 1
    folder = Folder(tmp_path)
    assert list(folder.entries()) == ["a.pt"]
    assert folder.refused == {"below": "it cannot be listed: Permission denied"}
    closed = tmp_path.name
    with pytest.raises(PathNotFound, match="cannot be listed"):
        open_path(tmp_path)


def test_an_empty_folder_is_no_checkpoint(tmp_path):
    """Nor is one of empty folders."""
    (tmp_path / "below").mkdir()
    with pytest.raises(NotACheckpoint, match="the folder is empty"):
        open_path(tmp_path)


def test_every_sibling_is_listed_or_named(tmp_path, monkeypatch):
    """A save just begun, a folder that keeps us out, one of another name, links."""
    run_folder = tmp_path / "run"
    for name in ("checkpoint-1", "checkpoint-2", "checkpoint-abc", "best", "logs", "checkpoint-3"):
        (run_folder / name).mkdir(parents=True)
    for name in ("checkpoint-1", "best"):
        torch.save(training(1), run_folder / name / "a.pt")
    (run_folder / "last").symlink_to("checkpoint-1")
    (run_folder / "root").symlink_to("/")
    real = os.scandir

    def denied(path):
        if Path(path).name == "checkpoint-3":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", denied)
    with open_path(run_folder) as run:
        assert names(run) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
        assert [c.problems[0].code for c in run.checkpoints[1:]] == ["file.not-a-checkpoint", "file.unreadable"]
        assert run.complete == (True, False, False)
        assert [(p.code, p.severity) for p in run.problems] == [
            ("run.beside", Severity.NOTE), ("run.link", Severity.NOTE), ("folder.refused", Severity.WARNING),
        ]  # fmt: skip
        assert run.problems[0].message == "beside the checkpoints lie best/, checkpoint-abc/"
        assert run.problems[1].message == "it is a link to checkpoint-1, and was not opened again"
        assert [p.where for p in run.problems] == [str(run_folder), "last", "root"]


def test_checkpoints_on_another_disk_are_followed_from_the_run(tmp_path):
    """A link with the name of a checkpoint at the top of the named folder; inside it nothing leads out."""
    for name in ("checkpoint-4", "step-5"):
        (tmp_path / "scratch" / name).mkdir(parents=True)
        torch.save(training(4), tmp_path / "scratch" / name / "a.pt")
    (tmp_path / "scratch/checkpoint-4/out.pt").symlink_to("/etc/passwd")
    for run_folder, name in ((tmp_path / "a", "checkpoint-4"), (tmp_path / "b", "step-5")):
        run_folder.mkdir()
        (run_folder / name).symlink_to(tmp_path / "scratch" / name)
        with open_path(run_folder) as run:
            assert names(run) == [name]
            assert not run.problems
            assert [p.where for p in run.checkpoints[0].problems] == (["out.pt"] if run_folder.name == "a" else [])


def test_numbered_folders_without_files_are_no_run(tmp_path):
    """Unless one keeps us out; then it is a member with its error."""
    (tmp_path / "2024/sub").mkdir(parents=True)
    torch.save(training(1), tmp_path / "a.pt")
    with open_path(tmp_path) as run:
        assert names(run) == ["a.pt"]


def test_links_beside_the_files_of_a_run_are_said(run_of_files):
    """Files and folders that lead out, and those that lead nowhere; each once."""
    (run_of_files / "dead.pt").symlink_to("nowhere")
    (run_of_files / "out").symlink_to("/")
    with open_path(run_of_files) as run:
        assert len(run.checkpoints) == 3
        assert [(p.code, p.where) for p in run.problems] == [("folder.refused", "out"), ("folder.refused", "dead.pt")]


def test_a_checkpoint_without_a_step_is_never_the_newest(run_of_files):
    """Weights without a number sort first; of equal steps `last` comes last."""
    whole = training(200)
    del whole["global_step"]
    torch.save({**whole, "optimizer": torch.optim.SGD([torch.ones(3, 2)], 0.1).state_dict()}, run_of_files / "zz.pt")
    torch.save(training(200), run_of_files / "last.pt")
    with open_path(run_of_files) as run:
        assert names(run) == ["zz.pt", "ckpt_4.pt", "ckpt_30.pt", "ckpt_200.pt", "last.pt"]
        assert run.steps == (None, 4, 30, 200, 200)
        assert run.newest_complete == 4


def test_a_run_has_one_source_for_its_steps(tmp_path):
    """The counter inside, whatever number is in the name; the name counts epochs here."""
    for name, step in (("epoch_1.pt", 70), ("epoch_2.pt", 140)):
        torch.save(training(step), tmp_path / name)
    with open_path(tmp_path) as run:
        assert run.steps == (70, 140)
    torch.save(training(150), tmp_path / "final.pt")
    with open_path(tmp_path) as run:
        assert run.steps == (70, 140, 150)


def test_a_part_that_could_not_be_read_is_a_reason():
    """Also where the file itself only warns of it."""
    whole = Checkpoint(path="run/a.pt", layout="plain")
    partial = Contents(name="b.pt", container="torch-zip", source=BytesSource(b""), complete=False)
    log = FindingLog()
    assert completeness([whole, Checkpoint(path="run/b.pt", layout="plain", contents={"": partial})], log) == (
        True, False,
    )  # fmt: skip
    assert [(f.code, f.where) for f in log.items] == [("run.incomplete", "b.pt")]


def test_a_trainers_missing_part_makes_its_checkpoint_incomplete(tmp_path):
    """What a single folder is warned of counts in the run too, with all its siblings alike."""
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
        torch.save({"step": 0}, tmp_path / f"checkpoint-{step}/random_states_0.pkl")
        torch.save({"a.w": torch.ones(2)}, tmp_path / f"checkpoint-{step}/pytorch_model.bin")
    with open_path(tmp_path) as run:
        assert run.complete == (False, False)
        assert [p.code for p in run.checkpoints[1].problems] == ["accelerate.missing"]


def test_what_is_inside_orders_before_names(tmp_path):
    """`step_10` beside `epoch_1`: the numbers in the names count different things, the counter inside one."""
    for name, step in (("step_10.pt", 10), ("epoch_1.pt", 30), ("step_20.pt", 20), ("final.pt", 40)):
        torch.save(training(step), tmp_path / name)
    with open_path(tmp_path) as run:
        assert names(run) == ["step_10.pt", "step_20.pt", "epoch_1.pt", "final.pt"]
        assert run.steps == (10, 20, 30, 40)
        (said,) = run.problems
        assert (said.code, said.severity, said.message) == (
            "run.order",
            Severity.NOTE,
            "epoch_1.pt is newer than step_20.pt by what is inside (step 30 after 20), whatever their names say",
        )


@pytest.mark.parametrize("kept", ["optimizer", "scheduler", "step"])
def test_without_a_counter_other_positions_tell(tmp_path, kept):
    """The optimizer's step, the scheduler's position where the optimizer counts none, a script's `step`."""
    for name, steps in (("b.pt", 1), ("a.pt", 3), ("c.pt", 2)):
        model = torch.nn.Linear(2, 3)
        made = torch.optim.Adam if kept == "optimizer" else torch.optim.SGD
        optimizer = made(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        more = {"scheduler": {"scheduler": scheduler.state_dict()}, "step": {"step": steps}}
        torch.save(content | more.get(kept, {}), tmp_path / name)
    with open_path(tmp_path) as run:
        assert (names(run), run.steps) == (["b.pt", "c.pt", "a.pt"], (1, 2, 3))


def test_a_step_that_counts_the_batches_of_an_epoch_is_no_measure(tmp_path):
    """It falls where the epoch grows; the optimizer's step does not."""
    for name, epoch, batch in (("x.pt", 1, 9), ("y.pt", 2, 1), ("z.pt", 2, 5)):
        content = training(1) | {"epoch": epoch, "step": batch}
        del content["global_step"]
        for state in content["optimizer"]["state"].values():
            state["step"] = torch.tensor(float(epoch * 10 + batch))
        torch.save(content, tmp_path / name)
    with open_path(tmp_path) as run:
        assert (names(run), run.steps) == (["x.pt", "y.pt", "z.pt"], (19, 21, 25))


def test_a_damaged_one_stands_where_its_name_has_it(tmp_path):
    """The names count saves and not steps, but in the same order."""
    for n in (1, 2, 4):
        torch.save(training(n * 100), tmp_path / f"ck_{n}.pt")
    for n in (3, 5):
        (tmp_path / f"ck_{n}.pt").write_bytes(b"PK")
    with open_path(tmp_path) as run:
        assert names(run) == [f"ck_{n}.pt" for n in (1, 2, 3, 4, 5)]
        assert run.steps == (100, 200, None, 400, None)
        assert run.newest_complete == 3


def test_a_trainers_folders_are_ordered_by_its_state(tmp_path, fixtures_dir):
    """Whatever number their names have; Accelerate's number saves."""
    shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-2", tmp_path / "t/checkpoint-9")
    shutil.copytree(fixtures_dir / "hf_trainer/bert/checkpoint-4", tmp_path / "t/checkpoint-8")
    with open_path(tmp_path / "t") as run:
        assert (names(run), run.steps) == (["checkpoint-9", "checkpoint-8"], (2, 4))
        assert [p.code for p in run.problems] == ["run.order"]
    one = fixtures_dir / "accelerate/run/checkpoints/checkpoint_1"
    for n in range(3):
        shutil.copytree(one, tmp_path / f"a/checkpoint_{n}")
    with open_path(tmp_path / "a") as run:
        assert names(run) == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
        assert len(set(run.steps)) == 1


def lightning_run(folder, fixtures_dir, *places):
    for place in places:
        shutil.copytree(fixtures_dir / "lightning/ema", folder / place)
    return folder


@pytest.mark.parametrize(
    "places",
    [
        ("ep", "step", "val"),
        ("version_0/checkpoints", "version_1/checkpoints"),
        ("a", "a-b"),
        ("lightning_logs/version_0/checkpoints", "lightning_logs/version_2/checkpoints"),
    ],
)
def test_several_places_are_refused_and_named(tmp_path, fixtures_dir, places):
    """No newest is there of several runs, and they are no one checkpoint."""
    folder = lightning_run(tmp_path / "run", fixtures_dir, *places)
    with pytest.raises(UsageError, match="in several places") as error:
        open_path(folder)
    assert error.value.message.endswith(", ".join(f"{p}/" for p in places))
    assert error.value.hint == f"name one of them, such as {folder / places[0]}"
    for place in places:
        with open_path(folder / place) as run:
            assert len(run.checkpoints) == 3


def test_runs_of_trainers_side_by_side_are_refused(tmp_path, fixtures_dir):
    """Whoever wrote them; files of the folder itself are named, too."""
    shutil.copytree(fixtures_dir / "hf_trainer/bert", tmp_path / "all/a")
    shutil.copytree(fixtures_dir / "accelerate/run", tmp_path / "all/b")
    shutil.copytree(fixtures_dir / "deepspeed/zero2_bf16", tmp_path / "all/c")
    shutil.copytree(fixtures_dir / "accelerate/two_process", tmp_path / "all/d")
    with pytest.raises(UsageError, match=r"places: a/, b/checkpoints/, c/, d/"):
        open_path(tmp_path / "all")
    shutil.copytree(fixtures_dir / "accelerate/run", tmp_path / "one")
    shutil.copy(fixtures_dir / "accelerate/two_process/model.safetensors", tmp_path / "one")
    with pytest.raises(UsageError, match=r"places: checkpoints/, model.safetensors"):
        open_path(tmp_path / "one")
    for name in "xy":
        (tmp_path / "loose" / name).mkdir(parents=True)
        torch.save(training(1), tmp_path / "loose" / name / "last.pt")
    with pytest.raises(UsageError, match=r"places: x/, y/"):
        open_path(tmp_path / "loose")
    for name in "xy":
        (tmp_path / "weights" / name).mkdir(parents=True)
        for epoch in (1, 2):
            torch.save({"a.w": torch.ones(2)}, tmp_path / "weights" / name / f"epoch_{epoch}.pt")
    with pytest.raises(UsageError, match=r"places: x/, y/"):
        open_path(tmp_path / "weights")


def test_the_only_place_is_opened(tmp_path, fixtures_dir):
    """However deep it lies."""
    with open_path(lightning_run(tmp_path / "logs", fixtures_dir, "version_0/checkpoints")) as run:
        assert len(run.checkpoints) == 3
    shutil.copytree(fixtures_dir / "hf_trainer/bert", tmp_path / "deep/out/run")
    with open_path(tmp_path / "deep") as run:
        assert names(run) == ["checkpoint-2", "checkpoint-4"]
    (tmp_path / "one/x").mkdir(parents=True)
    torch.save(training(1), tmp_path / "one/x/last.pt")
    with open_path(tmp_path / "one") as run:
        assert names(run) == ["last.pt"]


def test_a_checkpoint_in_folders_stays_one(tmp_path):
    """Model and optimizer in a folder each, and stages of a pipeline."""
    whole = training(1)
    for name, content in (("model", whole["model"]), ("optim", whole["optimizer"])):
        (tmp_path / "parts" / name).mkdir(parents=True)
        torch.save(content, tmp_path / "parts" / name / f"{name}.pt")
    with open_path(tmp_path / "parts") as checkpoint:
        assert isinstance(checkpoint, Checkpoint)
        assert len(checkpoint.optimizers) == 1
    for stage in "01":
        (tmp_path / "stages/model" / stage).mkdir(parents=True)
        torch.save({f"{stage}.w": torch.ones(2)}, tmp_path / "stages/model" / stage / "weights.pt")
    with open_path(tmp_path / "stages") as checkpoint:
        assert isinstance(checkpoint, Checkpoint)


def test_a_run_of_files_warns_of_checkpoints_below(tmp_path, fixtures_dir):
    """One of them may be newer."""
    folder = lightning_run(tmp_path / "run", fixtures_dir, "ep", "step")
    shutil.copy(folder / "ep/last.ckpt", folder)
    with open_path(folder) as run:
        assert names(run) == ["last.ckpt"]
        (said,) = run.problems
        assert (said.code, said.severity) == ("run.below", Severity.WARNING)
        assert said.message == "checkpoints lie in folders below, too, which are not looked at: ep/, step/"
