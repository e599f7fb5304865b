"""Where globals sit in a tree, and which storages it looks at."""

from ckpttool.containers._globals import Survey, global_uses, merge_globals
from ckpttool.dtypes import FLOAT32
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.pickles import Mention
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, Attribute, GlobalRef, Opaque, Record, StorageRef, TensorRef, Trust

X, Y = GlobalRef("a", "X"), GlobalRef("a", "Y")
STORAGE = StorageRef(BytesSource(bytes(4)), 0, 4)


def survey(root, limits: Limits = DEFAULT_LIMITS) -> Survey:
    """A tree, walked."""
    return Survey(root, limits)


def test_classes_of_objects_are_found_where_the_objects_are() -> None:
    """Objects, records, tensors of a class, and globals that are values or keys, each at its key path."""
    tensor = TensorRef(dtype=FLOAT32, shape=(), storage=STORAGE, cls=Y)
    tree = {"o": [Opaque(X, state={"inner": Opaque(X)})], "r": Record(ORDERED_DICT), "t": tensor, Y: 1}
    found = survey(tree)
    assert found.paths == {
        Y: [(Y,), ("t",)],
        X: [("o", 0), ("o", 0, Attribute("inner"))],
        ORDERED_DICT: [("r",)],
    }
    assert found.places == {X: 2, Y: 2, ORDERED_DICT: 1}


def test_root_may_be_an_object_itself() -> None:
    """The key path of the root is empty."""
    assert survey(Opaque(X)).paths == {X: [()]}
    assert survey(X).paths == {X: [()]}
    assert survey(None).paths == {}


def test_objects_that_are_keys_are_looked_into() -> None:
    """A dict, and an object with entries, may have objects for keys."""
    key = Opaque(X)
    assert survey({key: 1}).paths == {X: [(key,)]}
    assert survey(Opaque(Y, entries={(X, 1): 2})).paths == {Y: [()], X: [((X, 1), 0)]}


def test_shared_containers_are_walked_once() -> None:
    """Thirty levels of a list that holds the same list twice are thirty lists; cycles end."""
    tree: list = [Opaque(X)]
    for _ in range(30):
        tree = [tree, tree]
    assert survey(tree).places == {X: 1}
    ring: list = []
    ring.append(ring)
    assert survey(ring).paths == {}


def test_storages_of_tensors_are_collected_once() -> None:
    """Tensors, their parts and attributes, and storages by themselves."""
    other = StorageRef(BytesSource(b""), 0, 0)
    part = TensorRef(dtype=FLOAT32, shape=(), storage=other)
    plain = TensorRef(dtype=FLOAT32, shape=(), storage=STORAGE)
    composite = TensorRef(dtype=FLOAT32, shape=(), kind="sparse_coo", parts=(("values", part),))
    attributed = TensorRef(dtype=FLOAT32, shape=(), storage=STORAGE, attributes={"x": Opaque(X)})
    found = survey([plain, plain, composite, attributed, STORAGE])
    assert list(found.storages.values()) == [STORAGE, other]
    assert found.paths == {X: [(3, Attribute("attributes"), "x")]}


def test_paths_of_one_global_are_limited_and_its_places_counted() -> None:
    """A thousand objects of a class are counted; the first sixteen say where."""
    found = survey([Opaque(X) for _ in range(1000)])
    assert (found.places[X], len(found.paths[X])) == (1000, 16)


def test_paths_of_a_deep_tree_are_limited(monkeypatch) -> None:
    """Key paths of a hostile tree would take more memory than the tree: their steps are counted."""
    monkeypatch.setattr("ckpttool.containers._globals._MOST_STEPS", 200)
    tree: list = [[Opaque(GlobalRef("m", str(n))) for n in range(3)]]
    for _ in range(90):
        tree = [tree]
    assert [len(paths) for paths in survey(tree).paths.values()] == [1, 1, 0]


def test_walk_ends_at_the_limit() -> None:
    """A tree of more containers than the limit is walked in part."""
    assert survey([[n] for n in range(100)] + [[Opaque(X)]], Limits(nodes=100)).paths == {}


def test_uses_keep_the_order_of_mention() -> None:
    """A use has the trust, the place in the file and the key paths of its global."""
    uses = global_uses(
        {X: Mention(5), ORDERED_DICT: Mention(9, called=True)}, survey({"r": Record(ORDERED_DICT)}), "f:m"
    )
    assert [(u.ref, u.trust, u.file, u.offset, u.called, u.paths, u.places) for u in uses] == [
        (X, Trust.REFUSED, "f:m", 5, False, (), 0),
        (ORDERED_DICT, Trust.ACCEPTED, "f:m", 9, True, (("r",),), 1),
    ]


def test_merged_globals_keep_the_first_mention() -> None:
    """Of two pickles of a file, the first names where; either may call."""
    known = {X: Mention(1)}
    merge_globals(known, {X: Mention(7, called=True), Y: Mention(8)})
    assert {r: (m.offset, m.called) for r, m in known.items()} == {X: (1, True), Y: (8, False)}
