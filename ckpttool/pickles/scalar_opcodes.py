"""Opcodes of numbers, strings and bytes."""

import codecs
import pickle
import warnings

from ckpttool.errors import DamagedFile, LimitExceeded, UnsupportedFormat
from ckpttool.pickles.budget import CHECK_EVERY
from ckpttool.pickles.machine import Machine
from ckpttool.pickles.opcode_tables import (
    Opcodes,
    unpack_float64,
    unpack_int32,
    unpack_uint16,
    unpack_uint32,
    unpack_uint64,
)
from ckpttool.pickles.words import spoken
from ckpttool.values import BytesRef

opcode = Opcodes()

_MOST_DIGITS = 4_300  # of a decimal number; Python's own bound, because reading more takes quadratic time
_SHORT = 4_096  # bytes of a text that no limit forbids


@opcode(pickle.NONE)
def _none(vm: Machine, at: int) -> int:
    vm.stack.append(None)
    return at


@opcode(pickle.NEWTRUE)
def _newtrue(vm: Machine, at: int) -> int:
    vm.stack.append(True)
    return at


@opcode(pickle.NEWFALSE)
def _newfalse(vm: Machine, at: int) -> int:
    vm.stack.append(False)
    return at


@opcode(pickle.BININT, 4)
def _binint(vm: Machine, at: int) -> int:
    vm.stack.append(unpack_int32(vm.buffer, at)[0])
    return at + 4


@opcode(pickle.BININT1, 1)
def _binint1(vm: Machine, at: int) -> int:
    vm.stack.append(vm.buffer[at])
    return at + 1


@opcode(pickle.BININT2, 2)
def _binint2(vm: Machine, at: int) -> int:
    vm.stack.append(unpack_uint16(vm.buffer, at)[0])
    return at + 2


@opcode(pickle.LONG1, 1)
def _long1(vm: Machine, at: int) -> int:
    size = vm.buffer[at]
    vm.stack.append(int.from_bytes(vm.short(at + 1, size), "little", signed=True))
    return at + 1 + size


@opcode(pickle.LONG4, 4)
def _long4(vm: Machine, at: int) -> int:
    size = unpack_int32(vm.buffer, at)[0]
    if size < 0:
        raise DamagedFile(f"an integer of {size:,} bytes")
    vm.stack.append(int.from_bytes(vm.take(at + 4, size), "little", signed=True))
    return at + 4 + size


@opcode(pickle.INT)
def _int(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    vm.stack.append(line == b"01" if line in (b"00", b"01") else _integer(line))  # those two are False and True
    return after


@opcode(pickle.LONG)
def _long(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    vm.stack.append(_integer(line.removesuffix(b"L")))
    return after


def _integer(text: bytes) -> int:
    if len(text) > _MOST_DIGITS + 1:
        raise LimitExceeded(f"an integer is written with {len(text):,} characters, more than {_MOST_DIGITS:,}")
    try:
        return int(text, 0)
    except ValueError as e:
        raise DamagedFile(f"{spoken(text)} is not an integer") from e


@opcode(pickle.FLOAT)
def _float(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    try:
        vm.stack.append(float(line))
    except ValueError as e:
        raise DamagedFile(f"{spoken(line)} is not a number") from e
    return after


@opcode(pickle.BINFLOAT, 8)
def _binfloat(vm: Machine, at: int) -> int:
    vm.stack.append(unpack_float64(vm.buffer, at)[0])
    return at + 8


# Strings and bytes


@opcode(pickle.BINUNICODE, 4)
def _binunicode(vm: Machine, at: int) -> int:
    size = unpack_uint32(vm.buffer, at)[0]
    at += 4
    if size <= _SHORT:  # the names of tensors
        try:
            vm.stack.append(str(vm.short(at, size), "utf-8"))
            return at + size
        except UnicodeDecodeError:
            pass  # lone surrogates, or no UTF-8 at all
    vm.stack.append(vm.take_text(at, size))
    return at + size


@opcode(pickle.SHORT_BINUNICODE, 1)
def _short_binunicode(vm: Machine, at: int) -> int:
    size = vm.buffer[at]
    at += 1
    try:
        vm.stack.append(str(vm.short(at, size), "utf-8"))
    except UnicodeDecodeError:
        vm.stack.append(vm.take_text(at, size))
    return at + size


@opcode(pickle.BINUNICODE8, 8)
def _binunicode8(vm: Machine, at: int) -> int:
    size = unpack_uint64(vm.buffer, at)[0]
    vm.stack.append(vm.take_text(at + 8, size))
    return at + 8 + size


@opcode(pickle.UNICODE)
def _unicode(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    if len(line) > CHECK_EVERY and b"\\" in line:
        vm.budget.check_memory(4 * len(line))
    try:
        vm.stack.append(str(line, "raw-unicode-escape"))
    except UnicodeDecodeError as e:
        raise DamagedFile(f"a text argument has a bad escape at its byte {e.start:,}") from e
    return after


@opcode(pickle.SHORT_BINBYTES, 1)
def _short_binbytes(vm: Machine, at: int) -> int:
    size = vm.buffer[at]
    vm.stack.append(bytes(vm.short(at + 1, size)))
    return at + 1 + size


@opcode(pickle.BINBYTES, 4)
def _binbytes(vm: Machine, at: int) -> int:
    size = unpack_uint32(vm.buffer, at)[0]
    vm.stack.append(vm.take_bytes(at + 4, size))
    return at + 4 + size


@opcode(pickle.BINBYTES8, 8)
def _binbytes8(vm: Machine, at: int) -> int:
    size = unpack_uint64(vm.buffer, at)[0]
    vm.stack.append(vm.take_bytes(at + 8, size))
    return at + 8 + size


@opcode(pickle.BYTEARRAY8, 8)
def _bytearray8(vm: Machine, at: int) -> int:
    size = unpack_uint64(vm.buffer, at)[0]
    vm.stack.append(vm.take_bytes(at + 8, size, mutable=True))
    return at + 8 + size


@opcode(pickle.NEXT_BUFFER)
def _next_buffer(_vm: Machine, _at: int) -> int:
    raise UnsupportedFormat(
        "the pickle takes a buffer from outside (protocol 5), and it is not in this file",
        hint="save it again without buffer_callback",
    )


@opcode(pickle.READONLY_BUFFER)
def _readonly_buffer(vm: Machine, at: int) -> int:
    match vm.stack[-1]:
        case bytes():
            pass
        case bytearray() as data:
            vm.budget.charge((data,))
            vm.stack[-1] = bytes(data)
        case BytesRef() as ref:
            vm.stack[-1] = BytesRef(ref.source, ref.start, ref.nbytes)
        case value:
            raise DamagedFile(f"{spoken(value)} is no buffer")
    return at


def _python2(vm: Machine, data: bytes | bytearray | BytesRef) -> str | bytes | bytearray | BytesRef:
    """A `str` of Python 2: text where it is UTF-8, else bytes."""
    if isinstance(data, BytesRef):
        return data
    try:
        return vm.decoded(data)
    except UnicodeDecodeError:
        return data


@opcode(pickle.STRING)
def _string(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    line = line.rstrip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b'"', b"'"):  # noqa: PLR2004  # two quotes
        raise DamagedFile(f"{spoken(line)} is not a quoted string")
    try:
        with warnings.catch_warnings():  # an unknown escape is kept as it is, and nobody wants to hear of it
            warnings.simplefilter("ignore")
            data, _ = codecs.escape_decode(line[1:-1])
    except ValueError as e:
        raise DamagedFile(f"{spoken(line)} has a bad escape") from e
    vm.stack.append(_python2(vm, data))
    return after


@opcode(pickle.BINSTRING, 4)
def _binstring(vm: Machine, at: int) -> int:
    size = unpack_int32(vm.buffer, at)[0]
    if size < 0:
        raise DamagedFile(f"a string of {size:,} bytes")
    vm.stack.append(_python2(vm, vm.take_bytes(at + 4, size)))
    return at + 4 + size


@opcode(pickle.SHORT_BINSTRING, 1)
def _short_binstring(vm: Machine, at: int) -> int:
    size = vm.buffer[at]
    vm.stack.append(_python2(vm, bytes(vm.short(at + 1, size))))
    return at + 1 + size
