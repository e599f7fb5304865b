"""What `validate` returns: verdicts; as text, as JSON, for CI, and as an exit code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ckpttool.blocks import Block, Finding
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.judged import Judged
from ckpttool.validation.judging import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateReport:
    """A checkpoint, or all of a run, judged."""

    schema: ClassVar[str] = "ckpt.validate/1"

    path: str
    judged: tuple[Judged, ...]  # in step order
    choices: Choices
    run: bool = False  # the path is a folder of several
    resume_from: str = ""  # of a run: the newest that can be resumed from; empty where none can
    manifest: str = ""  # written
    problems: tuple[Finding, ...] = ()  # of a run as a whole

    @property
    def newest(self) -> Judged:
        """The checkpoint that the exit code speaks of."""
        return self.judged[-1]

    @property
    def verdict(self) -> Verdict:
        """Of the checkpoint; of a run that of its newest."""
        return self.newest.judgement.verdict

    @property
    def exit_code(self) -> int:
        """0 resumable, 1 findings at or above the threshold, 2 not judged."""
        return self.newest.exit_code(self.choices.fail_on)

    def blocks(self) -> Iterator[Block]:
        """The verdict in one line, then findings by severity."""
        from ckpttool.commands._validate.text import validate_blocks

        yield from validate_blocks(self)

    def document(self) -> Mapping[str, object]:
        """All findings; docs/json.md says what each field means."""
        from ckpttool.commands._validate.document import validate_document

        return {"schema": self.schema, **validate_document(self)}

    def close(self) -> None:
        """Nothing is open any more."""
