"""How handlers of opcodes are declared: one function each, entered by a decorator into the table of its file."""

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from ckpttool.pickles.machine import Machine

# A handler gets the machine and the position behind the opcode, and returns the position of the next opcode. What
# goes wrong is placed by the loop: an IndexError or struct.error there means an argument behind the end of the data,
# or too few values on the stack.
Handler: TypeAlias = Callable[[Machine, int], int]

_UnpackInt: TypeAlias = Callable[[bytes | memoryview, int], tuple[int]]

unpack_uint16: Final[_UnpackInt] = struct.Struct("<H").unpack_from
unpack_int32: Final[_UnpackInt] = struct.Struct("<i").unpack_from
unpack_uint32: Final[_UnpackInt] = struct.Struct("<I").unpack_from
unpack_uint64: Final[_UnpackInt] = struct.Struct("<Q").unpack_from
unpack_float64: Final[Callable[[bytes | memoryview, int], tuple[float]]] = struct.Struct(">d").unpack_from


class Opcodes:
    """The handlers of one file."""

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.arguments: dict[int, int] = {}  # bytes of an opcode's fixed-size argument

    def __call__(self, code: bytes, argument: int = 0) -> Callable[[Handler], Handler]:
        """Enter a handler; `argument` is the size in bytes of a fixed-size argument."""

        def enter(handler: Handler) -> Handler:
            self.handlers[code[0]] = handler
            self.arguments[code[0]] = argument
            return handler

        return enter
