"""Opcodes that name, call and build. Here pickle would run code; here is what we do instead."""

import pickle
from typing import Any

from ckpttool.errors import DamagedFile, UnsupportedFormat
from ckpttool.pickles.budget import CALL_WORK
from ckpttool.pickles.machine import Machine
from ckpttool.pickles.opcode_tables import Opcodes, unpack_int32, unpack_uint16
from ckpttool.pickles.words import spoken
from ckpttool.values import GlobalRef, Opaque

opcode = Opcodes()


@opcode(pickle.GLOBAL)
def _global(vm: Machine, at: int) -> int:
    ref, after = _named_in_text(vm, at)
    vm.stack.append(ref)
    return after


def _named_in_text(vm: Machine, at: int) -> tuple[GlobalRef, int]:
    module, middle = vm.line(at)
    name, after = vm.line(middle)
    try:
        return vm.mention(module.decode(), name.decode(), at - 1), after
    except UnicodeDecodeError as e:
        raise DamagedFile(f"the name of a global is not UTF-8: {spoken(module)}, {spoken(name)}") from e


@opcode(pickle.STACK_GLOBAL)
def _stack_global(vm: Machine, at: int) -> int:
    name, module = vm.stack.pop(), vm.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise DamagedFile(f"a global is named by {spoken(module)} and {spoken(name)}, not by two strings")
    vm.stack.append(vm.mention(module, name, at - 1))
    return at


@opcode(pickle.EXT1, 1)
def _ext1(vm: Machine, at: int) -> int:
    raise _unknown_extension(vm.buffer[at])


@opcode(pickle.EXT2, 2)
def _ext2(vm: Machine, at: int) -> int:
    raise _unknown_extension(unpack_uint16(vm.buffer, at)[0])


@opcode(pickle.EXT4, 4)
def _ext4(vm: Machine, at: int) -> int:
    raise _unknown_extension(unpack_int32(vm.buffer, at)[0])


def _unknown_extension(code: int) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"a global is named by extension code {code:,}, which means something only to the program that registered it",
        hint="save it again without copyreg.add_extension",
    )


@opcode(pickle.REDUCE)
def _reduce(vm: Machine, at: int) -> int:
    # Never call what the file names: known constructors are ours, the rest stays data.
    stack = vm.stack
    args = stack.pop()
    function = stack[-1]
    build = vm.builders.get(id(function))
    if build is None or type(args) is not tuple:
        stack[-1] = vm.call(function, args)
    else:
        vm.budget.work += CALL_WORK
        value = build(args)
        stack[-1] = Opaque(function, args) if value is NotImplemented else value
    return at


@opcode(pickle.INST)
def _inst(vm: Machine, at: int) -> int:
    cls, after = _named_in_text(vm, at)
    args = tuple(vm.pop_mark())
    vm.stack.append(vm.call(cls, args))
    return after


@opcode(pickle.OBJ)
def _obj(vm: Machine, at: int) -> int:
    cls, *args = vm.pop_mark() or [None]
    vm.stack.append(vm.call(cls, tuple(args)))
    return at


@opcode(pickle.NEWOBJ)
def _newobj(vm: Machine, at: int) -> int:
    args = vm.stack.pop()
    vm.stack[-1] = vm.new(vm.stack[-1], args)
    return at


@opcode(pickle.NEWOBJ_EX)
def _newobj_ex(vm: Machine, at: int) -> int:
    kwargs, args = vm.stack.pop(), vm.stack.pop()
    if type(kwargs) is not dict:
        raise DamagedFile(f"the keyword arguments of a call are {spoken(kwargs)}, not a dict")
    vm.stack[-1] = vm.new(vm.stack[-1], args, kwargs)
    return at


@opcode(pickle.BUILD)
def _build(vm: Machine, at: int) -> int:
    state = vm.stack.pop()
    vm.build(vm.stack[-1], state)
    return at


@opcode(pickle.PERSID)
def _persid(vm: Machine, at: int) -> int:
    line, after = vm.line(at)
    if not line.isascii():
        raise DamagedFile(f"the persistent id {spoken(line)} is not ASCII")
    vm.stack.append(_persistent(vm, line.decode()))
    return after


@opcode(pickle.BINPERSID)
def _binpersid(vm: Machine, at: int) -> int:
    stack = vm.stack
    stack[-1] = _persistent(vm, stack[-1])
    return at


def _persistent(vm: Machine, pid: Any) -> Any:
    if vm.persistent is None:
        return Opaque(None, (pid,), how="persistent")
    return vm.persistent(pid)
