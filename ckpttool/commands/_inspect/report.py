"""What `inspect` returns for a checkpoint: text, JSON, and an exit code.

Each view is imported when it is asked for: the one screen that most people want must not pay for the others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ckpttool.blocks import Block, Finding, Progress, Raw
from ckpttool.commands._inspect.verdict import findings_of, wrong
from ckpttool.commands._options import Options
from ckpttool.model import Checkpoint
from ckpttool.values import Value

if TYPE_CHECKING:
    from ckpttool.commands._inspect.measure import Gauge
    from ckpttool.commands._inspect.rows import Row


@dataclass(slots=True, kw_only=True)
class InspectReport:
    """A checkpoint that was read, and what was asked about it.

    Tensors are listed, and their values read, while the report is written: nothing of them is kept. What reading
    finds out (a checksum that does not hold) is in `findings` and in the exit code from then on.
    """

    schema: ClassVar[str] = "ckpt.inspect/1"

    checkpoint: Checkpoint
    options: Options
    progress: Progress | None = None
    _found: list[Finding] = field(default_factory=list, init=False)  # by reading values

    @property
    def findings(self) -> list[Finding]:
        """All that is odd about the checkpoint, and what reading its values has found out so far."""
        return [*findings_of(self.checkpoint), *self._found]

    @property
    def exit_code(self) -> int:
        """1 when something is wrong with the checkpoint, 0 otherwise."""
        return int(wrong(self.checkpoint, self.findings))

    def tensors(self) -> "Iterator[Row]":
        """The tensors that the options select, each with its file, key path and part."""
        from ckpttool.commands._inspect.selection import selected

        return selected(self.checkpoint, self.options)

    def blocks(self) -> Iterator[Block]:
        """One screen, or what was asked for instead."""
        if self.options.get is not None:
            from ckpttool.commands._inspect.lookup import spelled

            yield Raw(spelled(self._value(self.options.get), self.checkpoint.limits))
        elif self.options.summary:
            from ckpttool.commands._inspect.summary import summary

            yield from summary(self.checkpoint, self.findings)
        else:
            yield from self._views()

    def _views(self) -> Iterator[Block]:
        from ckpttool.commands._inspect.summary import findings_block, heading

        options, checkpoint = self.options, self.checkpoint
        yield heading(checkpoint)
        if options.parts and not options.lists_tensors:
            from ckpttool.commands._inspect.parts import part_blocks

            yield from part_blocks(checkpoint, options.parts)
        if options.globals:
            from ckpttool.commands._inspect.globals import globals_blocks

            yield from globals_blocks(checkpoint.globals(), checkpoint.path)
        if options.tree:
            from ckpttool.commands._inspect.tree import tree_blocks

            yield from tree_blocks(checkpoint, every=options.every)
        if options.lists_tensors:
            from ckpttool.commands._inspect.tensor_table import tensor_blocks

            yield from tensor_blocks(self.tensors(), options, self._gauge())
        yield from findings_block(self.findings)

    def document(self) -> Mapping[str, object]:
        """All about the checkpoint; `findings` come last, because reading the tensors before them may find more."""
        from ckpttool.commands._inspect import document as documents

        checkpoint, options = self.checkpoint, self.options
        if options.get is not None:
            from ckpttool.commands._values import WholeTrees

            value = WholeTrees(checkpoint.limits).value(self._value(options.get))
            return {"schema": self.schema, "path": checkpoint.path, "key": options.get, "value": value}
        gauge = self._gauge()
        asked = [*(["stats"] if options.stats else []), *([options.hash] if options.hash else [])]
        return {
            "schema": self.schema,
            **documents.checkpoint_document(checkpoint),
            "globals": documents.globals_document(checkpoint),
            "tensors": documents.tensors_document((r for r in self.tensors() if not r.enclosed), gauge, asked),
            "enclosed": documents.tensors_document((r for r in self.tensors() if r.enclosed), gauge, asked),
            "findings": documents.findings_document(self._found_at_last()),
        }

    def _value(self, key: str) -> Value:
        from ckpttool.commands._inspect.document import findings_document, raw_document
        from ckpttool.commands._inspect.lookup import find

        words = {**raw_document(self.checkpoint), "findings": findings_document(self.findings)}
        return find(words, self.checkpoint, key)

    def _found_at_last(self) -> Iterator[Finding]:
        """The findings as they are when their turn comes, which is when all else has been read."""
        self.checkpoint.check_unchanged()
        yield from self.findings

    def _gauge(self) -> "Gauge | None":
        """What reads values, if any are wanted."""
        options = self.options
        if not (options.stats or options.hash):
            return None
        from ckpttool.commands._inspect.measure import Gauge

        gauge = Gauge(
            stats=options.stats, hashed=bool(options.hash), limits=self.checkpoint.limits, told=self._teller()
        )  # fmt: skip
        self._found = gauge.found.items
        return gauge

    def _teller(self) -> Callable[[int], None]:
        progress = self.progress
        if progress is None:
            return lambda _: None
        total = sum(row.tensor.nbytes for row in self.tensors())
        done = 0

        def told(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            progress("reading values", done, total)

        return told

    def close(self) -> None:
        """Give the files back.

        Raises:
            FileChanged: one was written to meanwhile, so what was reported is not true of it.
        """
        self.checkpoint.check_unchanged()
        self.checkpoint.close()
