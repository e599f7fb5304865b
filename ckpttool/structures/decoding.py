"""From structure documents, and the tensors beside them, back to the value tree.

Documents are not trusted: whatever they say, there are values or a `CkptError`; nothing is imported, nothing recurses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ckpttool.errors import CkptError, DamagedFile, LimitExceeded
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.structures.builders import BUILDERS, Building, Unbuilt
from ckpttool.structures.documents import Document, Json, is_beside
from ckpttool.structures.lookups import Lookups, OpenTensors
from ckpttool.structures.promises import MADE_OF_ITSELF, Promise, Promises
from ckpttool.structures.scalars import PLAIN_TAGS, number_value, plain_value
from ckpttool.values import Value

_SHOWN = 12  # steps of a place in messages


def decode(
    main: Document,
    *,
    tensors: OpenTensors,
    documents: Callable[[str], Document] | None = None,
    where: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Value:
    """Make the tree that documents describe.

    Args:
        main: the document of the whole, of the form `file`.
        tensors: gives the tensors of a safetensors file by its name; "" is the file that holds `main` itself.
        documents: gives the documents of parts by their file names; None where there can be none.
        where: the main document's name, for messages.

    Returns:
        Tensors look at their bytes in the safetensors files. One whose elements lay otherwise in the original, or
        shared its storage, says where in `placed`.

    Raises:
        DamagedFile: a document is not sound, or does not fit the files beside it.
        LimitExceeded: it holds more than the limits allow.
    """
    return _Decoding(main, tensors, documents, where, limits).run()


@dataclass(slots=True)
class _Frame:
    """An object whose parts are being made."""

    unbuilt: Unbuilt
    children: Iterator[tuple[str, Json]]
    document: Document
    where: str  # the document's name
    done: list[Any] = field(default_factory=list)
    promise: Promise | None = None
    step: str = ""
    number: int = 0  # by which it may be referred to; 0: by none
    filled: int = -1  # of the frames around it the innermost whose object exists and is being filled; -1: none

    @property
    def exists(self) -> bool:
        """Whether the object is there already, and what is being made goes into it."""
        return self.unbuilt.shell is not None and len(self.done) >= self.unbuilt.needed


class _Decoding:
    def __init__(
        self,
        main: Document,
        tensors: OpenTensors,
        documents: Callable[[str], Document] | None,
        where: str,
        limits: Limits,
    ) -> None:
        self._main = main
        self._documents = documents
        self._where = where
        self._limits = limits
        self._lookups = Lookups(tensors, main, limits)
        self._promises = Promises()
        self._numbered: dict[int, Any] = {}
        self._unfinished: dict[int, int] = {}  # number of an object that is being made: its place in the stack
        self._count = 0
        self._opened: set[str] = set()
        self._below: set[tuple[int, int]] = set()
        self._stack: list[_Frame] = []
        self._step = ""  # to what is being entered

    def run(self) -> Value:
        try:
            if self._main.form != "file":
                raise DamagedFile(f"the structure is that of a {self._main.form[:40]}, not of a whole file")
            self._lookups.note(self._main)
            self._lookups.open_files()
            whole: Value = self._walk(self._main.root)
            self._lookups.finish()
        except CkptError as error:
            raise error.at(self._place()) from None
        return whole

    def _place(self) -> str:
        """Where the walk is, in words."""
        steps = [step for step in (*(frame.step for frame in self._stack), self._step) if step]
        name = self._stack[-1].where if self._stack else self._where
        shown = ".".join(steps[-_SHOWN:]).replace(".[", "[")
        cut = "…" if len(steps) > _SHOWN else ""
        return f"{name}: {cut}{shown}" if shown else name

    def _walk(self, root: Json) -> Any:
        top: list[Any] = []
        whole = Unbuilt([("", root)], lambda done: done[0])
        self._stack.append(_Frame(whole, iter(whole.children), self._main, self._where))
        while self._stack:
            frame = self._stack[-1]
            for self._step, said in frame.children:
                entered = self._enter(said, frame, self._step)
                if isinstance(entered, _Frame):
                    self._push(entered)
                    break
                frame.done.append(entered)
            else:
                self._step = ""
                made = self._finished(frame)
                self._stack.pop()
                self._unfinished.pop(frame.number, None)
                (self._stack[-1].done if self._stack else top).append(made)
        self._promises.settle()
        whole = top[0]
        return whole.value if isinstance(whole, Promise) else whole

    def _push(self, entered: _Frame) -> None:
        """Begin an object inside the one on top."""
        place = len(self._stack) - 1
        around = self._stack[place]
        entered.filled = place if around.exists else around.filled
        if entered.number:
            self._unfinished[entered.number] = place + 1
        self._stack.append(entered)

    def _finished(self, frame: _Frame) -> Any:
        """The object, or its promise; one that exists already is filled, now or later."""
        result = frame.promise or Promise()
        now = self._promises.make(frame.done, frame.unbuilt.finish, result)
        if frame.unbuilt.shell is not None:
            return frame.unbuilt.shell
        return result.value if now else result

    def _enter(self, said: Json, frame: _Frame, step: str) -> Any:
        """The value that JSON says, or the frame that will make it."""
        self._count += 1
        if self._count > self._limits.nodes:
            raise LimitExceeded(
                f"the structure holds more than {self._limits.nodes:,} values",
                hint=f"raise it with --limit nodes={10 * self._limits.nodes}",
            )
        if not isinstance(said, dict | list):
            return number_value(said)
        return self._enter_object(said, frame, step)

    def _enter_object(self, said: Any, frame: _Frame, step: str) -> Any:
        building = Building(said, frame.document.file, self._lookups)
        tag = building.tag
        if tag in PLAIN_TAGS:
            building.expect(tag)
            return plain_value(tag, said[tag])
        match tag:
            case "$ref":
                building.expect("$ref")
                return self._referred(said["$ref"], frame)
            case "$file":
                building.expect("$file")
                return self._file(said["$file"], step)
            case "$below":
                building.expect("$below")
                return self._beneath(said["$below"], frame, step)
            case "$tensor":
                return building.tensor()
        unbuilt = BUILDERS[tag](building)
        self._count += unbuilt.work
        return self._frame(unbuilt, said, frame, step)

    def _frame(self, unbuilt: Unbuilt, said: Json, frame: _Frame, step: str) -> _Frame:
        made = _Frame(unbuilt, iter(unbuilt.children), frame.document, frame.where, step=step)
        number = said.get("$id") if isinstance(said, dict) else None
        if number is not None:
            if type(number) is not int or number != len(self._numbered) + 1:
                count = len(self._numbered)
                raise DamagedFile(f"the number {str(number)[:40]} comes after {count:,} others that count from 1")
            made.number = number
            if unbuilt.shell is None:
                made.promise = Promise()
            self._numbered[number] = made.promise if unbuilt.shell is None else unbuilt.shell
        return made

    def _referred(self, number: Json, frame: _Frame) -> Any:
        if type(number) is not int or number not in self._numbered:
            raise DamagedFile(f"there is no object {str(number)[:40]} before this place")
        # Each object from that one on down to here would have to be there before it is made.
        if not frame.exists and frame.filled < self._unfinished.get(number, -1):
            raise DamagedFile(MADE_OF_ITSELF)
        known = self._numbered[number]
        return known.value if isinstance(known, Promise) and known.kept else known

    def _file(self, name: Json, step: str) -> _Frame:
        """The frame of a part that has a document of its own."""
        if not isinstance(name, str) or self._documents is None:
            raise DamagedFile("the structure names another document where there can be none")
        if not is_beside(name):
            raise DamagedFile(f"{name[:100]!r} is no file beside the structure")
        if name in self._opened:
            raise DamagedFile(f"the document {name[:100]!r} stands in two places")
        self._opened.add(name)
        document = self._documents(name)
        if document.form != "part":
            raise DamagedFile(f"the structure is that of a {document.form[:40]}, not of a part", where=name)
        self._lookups.note(document)
        unbuilt = Unbuilt([("", document.root)], lambda done: done[0])
        return _Frame(unbuilt, iter(unbuilt.children), document, name, step=step)

    def _beneath(self, number: Json, frame: _Frame, step: str) -> _Frame:
        """The frame of what lay too deep to stand in place."""
        below = frame.document.below
        if type(number) is not int or not 0 <= number < len(below) or (id(below), number) in self._below:
            raise DamagedFile(f"`below` has no entry {str(number)[:40]} that is not in use")
        self._below.add((id(below), number))
        unbuilt = Unbuilt([("", below[number])], lambda done: done[0])
        return _Frame(unbuilt, iter(unbuilt.children), frame.document, frame.where, step=step)
