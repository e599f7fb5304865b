"""The options of `convert`, before anything is opened."""

import pytest

import ckpttool
from ckpttool.commands._convert.choices import options
from ckpttool.dtypes import BY_NAME
from ckpttool.errors import UsageError
from ckpttool.model import Role

NONE = {
    "to": None, "weights_only": False, "everything": False, "part": None, "ema": False, "select": None, "exclude": None,
    "rename": None, "strip_prefix": None, "dtype": None, "settings": None, "map_location": None, "plain": False,
    "drop_opaque": False, "allow_opaque": None, "duplicate_ties": False, "max_shard_size": None, "limits": None,
}  # fmt: skip


def chosen(**given):
    return options(**{**NONE, **given})


def test_nothing_asked_for():
    """Without options no tensor of the result differs from the source's."""
    assert not chosen().edits_weights
    assert (chosen().to, chosen().parts, chosen().max_shard_bytes) == ("", (), 0)


@pytest.mark.parametrize(
    "given", [{"select": ["*"]}, {"rename": ["a=b"]}, {"dtype": "bf16"}, {"part": "model"}, {"ema": True}], ids=str
)
def test_edits(given):
    """Each of these changes which tensors there are, or what they are."""
    assert chosen(**given).edits_weights


@pytest.mark.parametrize(
    ("word", "name"),
    [("bf16", "bfloat16"), ("BF16", "bfloat16"), ("torch.float16", "float16"), ("half", "float16"), ("float", "float32"),
     ("double", "float64"), ("fp8_e4m3", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2")],
)  # fmt: skip
def test_words_for_types(word, name):
    """torch's names and the usual short ones."""
    assert chosen(dtype=word).dtype is BY_NAME[name]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": "tensor"}, "'tensor'.*safetensors"),
        ({"dtype": "bfloat"}, "'bfloat' is not a type to cast to.*bfloat16"),
        ({"dtype": "zzz"}, "the types are bfloat16"),
        ({"part": "modell"}, "'modell'.*model"),
        ({"weights_only": True, "everything": True}, "contradict each other"),
        ({"ema": True, "part": "model,rng"}, "no other part stays"),
        ({"strip_prefix": ""}, "--strip-prefix is empty"),
        ({"map_location": ""}, "--map-location is empty"),
        ({"max_shard_size": "5 things"}, "no size of a shard"),
        ({"limits": ["nodes"]}, "nodes"),
    ],
    ids=str,
)
def test_wrong_words(given, said):
    """Each wrong word is answered with the right one."""
    with pytest.raises(UsageError, match=said):
        chosen(**given)


def test_ema_alone_and_with_model():
    """The averages are a bare state_dict, so `--part model` says the same."""
    assert chosen(ema=True).parts == chosen(ema=True, part="model").parts == (Role.MODEL,)


def test_python_api():
    """`ckpttool.convert` is the command, with options as words; paths may be objects."""
    assert ckpttool.convert.__kwdefaults__.keys() >= {"to", "part", "set", "dry_run", "progress"}
