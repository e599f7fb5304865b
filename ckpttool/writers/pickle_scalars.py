"""Numbers, texts, byte strings and globals as opcodes of protocol 2.

Source: CPython 3.13 Lib/pickle.py
"""

import pickle
import struct
from typing import Any

from ckpttool.sources import Source
from ckpttool.values import BytesRef, GlobalRef
from ckpttool.writers.pickle_stream import Stream
from ckpttool.writers.spelling import BYTEARRAY, means_another

_INT32 = range(-(2**31), 2**31)
_LONG1 = 256  # bytes; longer integers take LONG4
_LONG = 1 << 32  # bytes; longer texts and byte strings have opcodes of their own, of protocol 4
_NAMES = 4  # protocol from which names may have dots, and those of Python 2 mean what they say
TUPLES = (pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
SHORT = 3  # items; longer tuples are made with a mark
_CODECS = GlobalRef("_codecs", "encode")
_COMPLEX = GlobalRef("builtins", "complex")


class Scalars(Stream):
    """Writes values that hold no others. Each `write_…` leaves one value on the stack.

    Args:
        python3: the names of globals are those of Python 3.
    """

    def __init__(self, *, python3: bool) -> None:
        super().__init__()
        self._python3 = python3
        self._texts: dict[str, int] = {}  # memo entries of strings, by their value
        self._globals: dict[GlobalRef, int] = {}

    def write_none(self, _value: None) -> None:
        self.out += pickle.NONE

    def write_bool(self, value: bool) -> None:  # noqa: FBT001  # the value that is written
        self.out += pickle.NEWTRUE if value else pickle.NEWFALSE

    def write_int(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self.out += pickle.BININT1 + bytes((value,))
        elif 0 <= value < 1 << 16:
            self.out += pickle.BININT2 + struct.pack("<H", value)
        elif value in _INT32:
            self.out += pickle.BININT + struct.pack("<i", value)
        else:
            data = pickle.encode_long(value)
            short = len(data) < _LONG1
            self.out += pickle.LONG1 + bytes((len(data),)) if short else pickle.LONG4 + struct.pack("<i", len(data))
            self.out += data

    def write_float(self, value: float) -> None:
        self.out += pickle.BINFLOAT + struct.pack(">d", value)

    def write_str(self, value: str) -> None:
        entry = self._texts.get(value)
        if entry is not None:
            self.get(entry)
            return
        data = value.encode("utf-8", "surrogatepass")
        if len(data) < _LONG:
            self.out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data
        else:
            self.out += pickle.BINUNICODE8 + struct.pack("<Q", len(data)) + data
        self._texts[value] = self.put()

    def write_global(self, value: GlobalRef) -> None:
        entry = self._globals.get(value)
        if entry is not None:
            self.get(entry)
            return
        module, name = value
        if self._python3 and means_another(value):
            self.protocol = _NAMES
        try:
            line = f"{module}\n{name}\n".encode()
        except UnicodeEncodeError:
            line = b""
        if line.count(b"\n") == 2:  # noqa: PLR2004  # a name may hold one, or a lone surrogate
            self.out += pickle.GLOBAL + line
        else:
            self.write_str(module)
            self.write_str(name)
            self.out += pickle.STACK_GLOBAL
        self._globals[value] = self.put()

    # Byte strings, which protocol 2 spells as text

    def write_bytes(self, value: bytes) -> None:
        self.write_encoded(value)
        self.remember(value)

    def write_encoded(self, data: bytes) -> None:
        """`_codecs.encode(text, "latin1")`."""
        self.write_global(_CODECS)
        text = data.decode("latin-1").encode()
        self.out += pickle.BINUNICODE + struct.pack("<I", len(text)) + text
        self.put()
        self.write_str("latin1")
        self.ended(pickle.TUPLE2)
        self.out += pickle.REDUCE

    def write_bytearray(self, value: bytearray) -> None:
        self.write_global(BYTEARRAY)
        self.write_encoded(bytes(value))
        self.put()
        self.ended(pickle.TUPLE1)
        self.out += pickle.REDUCE
        self.remember(value)

    def write_bytes_ref(self, value: BytesRef) -> None:
        """What was no text in its file either."""
        self.write_streamed(value.source, value.start, value.nbytes, mutable=value.mutable)
        self.remember(value)

    def write_streamed(self, source: Source, start: int, nbytes: int, *, mutable: bool) -> None:
        if mutable:
            self.write_global(BYTEARRAY)
        if nbytes < _LONG:
            self.out += pickle.BINBYTES + struct.pack("<I", nbytes)
        else:
            self.out += pickle.BINBYTES8 + struct.pack("<Q", nbytes)
        self.copy(source, start, nbytes)
        self.put()
        if mutable:
            self.ended(pickle.TUPLE1)
            self.out += pickle.REDUCE

    def write_complex(self, value: complex) -> None:
        self.write_global(_COMPLEX)
        self.write_float(value.real)
        self.write_float(value.imag)
        self.ended(pickle.TUPLE2)
        self.out += pickle.REDUCE
        self.remember(value)

    def reduced(self, value: Any) -> bool:
        """REDUCE, or no more than a look into the memo where something that the object holds made it meanwhile.

        Returns:
            Whether the object is new, so that what it holds is still to be written.
        """
        if self.known(value):
            self.out += pickle.POP + pickle.POP
            self.recalled(value)
            return False
        self.out += pickle.REDUCE
        self.remember(value)
        return True
