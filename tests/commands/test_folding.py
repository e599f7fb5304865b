"""Repeated layers fold into one line."""

from ckpttool.commands._inspect.folding import folded, unfolded
from ckpttool.commands._inspect.rows import rows
from tests.commands.made import plain, tensor


def lines(root):
    return [(fold.count, fold.name) for fold in folded(rows(plain(root)))]


def test_names_that_differ_in_numbers_fold():
    """Layers of one shape and type are one line, with [N] for the number."""
    root = {f"layers.{n}.mlp.weight": tensor(2) for n in range(24)}
    assert lines(root) == [(24, "layers.[N].mlp.weight")]
    assert folded(rows(plain(root)))[0].nbytes == 24 * 8


def test_numbers_that_all_share_stay():
    """Only the number that differs becomes [N]; indices keep one pair of brackets."""
    root = {f"enc.0.layers.{n}.w2": tensor(2) for n in range(3)} | {
        "state": {n: {"exp_avg": tensor(2)} for n in range(2)}
    }
    assert lines(root) == [(3, "enc.0.layers.[N].w2"), (2, "state[N].exp_avg")]


def test_what_differs_otherwise_stays_apart():
    """Another shape, type, device or kind is another line, and a single tensor keeps its number."""
    root = {
        "l.0.w": tensor(2),
        "l.1.w": tensor(3),
        "l.2.w": tensor(2, dtype="bfloat16", storage=tensor(2).storage),
        "l.3.w": tensor(2, location="cuda:0"),
        "l.4.w": tensor(2, storage=None, kind="meta"),
        "l2.w": tensor(2),
    }
    assert lines(root) == [(1, "l.0.w"), (1, "l.1.w"), (1, "l.2.w"), (1, "l.3.w"), (1, "l.4.w"), (1, "l2.w")]


def test_unfolded_lines_are_rows():
    """--all shows each tensor for itself."""
    assert [fold.name for fold in unfolded(rows(plain({"l.0": tensor(1), "l.1": tensor(1)})))] == ["l.0", "l.1"]
