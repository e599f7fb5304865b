"""What loading runs: the globals that a file calls, however it comes to the call, and no others."""

import argparse
import array
import ast
import collections
import datetime as dt
import decimal
import fractions
import functools
import inspect
import io
import ipaddress
import itertools
import json
import logging
import operator
import pathlib
import pickle
import queue
import random
import re
import string
import time
import types
import typing
import uuid

import numpy as np
import pytest
import torch

from ckpttool.containers import read as read_file
from ckpttool.dtypes import FLOAT32
from ckpttool.errors import DamagedFile
from ckpttool.pickles import load, running, trust_of
from ckpttool.pickles.running import Running
from ckpttool.pickles.trust import ACCEPTED
from ckpttool.sources import BytesSource
from ckpttool.values import GlobalRef, Made, Opaque, TensorRef, Trust
from tests.pickles.streams import call, name, text

COMMAND = name("uuid", "_get_command_stdout")  # runs a program; only its name says so


class Plain:
    """An object of one's own."""

    def __init__(self) -> None:
        self.x = [1]


class Numbers(list):
    """A list with a class."""


class Names(dict):
    """A dict with a class."""


HONEST = [
    dt.datetime(2024, 1, 2, tzinfo=dt.UTC), dt.date(2024, 1, 2), dt.timedelta(1),
    dt.time(1), decimal.Decimal("1.5"), decimal.getcontext(), fractions.Fraction(1, 3),
    collections.OrderedDict(a=1), collections.Counter("aab"), collections.defaultdict(list, a=[1]),
    collections.defaultdict(int), collections.deque([1], 4), collections.ChainMap({}), collections.UserDict(a=1),
    functools.partial(max, 1), operator.itemgetter(1), re.compile("a+", re.IGNORECASE), re.IGNORECASE,
    array.array("d", [1.0]), uuid.UUID(int=5), pathlib.PurePosixPath("a/b"), pathlib.Path("a"),
    ipaddress.ip_address("1.2.3.4"), ipaddress.ip_network("::/64"), types.SimpleNamespace(a=1), list[int],
    typing.Dict[str, int], typing.Optional[int], random.Random(0), random.Random(0).getstate(),  # noqa: UP006, UP045
    logging.getLogger("x"), range(3), slice(1, 2), iter([1, 2]), iter((1,)), enumerate([1]), zip([1], [2], strict=False),
    reversed([1]), itertools.count(3), itertools.chain([1]), itertools.repeat(1, 2), type(None), type(...), ...,
    NotImplemented, argparse.Namespace(lr=1), bytearray(b"x"), {1}, frozenset({1}), 1j, b"x", string.Template("$a"),
    ValueError("x"), KeyError(1), json.JSONDecodeError("m", "d", 0), queue.Empty(), StopIteration(), io.BytesIO(b"x"),
    inspect.signature(len), ast.parse("a + 1"), time.localtime(0), Plain(), Numbers([1]), Names(a=1),
    np.arange(3), np.float32(1), np.dtype("i4"), np.random.default_rng(0), np.random.RandomState(0),
    np.ma.masked_array([1, 2], [0, 1]), torch.Size([1]), torch.float32, torch.nn.Linear(2, 2), torch.device("cpu"),
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1), torch.Generator,
]  # fmt: skip


def dangerous(stream: bytes) -> set[str]:
    return {str(r) for r, m in load(stream, where="x").globals.items() if trust_of(r, called=m.runs) is Trust.DANGEROUS}


@pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning")
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(HONEST)))
def test_what_picklers_write_is_no_alarm(number, protocol):
    """Objects of the standard library, of numpy and of torch, in every protocol that has a word for them."""
    try:
        stream = pickle.dumps(HONEST[number], protocol)
    except (TypeError, pickle.PicklingError):
        pytest.skip("this protocol has no word for it")
    uses = read_file(BytesSource(stream, "x.pkl")).globals
    assert [str(use.ref) for use in uses if use.trust is Trust.DANGEROUS] == []


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("uuid", "_get_command_stdout"), ("_osx_support", "_read_output"), ("_aix_support", "_read_cmd_output"),
        ("lightning.fabric.utilities.cloud_io", "_load"), ("torch", "from_file load export.load"),
        ("torch.export", "load"), ("torch.utils.model_zoo", "load_url"), ("transformers", "pipeline"),
        ("transformers", "AutoModel.from_pretrained"), ("typing", "get_type_hints"),
        ("dataclasses", "make_dataclass"), ("atexit", "register"), ("weakref", "finalize"),
        ("threading", "Thread Timer"), ("torch.distributed.run", "main run"), ("torch.distributed.launch", "launch"),
        ("unittest", "main"), ("zipapp", "create_archive"), ("py_compile", "compile"), ("compileall", "compile_dir"),
        ("readline", "read_init_file"), ("faulthandler", "_sigsegv"), ("site", "execsitecustomize"),
        ("platform", "_syscmd_file"), ("numpy", "ndarray.tofile"), ("fsspec", "open"), ("fsspec.spec", "make_instance"),
        ("smart_open", "open"), ("aiofiles", "open"), ("huggingface_hub", "hf_hub_download snapshot_download"),
        ("datasets", "load_dataset"), ("pandas", "read_csv read_pickle"), ("joblib", "load"), ("cloudpickle", "loads"),
        ("lightning.pytorch", "LightningModule.load_from_checkpoint"), ("deepspeed.launcher.runner", "main"),
        ("accelerate", "load_checkpoint_and_dispatch"), ("accelerate.commands.launch", "main"),
        ("safetensors.torch", "load_file save_file"), ("my.code", "load_tokenizer download Hub.fetch_file"),
        ("builtins", "print vars type super __build_class__"), ("__builtin__", "type execfile"), ("abc", "ABCMeta"),
        ("collections", "namedtuple"), ("ast", "literal_eval"), ("string", "Formatter.vformat"), ("glob", "glob"),
        ("getpass", "getpass"), ("mmap", "mmap"), ("UserDict", "os"), ("thread", "start_new_thread"),
        ("numpy", "uuid._get_command_stdout"), ("torch", "_uuid.getnode"), ("copy", "deepcopy"),
        ("itertools", "starmap"), ("queue", "Queue"), ("xml.etree.ElementTree", "parse"), ("cgitb", "enable"),
    ],
)  # fmt: skip
def test_a_call_of_what_does_something_is_dangerous(module, names):
    """All of the standard library but what honest pickles call, and loaders, readers and launchers of others."""
    for each in names.split():
        assert trust_of(GlobalRef(module, each), called=True) is Trust.DANGEROUS, each


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("my.code", "Config Loader Runner make_config _rebuild LoadBalancer Model.build"),
        ("numpy._core.multiarray", "_reconstruct scalar"), ("numpy.random._pickle", "__randomstate_ctor"),
        ("pandas._libs.internals", "_unpickle_block"), ("torch.jit._pickle", "build_intlist"),
        ("omegaconf.dictconfig", "DictConfig"), ("__main__", "Net"), ("datetime", "datetime"),
        ("__builtin__", "object unicode long xrange"), ("copy_reg", "_reconstructor"), ("exceptions", "ValueError"),
    ],
)  # fmt: skip
def test_a_call_of_what_makes_a_value_is_refused(module, names):
    """Not accepted, for only torch's list is, and no alarm."""
    for each in names.split():
        assert trust_of(GlobalRef(module, each), called=True) is Trust.REFUSED, each


def test_accepted_stays_accepted():
    """What torch takes may be called."""
    assert {trust_of(ref, called=True) for ref in ACCEPTED} == {Trust.ACCEPTED}


def test_what_is_only_named_is_no_alarm():
    """The standard library's functions and classes are everywhere as values: a hook, a factory, a type."""
    for module, each in (("threading", "Thread"), ("typing", "Any"), ("builtins", "print"), ("math", "exp")):
        assert trust_of(GlobalRef(module, each)) is Trust.REFUSED
    assert dangerous(b"\x80\x04" + name("threading", "Thread") + b".") == set()
    assert dangerous(b"\x80\x04" + name("threading", "Thread") + b")\x81.") == set()  # empty: nothing was started
    assert dangerous(b"\x80\x04" + name("threading", "Thread") + b")R.") == {"threading.Thread"}


PARTIAL = name("functools", "partial") + name("glob", "glob") + text("*") + b"\x86R"
WAYS = {
    "REDUCE": name("glob", "glob") + text("*") + b"\x85R",
    "OBJ": b"(" + name("glob", "glob") + text("*") + b"o",
    "INST": b"(" + text("*") + b"iglob\nglob\n",
    "twice, the second time with arguments": name("glob", "glob") + b")R0" + name("glob", "glob") + b")R",
    "a partial that is called": PARTIAL + b")R",
    "a partial of a partial": name("functools", "partial") + PARTIAL + b"\x85R)R",
    "a partial whose state says it": name("functools", "partial") + name("builtins", "int") + b"\x85R("
    + name("glob", "glob") + text("*") + b"\x85}}tb)R",
    "an iterator that calls": name("builtins", "iter") + PARTIAL + b"K\x00\x86R",
    "the base of a reconstructed object": name("copyreg", "_reconstructor") + b"(" + name("m", "C")
    + name("glob", "glob") + text("*") + b"tR",
    "the same under Python 2's name": b"ccopy_reg\n_reconstructor\n(" + name("m", "C") + name("glob", "glob")
    + text("*") + b"tR",
    "a tensor of a class": name("torch._tensor", "_rebuild_from_type_v2") + b"(" + name("glob", "glob")
    + name("m", "C") + text("*") + b"\x85NtR",
    "a tensor of a class of a tensor of a class": name("torch._tensor", "_rebuild_from_type_v2") + b"("
    + name("torch._tensor", "_rebuild_from_type_v2") + name("m", "C") + b"(" + name("glob", "glob")
    + name("m", "C") + text("*") + b"\x85NtNtR",
    "the factory of a dict": name("operator", "itemgetter") + b"K\x01\x85R" + name("collections", "defaultdict")
    + name("glob", "glob") + b"\x85R\x85R",
    "the factory of a dict that is looked into": name("operator", "getitem") + name("collections", "defaultdict")
    + name("glob", "glob") + b"\x85RK\x01\x86R",
    "a class made of functions": name("builtins", "type") + b"(" + text("X") + b")}" + text("__setstate__")
    + name("glob", "glob") + b"stR",
    "an attribute called `append`": name("m", "C") + b")\x81}" + text("append") + PARTIAL + b"sbK\x01a",
    "an attribute called `add`": name("m", "C") + b")\x81}" + text("add") + PARTIAL + b"sb(K\x01\x90",
    "a key of a dict": name("m", "make") + b")R}" + name("glob", "glob") + b"K\x01s\x85R",
    "an entry of an object": name("m", "make") + b")R" + name("m", "D") + b")\x81" + PARTIAL + b"K\x01s\x85R",
    "an object of a class that a call made": name("m", "make") + name("glob", "glob") + b"\x85R)\x81",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_call_is_seen(way):
    """`glob.glob` runs in each of these when pickle loads it."""
    assert "glob.glob" in dangerous(b"\x80\x04" + WAYS[way] + b".")


@pytest.mark.parametrize(
    "cls", [("abc", "ABCMeta"), ("builtins", "type"), ("__builtin__", "type"), ("enum", "EnumMeta")]
)
@pytest.mark.parametrize("make", ["NEWOBJ", "__newobj__"])
def test_making_a_class_is_dangerous(cls, make):
    """A class made of a file's dict may run what is in it, even where it is made by `__new__` alone."""
    arguments = text("X") + b")}"
    spelled = name(*cls) + b"(" + arguments + b"t\x81"
    if make == "__newobj__":
        spelled = name("copyreg", "__newobj__") + b"(" + name(*cls) + arguments + b"tR"
    assert dangerous(b"\x80\x04" + spelled + b".") == {".".join(cls)}


def test_an_error_says_what_ran_before_it():
    """Globals that were called before the damage are known as called."""
    with pytest.raises(DamagedFile, match="opcode") as caught:
        load(b"\x80\x04" + call("glob", "glob", b")") + b"\xff", where="x")
    assert {str(r): m.runs for r, m in caught.value.seen.items()} == {"glob.glob": True}


def test_too_much_to_look_through_means_everything(monkeypatch):
    """A call of something that holds more than is looked at may run whatever the file names."""
    monkeypatch.setattr(running, "_MOST", 10)
    seen = Running()
    seen.call(Opaque(GlobalRef("m", "f")), (list(range(20)),))
    assert seen.everything
    assert GlobalRef("any", "thing") in seen
    shared = [GlobalRef("a", "b")]
    seen = Running()
    seen.call(Opaque(GlobalRef("m", "f")), (shared, shared, shared))
    assert not seen.everything
    assert seen.refs == {GlobalRef("a", "b"), GlobalRef("m", "f")}


def test_objects_of_a_tree_say_how_they_are_made():
    """A document has no opcodes: what an object is made by is in the object."""
    seen = Running()
    f, g, cls = (GlobalRef("m", n) for n in ("f", "g", "C"))
    meta = GlobalRef("abc", "ABCMeta")
    made = Made(GlobalRef("torch._tensor", "_rebuild_from_type_v2"), (g, cls, (), None))
    for value in (
        Opaque(f, ()), Opaque(cls, (), how="newobj"), Opaque(meta, (), how="newobj"), Opaque(None, (1,), how="persistent"),
        TensorRef(dtype=FLOAT32, shape=()), TensorRef(dtype=FLOAT32, shape=(), made=made), 5,
    ):  # fmt: skip
        seen.look(value)
    assert seen.refs == {f, meta, g}
