"""Every tensor is listed once for each way to it, and nothing else is."""

import pytest

from ckpttool.commands._inspect.rows import rows
from ckpttool.commands._inspect.survey import paths, survey
from ckpttool.errors import LimitExceeded
from ckpttool.limits import Limits
from ckpttool.model import Role
from ckpttool.values import ORDERED_DICT, Attribute, GlobalRef, Opaque, Record
from tests.commands.made import contents, folder, module_checkpoint, plain, state_dict, tensor, training

C = GlobalRef("m", "C")
T = tensor(2)


def listed(root, **fields):
    """Names of the open rows, and of the enclosed ones."""
    found = [*rows(plain(root, **fields))]
    return [r.name for r in found if not r.enclosed], [r.name for r in found if r.enclosed]


@pytest.mark.parametrize(
    ("root", "names"),
    [
        (T, [""]),
        ({"a": T, 0: T, "n": 5}, ["a", "[0]"]),
        ([T, (T, [T])], ["[0]", "[1][0]", "[1][1][0]"]),
        (state_dict({"a": T}), ["a"]),
        (Opaque(cls=C, how="newobj", entries={"a": T}), ["a"]),
        (Opaque(cls=C, how="newobj", items=[T]), ["[0]"]),
        (Opaque(cls=C, how="newobj", state={"t": T, "n": {"u": T}}), ["t", "n.u"]),
        (Opaque(cls=C, how="newobj", state=({"t": T}, {})), ["t"]),
        (Opaque(cls=C, how="newobj", args=(1, T)), ["[1]"]),
        (Opaque(cls=C, how="newobj", args=((T, T),)), ["[0]", "[1]"]),
        (Opaque(cls=C, state={"t": T}), ["t"]),
    ],
)
def test_what_keys_indices_and_attributes_lead_to(root, names):
    """Dicts, lists, tuples, their subclasses, namedtuples and the attributes of objects list their tensors."""
    assert listed(root) == (names, [])


def with_state(value):
    record = Record(ORDERED_DICT)
    record.state = value
    return record


@pytest.mark.parametrize(
    ("root", "names"),
    [
        (Opaque(cls=C, args=(T,)), ["args[0]"]),
        (Opaque(cls=C, args=[T]), ["args[0]"]),
        (Opaque(cls=C, how="newobj", args=(T,), state={}), ["args[0]"]),
        (Opaque(cls=C, kwargs={"k": T}), ["kwargs.k"]),
        (Opaque(cls=Opaque(cls=C, args=(T,))), ["cls.args[0]"]),
        (Opaque(cls=GlobalRef("collections", "deque"), items=[T]), ["[0]"]),
        (Opaque(cls=C, state=(None, {"t": T})), ["t"]),
        (Opaque(cls=C, state=[T]), ["state[0]"]),
        (Opaque(cls=C, items=[], state={"t": T}), ["t"]),
        (Opaque(cls=C, entries={}, state=({"t": T}, {})), ["t"]),
        (Opaque(cls=GlobalRef("numpy.random._pickle", "__randomstate_ctor"), state={"key": T}), ["key"]),
        (Record(C, args=(T,)), ["args[0]"]),
        (with_state({"t": T}), ["t"]),
        (with_state([T]), ["state[0]"]),
        ({frozenset(): {T}}, ["[frozenset][0]"]),
        (tensor(2, attributes={"a": T}), ["attributes.a"]),
        (tensor(2, kind="ndarray", parts=(("items", [T]), ("inner", tensor(1)))), ["items[0]"]),
    ],
)
def test_what_only_the_class_knows_is_enclosed(root, names):
    """Arguments, deques, slots, state of compiled classes and attributes of tensors are a list of their own."""
    assert listed(root)[1] == names


def test_a_module_lists_its_state_dict():
    """A pickled module has its tensors under their names; what else it holds is enclosed; other ways to it are listed."""
    found = [*rows(module_checkpoint())]
    assert [(r.path, r.part, r.enclosed) for r in found] == [
        (("net", "fc.weight"), Role.MODEL, False),
        (("net", Attribute("scratch")), Role.MODEL, True),
        (("params", 0), Role.OTHER, False),
    ]


def test_parts_have_their_roles():
    """A row says which part it belongs to, by where the part begins."""
    parts = {r.name.split(".")[0]: r.part for r in rows(training())}
    assert parts == {"model": Role.MODEL, "optimizer": Role.OPTIMIZER, "rng": Role.RNG}


def test_a_folder_names_the_file():
    """In a folder a row has its file, and its path begins with what the file holds."""
    found = [(r.file, r.path, r.part) for r in rows(folder())]
    assert found[0] == ("pytorch_model.bin", ("fc.weight",), Role.MODEL)
    assert ("custom_checkpoint_0.pkl", ("shadow", "module.fc.bias"), Role.EMA) in found
    assert ("random_states_1.pkl", ("torch_manual_seed",), Role.RNG) in found
    assert all(r.file is None for r in rows(training()))


def test_merged_shards_are_listed_once():
    """Where an index merged shards, each tensor has the shard's name and is not listed with the shard again."""
    checkpoint = folder()
    a, b = tensor(1), tensor(1)
    checkpoint.contents = {
        "m.index.json": contents({"a": a, "b": b}, "m.index.json", files={"a": "s1", "b": "s2"}),
        "s1": contents({"a": a}, "s1"),
        "s2": contents({"b": b}, "s2"),
    }
    assert [(r.file, r.name) for r in rows(checkpoint)] == [("s1", "a"), ("s2", "b")]


def test_cycles_end():
    """A value that holds itself is entered once, wherever the walk comes from."""
    a, b = {}, {}
    a.update(t=T, b=b)
    b.update(u=T, a=a)
    assert listed([a, b])[0] == ["[0].t", "[0].b.u", "[1].u", "[1].a.t"]
    alone = Opaque(cls=C, how="newobj", state={})
    alone.state["me"] = alone
    assert listed(alone) == ([], [])


def test_depth_does_not_matter():
    """A tensor twenty thousand levels down is found without recursion."""
    value = T
    for _ in range(20_000):
        value = [value]
    assert len(next(rows(plain(value))).path) == 20_000


def test_key_paths_may_not_grow_without_end():
    """A tensor on each of a thousand levels has key paths of half a million steps together, and that is bounded."""
    value = []
    for _ in range(1000):
        value = [T, value]
    assert len(listed(value)[0]) == 1000
    with pytest.raises(LimitExceeded, match="nested so deeply"):
        listed(value, limits=Limits(nodes=100_000))


def test_doubled_trees_without_tensors_cost_nothing():
    """Sixty levels of a list with the same list twice hold no tensor, and are passed over."""
    assert listed({"x": doubled(1, 60), "t": T}) == (["t"], [])


def doubled(value, levels):
    """A list that holds the list below it twice, and so on."""
    for _ in range(levels):
        value = [value, value]
    return value


def test_doubled_trees_with_tensors_are_refused():
    """A tensor under 2^60 key paths is refused by name before one is listed."""
    with pytest.raises(LimitExceeded, match="repeated under more than 20,000 further key paths") as caught:
        next(rows(plain(doubled(T, 60))))
    assert caught.value.hint.endswith("--limit repeats=N")
    assert len(listed(doubled(T, 10))[0]) == 1024
    assert len(listed(doubled(T, 10), limits=Limits(repeats=1022))[0]) == 1024
    with pytest.raises(LimitExceeded):
        listed(doubled(T, 10), limits=Limits(repeats=1021))


def test_values_that_hold_each_other_are_refused():
    """Twelve dicts that all hold one another have half a milliard ways through them; the walk gives up by name."""
    ring = [{"t": T} for _ in range(12)]
    for n, one in enumerate(ring):
        one.update({str(m): other for m, other in enumerate(ring) if m != n})
    with pytest.raises(LimitExceeded, match="further key paths"):
        listed(ring, limits=Limits(repeats=5000))


def test_a_maze_without_tensors_ends():
    """Twenty dicts that hold one another and lead back to the only tensor are given up, not searched for ever."""
    maze = [{} for _ in range(20)]
    for n, one in enumerate(maze):
        one.update({str(m): other for m, other in enumerate(maze) if m != n})
    maze[0]["t"] = T
    with pytest.raises(LimitExceeded, match="further key paths"):
        listed(maze[0], limits=Limits(repeats=5000))


def test_ways_are_counted():
    """Every way to a tensor counts, up to a bound, and none around a cycle."""
    for value, count in ((T, 1), ([T, [T]], 2), (doubled([T, T], 3), 16), (doubled(T, 100), 1000)):
        assert paths(value, survey(value, most=10**6).bearing, most=1000) == count
    loop = {"t": T}
    loop["me"] = loop
    assert paths(loop, survey(loop, most=10).bearing, most=10) == 1


def test_too_many_values_are_refused():
    """A tree of more containers than the limit is refused before it is walked."""
    with pytest.raises(LimitExceeded, match="more than 10 containers"):
        survey([[] for _ in range(20)], most=10)


def test_a_tensor_met_twice_keeps_both_ways():
    """A tensor with attributes that two keys share is followed from both."""
    shared = tensor(1, attributes={"a": T})
    names, enclosed = listed({"x": [shared], "y": [shared]})
    assert names == ["x[0]", "y[0]"]
    assert enclosed == ["x[0].attributes.a", "y[0].attributes.a"]
