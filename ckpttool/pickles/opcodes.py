"""All opcodes of pickle protocols 0 to 5 in one table, indexed by the opcode's byte.

Source: CPython Lib/pickle.py and Lib/pickletools.py, 3.11 to 3.14
"""

from typing import Final

from ckpttool.errors import DamagedFile
from ckpttool.pickles import call_opcodes, container_opcodes, scalar_opcodes, stack_opcodes
from ckpttool.pickles.machine import Machine
from ckpttool.pickles.opcode_tables import Handler

_FILES = (stack_opcodes.opcode, scalar_opcodes.opcode, container_opcodes.opcode, call_opcodes.opcode)


def _no_such_opcode(vm: Machine, at: int) -> int:
    raise DamagedFile(f"there is no pickle opcode 0x{vm.buffer[at - 1]:02x}")


_HANDLERS: Final[dict[int, Handler]] = {
    code: handler for opcodes in _FILES for code, handler in opcodes.handlers.items()
}
TABLE: Final[list[Handler]] = [_HANDLERS.get(code, _no_such_opcode) for code in range(256)]
ARGUMENT: Final[dict[int, int]] = {code: size for opcodes in _FILES for code, size in opcodes.arguments.items()}
