"""Opcodes of tuples, lists, dicts and sets."""

import pickle
from typing import Any

from ckpttool.errors import DamagedFile
from ckpttool.pickles.machine import Machine
from ckpttool.pickles.opcode_tables import Opcodes
from ckpttool.pickles.words import spoken
from ckpttool.values import Opaque, Record

opcode = Opcodes()


@opcode(pickle.EMPTY_TUPLE)
def _empty_tuple(vm: Machine, at: int) -> int:
    vm.stack.append(())
    return at


@opcode(pickle.TUPLE)
def _tuple(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    vm.stack.append(tuple(items))
    return at


@opcode(pickle.TUPLE1)
def _tuple1(vm: Machine, at: int) -> int:
    stack = vm.stack
    stack[-1] = (stack[-1],)
    return at


@opcode(pickle.TUPLE2)
def _tuple2(vm: Machine, at: int) -> int:
    stack = vm.stack
    last = stack.pop()
    stack[-1] = (stack[-1], last)
    return at


@opcode(pickle.TUPLE3)
def _tuple3(vm: Machine, at: int) -> int:
    stack = vm.stack
    last, middle = stack.pop(), stack.pop()
    stack[-1] = (stack[-1], middle, last)
    return at


@opcode(pickle.EMPTY_LIST)
def _empty_list(vm: Machine, at: int) -> int:
    vm.stack.append([])
    return at


@opcode(pickle.LIST)
def _list(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    vm.stack.append(items)
    return at


@opcode(pickle.APPEND)
def _append(vm: Machine, at: int) -> int:
    item = vm.stack.pop()
    _list_of(vm, vm.stack[-1]).append(item)
    return at


@opcode(pickle.APPENDS)
def _appends(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    _list_of(vm, vm.stack[-1]).extend(items)
    return at


def _list_of(vm: Machine, target: Any) -> list[Any]:
    if type(target) is list:
        return target
    if type(target) is Opaque:  # a subclass of list, a deque
        if target.state is not None:  # no pickler gives it first: it may say what `append`, `extend` and `add` are
            vm.running.reach(target.state)
        if target.items is None:
            target.items = []
        return target.items
    raise DamagedFile(f"items are appended to {spoken(target)}")


@opcode(pickle.EMPTY_DICT)
def _empty_dict(vm: Machine, at: int) -> int:
    vm.stack.append({})
    return at


@opcode(pickle.DICT)
def _dict(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    entries: dict[Any, Any] = {}
    vm.enter(entries, items, at - 1)
    vm.stack.append(entries)
    return at


@opcode(pickle.SETITEM)
def _setitem(vm: Machine, at: int) -> int:
    value, key = vm.stack.pop(), vm.stack.pop()
    vm.enter(_dict_of(vm.stack[-1]), [key, value], at - 1)
    return at


@opcode(pickle.SETITEMS)
def _setitems(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    vm.enter(_dict_of(vm.stack[-1]), items, at - 1)
    return at


def _dict_of(target: Any) -> dict[Any, Any]:
    if type(target) is dict or type(target) is Record:
        return target
    if type(target) is Opaque:  # a subclass of dict
        if target.entries is None:
            target.entries = {}
        return target.entries
    raise DamagedFile(f"items are set in {spoken(target)}")


@opcode(pickle.EMPTY_SET)
def _empty_set(vm: Machine, at: int) -> int:
    vm.stack.append(set())
    return at


@opcode(pickle.ADDITEMS)
def _additems(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    target = vm.stack[-1]
    if type(target) is set:
        target.update(vm.members(items, target))
    elif type(target) is Opaque:
        _list_of(vm, target).extend(items)
    else:
        raise DamagedFile(f"members are added to {spoken(target)}")
    return at


@opcode(pickle.FROZENSET)
def _frozenset(vm: Machine, at: int) -> int:
    items = vm.pop_mark()
    vm.stack.append(frozenset(vm.members(items, items)))
    return at
