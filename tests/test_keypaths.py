"""Key paths, written and walked."""

from ckpttool.keypaths import Way, spelled_path
from ckpttool.values import Attribute


def test_a_way_is_the_tuple_of_its_steps():
    """It compares, hashes, counts and reads like it; the root has none."""
    root = Way()
    way = root.to("a").to(0).to(Attribute("b"))
    steps = ("a", 0, Attribute("b"))
    assert way == steps
    assert steps == way
    assert way == root.to("a").to(0).to(Attribute("b"))
    assert way != root.to("a")
    assert way != ["a", 0, Attribute("b")]
    assert (len(way), tuple(way), way[0], way[1:], way.last, hash(way)) == (
        3,
        steps,
        "a",
        steps[1:],
        steps[2],
        hash(steps),
    )
    assert (len(root), tuple(root), bool(root), bool(way), root.last) == (0, (), False, True, None)


def test_one_way_leads_from_another():
    """From itself and from every way that it goes on from; not from one beside it."""
    root = Way()
    inner = root.to("a")
    way = inner.to("b").to("c")
    assert way.leads_from(root)
    assert way.leads_from(inner)
    assert inner.leads_from(inner)
    assert not inner.leads_from(way)
    assert not way.leads_from(root.to("x"))


def test_spelled():
    """Dots before words, brackets around numbers; a number of thousands of digits costs nothing."""
    assert spelled_path(("optimizer", "state", 0, "exp_avg")) == "optimizer.state[0].exp_avg"
    assert spelled_path((Attribute("cls"), "x", (1, 2))) == "cls.x[tuple]"
    assert spelled_path((1 << 20_000,)).startswith("[0x1000")
    assert spelled_path(Way()) == ""
