"""What would become of a global if the file were loaded: accepted, refused, or dangerous.

Accepted is exactly what `torch.load(weights_only=True)` takes without anything having been added to its list. Nothing
else is ever said to be safe: what is not known to be dangerous is refused, never accepted.

What is merely named does nothing by itself, so of that only the worst is dangerous. What is called does: of Python's
own library all but a closed list (`standard_calls`), of others whatever is called as those functions are that load,
read, write, run or fetch something.

Source: `_get_allowed_globals` in pytorch torch/_weights_only_unpickler.py, torch 2.13, and what `import torch` adds
"""

import _compat_pickle
import re
from typing import Final

from ckpttool.pickles.standard_calls import METACLASSES, harmless_call, in_standard_library
from ckpttool.values import GlobalRef, Trust


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _names(module: str, names: str) -> frozenset[GlobalRef]:
    return frozenset(GlobalRef(module, name) for name in names.split())


_CPU_TYPES = "BFloat16 Bool Byte Char Double Float Half Int Long Short"
_SPARSE_TYPES = "BFloat16 Byte Char Double Float Half Int Long Short"
_COMPLEX_TYPES = "ComplexDouble ComplexFloat"
_QUANTIZED_TYPES = "QInt32 QInt8 QUInt2x4 QUInt4x2 QUInt8"


def _suffixed(module: str, types: str, suffix: str) -> frozenset[GlobalRef]:
    return frozenset(GlobalRef(module, name + suffix) for name in types.split())


ACCEPTED: Final = (
    _names("collections", "OrderedDict Counter")
    | _names("builtins", "bytearray set complex")
    | _names("_codecs", "encode")
    | _names("torch", "Size Tensor device")
    | _names("torch.nn.parameter", "Parameter")
    | _names("torch.serialization", "_get_layout")
    | _names("torch.storage", "TypedStorage UntypedStorage")
    | _names(
        "torch",
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
        "float4_e2m1fn_x2 complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool "
        "bits8 bits1x8 bits2x4 bits4x2 bits16 quint8 qint8 qint32 quint4x2 quint2x4 "
        "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 "
        "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric "
        "per_channel_affine_float_qparams",
    )
    | _suffixed("torch", _CPU_TYPES, "Tensor")
    | _suffixed("torch.cuda", _CPU_TYPES, "Tensor")
    | _suffixed("torch.sparse", _SPARSE_TYPES, "Tensor")
    | _suffixed("torch.cuda.sparse", _SPARSE_TYPES, "Tensor")
    | _suffixed("torch", f"{_CPU_TYPES} {_COMPLEX_TYPES} {_QUANTIZED_TYPES}", "Storage")
    | _suffixed("torch.cuda", f"{_CPU_TYPES} {_COMPLEX_TYPES}", "Storage")
    | _names(
        "torch._utils",
        "_rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor _rebuild_tensor _rebuild_tensor_v2 "
        "_rebuild_tensor_v3 _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage _rebuild_nested_tensor "
        "_rebuild_wrapper_subclass _rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor",
    )
    | _names("torch._tensor", "_rebuild_from_type_v2")
    # `import torch` adds these by add_safe_globals:
    | _names("torch.nested._internal.nested_tensor", "NestedTensor _rebuild_njt")
    | _names("torch.distributed._mesh_layout", "_FlatLayout _MeshLayout")
)

# Modules whose business is to run programs or code, to load it, to reach the network, or to unpickle again: whatever is
# taken from them or from below them counts as dangerous.
_MODULES: Final = _words(
    "os posix nt subprocess _posixsubprocess commands popen2 pty sys shutil _winapi "
    "importlib _frozen_importlib _frozen_importlib_external imp pkgutil runpy zipimport ensurepip pip pydoc "
    "code codeop bdb pdb profile cProfile trace timeit doctest idlelib lib2to3 distutils setuptools venv test "
    "ctypes _ctypes cffi gc marshal new "
    "pickle _pickle cPickle pickletools dill _dill cloudpickle jsonpickle shelve joblib "
    "socket _socket socketserver http urllib.request urllib2 httplib ftplib smtplib poplib imaplib nntplib "
    "telnetlib xmlrpc webbrowser antigravity requests aiohttp asyncio multiprocessing _multiprocessing _thread "
    "torch.hub torch.package torch.distributed.rpc torch.utils.cpp_extension torch.utils.bottleneck "
    "torch.utils.collect_env torch.testing._internal torch._inductor.codecache torch.utils._config_module "
    "numpy.f2py numpy.testing numpy.distutils transformers.dynamic_module_utils "
    "atexit compileall faulthandler py_compile pyclbr readline rlcompleter site sitecustomize usercustomize "
    "zipapp _osx_support _aix_support _bootsubprocess _pyrepl "
    "torch.distributed.run torch.distributed.launch torch.distributed.launcher torch.distributed.elastic "
    "torch.utils.model_zoo accelerate.commands "
    "deepspeed.launcher deepspeed.ops.op_builder lightning.fabric.utilities.cloud_io "
    "lightning_fabric.utilities.cloud_io pytorch_lightning.utilities.cloud_io smart_open aiofiles gdown wget "
    "paramiko plumbum pexpect ptyprocess invoke IPython.utils.process "
)
_DEEPEST: Final = max(name.count(".") for name in _MODULES) + 1
_DANGEROUS: Final = (
    _names(
        "builtins",
        "eval exec compile execfile open file input raw_input breakpoint __import__ getattr setattr delattr "
        "globals locals vars dir help apply reload map filter",
    )
    | _names("operator", "attrgetter methodcaller call")
    | _names("_operator", "attrgetter methodcaller call")
    | _names("functools", "reduce")
    | _names("_functools", "reduce")
    | _names("types", "CodeType FunctionType LambdaType MethodType ModuleType GeneratorType CoroutineType new_class")
    | _names("io", "open open_code FileIO")
    | _names("_io", "open open_code FileIO")
    | _names("codecs", "open")
    # writing, cutting short or deleting files is no better than running code
    | _names("logging", "FileHandler")
    | _names("logging.handlers", "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler SocketHandler")
    | _names("gzip", "open GzipFile")
    | _names("bz2", "open BZ2File")
    | _names("lzma", "open LZMAFile")
    | _names("zipfile", "ZipFile PyZipFile")
    | _names("tarfile", "open TarFile TarFile.open")
    | _names("sqlite3", "connect")
    | _names("_sqlite3", "connect")
    | _names("sqlite3.dbapi2", "connect")
    | _names("dbm", "open")
    | _names("fileinput", "input FileInput")
    | _names("tempfile", "NamedTemporaryFile TemporaryFile TemporaryDirectory mkstemp mkdtemp mktemp")
    | _names("wave", "open")
    | _names("numpy", "save savez savez_compressed savetxt")
    | _names("torch.fx.graph_module", "_forward_from_src _method_from_src _exec_with_source")
    | _names("torch", "ops classes")
    | _names("copyreg", "pickle constructor add_extension")
    | _names("logging.config", "listen fileConfig dictConfig")
    | _names("torch", "load save compile")
    | _names("torch.serialization", "load save add_safe_globals")
    | _names("torch.storage", "_load_from_bytes")
    | _names("torch._utils", "_import_dotted_name")
    | _names("torch._weights_only_unpickler", "load")
    | _names("torch.jit", "load script trace")
    | _names("torch.jit._serialization", "load")
    | _names(
        "torch.fx.graph_module",
        "reduce_graph_module reduce_package_graph_module reduce_deploy_graph_module _deserialize_graph_module",
    )
    | _names("numpy", "load fromfile memmap")
    | _names("numpy.core.multiarray", "fromfile")
    | _names("numpy._core.multiarray", "fromfile")
    | _names("numpy.lib.npyio", "load")
    | _names("numpy.lib._npyio_impl", "load")
    | _names("pandas", "read_pickle eval")
    | _names("pandas.io.pickle", "read_pickle")
    | _names("yaml", "load load_all unsafe_load unsafe_load_all full_load")
    | _names("sympy", "sympify lambdify")
    | _names("sympy.core.sympify", "sympify")
    | _names("uuid", "_get_command_stdout _load_system_functions")
    | _names("platform", "_syscmd_file _syscmd_ver popen")
    | _names("dataclasses", "make_dataclass _create_fn")
    | _names("collections", "namedtuple")
    | _names("typing", "get_type_hints")
    | _names("inspect", "get_annotations")
    | _names("weakref", "finalize")
    | _names("_weakref", "finalize")
    | _names("torch", "from_file")
    | _names("torch.export", "load save")
    | _names("numpy", "ndarray.tofile")
    | _names("transformers", "pipeline")
    | _names("transformers.pipelines", "pipeline")
    | _names("huggingface_hub", "hf_hub_download snapshot_download")
    | _names("datasets", "load_dataset load_from_disk")
    | _names("datasets.load", "load_dataset load_from_disk")
    | _names("fsspec", "open open_files open_local filesystem")
    | _names("fsspec.core", "open open_files open_local url_to_fs get_fs_token_paths")
    | _names("fsspec.spec", "make_instance")  # calls whatever it is given
    | _names("hydra.utils", "instantiate call get_class get_method get_object")
)
# Names of functions that run programs, code or libraries, wherever they are: modules keep the functions they import,
# and nothing in a checkpoint that is data has such a name.
_VERBS: Final = _words(
    "system popen _popen exec eval execfile _exec_with_source load_library _jit_load pipe_pager tempfilepager "
    "getstatusoutput check_output check_call import_module import_string _importer __import__ start_processes "
    "addpackage addsitedir addusersitepackages run_path run_module run_code run_script spawn fork_exec LoadLibrary "
    "unsafe_load read_pickle from_pretrained load_from_checkpoint hf_hub_download snapshot_download urlopen "
    "urlretrieve load_state_dict_from_url load_dataset load_inline rmtree _get_command_stdout _read_output "
    "_read_cmd_output "
)
# Names of functions that do more than make a value, as a file would call them. Functions of what is data are called
# otherwise (`_reconstruct`, `_rebuild_tensor_v2`, `__randomstate_ctor`, `_unpickle_block`, `build_intlist`).
_DOING = re.compile(
    r"_*(?:load|loads|open|save|dump|dumps|read|write|delete|remove|unlink|rename|replace|rmdir|mkdir|makedirs|chmod|"
    r"touch|move|copyfile|copytree|extractall|main|launch|run|execute|shell|sh|cmd|command|submit|connect|kill|install|"
    r"compile|instantiate|pipeline|tofile|fromfile|memmap|make_dataclass|namedtuple|getoutput|register|"
    r"(?:load|open|save|read|write|run|exec|launch|import|download|fetch|upload|install|spawn|eval|deserialize)_\w+|"
    r"download\w*|from_(?:pretrained|file|url|hub|path|checkpoint|config)|\w+_(?:download|open|eval|exec))"
)
# Methods of `pathlib.Path`, which by itself only names a file.
_WRITES: Final = _words(
    "unlink write_text write_bytes open touch rename replace rmdir mkdir chmod symlink_to hardlink_to link_to"
)
_METHODS: Final = _words("eval exec spawn")  # of classes too, where they are harmless: `Module.eval`
_MOST_SEGMENTS: Final = 16  # of a dotted name that are looked at one by one
# What `joblib.dump` itself writes.
_DATA_OF_MODULES: Final = _names("joblib.numpy_pickle", "NumpyArrayWrapper NDArrayWrapper ZNDArrayWrapper")


def trust_of(ref: GlobalRef, *, called: bool = False) -> Trust:
    """Sort a global; the names of Python 2 count as what they became.

    A name with dots reaches through a module for something else (`pathlib`, `os.system`), so it is never accepted.

    Args:
        called: loading runs it (`running`), rather than that it names it or makes an empty object of it.
    """
    now = _in_python_3(ref)
    if now in ACCEPTED:
        return Trust.ACCEPTED
    if _dangerous(ref) or _dangerous(now) or (called and _does_something(now)):
        return Trust.DANGEROUS
    return Trust.REFUSED


def _does_something(ref: GlobalRef) -> bool:
    """Whether a call of it does more than make a value, as far as its name tells."""
    if ref in METACLASSES:
        return True
    if in_standard_library(ref.module):
        return not harmless_call(ref)
    *through, name = ref.name.rsplit(".", _MOST_SEGMENTS)
    # `numpy` `uuid._get_command_stdout` is of the standard library too
    return _DOING.fullmatch(name) is not None or any(in_standard_library(part.lstrip("_")) for part in through)


def _in_python_3(ref: GlobalRef) -> GlobalRef:
    """The name under which `torch` and `pickle` look for it: `__builtin__.set` is `builtins.set`."""
    renamed = _compat_pickle.NAME_MAPPING.get((ref.module, ref.name))
    if renamed is not None:
        return GlobalRef(*renamed)
    return GlobalRef(_compat_pickle.IMPORT_MAPPING.get(ref.module, ref.module), ref.name)


def _dangerous(ref: GlobalRef) -> bool:
    if ref in _DATA_OF_MODULES:
        return False
    first, *rest = segments = ref.name.split(".", _MOST_SEGMENTS)
    # `torch` `hub.load` is `torch.hub` `load`
    if any(_listed(".".join([ref.module, *segments[:n]]), name) for n, name in enumerate(segments)):
        return True
    if not rest:
        return first in _VERBS
    if rest[-1] in _VERBS - _METHODS or (ref.module.startswith("pathlib") and rest[-1] in _WRITES):
        return True
    # `pathlib` `os.system`, `collections` `_sys.modules`, `random` `Random.__init__.__globals__`
    return any(part.lstrip("_") in _MODULES for part in segments[:-1]) or any(part[:2] == "__" for part in rest)


def _listed(module: str, name: str) -> bool:
    return GlobalRef(module, name) in _DANGEROUS or _in_dangerous_module(module)


def _in_dangerous_module(module: str) -> bool:
    parts = module.split(".", _DEEPEST)[:_DEEPEST]
    return any(".".join(parts[:n]) in _MODULES for n in range(1, len(parts) + 1))
