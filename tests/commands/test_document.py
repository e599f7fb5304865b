"""The JSON of a report is an interface."""

import io
import json
import re
from pathlib import Path

import pytest

from ckpttool.commands._inspect.inspection import of_checkpoint, of_run
from ckpttool.commands._options import Options
from ckpttool.render import json as render
from tests.commands.made import folder, module_checkpoint, plain, run, tensor, training


def document(report):
    stream = io.StringIO()
    render.write(report.document(), stream)
    return json.loads(stream.getvalue())


@pytest.mark.parametrize("made", [training, folder])
def test_documents(snapshot, made):
    """Every field of the document, of a file and of a folder."""
    stream = io.StringIO()
    render.write(of_checkpoint(made(), Options()).document(), stream)
    assert stream.getvalue() == snapshot


def test_a_run(snapshot):
    """A run lists its checkpoints, each with its own document."""
    told = document(of_run(run(), Options()))
    assert {k: v for k, v in told.items() if k != "checkpoints"} == snapshot(name="run")
    assert [(c["name"], c["step"], c["complete"], c["scale"], c["lr"]) for c in told["checkpoints"]] == [
        ("step-100.pt", 100, True, 65536.0, 3e-4),
        ("step-200.pt", 200, True, 131072.0, 3e-4),
        ("step-300.pt", 300, False, 65536.0, 3e-4),
    ]
    assert told["checkpoints"][0]["optimizers"][0]["groups"][1]["lr"] == 1e-4


def test_stats_and_hash_are_in_every_row():
    """Asked-for fields are in each row, null with a reason where there is no answer."""
    root = {"w": tensor(2, values=[1.0, float("nan")]), "q": tensor(1, dtype="quint8", kind="quantized")}
    rows = {
        row["name"]: row for row in document(of_checkpoint(plain(root), Options(stats=True, hash="sha256")))["tensors"]
    }
    assert rows["w"]["stats"]["nan"] == 1
    assert len(rows["w"]["sha256"]) == 64
    assert rows["w"]["reason"] is None
    assert rows["q"]["stats"] is None
    assert rows["q"]["reason"] == "elements of quint8 are not numbers by themselves"
    assert "stats" not in document(of_checkpoint(plain(root), Options()))["tensors"][0]


def test_composite_tensors_are_one_row_with_parts():
    """What a sparse tensor is made of is in its row, hashed like a tensor."""
    sparse = tensor(9, storage=None, kind="sparse_coo", parts=(("values", tensor(2)), ("coalesced", True)))
    rows = document(of_checkpoint(plain({"s": sparse}), Options(hash="sha256")))["tensors"]
    assert [row["key"] for row in rows] == [["s"]]
    assert rows[0]["sha256"] is None
    assert rows[0]["reason"] == "a tensor of kind sparse_coo has no values of its own"
    assert [(p["name"], p["shape"], len(p["sha256"])) for p in rows[0]["parts"]] == [("values", [2], 64)]


def test_ties_point_to_the_first():
    """A second name for the same elements says which the first is."""
    w = tensor(2)
    rows = document(of_checkpoint(plain({"a": w, "b": tensor(2, storage=w.storage), "c": tensor(2)}), Options()))[
        "tensors"
    ]
    assert [row["tied_to"] for row in rows] == [None, ["a"], None]


def test_enclosed_tensors_have_their_own_list():
    """What only the class knows is not among the tensors."""
    told = document(of_checkpoint(module_checkpoint(), Options()))
    assert [row["key"] for row in told["tensors"]] == [["net", "fc.weight"], ["params", 0]]
    assert [row["key"] for row in told["enclosed"]] == [["net", ".scratch"]]


def test_findings_come_after_what_finds_them():
    """Damage that reading finds is in the findings of the same document."""
    storage = tensor(2).storage
    storage.crc32 = 1
    told = document(of_checkpoint(plain({"w": tensor(2, storage=storage)}), Options(hash="sha256")))
    assert [*told][-1] == "findings"
    assert [f["code"] for f in told["findings"]] == ["storage.crc"]


def test_get_is_a_small_document():
    """--get with JSON gives the key and the value."""
    assert document(of_checkpoint(training(), Options(get="scaler.scale"))) == {
        "schema": "ckpt.inspect/1", "path": "ckpt.pt", "key": "scaler.scale", "value": 65536.0,
    }  # fmt: skip


def test_names_of_any_kind_survive():
    """Surrogates, escapes and newlines in names come back as they are in the file."""
    name = "a\n\x1b[2J\ud800\u202e"
    told = document(of_checkpoint(plain({name: tensor(1)}), Options()))
    assert told["tensors"][0]["key"] == [name]


def test_several_scalers_leave_scaler_null():
    """`scaler` is the only one, or null."""
    checkpoint = training()
    assert document(of_checkpoint(checkpoint, Options()))["scaler"]["scale"] == 65536.0
    checkpoint.scalers *= 2
    told = document(of_checkpoint(checkpoint, Options()))
    assert told["scaler"] is None
    assert len(told["scalers"]) == 2
    checkpoint.scalers = ()
    assert document(of_checkpoint(checkpoint, Options()))["scaler"] is None


def members(value):
    """Every member name of a document, at any depth but below the file's own keys."""
    for name, child in value.items():
        yield name
        if name in ("config", "fields", "extra", "progress", "dtypes", "devices", "moments", "value"):
            continue
        for element in child if isinstance(child, list) else [child]:
            if isinstance(element, dict):
                yield from members(element)


@pytest.mark.parametrize(
    "report", [of_checkpoint(training(), Options(stats=True, hash="sha256")), of_run(run(), Options())]
)
def test_every_member_is_documented(report):
    """docs/json.md has a word about each member that a document holds."""
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    words = set(re.findall(r"`([\w]+)(?:\[\])?`", page))
    names = set(members(document(report))) - {"lr", "betas", "$tuple", "eps", "weight_decay"}
    assert names <= words, names - words
