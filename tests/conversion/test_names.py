"""Names chosen, renamed and stripped."""

import pytest

from ckpttool.conversion.names import edited_names, require_effect
from ckpttool.conversion.options import Options
from ckpttool.errors import NoSuchKey, UsageError

NAMES = ["module.fc.weight", "module.fc.bias", "module.head.weight"]


def edited(**options):
    return edited_names(NAMES, Options(**options), "model")


def test_selection():
    """`--select` keeps, `--exclude` leaves out, both by the old names."""
    result = edited(select=("*weight",), exclude=("*head*",), strip_prefix="auto")
    assert result.new == {"module.fc.weight": "fc.weight"}
    assert result.left_out == ["module.fc.bias", "module.head.weight"]


def test_prefix_and_renames_in_order():
    """The prefix goes first; each rename sees what the one before made; a text prefix is taken as it is."""
    assert edited(strip_prefix="auto", renames=("^fc=a", "^a=b"))
    assert [*edited(strip_prefix="auto", renames=("^fc=a", "^a=b")).new.values()] == [
        "b.weight", "b.bias", "head.weight",
    ]  # fmt: skip
    assert edited(strip_prefix="module.fc.").new["module.fc.bias"] == "bias"
    assert edited(renames=(r"module\.(\w+)\.=\1/",)).new["module.head.weight"] == "head/weight"


def test_collisions_are_refused():
    """Two tensors that would get one name are named, and nothing is written over."""
    with pytest.raises(UsageError, match=r"'module.fc.weight' and 'module.head.weight' would both be called 'w'"):
        edited(renames=(r".*weight=w",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"renames": ("nothing",)}, "'nothing' is not a rename"),
        ({"renames": ("=x",)}, "'=x' is not a rename"),
        ({"renames": ("(=x",)}, "not a regular expression"),
        ({"renames": (r"fc=\2",)}, "does not fit"),
    ],
)
def test_wrong_renames(options, said):
    """What is no rename is said to be none."""
    with pytest.raises(UsageError, match=said):
        edited(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": ("*x*",)}, r"no tensor is left by \*x\*"),
        ({"exclude": ("*",)}, "no tensor is left by without"),
        ({"exclude": ("*nothing*",)}, "no tensor matches --exclude"),
        ({"renames": ("nothing=x",)}, "--rename nothing=x changes no name"),
        ({"strip_prefix": "x."}, "--strip-prefix changes no name"),
    ],
)
def test_options_without_effect_are_refused(options, said):
    """A pattern that matches nothing does not pass for success."""
    asked = Options(**options)
    with pytest.raises(NoSuchKey, match=said):
        require_effect({"model": edited_names(NAMES, asked, "model")}, asked, "a.pt")
    with pytest.raises(NoSuchKey):
        require_effect({}, asked, "a.pt") if "renames" not in options else require_effect(
            {"model": edited_names(NAMES, asked, "model")}, asked, "a.pt"
        )


def test_options_with_effect_pass():
    """What changes something is fine."""
    asked = Options(exclude=("*bias",), strip_prefix="auto")
    require_effect({"model": edited_names(NAMES, asked, "model")}, asked, "a.pt")
