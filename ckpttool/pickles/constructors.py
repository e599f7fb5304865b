"""The whole trusted surface: every global for which a call, a new object or a BUILD becomes more than an `Opaque`.

All are pure functions of ours over values, with checked arguments; nothing here imports or calls what a file names.
"""

from collections.abc import Callable
from typing import Any, Final

from ckpttool.errors import DamagedFile
from ckpttool.pickles import python_constructors as python
from ckpttool.pickles.numpy_constructors import ARRAYS, build_array
from ckpttool.pickles.numpy_dtype_constructors import DTYPES, build_dtype
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.pickles.tensors import OpenTensor
from ckpttool.pickles.torch_constructors import OLD_CLASSES, REBUILD, VISITING
from ckpttool.pickles.torch_old import build_tensor
from ckpttool.pickles.words import spoken
from ckpttool.values import ORDERED_DICT, GlobalRef, Opaque, Record, Value

Constructor = Callable[[tuple[Any, ...]], Any]


def _builtin(name: str, build: Constructor) -> dict[GlobalRef, Constructor]:
    """The same function under Python 3's and Python 2's name of the module."""
    return {GlobalRef("builtins", name): build, GlobalRef("__builtin__", name): build}


def _copyreg(name: str, build: Constructor) -> dict[GlobalRef, Constructor]:
    return {GlobalRef("copyreg", name): build, GlobalRef("copy_reg", name): build}


_PYTHON: dict[GlobalRef, Constructor] = {
    ORDERED_DICT: python.ordered_dict,
    python.COUNTER: python.counter,
    python.DEFAULT_DICT: python.default_dict,
    **_builtin("set", python.set_),
    **_builtin("frozenset", python.frozenset_),
    **_builtin("bytes", python.bytes_),
    **_builtin("bytearray", python.bytearray_),
    **_builtin("complex", python.complex_),
    GlobalRef("_codecs", "encode"): python.encode,
    **_copyreg("_reconstructor", python.reconstructor),
    **_copyreg("__newobj__", python.newobj),
}

PURE_CONSTRUCTORS: Final[dict[GlobalRef, Constructor]] = {**_PYTHON, **DTYPES, **ARRAYS, **REBUILD}

# Those that copy or visit all that an argument holds, so that one opcode may do the work of many.
COPYING: Final = frozenset(_PYTHON) | VISITING


def new_object(cls: Any, args: Any, kwargs: Any) -> Value:
    """What NEWOBJ gives: `cls.__new__(cls, *args, **kwargs)`, as data.

    Raises:
        DamagedFile: the class is no class, or the arguments are no tuple.
    """
    if type(cls) not in (GlobalRef, Opaque) or type(args) is not tuple:
        raise DamagedFile(f"an object is made of {spoken(cls)} with {spoken(args)}")
    if kwargs is not None or type(cls) is Opaque:
        return Opaque(cls, args, kwargs, how="newobj")
    if cls in (ORDERED_DICT, python.COUNTER, python.DEFAULT_DICT):
        return Record(cls)  # their __new__ takes no notice of arguments
    made = OLD_CLASSES[cls](args) if cls in OLD_CLASSES else NotImplemented
    return Opaque(cls, args, how="newobj") if made is NotImplemented else made


def build_object(target: Any, state: Any) -> None:
    """BUILD: give an object its state.

    Raises:
        DamagedFile: the object takes no state, or it has one already.
    """
    match target:
        case NumpyDtype():
            build_dtype(target, state)
        case Opaque() | Record():
            if target.state is not None:
                raise DamagedFile(f"{spoken(target)} gets a second state")
            target.state = state
        case OpenTensor(kind="ndarray"):
            build_array(target, state)
        case OpenTensor():
            build_tensor(target, state)
        case _:
            raise DamagedFile(f"a state is given to {spoken(target)}")
