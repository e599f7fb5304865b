"""Calls into Python's standard library: the few that honest pickles ask for.

A pickle of data calls constructors. All else of the standard library that a file calls counts as dangerous: its
functions run programs, write and delete files, reach the network, import by name, evaluate text and unpickle, under
hundreds of names (`uuid._get_command_stdout`, `site.execsitecustomize`, `zipapp.create_archive`), and a list of the bad
ones is never whole. Merely naming a class or a function is another matter; see `trust`.

Sources: `__reduce__`, `__reduce_ex__` and `copyreg.pickle` in CPython Lib and Modules, 2.7 to 3.14
"""

import builtins
import re
import sys
from typing import Final

from ckpttool.values import GlobalRef

_OLD: Final = (  # gone with 3.12 to 3.14
    "_aix_support _bootsubprocess _crypt _msi _ossaudiodev _spwd aifc asynchat asyncore audioop binhex cgi cgitb chunk "
    "crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib "
    "uu xdrlib dummy_threading _dummy_thread _dummy_threading formatter macpath parser symbol"
)
_NEW: Final = (  # come with 3.12 to 3.14
    "_android_support _apple_support _ast_unparse _colorize _hmac _interpchannels _interpqueues _interpreters "
    "_ios_support _opcode_metadata _pylong _pyrepl _remote_debugging _suggestions _sysconfig _types _wmi _zstd "
    "annotationlib compression"
)
_PYTHON_2: Final = (  # where they have no successor
    "BaseHTTPServer Bastion CGIHTTPServer SimpleHTTPServer commands compiler dircache fpformat hotshot htmllib "
    "ihooks imputil linuxaudiodev macurl2path mhlib mimetools mimify multifile mutex new os2emxpath popen2 posixfile "
    "rexec rfc822 robotparser sets sgmllib stringold sunaudio thread toaiff urllib2 user UserDict UserList statvfs"
)
# Those of the interpreter that runs this, and those that others have: what a file does is no matter of who looks.
_MODULES: Final = frozenset(sys.stdlib_module_names).union(*(text.split() for text in (_OLD, _NEW, _PYTHON_2)))


def _names(module: str, names: str) -> frozenset[GlobalRef]:
    return frozenset(GlobalRef(module, name) for name in names.split())


_EXCEPTIONS: Final = frozenset(
    GlobalRef("builtins", name)
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_PATHS: Final = "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath"
_ADDRESSES: Final = "IPv4Address IPv4Network IPv4Interface IPv6Address IPv6Network IPv6Interface"

HARMLESS: Final = (
    _EXCEPTIONS
    | _names(
        "builtins",
        "object bool int float complex str bytes bytearray list tuple dict set frozenset range slice reversed "
        "enumerate zip memoryview",
    )
    | _names("copyreg", "_reconstructor __newobj__ __newobj_ex__")
    | _names("collections", "OrderedDict Counter defaultdict deque ChainMap UserDict UserList UserString")
    | _names("_collections", "deque defaultdict OrderedDict")
    | _names("UserDict", "UserDict IterableUserDict")
    | _names("UserList", "UserList")
    | _names("sets", "Set ImmutableSet")
    | _names("types", "SimpleNamespace GenericAlias MappingProxyType")
    | _names("argparse", "Namespace")
    | _names("optparse", "Values")
    | _names("functools", "partial")
    | _names("_functools", "partial")
    | _names("operator", "itemgetter")
    | _names("_operator", "itemgetter")
    | _names(
        "itertools",
        "chain combinations combinations_with_replacement compress count cycle islice pairwise permutations product "
        "repeat zip_longest _tee _tee_dataobject",
    )
    | _names("re", "_compile compile RegexFlag")
    | _names("sre", "_compile")
    | _names("_codecs", "encode")
    | _names("codecs", "encode decode lookup")
    | _names("array", "array _array_reconstructor")
    | _names("io", "BytesIO StringIO")
    | _names("_io", "BytesIO StringIO")
    | _names("datetime", "date datetime time timedelta timezone tzinfo")
    | _names("_pydatetime", "date datetime time timedelta timezone tzinfo")
    | _names("time", "struct_time")
    | _names("zoneinfo", "ZoneInfo ZoneInfo._unpickle")
    | _names("decimal", "Decimal Context DecimalTuple")
    | _names("_decimal", "Decimal Context")
    | _names("_pydecimal", "Decimal Context")
    | _names("fractions", "Fraction")
    | _names("statistics", "NormalDist")
    | _names("random", "Random SystemRandom")
    | _names("_random", "Random")
    | _names("uuid", "UUID SafeUUID")
    | _names("ipaddress", _ADDRESSES)
    | _names("pathlib", _PATHS)
    | _names("pathlib._local", _PATHS)
    | _names("logging", "getLogger")
    | _names("inspect", "Signature Parameter BoundArguments _ParameterKind")
    | _names("signal", "Signals Handlers Sigmasks")
    | _names("enum", "FlagBoundary")
    | _names("calendar", "Month Day")
    | _names("plistlib", "UID PlistFormat")
    | _names("queue", "Empty Full")
    | _names("_queue", "Empty")
    | _names("string", "Template")
    | _names("xml.etree.ElementTree", "Element")
)

# What counts as called when only `__new__` is: the classes of classes, which make classes of what they are given.
METACLASSES: Final = (
    _names("builtins", "type super property")
    | _names("abc", "ABCMeta")
    | _names("_py_abc", "ABCMeta")
    | _names("enum", "EnumMeta EnumType")
    | _names("typing", "NamedTuple TypedDict NamedTupleMeta _TypedDictMeta _ProtocolMeta")
    | _names("unittest.mock", "NonCallableMock NonCallableMagicMock Mock MagicMock AsyncMock PropertyMock")
)
_EXCEPTION = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning)")  # `json.decoder.JSONDecodeError`: made by a call, too
_SYNTAX_TREES: Final = ("ast", "_ast")  # nodes are made by a call of their class


def in_standard_library(module: str) -> bool:
    """Whether a module, or the package it is in, comes with Python."""
    return module.split(".", 1)[0] in _MODULES


def harmless_call(ref: GlobalRef) -> bool:
    """Whether a call of something of the standard library makes a value and does nothing else.

    Args:
        ref: under its name in Python 3.
    """
    if ref in HARMLESS or _EXCEPTION.fullmatch(ref.name):
        return True
    return ref.module in _SYNTAX_TREES and ref.name[:1].isupper() and ref.name.isidentifier()
