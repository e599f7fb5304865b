"""How globals are sorted."""

import json
import subprocess
import sys

import pytest

from ckpttool.pickles import trust_of
from ckpttool.pickles.trust import ACCEPTED
from ckpttool.values import GlobalRef, Trust

ASK_TORCH = """
import json, torch
from torch import _weights_only_unpickler as unpickler
print(json.dumps([torch.__version__, sorted({*unpickler._get_allowed_globals(), *unpickler._get_user_allowed_globals()})]))
"""


def test_accepted_is_exactly_what_torch_accepts() -> None:
    """The table is the list of torch 2.13's weights_only unpickler after `import torch`, no name more or less."""
    asked = subprocess.run([sys.executable, "-c", ASK_TORCH], capture_output=True, text=True, check=True)
    version, names = json.loads(asked.stdout)
    if not version.startswith("2.13."):
        pytest.skip(f"the table is that of torch 2.13, torch {version} is installed")
    assert sorted(map(str, ACCEPTED)) == names


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("collections", "OrderedDict"),
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch", "FloatStorage"),
        ("torch", "float8_e4m3fn"),
        ("builtins", "set"),
        ("__builtin__", "set"),
        ("torch.nested._internal.nested_tensor", "_rebuild_njt"),
    ],
)
def test_accepted(module: str, name: str) -> None:
    """What torch takes, under Python 3's and Python 2's names."""
    assert trust_of(GlobalRef(module, name)) is Trust.ACCEPTED


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("nt", "system"),
        ("os.path", "join"),
        ("subprocess", "Popen"),
        ("commands", "getoutput"),
        ("sys", "modules"),
        ("builtins", "eval"),
        ("__builtin__", "eval"),
        ("__builtin__", "execfile"),
        ("__builtin__", "apply"),
        ("__builtin__", "reduce"),
        ("__builtin__", "raw_input"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("importlib", "import_module"),
        ("pkgutil", "resolve_name"),
        ("runpy", "run_path"),
        ("operator", "attrgetter"),
        ("operator", "methodcaller"),
        ("pickle", "loads"),
        ("cPickle", "loads"),
        ("dill._dill", "_create_function"),
        ("cloudpickle.cloudpickle", "loads"),
        ("joblib", "load"),
        ("torch", "load"),
        ("torch.hub", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("torch.serialization", "load"),
        ("torch.utils.cpp_extension", "load_inline"),
        ("numpy", "load"),
        ("types", "CodeType"),
        ("marshal", "loads"),
        ("ctypes", "CDLL"),
        ("socket", "socket"),
        ("urllib2", "urlopen"),
        ("asyncio.unix_events", "_UnixSubprocessTransport._start"),
        ("multiprocessing.util", "spawnv_passfds"),
        ("pathlib", "os.system"),
        ("collections", "_sys.modules"),
        ("random", "_os.system"),
        ("torch.nn", "Module.__init__.__globals__"),
        ("m", "C.__subclasses__"),
        ("builtins", "eval.__call__"),
        ("torch", "hub.load"),
        ("torch.fx.graph_module", "_exec_with_source"),
        ("torch._ops", "_Ops.load_library"),
        ("torch.ops", "load_library"),
        ("torch", "ops.load_library"),
        ("torch._C", "_jit_load"),
        ("uuid", "_popen"),
        ("IPython.utils.process", "system"),
        ("_pyrepl.pager", "pipe_pager"),
        ("site", "addpackage"),
        ("pandas.core.computation.eval", "eval"),
        ("unittest.mock", "_importer"),
        ("platform", "popen"),
        ("torch.distributed.elastic.multiprocessing", "start_processes"),
        ("logging", "FileHandler"),
        ("gzip", "open"),
        ("zipfile", "ZipFile"),
        ("tarfile", "TarFile.open"),
        ("sqlite3", "connect"),
        ("pathlib", "Path.unlink"),
        ("pathlib", "PosixPath.write_text"),
        ("fileinput", "input"),
    ],
)
def test_dangerous(module: str, name: str) -> None:
    """What resolves or calls code by itself, however it is reached."""
    assert trust_of(GlobalRef(module, name)) is Trust.DANGEROUS


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("collections", "defaultdict"),
        ("functools", "partial"),
        ("pathlib", "PosixPath"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "dtype"),
        ("argparse", "Namespace"),
        ("types", "SimpleNamespace"),
        ("torch", "_utils._rebuild_tensor_v2"),
        ("torch.nn", "Module.eval"),
        ("my.code", "Config.test"),
        ("torch.jit._pickle", "restore_type_tag"),
        ("torch._dynamo.decorators", "_DimRange"),
        ("joblib.numpy_pickle", "NumpyArrayWrapper"),
        ("codecs", "lookup"),
        ("", ""),
    ],
)
def test_refused(module: str, name: str) -> None:
    """All else is refused: not on torch's list, and not known to be dangerous; a name with dots is never accepted."""
    assert trust_of(GlobalRef(module, name)) is Trust.REFUSED
