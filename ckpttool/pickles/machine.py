"""The state of the pickle machine, and what an opcode may ask of it: the memo, a place for a global, a call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import DamagedFile, TruncatedFile
from ckpttool.limits import Limits
from ckpttool.pickles.attributes import GETATTR, is_attribute, is_method, reached
from ckpttool.pickles.budget import CALL_WORK, CHECK_EVERY, LINE_WORK, Budget
from ckpttool.pickles.constructors import COPYING, PURE_CONSTRUCTORS, Constructor, build_object, new_object
from ckpttool.pickles.input import CUT_SHORT, Input
from ckpttool.pickles.keys import KeyGuard
from ckpttool.pickles.numpy_dtypes import NumpyDtype
from ckpttool.pickles.running import DEPENDING, Running
from ckpttool.pickles.words import spoken
from ckpttool.sources import Source
from ckpttool.values import GlobalRef, Opaque, Value


@dataclass(slots=True)
class Mention:
    """Where a pickle names a global first, and whether it calls it."""

    offset: int  # byte of the opcode in the source
    called: bool = False
    runs: bool = False  # loading runs it: a call, of it or of what holds it, that makes more than an empty object
    explained: bool = True  # every call of it does no more than reach what is named here too; said of `getattr`


LOAD_FROM_BYTES: Final = GlobalRef("torch.storage", "_load_from_bytes")


class Machine(Input):
    """Stack, memo and bookkeeping of one pickle. Opcodes read and change it; `vm.load` drives it."""

    __slots__ = (
        "_found_duplicate",
        "_keys",
        "_next_look",
        "_refs",
        "builders",
        "checkpoint",
        "frame_end",
        "globals",
        "memo",
        "metastack",
        "nested",
        "persistent",
        "problems",
        "protocol",
        "running",
        "scattered",
        "stack",
    )

    def __init__(  # noqa: PLR0913  # all that `load` was given
        self,
        buffer: bytes | memoryview,
        start: int,
        *,
        where: str,
        base: int,
        source: Source | None,
        persistent: Callable[[Value], Value] | None,
        limits: Limits,
    ) -> None:
        budget = Budget(limits, len(buffer) - start)
        super().__init__(buffer, start, where=where, base=base, source=source, budget=budget)
        self.persistent = persistent
        self.nested: Constructor | None = None  # reads the file in the bytes that a bare pickle of a storage holds
        self.stack: list[Any] = []
        self.metastack: list[list[Any]] = []  # one stack for each MARK that is still open
        self.memo: list[Any] = []  # entries 0, 1, 2, … as picklers number them
        self.scattered: dict[int, Any] = {}  # memo entries with other numbers
        self.globals: dict[GlobalRef, Mention] = {}
        self.builders: dict[int, Constructor] = {}  # id of a GlobalRef that was called: how to build what it makes
        self.problems: list[Finding] = []
        self.running = Running()
        self.protocol = 0
        self.frame_end = 0  # 0: no frame is open
        self.checkpoint = 0  # position from which `check` is due
        self._found_duplicate = False
        self._next_look = 0  # position from which work and memory are looked at
        self._refs: dict[tuple[str, str], GlobalRef] = {}
        self._keys = KeyGuard()

    def check(self, position: int) -> None:
        """Hold position, work and memory against frame and limits; the loop asks when `checkpoint` is reached.

        Raises:
            DamagedFile: an opcode reached over the end of its frame.
            LimitExceeded: the pickle takes too much.
        """
        if self.frame_end:
            if position > self.frame_end:
                raise DamagedFile(f"an opcode reaches {position - self.frame_end:,} bytes over the end of its frame")
            if position == self.frame_end:
                self.frame_end = 0
        if position >= self._next_look:
            self.check_length(position)
            self.budget.check_work()
            if self._next_look:  # not at the very start
                self.budget.check_memory()
            self._next_look = position + CHECK_EVERY
        self.checkpoint = min(self._next_look, self.frame_end or self._next_look)

    def open_frame(self, position: int, size: int) -> None:
        """Note that the opcodes of the next `size` bytes form a frame.

        Raises:
            DamagedFile: the last frame is still open.
            TruncatedFile: the frame is longer than the data.
        """
        self.budget.work += LINE_WORK
        if self.frame_end > position:
            raise DamagedFile(f"a frame begins {self.frame_end - position:,} bytes before the last one ends")
        left = len(self.buffer) - position
        if size > left:
            raise TruncatedFile(f"a frame of {size:,} bytes begins where {left:,} are left", hint=CUT_SHORT)
        self.frame_end = position + size
        self.checkpoint = min(self.checkpoint, self.frame_end)

    def remember(self, index: int) -> None:
        """Put the top of the stack into the memo."""
        if index < len(self.memo):
            self.memo[index] = self.stack[-1]
        elif index == len(self.memo):
            self.memo.append(self.stack[-1])
            self.scattered.pop(index, None)
        else:
            self.scattered[index] = self.stack[-1]

    def recall(self, index: int) -> Any:
        """A memo entry beyond those in line.

        Raises:
            DamagedFile: there is none.
        """
        if index in self.scattered:
            return self.scattered[index]
        entries = len(self.memo) + len(self.scattered)
        raise DamagedFile(f"memo entry {index:,} is read before it is written (the memo has {entries:,})")

    def pop_mark(self) -> list[Any]:
        """What was pushed since the last MARK."""
        items = self.stack
        if not self.metastack:
            raise DamagedFile("there is no MARK to go back to")
        self.stack = self.metastack.pop()
        return items

    def enter(self, entries: dict[Any, Any], items: list[Any], at: int) -> None:
        """Put alternating keys and values into a dict; the last of equal keys wins, as in Python."""
        if len(items) % 2:
            raise DamagedFile("a dict has a key without a value")
        for n in range(0, len(items), 2):
            key = items[n]
            if type(key) is not str:
                key = self._keys.key(key, entries)
            if key in entries and not self._found_duplicate:
                self._found_duplicate = True
                self.find("pickle.duplicate-key", f"a dict has the key {spoken(key)} twice; the last one counts", at)
            entries[key] = items[n + 1]

    def members(self, items: list[Any], container: object) -> list[Any]:
        """Values that may be members of a set."""
        return [self._keys.key(item, container) for item in items]

    def mention(self, module: str, name: str, position: int) -> GlobalRef:
        """The one `GlobalRef` for a name, noted with the position of the opcode that named it first."""
        ref = self._refs.get((module, name))
        if ref is None:
            ref = self._refs[module, name] = GlobalRef(module, name)
            self.globals[ref] = Mention(self.base + position)
        return ref

    def _note_call(self, function: GlobalRef) -> None:
        mention = self.globals.get(function)
        if mention is not None:  # a persistent id may stand for a global that this pickle does not name
            mention.called = True

    def call(self, function: Any, args: Any) -> Any:
        """What a call would give: made by a constructor of ours, or an `Opaque`. Nothing of the file's is called.

        Raises:
            DamagedFile: not callable, the arguments are not a tuple, or a constructor of ours refused them.
        """
        self.budget.work += CALL_WORK
        if type(args) is not tuple:
            raise DamagedFile(f"the arguments of a call are {spoken(args)}, not a tuple")
        if type(function) is not GlobalRef:
            if type(function) is not Opaque:
                raise DamagedFile(f"{spoken(function)} is called")
            if is_attribute(function) and (mention := self.globals.get(function.cls)) is not None:  # type: ignore[arg-type]
                mention.explained = False
            self.running.call(function, args)
            return Opaque(function, args)
        self.running.call(function, args)
        if function in GETATTR:
            self._note_attribute(function, args)
        value = self._builder(function)(args)
        return Opaque(function, args) if value is NotImplemented else value

    def _note_attribute(self, function: GlobalRef, args: tuple[Any, ...]) -> None:
        mention = self.globals.get(function)
        ref = reached(args)
        if mention is None:
            return
        if ref is not None:
            self.mention(ref.module, ref.name, mention.offset - self.base)
        elif not is_method(args):
            mention.explained = False

    def _builder(self, function: GlobalRef) -> Constructor:
        """The constructor for a global; found and noted once."""
        build = self.builders.get(id(function))
        if build is None:
            self._note_call(function)
            build = PURE_CONSTRUCTORS.get(function, _unknown)
            if function == LOAD_FROM_BYTES and self.nested is not None:
                build = self.nested
            if function in COPYING:
                build = _charged(build, self.budget)
            # It must live as long as the machine; and where the arguments say what is called, none may pass by `call`.
            known = self._refs.get((function.module, function.name)) is function
            if known and function not in GETATTR and function not in DEPENDING:
                self.builders[id(function)] = build
        return build

    def new(self, cls: Any, args: Any, kwargs: Any = None) -> Value:
        """What `cls.__new__` would give, as data; errors as `call`."""
        self.budget.work += CALL_WORK
        if type(cls) is GlobalRef:
            self._note_call(cls)
        self.running.make(cls)
        return new_object(cls, args, kwargs)

    def note_running(self) -> None:
        """Note with each global whether loading runs it."""
        for ref, mention in self.globals.items():
            mention.runs = ref in self.running

    def build(self, target: Any, state: Any) -> None:
        """What BUILD does to an object; errors as `call`."""
        if type(target) is NumpyDtype:
            self.budget.charge((state,))
        build_object(target, state)

    def find(self, code: str, message: str, position: int) -> None:
        """Keep a finding about the pickle itself, the first of each code."""
        if all(f.code != code for f in self.problems):
            where = self.place(position)
            self.problems.append(Finding(code=code, severity=Severity.WARNING, message=message, where=where))


def _charged(build: Constructor, budget: Budget) -> Constructor:
    def charged(args: tuple[Any, ...]) -> Any:
        if args:
            budget.charge(args)
        return build(args)

    return charged


def _unknown(_args: tuple[Any, ...]) -> Any:
    return NotImplemented
