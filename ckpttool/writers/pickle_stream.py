"""Opcodes on their way out: our bytes, long byte strings left in their source, and the memo's numbers."""

import pickle
import struct
from typing import Any

from ckpttool.errors import UnsupportedFormat
from ckpttool.sources import ByteSpan, SliceSource, Source


class Stream:
    """The bytes of a pickle so far, and under which number the memo has each object.

    Every object that pickle would put into the memo is put there, so that the bytes are those of pickle's own C code.
    """

    def __init__(self) -> None:
        self.out = bytearray()
        self.protocol = 2
        self._done: list[bytes | Source] = []
        self._entries: dict[int, int] = {}  # id of an object: its memo entry
        self._begun: dict[int, int] = {}  # id of an object: how many the memo had when it was begun last
        self._next = 0

    def put(self) -> int:
        """Put the top of the stack into the memo; the number it has there."""
        entry = self._next
        self._next += 1
        self.out += b"q" + bytes((entry,)) if entry < 256 else b"r" + struct.pack("<I", entry)  # noqa: PLR2004
        return entry

    def get(self, entry: int) -> None:
        """Push an entry of the memo."""
        self.out += b"h" + bytes((entry,)) if entry < 256 else b"j" + struct.pack("<I", entry)  # noqa: PLR2004

    def ended(self, opcode: bytes) -> None:
        """Write the opcode that makes something of what is on the stack, and put it into the memo."""
        self.out += opcode
        self.put()

    def remember(self, value: Any) -> None:
        """Put the top of the stack into the memo as an object, which has to live as long as this."""
        self._entries[id(value)] = self.put()

    def known(self, value: Any) -> bool:
        """Whether the memo has the object."""
        return id(value) in self._entries

    def require_new(self, value: Any) -> None:
        """Check that an object which the memo has not is not begun again for nothing.

        pickle writes an object's class and arguments before the memo has it. It may be met among them, inside a list
        that the memo has by then; where nothing was put there meanwhile, the same way leads to it for ever.

        Raises:
            UnsupportedFormat: its class or its arguments hold it.
        """
        count = len(self._entries)
        if self._begun.get(id(value)) == count:
            raise UnsupportedFormat(
                "an object is made of itself: its class or its arguments hold it, which no pickle can say",
                hint="leave it out with --drop-opaque",
            )
        self._begun[id(value)] = count

    def recalled(self, value: Any) -> bool:
        """Push the object if the memo has it; whether it had."""
        entry = self._entries.get(id(value))
        if entry is not None:
            self.get(entry)
        return entry is not None

    def copy(self, source: Source, start: int, nbytes: int) -> None:
        """Let a run of bytes follow, which is not read now."""
        self._done += (bytes(self.out), SliceSource(source, ByteSpan(start, start + nbytes)))
        self.out = bytearray()

    def chunks(self) -> tuple[bytes | Source, ...]:
        """The whole stream, with the protocol that it needs."""
        return (pickle.PROTO + bytes((self.protocol,)), *self._done, bytes(self.out))
