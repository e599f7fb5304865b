"""The pickle machine's loop: from bytes to an inert value, with a place for whatever goes wrong."""

import gc
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ckpttool.blocks import Finding
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.pickles.depth import check_depth
from ckpttool.pickles.input import CUT_SHORT
from ckpttool.pickles.machine import Machine, Mention
from ckpttool.pickles.opcodes import ARGUMENT, TABLE
from ckpttool.pickles.stack_opcodes import Stopped
from ckpttool.sources import Source
from ckpttool.values import GlobalRef, Value

__all__ = ["Mention", "Pickle", "load"]


@dataclass(slots=True)
class Pickle:
    """What one pickle says."""

    value: Value
    end: int  # byte in the buffer behind STOP
    protocol: int
    globals: dict[GlobalRef, Mention]  # everything the pickle names, in the order of first mention
    problems: list[Finding]


def load(  # noqa: PLR0913  # each by its name
    buffer: bytes | memoryview,
    *,
    where: str,
    start: int = 0,
    base: int = 0,
    source: Source | None = None,
    persistent: Callable[[Value], Value] | None = None,
    nested: Callable[[tuple[Any, ...]], Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Pickle:
    """Read one pickle as data. Nothing it names is imported, resolved or called.

    Args:
        buffer: the bytes; the pickle begins at `start` and ends with its STOP, whatever follows.
        where: the file or member, for messages.
        base: position of `buffer[0]` in `source`, and in messages.
        source: where long `bytes` objects may be left (`BytesRef`); None copies them.
        persistent: makes the value behind a persistent id; without it the id is kept as an `Opaque`.
        nested: makes the storage of `torch.storage._load_from_bytes(bytes)`, which holds a file of its own (a bare
            pickle of a tensor); without it the call is kept as an `Opaque`.
        limits: `opcodes`, `text`, `pickle`, `memory` and `depth` bound what the pickle may ask for.

    Raises:
        TruncatedFile: the data ends before STOP.
        DamagedFile: no pickler writes this.
        UnsupportedFormat: it needs what is not in the file (an extension registry, a buffer).
        LimitExceeded: it asks for more than the limits allow.

    Every error carries in `seen` the globals that were named before it.
    """
    vm = Machine(buffer, start, where=where, base=base, source=source, persistent=persistent, limits=limits)
    vm.nested = nested
    collecting = gc.isenabled()
    gc.disable()  # nearly all that is made here stays, and looking through it again and again takes a third of the time
    try:
        end = _run(vm, start)
    finally:
        vm.note_running()
        if collecting:
            gc.enable()
    value = _result(vm, end)
    return Pickle(value, end, vm.protocol, vm.globals, vm.problems)


def _run(vm: Machine, start: int) -> int:
    """Execute opcodes up to STOP and return the position behind it."""
    buffer, table = vm.buffer, TABLE
    position = start
    try:
        for _ in range(vm.budget.limits.opcodes):
            if position >= vm.checkpoint:
                vm.check(position)
            position = table[buffer[position]](vm, position + 1)
        raise LimitExceeded(
            f"the pickle has more than {vm.budget.limits.opcodes:,} opcodes",
            hint=f"raise it with --limit opcodes={10 * vm.budget.limits.opcodes}",
        )
    except Stopped as stopped:
        return stopped.end
    except CkptError as e:
        raise _placed(vm, e, position) from e.__cause__
    except (IndexError, struct.error) as e:
        raise _placed(vm, _exhausted(vm, position), position) from e
    except (MemoryError, RecursionError) as e:
        error = LimitExceeded("the pickle asks for more memory or depth than there is")
        raise _placed(vm, error, position) from e


def _placed(vm: Machine, error: CkptError, position: int) -> CkptError:
    error.seen = vm.globals
    return error.at(vm.place(position))


def _exhausted(vm: Machine, position: int) -> CkptError:
    """The error for an IndexError: an argument behind the end of the data, or too few values on the stack."""
    size = len(vm.buffer)
    if position < size and position + 1 + ARGUMENT.get(vm.buffer[position], 0) <= size:
        return DamagedFile(f"opcode 0x{vm.buffer[position]:02x} wants more values than there are on the stack")
    return TruncatedFile("the pickle ends without STOP", hint=CUT_SHORT)


def _result(vm: Machine, end: int) -> Value:
    """The value on the stack at STOP."""
    if not vm.stack:
        raise _placed(vm, DamagedFile("the pickle stops without a value"), end - 1)
    value: Value = vm.stack.pop()
    if vm.stack or vm.metastack:
        vm.find("pickle.left-over", "values are left on the stack at STOP; they are not part of the result", end - 1)
    if end > vm.budget.limits.depth:  # each level takes an opcode, so a shorter pickle cannot be too deep
        try:
            check_depth(value, vm.budget)
        except LimitExceeded as e:
            raise _placed(vm, e, end - 1) from None
    return value
