"""What a checkpoint's report says, as text and in its exit code."""

import dataclasses
import io
import math

import pytest

from ckpttool.blocks import Finding, Report, Severity
from ckpttool.commands._inspect.facts import total_bytes
from ckpttool.commands._inspect.inspection import of_checkpoint, of_run, options
from ckpttool.commands._options import Options
from ckpttool.commands.inspect import inspect
from ckpttool.errors import FileChanged, NoSuchKey, UsageError
from ckpttool.model import (
    At,
    Checkpoint,
    CustomObject,
    GlobalUse,
    LossScale,
    OptimizerState,
    ParamGroup,
    RngState,
    Role,
    SchedulerState,
    Weights,
)
from ckpttool.render.text import console_for, write
from ckpttool.values import GlobalRef, Opaque, TensorRef, Trust
from tests.commands.made import contents, folder, plain, run, tensor, training

MADE = {"training": training, "folder": folder}
VIEWS = {
    "summary": {},
    "tensors": {"tensors": True},
    "all-by-size": {"tensors": True, "every": True, "sort": "size"},
    "by-name": {"select": ("*weight", "*bias"), "sort": "name"},
    "stats": {"stats": True, "select": ("*bias", "*seed")},
    "hash": {"hash": "sha256", "select": ("*bias",)},
    "globals": {"globals": True},
}


def text(report, columns=None, **environment):
    stream = io.StringIO()
    write(report.blocks(), console_for(stream, environment=environment), columns=columns)
    return stream.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("made", MADE)
def test_views(snapshot, made, view, columns):
    """Each view of each checkpoint at the two usual widths."""
    assert text(of_checkpoint(MADE[made](), Options(**VIEWS[view])), columns) == snapshot


@pytest.mark.parametrize("made", MADE)
def test_in_colour_and_in_a_pipe(snapshot, made):
    """The one screen in colour, and as a pipe gets it: one line for each part, however long."""
    report = of_checkpoint(MADE[made](), Options())
    assert text(report, 100, FORCE_COLOR="1", TERM="xterm-256color") == snapshot(name="colour")
    assert text(report) == snapshot(name="pipe")


@pytest.mark.parametrize("role", ["model", "optimizer", "scheduler", "scaler", "rng", "progress", "config"])
def test_parts_of_a_training_checkpoint(snapshot, role):
    """A part in full: every group, every field."""
    assert text(of_checkpoint(training(), options(part=role, sort=None, hashed=None)), 80) == snapshot


@pytest.mark.parametrize("role", ["model", "ema", "scaler", "rng", "data", "custom", "other"])
def test_parts_of_a_folder(snapshot, role):
    """The same where the parts are files."""
    assert text(of_checkpoint(folder(), options(part=role, sort=None, hashed=None)), 80) == snapshot


def test_parts_and_tensors():
    """--part with --tensors lists the tensors of the parts."""
    shown = text(of_checkpoint(training(), Options(tensors=True, parts=(Role.RNG,))))
    assert "rng  1 tensor" in shown
    assert "emb" not in shown


def test_a_part_that_is_not_there():
    """A checkpoint without a part says which it has."""
    with pytest.raises(NoSuchKey, match="there is no part ema") as caught:
        of_checkpoint(training(), Options(parts=(Role.EMA,)))
    assert "scaler" in caught.value.hint
    with pytest.raises(NoSuchKey) as caught:
        of_checkpoint(plain({}), Options(parts=(Role.EMA,)))
    assert not caught.value.hint


def test_a_file_without_tensors():
    """A list of tensors that is empty says so."""
    assert "no tensors" in text(of_checkpoint(plain({"a": 1}), Options(tensors=True)))


def test_get_is_one_value():
    """--get prints the value and nothing else."""
    assert text(of_checkpoint(training(), Options(get="scaler.scale"))) == "65536.0\n"


def test_a_checkpoint_without_globals():
    """safetensors files name no globals."""
    assert "the files name none" in text(of_checkpoint(training(globals_=()), Options(globals=True)))


def uses(*trusts):
    names = {
        Trust.DANGEROUS: ("posix", "system"),
        Trust.REFUSED: ("argparse", "Namespace"),
        Trust.ACCEPTED: ("torch", "Size"),
    }
    return tuple(
        GlobalUse(
            ref=GlobalRef(*names[trust]), trust=trust, file="ckpt.pt:ckpt/data.pkl", offset=9, called=trust is Trust.DANGEROUS,
            paths=tuple(("args", n) for n in range(5)), places=7,
        )
        for trust in trusts
    )  # fmt: skip


def test_globals_are_ranked(snapshot):
    """Dangerous names come first, with the call, the byte and where their objects sit."""
    report = of_checkpoint(training(globals_=uses(*Trust)), Options(globals=True))
    assert text(report, 120) == snapshot


@pytest.mark.parametrize(
    ("trusts", "line", "code"),
    [
        ([Trust.ACCEPTED], "1, all accepted by torch.load", 0),
        ([Trust.REFUSED], "1 that torch.load refuses: argparse.Namespace", 0),
        ([Trust.DANGEROUS, Trust.ACCEPTED], "1 dangerous: posix.system, 1 that it accepts", 1),
    ],
)
def test_only_danger_is_wrong(trusts, line, code):
    """Globals that weights_only refuses are no reason for exit code 1, dangerous ones are."""
    report = of_checkpoint(training(globals_=uses(*trusts)), Options())
    assert line in text(report)
    assert report.exit_code == code


def test_a_danger_that_is_not_called():
    """A dangerous name that the file only holds is imported, and sits nowhere."""
    use = dataclasses.replace(uses(Trust.DANGEROUS)[0], called=False, paths=())
    shown = text(of_checkpoint(training(globals_=(use,)), Options()))
    assert "loading it the usual way imports posix.system" in shown
    assert "at ckpt.pt:ckpt/data.pkl @ byte 9" in shown


@pytest.mark.parametrize("severity", list(Severity))
def test_only_errors_are_wrong(severity):
    """A warning is shown and the exit code stays 0."""
    report = of_checkpoint(training(problems=(Finding(code="a", severity=severity, message="odd"),)), Options())
    assert report.exit_code == (severity is Severity.ERROR)


def test_what_could_not_be_read_is_wrong():
    """A file that was read in part is never fine."""
    checkpoint = plain({})
    checkpoint.contents = {"": contents({}, complete=False)}
    assert of_checkpoint(checkpoint, Options()).exit_code == 1


def test_findings_come_worst_first():
    """Errors before warnings before notes, whatever order they were found in."""
    found = [Finding(code="c", severity=s, message=f"the {s}") for s in reversed(Severity)]
    shown = text(of_checkpoint(training(problems=tuple(found)), Options()))
    assert [shown.index(f"the {s}") for s in Severity] == sorted(shown.index(f"the {s}") for s in Severity)


def test_damage_found_by_reading_counts():
    """A checksum that does not hold is in the text below the table, and in the exit code."""
    storage = tensor(2).storage
    storage.crc32 = 1
    report = of_checkpoint(plain({"w": tensor(2, storage=storage)}), Options(stats=True))
    assert report.exit_code == 0
    assert "storage.crc" in text(report)
    assert report.exit_code == 1


def test_progress_counts_bytes():
    """While values are read, the callback hears how far it is."""
    told = []
    report = of_checkpoint(
        plain({"a": tensor(2), "b": tensor(3)}), Options(hash="sha256"), lambda *args: told.append(args)
    )
    text(report)
    assert told == [("reading values", 8, 20), ("reading values", 20, 20)]


def test_odd_tensors_have_notes():
    """Device, strides, ties, views, kinds, classes and flags are told beside a tensor; ordinary ones have nothing."""
    big, shared = tensor(100), tensor(4)
    root = {
        "plain": tensor(1),
        "cuda": tensor(1, location="cuda:1"),
        "strided": tensor(2, 2, stride=(1, 2)),
        "a": shared,
        "b": tensor(4, storage=shared.storage),
        "view": tensor(1, storage=big.storage),
        "meta": tensor(2, kind="meta").__class__(dtype=tensor(1).dtype, shape=(2,), kind="meta"),
        "sub": tensor(1, cls=GlobalRef("m", "Sub"), conj=True, neg=True),
        "none": tensor(0),
    }
    shown = text(of_checkpoint(plain(root), Options(tensors=True)))
    notes = {line.split()[0]: " ".join(line.split()[5 if "[2, 2]" in line else 4 :]) for line in shown.splitlines()[3:]}
    assert notes["plain"].split() == ["B"]
    for name, note in {
        "cuda": "cuda:1", "strided": "strides [1, 2]", "b": "is a", "view": "a view of 400 B", "meta": "meta, no data", "sub": "m.Sub, conj, neg",
    }.items():  # fmt: skip
        assert notes[name].endswith(note)


def test_one_file_without_parts():
    """Keys that nobody has a word for are shown with what they hold."""
    checkpoint = plain({"x": 1})
    checkpoint.custom = (
        CustomObject(at=At("", ("x",)), name="x", value=Opaque(cls=GlobalRef("m", "C"), state={"a": 1})),
        CustomObject(at=At("", ("y",)), name="y", value={}),
    )
    shown = text(of_checkpoint(checkpoint, Options()))
    assert "m.C: a 1  x" in shown
    assert "{}  y" in shown


def test_a_folder_of_many_types():
    """Types are counted by elements, and counters of one integer are no parameters."""
    tensors = {"a": tensor(2), "b": tensor(3, dtype="float16"), "n": tensor(dtype="int64", values=[5])}
    checkpoint = plain(tensors, weights=(Weights(at=At(""), tensors=tensors),))
    assert "5 parameters in 3 tensors, float16 (3), float32 (2)" in text(of_checkpoint(checkpoint, Options()))
    w = tensor(2)
    tied = {"a": w, "b": tensor(2, storage=w.storage)}
    checkpoint = plain(tied, weights=(Weights(at=At(""), tensors=tied),))
    assert "2 parameters in 2 tensors, 1 tied, float32" in text(of_checkpoint(checkpoint, Options()))
    only = {"n": tensor(dtype="int64", values=[5])}
    checkpoint = plain(only, weights=(Weights(at=At(""), tensors=only),))
    assert "0 parameters in 1 tensor, int64" in text(of_checkpoint(checkpoint, Options()))
    checkpoint = plain({}, weights=(Weights(at=At("")),))
    assert "0 parameters in 0 tensors\n" in text(of_checkpoint(checkpoint, Options()))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "growth_tracker": 1999},
         "65,536: ×2 after 1 more good step, ×0.5 on overflow"),
        ({"scale": 8.0, "growth_factor": 2.0, "growth_interval": 100}, "8: ×2 after 100 good steps in a row"),
        ({"scale": 8.0, "growth_factor": 2.0, "growth_interval": 10, "growth_tracker": 10},
         "8: never grows: tracker 10 is past the interval 10"),
        ({"scale": 8.0, "growth_factor": 1.0, "backoff_factor": 1.0, "growth_interval": 100}, "8: it does not grow"),
        ({"scale": 1.0, "form": "LossScaler object"}, "1: it stays as it is  LossScaler object"),
        ({"enabled": False}, "disabled: no scale is kept"),
        ({}, "unknown: it stays as it is"),
    ],
)  # fmt: skip
def test_a_loss_scale_in_words(fields, said):
    """What the scale is, and when it changes."""
    checkpoint = plain({}, scalers=(LossScale(at=At(""), **fields),))
    assert said in text(of_checkpoint(checkpoint, Options()))


@pytest.mark.parametrize("scale", [0.0, math.inf])
def test_a_dead_scale_is_red(scale):
    """A scale of zero or infinity stops training, and is shown so."""
    checkpoint = plain({}, scalers=(LossScale(at=At(""), scale=scale),))
    assert "\x1b[1;31m" in text(of_checkpoint(checkpoint, Options()), FORCE_COLOR="1", TERM="xterm")


def test_a_run(snapshot):
    """Checkpoints in step order, the curve of the scale, and the newest complete one."""
    report = of_run(run(), Options())
    assert text(report, 80) == snapshot
    assert report.exit_code == 1
    assert isinstance(report, Report)


def test_a_fine_run():
    """A run whose newest checkpoint is complete is fine; equal values draw no curve."""
    report = of_run(run((1.0, 1.0), complete=(False, True)), Options())
    assert report.exit_code == 0
    assert "▄" not in text(report)


def test_a_run_without_a_complete_checkpoint(snapshot):
    """Where none is complete, that is said."""
    made = run((1.0,), complete=(False,))
    made.problems = (Finding(code="run.gap", severity=Severity.ERROR, message="a step is missing"),)
    made.checkpoints[0].problems = (
        Finding(code="a", severity=Severity.NOTE, message="odd"),
        Finding(code="b", severity=Severity.NOTE, message="odd", where="x.bin"),
    )
    report = of_run(made, Options())
    assert text(report, 80) == snapshot
    assert report.exit_code == 1


def test_an_empty_run_is_wrong():
    """No checkpoint at all is not fine."""
    assert of_run(run((), complete=()), Options()).exit_code == 1


def test_a_run_answers_get():
    """--get works on a run, with its own words."""
    assert text(of_run(run(), Options(get="checkpoints[1].scale"))) == "131072.0\n"
    assert of_run(run(), Options(get="newest_complete")).document()["value"] == "step-200.pt"
    with pytest.raises(NoSuchKey):
        text(of_run(run(), Options(get="iter_num")))


def test_other_options_want_one_checkpoint():
    """Tensors of a whole run are not listed; the error names the newest complete checkpoint."""
    with pytest.raises(UsageError, match="run holds 3 checkpoints") as caught:
        of_run(run(), Options(tensors=True))
    assert caught.value.hint == "name one, as run/step-200.pt"
    with pytest.raises(UsageError) as caught:
        of_run(run((1.0,), complete=(False,)), Options(tree=True))
    assert caught.value.hint == "name one of them"


def test_closing_checks_that_nothing_changed():
    """A report is only true of files that stayed as they were."""

    class Source:
        name, size, closed = "m.pt", 0, False

        def check_unchanged(self):
            raise FileChanged("the file changed")

        def close(self):
            self.closed = True

    checkpoint = Checkpoint(path="m", layout="plain", opened=(Source(),))
    with pytest.raises(FileChanged):
        of_checkpoint(checkpoint, Options()).close()
    made = run((1.0,))
    made.checkpoints[0].opened = (Source(),)
    with pytest.raises(FileChanged):
        of_run(made, Options()).close()


def test_reports_close():
    """Closing gives the files back."""
    of_checkpoint(training(), Options()).close()
    of_run(run(), Options()).close()


def test_quantized_tensors_have_no_statistics():
    """A tensor whose elements are no numbers by themselves has a reason in their place."""
    shown = text(of_checkpoint(plain({"q": tensor(1, dtype="quint8", kind="quantized")}), Options(stats=True)))
    assert "quantized, elements of quint8 are not numbers by themselves" in shown


def test_parts_with_less_in_them():
    """A schedule without a rate, shards of weights, an optimizer that keeps lists, and one that was pickled whole."""
    parameter, other = tensor(2, parameter=True), tensor(2, parameter=True)
    state = {parameter: {"old_dirs": [tensor(2), 1], "n": 5}}
    group = ParamGroup(hyperparameters={"lr": 0.1}, params=(parameter, other), names=(None, None))
    meta = TensorRef(dtype=tensor(1).dtype, shape=(4,), stride=(1,), kind="meta")
    checkpoint = plain(
        {},
        weights=(Weights(at=At(""), tensors={"a": meta}, files={"a": "shard-1"}),),
        optimizers=(OptimizerState(at=At(""), groups=(group,), state=state, state_keys=("old_dirs", "n")),),
        schedulers=(SchedulerState(at=At(""), fields={"last_epoch": 3}),),
    )
    screen = text(of_checkpoint(checkpoint, Options()))
    assert "a schedule, last_epoch 3\n" in screen
    assert "a class we do not know, 1 of 2 parameters with state " in screen
    full = text(of_checkpoint(checkpoint, Options(parts=(Role.MODEL, Role.OPTIMIZER))))
    assert "files  shard-1" in full
    assert "without state  a parameter without a name" in full
    assert "old_dirs float32" in full


def test_an_empty_table_is_left_out():
    """A block without lines leaves no gap."""
    shown = text(of_checkpoint(plain({}), Options()))
    assert shown == "m.pt  plain, torch-zip, 1.2 kB\n"


def test_a_tensor_is_not_tied_to_itself():
    """One tensor object under two keys: the first is the tensor, and only the second says whose it is."""
    shared = tensor(4)
    lines = text(of_checkpoint(plain({"a": shared, "b": shared}), Options(tensors=True))).splitlines()
    assert lines[1].endswith("2 tensors, 1 tied, 16 B")
    assert [line.rstrip().endswith("is a") for line in lines[3:5]] == [False, True]


def test_a_scale_of_which_nothing_comes_is_a_warning():
    """A scale of zero, infinity or NaN is a finding; a disabled scaler and a usual scale are none."""
    for scale, dead in (
        (0.0, True),
        (float("inf"), True),
        (float("nan"), True),
        (-1.0, True),
        (1.0, False),
        (None, False),
    ):
        checkpoint = plain({}, scalers=(LossScale(at=At("scaler.pt", ("s",)), scale=scale),))
        report = of_checkpoint(checkpoint, Options())
        assert [(f.code, f.where) for f in report.findings] == ([("scaler.dead", "scaler.pt: s")] if dead else [])
        assert report.exit_code == 0
    disabled = plain({}, scalers=(LossScale(at=At(""), scale=0.0, enabled=False),))
    assert of_checkpoint(disabled, Options()).findings == []


def test_a_tensor_on_meta_takes_no_bytes():
    """The meta device has shapes and no values: nothing of it is counted as stored."""
    meta = TensorRef(dtype=tensor(1).dtype, shape=(70_000, 70_000), kind="meta")
    checkpoint = plain({"w": meta}, weights=(Weights(at=At(""), tensors={"w": meta}),))
    assert "4.9 B parameters in 1 tensor, 1 on meta: no data, float32" in text(of_checkpoint(checkpoint, Options()))
    assert "GB" not in text(of_checkpoint(checkpoint, Options(tensors=True)))


def test_a_long_name_is_cut_in_text_only():
    """A key of a hundred thousand characters is shown by its ends; JSON has all of it."""
    report = of_checkpoint(plain({"k" * 100_000: tensor(1), "": tensor(2)}), Options(tensors=True))
    lines = text(report).splitlines()
    assert "…(100,000 characters)…" in lines[3]
    assert len(lines[3]) < 250
    assert lines[4].split()[0] == "''"
    assert len(next(iter(report.document()["tensors"]))["name"]) == 100_000


def test_a_file_that_cannot_be_opened_has_its_size(tmp_path):
    """In a run the size of a file or folder that no one can read is that on the disk."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.pt").write_bytes(bytes(70))
    (tmp_path / "b.pt").write_bytes(bytes(30))
    sizes = [total_bytes(Checkpoint(path=str(tmp_path / name), layout="")) for name in ("folder", "b.pt", "gone")]
    assert sizes == [70, 30, 0]


def test_parameters_without_a_name_are_numbered():
    """An id stands with a mark, so that it is not taken for a name."""
    group = ParamGroup(hyperparameters={"lr": 1.0, "betas": (0.1 + 0.2, 0.95)}, params=(0, 1), names=(None, "3.bias"))
    checkpoint = plain({}, optimizers=(OptimizerState(at=At(""), groups=(group,), names_from="order"),))
    shown = text(of_checkpoint(checkpoint, Options(parts=(Role.OPTIMIZER,))))
    assert "#0, 3.bias" in shown
    assert "assumed from the model's order" in shown
    assert "(0.3, 0.95)" in shown


def test_generators_of_one_kind_are_counted():
    """Two numpy generators in one process are two in the line, and one in each of two processes is one."""
    for ranks, said in (((None, None), "2 numpy, torch"), ((0, 1), "numpy, torch, ranks 0–1")):
        states = [RngState(at=At("", (n,)), generator="numpy", rank=rank) for n, rank in enumerate(ranks)]
        checkpoint = plain({}, rng=(*states, RngState(at=At(""), generator="torch", rank=ranks[0])))
        assert said in text(of_checkpoint(checkpoint, Options()))


def test_a_part_named_as_its_file_says_it_once():
    """`custom_checkpoint_0` beside `custom_checkpoint_0.pkl` tells nothing more."""
    shown = text(of_checkpoint(folder(), Options()))
    assert "custom_checkpoint_0.pkl" in shown
    assert "custom_checkpoint_0," not in shown


def test_json_tells_a_change_of_the_file(monkeypatch):
    """A file that was written to meanwhile fails before the findings end, so that the document itself says so."""
    checkpoint = plain({})

    def changed(_):
        raise FileChanged("it changed")

    monkeypatch.setattr(Checkpoint, "check_unchanged", changed)
    with pytest.raises(FileChanged):
        list(of_checkpoint(checkpoint, Options()).document()["findings"])


@pytest.mark.parametrize(("path", "said"), [("", "the path is empty"), ("-", "standard input cannot be read")])
def test_paths_that_are_none(path, said):
    """An empty path is not the current folder, and a dash is not a file."""
    with pytest.raises(UsageError, match=said):
        inspect(path)


def test_a_program_whose_tensors_are_listed_is_fine():
    """A TorchScript program is told from a checkpoint by a note; one that could not be looked into is exit code 1."""
    for root, container, code in (({}, "torchscript", 0), (None, "torchscript", 1), (None, "torch-export", 1)):
        checkpoint = plain(None)
        checkpoint.contents = {"": contents(root, container=container, complete=False)}
        assert of_checkpoint(checkpoint, Options()).exit_code == code
