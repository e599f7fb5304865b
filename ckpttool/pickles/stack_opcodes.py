"""Opcodes of the stream, the stack and the memo."""

import pickle

from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.machine import Machine
from ckpttool.pickles.opcode_tables import Opcodes, unpack_uint32, unpack_uint64
from ckpttool.pickles.words import spoken
from ckpttool.values import Opaque

opcode = Opcodes()

_NEWEST = 5  # protocol
_CALLS = (*pickle.REDUCE, *pickle.OBJ)
_LONGEST_INDEX = 20  # digits of a 64-bit number


class Stopped(Exception):
    """STOP was reached, at the end of the pickle: not an error, and never seen outside this package."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end  # position behind STOP


@opcode(pickle.PROTO, 1)
def _proto(vm: Machine, at: int) -> int:
    protocol = vm.buffer[at]
    if protocol > _NEWEST:
        raise UnsupportedFormat(f"pickle protocol {protocol} is newer than {_NEWEST}")
    if protocol > vm.protocol:  # noqa: PLR1730  # max() would take twice as long, and hostile files have millions
        vm.protocol = protocol
    return at + 1


@opcode(pickle.FRAME, 8)
def _frame(vm: Machine, at: int) -> int:
    vm.open_frame(at + 8, unpack_uint64(vm.buffer, at)[0])
    return at + 8


@opcode(pickle.STOP)
def _stop(vm: Machine, at: int) -> int:
    if vm.frame_end > at:
        raise DamagedFile(f"the pickle stops {vm.frame_end - at:,} bytes before its frame ends")
    raise Stopped(at)


@opcode(pickle.MARK)
def _mark(vm: Machine, at: int) -> int:
    vm.metastack.append(vm.stack)
    vm.stack = []
    return at


@opcode(pickle.POP)
def _pop(vm: Machine, at: int) -> int:
    if not vm.stack:
        vm.pop_mark()
        return at
    value = vm.stack.pop()
    if type(value) is Opaque and _just_called(vm, value, at - 2):
        vm.find("pickle.discarded", f"{spoken(value)} is made by a call and thrown away", at - 1)
    return at


def _just_called(vm: Machine, value: Opaque, before: int) -> bool:
    """Whether the byte before POP is the opcode that made the value, and not the memo index it was put under."""
    byte = vm.buffer[before]
    return byte in _CALLS and not (byte < len(vm.memo) and vm.memo[byte] is value)


@opcode(pickle.POP_MARK)
def _pop_mark(vm: Machine, at: int) -> int:
    vm.pop_mark()
    return at


@opcode(pickle.DUP)
def _dup(vm: Machine, at: int) -> int:
    vm.stack.append(vm.stack[-1])
    return at


@opcode(pickle.BINPUT, 1)
def _binput(vm: Machine, at: int) -> int:
    vm.remember(vm.buffer[at])
    return at + 1


@opcode(pickle.LONG_BINPUT, 4)
def _long_binput(vm: Machine, at: int) -> int:
    index = unpack_uint32(vm.buffer, at)[0]
    memo = vm.memo
    if index == len(memo):  # as picklers number them
        memo.append(vm.stack[-1])
    else:
        vm.remember(index)
    return at + 4


@opcode(pickle.MEMOIZE)
def _memoize(vm: Machine, at: int) -> int:
    memo = vm.memo
    if vm.scattered:
        vm.remember(len(memo) + len(vm.scattered))
    else:
        memo.append(vm.stack[-1])
    return at


@opcode(pickle.PUT)
def _put(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    vm.remember(_memo_index(line))
    return after


@opcode(pickle.BINGET, 1)
def _binget(vm: Machine, at: int) -> int:
    index = vm.buffer[at]
    memo = vm.memo
    vm.stack.append(memo[index] if index < len(memo) else vm.recall(index))
    return at + 1


@opcode(pickle.LONG_BINGET, 4)
def _long_binget(vm: Machine, at: int) -> int:
    index = unpack_uint32(vm.buffer, at)[0]
    memo = vm.memo
    vm.stack.append(memo[index] if index < len(memo) else vm.recall(index))
    return at + 4


@opcode(pickle.GET)
def _get(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    index = _memo_index(line)
    vm.stack.append(vm.memo[index] if index < len(vm.memo) else vm.recall(index))
    return after


def _memo_index(line: bytes) -> int:
    if not line.isdigit() or len(line) > _LONGEST_INDEX:
        raise DamagedFile(f"{spoken(line)} is not an index into the memo")
    return int(line)
