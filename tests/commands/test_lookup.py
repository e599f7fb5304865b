"""--get finds one value by its path, in the report or in a file."""

import pytest

from ckpttool.commands._inspect.document import raw_document
from ckpttool.commands._inspect.lookup import find, spelled
from ckpttool.commands._values import WholeTrees
from ckpttool.errors import LimitExceeded, NoSuchKey
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import At, LossScale, SchedulerState
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, BytesRef, GlobalRef, Opaque, Record
from tests.commands.made import folder, module_checkpoint, plain, tensor, training

C = GlobalRef("m", "C")


def get(path, checkpoint=None):
    checkpoint = checkpoint or training()
    found = find(raw_document(checkpoint), checkpoint, path)
    return WholeTrees(DEFAULT_LIMITS).value(found)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("scaler.scale", 65536.0),
        ("scalers[0].growth_interval", 2000),
        ("optimizer.groups[1].lr", 1e-4),
        ("optimizers[0].steps[0]", 1200.0),
        ("progress.global_step", 1200),
        ("config.dataset", "openwebtext"),
        ("layout", "nanogpt"),
        ("model.parameters", 92),
        ("scheduler.fields.last_epoch", 1200),
    ],
)
def test_words_of_the_report(path, value):
    """The report's own words come first; the only one of a kind goes by the kind's name."""
    assert get(path) == value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimizer.param_groups[0].lr", 3e-4),
        ("optimizer.param_groups[-1].params[0]", 2),
        ("optimizer.state[0].step", 1200.0),
        ("optimizer.state.0.step", 1200.0),
        ("model.steps", 1200),
        ("iter_num", 1200),
        (
            ":scaler",
            {
                "scale": 65536.0,
                "growth_factor": 2.0,
                "backoff_factor": 0.5,
                "growth_interval": 2000,
                "_growth_tracker": 1417,
            },
        ),
        ("model.layers.0.mlp.bias", {"$tensor": {"dtype": "float32", "shape": [4], "kind": "strided"}}),
    ],
)
def test_key_paths_of_the_file(path, value):
    """What the report has no word for is looked up in the file; a tensor of one element is its number."""
    assert get(path) == value


def test_keys_may_hold_dots():
    """Of all ways to cut a path at its dots, one that leads somewhere is taken."""
    root = {"a.b": {"c": 1}, "a": {"b": {"d": 2}, "b.e[0]": 3}, "x": {"5": 4, 6: 5}}
    assert get("a.b.c", plain(root)) == 1
    assert get("a.b.d", plain(root)) == 2
    assert get("a.b.e[0]", plain(root)) == 3
    assert get("x.5", plain(root)) == 4
    assert get("x.6", plain(root)) == 5


def test_objects_are_looked_into():
    """Attributes, entries, items and arguments of an object, and attributes of an OrderedDict."""
    record = Record(ORDERED_DICT)
    record["k"], record.state = 1, {"_metadata": 2}
    root = {
        "o": Opaque(cls=C, state={"lr": 3}, entries={"e": 4}, items=[5]),
        "r": record,
        "n": Opaque(cls=C, args=(6, 7)),
        "c": C,
    }
    for path, value in {"o.lr": 3, "o.e": 4, "o[0]": 5, "r.k": 1, "r._metadata": 2, "n[1]": 7}.items():
        assert get(path, plain(root)) == value


def test_names_of_a_module():
    """A pickled module has its tensors under the names of its state_dict."""
    assert get("fc.weight", module_checkpoint())["$tensor"]["shape"] == [2, 2]


def test_files_of_a_folder():
    """In a folder the file may be named, and must be where several hold the path."""
    assert get("shadow.module.fc.bias", folder())["$tensor"]["shape"] == [4]
    assert get("random_states_0.pkl:torch_manual_seed", folder())["$tensor"]["shape"] == [16]
    assert get("_num_yielded", folder()) == 12
    with pytest.raises(NoSuchKey, match="2 files hold something") as caught:
        get("torch_manual_seed", folder())
    assert caught.value.hint == "name one of them: random_states_0.pkl:torch_manual_seed"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("scaler.scal", "did you mean scaler.scale"),
        ("iter_nu", "did you mean iter_num"),
        ("zzzzz", "the report has path, layout"),
        ("scaler.scale.x", "did you mean"),
        ("optimizer.param_groups[9]", ""),
        ("progress[0]", ""),
    ],
)
def test_what_is_nowhere_gets_a_hint(path, hint):
    """A path to nothing is an error that says what may have been meant."""
    with pytest.raises(NoSuchKey, match="nothing is under") as caught:
        get(path)
    assert caught.value.hint.startswith(hint)


def test_a_path_with_many_ways_ends():
    """A path of hundreds of dots through keys that make every cut possible is given up, not tried for ever."""
    root = {}
    here = root
    for _ in range(40):
        here["a"] = here["a.a"] = {}
        here = here["a"]
    with pytest.raises(NoSuchKey):
        get(".".join("a" * 60) + ".b", plain(root))


def test_values_for_a_shell():
    """A string is itself, everything else is JSON."""
    assert spelled("a b", DEFAULT_LIMITS) == "a b"
    assert spelled(65536.0, DEFAULT_LIMITS) == "65536.0"
    assert spelled(True, DEFAULT_LIMITS) == "true"
    assert spelled(None, DEFAULT_LIMITS) == "null"
    assert spelled({"a": [1]}, DEFAULT_LIMITS) == '{"a": [1]}'


def test_several_of_a_kind_are_a_list():
    """Where there are two optimizers, `optimizer` is the list of both."""
    checkpoint = training()
    checkpoint.optimizers *= 2
    assert get("optimizer[1].groups[0].lr", checkpoint) == 3e-4
    assert tensor(1) is not None


def test_a_value_for_a_shell_is_whole():
    """Nothing is cut, tuples are arrays, and integers are decimal as far as Python spells them so."""
    assert spelled("x" * 300_000, DEFAULT_LIMITS) == "x" * 300_000
    assert spelled((1, (2,)), DEFAULT_LIMITS) == "[1, [2]]"
    assert spelled(1 << 300, DEFAULT_LIMITS) == str(1 << 300)
    assert spelled(1 << 20_000, DEFAULT_LIMITS) == hex(1 << 20_000)
    assert spelled([*range(30_000)], DEFAULT_LIMITS).endswith("29999]")


def test_json_has_the_whole_value_with_tags():
    """In JSON a tuple is tagged, a long integer is hexadecimal, and bytes are all there."""
    whole = WholeTrees(DEFAULT_LIMITS)
    assert whole.value((1 << 5_000, b"x" * 300)) == {
        "$tuple": [{"$int": hex(1 << 5_000)}, {"$bytes": "eHh4" * 100, "length": 300}]
    }
    assert whole.value(BytesRef(BytesSource(b"abc"), 0, 3)) == {"$bytes": "YWJj", "length": 3}


def test_what_is_too_large_is_an_error_and_not_cut():
    """A value that would not end is refused, with a way to look at it."""
    deep = []
    for _ in range(100):
        deep = [deep]
    for value, limits in ((deep, DEFAULT_LIMITS), ([1] * 50, Limits(nodes=20))):
        with pytest.raises(LimitExceeded, match="nested deeper than 40 levels or holds more than") as caught:
            spelled(value, limits)
        assert "--tree" in caught.value.hint


def test_keys_with_dots_may_be_quoted():
    """Quotes in brackets say where a key ends."""
    root = {"x": {"y": 1}, "x.y": {"z": 2, "it's": {"[0]": 3}}}
    assert get("['x.y'].z", plain(root)) == 2
    assert get('["x.y"]["it\'s"][\'[0]\']', plain(root)) == 3


def test_fields_of_a_part_in_a_folder():
    """What the screen shows of a part has a short path wherever the part lies, and so has the trainer's own key."""
    checkpoint = folder()
    fields = {"last_epoch": 7, "_last_lr": [0.5, 0.25]}
    checkpoint.schedulers = (SchedulerState(at=At("scheduler.bin"), fields=fields),)
    checkpoint.scalers = (LossScale(at=At("random_states_0.pkl"), scale=8.0),)
    assert get("scheduler.last_epoch", checkpoint) == 7
    assert get("scheduler.lr", checkpoint) == 0.5
    assert get("scaler.torch_manual_seed", checkpoint)["$tensor"]["shape"] == [16]
    assert get("data[0]._num_yielded", checkpoint) == 12
    assert get("optimizer.lr") == 3e-4


def test_hints_come_from_inside_the_file_and_once():
    """A key below the top of the file may be what was meant, and no suggestion is made twice."""
    for path, hint in {"a.ler": "did you mean a.lerr", "scaler.scal": "did you mean scaler.scale"}.items():
        checkpoint = plain({"a": {"lerr": 1}}) if path == "a.ler" else training()
        with pytest.raises(NoSuchKey) as caught:
            get(path, checkpoint)
        assert caught.value.hint.startswith(hint)
        words = caught.value.hint.removeprefix("did you mean ").replace(" or ", ", ").split(", ")
        assert len(words) == len(set(words))


def test_findings_are_a_list():
    """What a report writes as it goes can be looked up, too."""
    words = {"path": "m.pt", "findings": iter([{"code": "x"}])}
    assert find(words, None, "findings[0].code") == "x"
