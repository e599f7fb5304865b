"""Names of parameters by matching shapes: a right "unknown" beats a wrong name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.layouts._param_names import named
from ckpttool.model import At, OptimizerState, ParamGroup, Weights
from tests.layouts.trees import contents, parts, parts_in, tensor


def optimizer(*groups, key="exp_avg"):
    """An optimizer with groups of shapes; None for a parameter without state."""
    ids = iter(range(1_000))
    made, state = [], {}
    for group in groups:
        params = [next(ids) for _ in group]
        state.update({p: {key: tensor(*shape)} for p, shape in zip(params, group, strict=True) if shape is not None})
        made.append(ParamGroup(hyperparameters={}, params=tuple(params), names=(None,) * len(params)))
    return OptimizerState(at=At(""), groups=tuple(made), state=state)


def weights(*, at="", ordered=True, **shapes):
    tensors = {name.replace("_", "."): tensor(*shape) for name, shape in shapes.items()}
    return Weights(at=At(at), tensors=tensors, in_model_order=ordered)


def names(opt, *beside):
    found = named(opt, beside)
    return found.names_from, [list(g.names) for g in found.groups]


NET = {"emb_weight": (16, 4), "fc_weight": (4, 16), "fc_bias": (4,), "head_weight": (4, 16), "head_bias": (4,)}


def test_all_parameters_in_order():
    """As many ids as parameters, shape by shape."""
    opt = optimizer([(16, 4), (4, 16), (4,), (4, 16), (4,)])
    want = ["emb.weight", "fc.weight", "fc.bias", "head.weight", "head.bias"]
    assert names(opt, weights(**NET)) == ("order", [want])


def test_names_that_rest_on_the_order_say_so():
    """Two equal layers passed in reverse leave no trace; shapes that are there once are certain in any order."""
    assert names(optimizer([(8, 8), (8, 8)]), weights(b=(8, 8), a=(8, 8))) == ("order", [["b", "a"]])
    assert names(optimizer([(8, 8), None]), weights(b=(8, 8), a=(3,))) == ("order", [["b", "a"]])
    held = weights(b_w=(4, 2), b_b=(4,), a_w=(2, 2))
    assert names(optimizer([(4, 2), (4,), (2, 2)]), held) == ("shapes", [["b.w", "b.b", "a.w"]])
    assert names(optimizer([(2, 2), (4,), (4, 2)]), held) == ("shapes", [["a.w", "b.b", "b.w"]])


def test_against_the_models_order_only_single_shapes_are_named():
    """Head first, then the body: what could be two parameters is unknown, and so is all if a parameter is left out."""
    opt = optimizer([(4, 16), (4,), (16, 4), (4, 16), (4,)])
    assert names(opt, weights(**NET)) == ("shapes", [[None, None, "emb.weight", None, None]])
    assert names(optimizer([(4, 16), (4,), (16, 4), (4, 16)]), weights(**NET))[0] == ""
    assert names(optimizer([(4,), None, (4, 2)]), weights(b_w=(4, 2), b_b=(4,), a=(1,)))[0] == ""


def test_buffers_of_a_pickled_module_are_no_parameters():
    """Whatever they are called."""
    held = Weights(at=At(""), tensors={"z.w": tensor(4), "mean": tensor(4)}, buffers=frozenset(("mean",)))
    assert names(optimizer([(4,)]), held) == ("shapes", [["z.w"]])


def test_two_groups_are_matched_each_in_order():
    """Matrices with decay and the others without it: each group is a subsequence."""
    opt = optimizer([(16, 4), (4, 16), (4, 16)], [(4,), (4,)])
    assert names(opt, weights(**NET))[1] == [["emb.weight", "fc.weight", "head.weight"], ["fc.bias", "head.bias"]]


def test_what_could_be_two_parameters_is_unknown():
    """One of two equal shapes: the file does not say which."""
    assert names(optimizer([(16, 4), (4,)]), weights(**NET)) == ("shapes", [["emb.weight", None]])
    assert names(optimizer([(4,)]), weights(**NET)) == ("", [[None]])


def test_a_sure_name_helps_the_other_groups():
    """What one group must have, no other can."""
    opt = optimizer([(16, 4), (4, 16), (4,), (4, 16)], [(4,)])
    assert names(opt, weights(**NET))[1] == [["emb.weight", "fc.weight", "fc.bias", "head.weight"], ["head.bias"]]


def test_a_parameter_without_state_fits_everywhere():
    """A frozen parameter between two known ones is known too."""
    assert names(optimizer([(16, 4), None, (4,), (4, 16), (4,)]), weights(**NET))[1][0][1] == "fc.weight"
    assert names(optimizer([None, None]), weights(**NET)) == ("", [[None, None]])


@pytest.mark.parametrize("groups", [[[(9, 9)]], [[(4,), (16, 4)]], [[(4,)] * 6], [[(4,)] * 3], [[(16, 4)], [(16, 4)]]])
def test_shapes_that_do_not_fit_name_nothing(groups):
    """Then the optimizer belongs to other weights."""
    assert names(optimizer(*groups), weights(**NET))[0] == ""


def test_groups_that_only_fit_apart_name_nothing():
    """Each group alone fits, both together do not, so the order is not the model's."""
    opt = optimizer([(16, 4), None, None, None, None], [(4,)])
    assert names(opt, weights(**NET))[0] == ""
    opt = optimizer([(16, 4), (4, 16), (4,), (4, 16)], [(4,), None])
    assert names(opt, weights(**NET, z_weight=(3,)))[1][1] == ["head.bias", "z.weight"]


def test_buffers_and_integers_are_no_parameters():
    """Running statistics are in the state_dict, but in no optimizer."""
    shapes = {"bn_weight": (4,), "bn_bias": (4,), "a_weight": (2,)}
    held = weights(**shapes)
    held.tensors["bn.running_mean"] = tensor(4)
    held.tensors["bn.num_batches_tracked"] = tensor(dtype="int64")
    held.tensors["ids"] = tensor(4, dtype="int64")
    assert names(optimizer([(4,), (4,), (2,)]), held)[1] == [["bn.weight", "bn.bias", "a.weight"]]


def test_tied_parameters_have_their_first_name():
    """`parameters()` gives a shared tensor once."""
    shared = tensor(4, 2)
    held = Weights(at=At(""), tensors={"z.weight": shared, "mid.weight": tensor(3), "head.weight": shared})
    assert names(optimizer([(4, 2), (3,)]), held)[1] == [["z.weight", "mid.weight"]]


def test_sorted_weights_have_no_order_of_their_own():
    """safetensors sorts by name: equal shapes are unknown, single ones are known."""
    opt = optimizer([(16, 4), (4, 16), (4,), (4, 16), (4,)])
    assert names(opt, weights(ordered=False, **NET))[1] == [["emb.weight", None, None, None, None]]
    assert names(opt, weights(**dict(sorted(NET.items()))))[0] == "shapes"


def test_numbered_siblings_are_ordered_everywhere():
    """`layers.0` comes before `layers.10`, also where the names were sorted as text."""
    shapes = {f"layers_{n}_weight": (4, 4) for n in (0, 10, 2)} | {f"layers_{n}_bias": (4,) for n in (0, 10, 2)}
    opt = optimizer([(4, 4), (4,), (4, 4), (4,), (4, 4), (4,)])
    want = [
        "layers.0.weight",
        "layers.0.bias",
        "layers.2.weight",
        "layers.2.bias",
        "layers.10.weight",
        "layers.10.bias",
    ]
    assert names(opt, weights(ordered=False, **shapes))[1] == [want]
    split = optimizer([(4, 4), (4, 4)], [(4, 4), (4,), (4,), (4,)])
    assert names(split, weights(ordered=False, **shapes))[1] == [
        [None, None],
        [None, "layers.0.bias", "layers.2.bias", "layers.10.bias"],
    ]
    fewer = optimizer([(4, 4), (4,), (4,), (4,)])
    assert names(fewer, weights(ordered=False, **shapes))[1][0][0] is None


def test_names_that_differ_only_in_length_are_not_ordered():
    """`a` and `a.0` are no siblings; neither are names that differ in a word."""
    assert names(optimizer([(4,), (4,)]), weights(ordered=False, a=(4,), a_0=(4,)))[0] == ""
    assert names(optimizer([(4,), (4,)]), weights(ordered=False, a=(4,), b=(4,)))[0] == ""


def test_weights_of_the_same_file_come_first():
    """Another file's model is looked at only where the optimizer's own file has none."""
    opt = optimizer([(4,)])
    assert names(opt, weights(at="", a=(4,)), weights(at="other", b=(4,)))[1] == [["a"]]
    assert names(opt, weights(at="other", b=(4,)))[1] == [["b"]]
    assert named(opt, []) is opt


def test_two_models_that_fit_have_to_agree():
    """A generator and a discriminator of one architecture have the same names; otherwise nothing is said."""
    opt = optimizer([(4,)])
    assert names(opt, weights(a=(4,)), weights(a=(4,)))[1] == [["a"]]
    assert names(opt, weights(a=(4,)), weights(b=(4,)))[0] == ""
    assert names(opt, weights(a=(4,)), weights(b=(5,)))[1] == [["a"]]


def test_adafactor_keeps_rows_and_columns():
    """torch keeps an axis of 1, transformers leaves it out; both give the parameter's shape."""
    held = weights(z=(4, 3), b=(5, 4, 3))
    torch_like = {
        0: {"row_var": tensor(4, 1), "col_var": tensor(1, 3)},
        1: {"row_var": tensor(5, 4, 1), "col_var": tensor(5, 1, 3)},
    }
    hf_like = {
        0: {"exp_avg_sq_row": tensor(4), "exp_avg_sq_col": tensor(3)},
        1: {"exp_avg_sq_row": tensor(5, 4), "exp_avg_sq_col": tensor(5, 3)},
    }
    for state in (torch_like, hf_like):
        opt = optimizer([None, None])
        opt.state.update(state)
        assert names(opt, held)[1] == [["z", "b"]]
    opt = optimizer([None, (5, 4, 3)])
    opt.state[0] = {"step": 3, "row_var": 3}
    assert names(opt, held)[1] == [["z", "b"]]


def test_pickled_optimizers_hold_the_models_own_tensors():
    """Then the names are certain, whatever the order; and unknown where the model is not beside it."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    opt = torch.optim.SGD(reversed(list(net.parameters())), lr=0.1)
    found = parts_in({"net": net, "opt": opt})
    done = named(found.optimizers[0], found.weights)
    assert done.names_from == "the same tensors"
    assert done.groups[0].names == ("1.bias", "1.weight", "0.bias", "0.weight")
    assert named(found.optimizers[0], parts({"a": tensor(2)}).weights).names_from == ""
    bare = parts({"m": {"a.w": tensor(2)}, "o": {"state": {}, "param_groups": [{"params": [tensor(2)]}]}})
    assert named(bare.optimizers[0], bare.weights).names_from == ""


def test_too_much_to_compare_is_left_unknown():
    """Thousands of groups against thousands of names would take minutes."""
    held = Weights(at=At(""), tensors={f"p{n}.w": tensor(n + 1) for n in range(1_000)})
    assert names(optimizer(*[[(n + 1,)] for n in range(1_000)]), held)[0] == ""


class Block(torch.nn.Module):
    """Two layers, in either order of registration."""

    def __init__(self, first, second):
        super().__init__()
        self.first = first
        self.second = second


LAYERS = st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 3)])


@given(
    layers=st.lists(st.tuples(LAYERS, st.booleans()), min_size=1, max_size=5),
    split=st.booleans(),
    frozen=st.integers(0, 4),
)
def test_a_name_that_is_said_is_right(layers, split, frozen):
    """For real models and groups, in order and sorted, every name is the true one or unknown."""
    made = [torch.nn.Linear(*size, bias=bias) for size, bias in layers]
    net = torch.nn.ModuleDict({f"b{9 - n}": Block(layer, torch.nn.BatchNorm1d(2)) for n, layer in enumerate(made)})
    parameters = dict(net.named_parameters())
    for p in parameters.values():
        p.grad = torch.zeros_like(p)
    for name in list(parameters)[:frozen]:
        parameters[name].grad = None
    decay = [n for n, p in parameters.items() if p.ndim > 1 or not split]
    order = [decay, [n for n in parameters if n not in decay]] if split else [decay]
    opt = torch.optim.AdamW([{"params": [parameters[n] for n in group]} for group in order])
    opt.step()
    saved = contents({"model": net.state_dict(), "optimizer": opt.state_dict()}).root
    found = parts(saved)
    for held in (
        found.weights[0],
        Weights(at=At(""), tensors=dict(sorted(found.weights[0].tensors.items())), in_model_order=False),
    ):
        done = named(found.optimizers[0], [held])
        for group, want in zip(done.groups, order, strict=True):
            assert all(have in (None, name) for have, name in zip(group.names, want, strict=True))
