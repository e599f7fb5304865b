"""What was judged: one checkpoint, or all of a run."""

from dataclasses import dataclass

from ckpttool.blocks import Finding
from ckpttool.commands._validate.choices import Choices
from ckpttool.commands._validate.judged import Judged
from ckpttool.validation.judging import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A checkpoint, or all of a run, judged; nothing is open any more."""

    path: str
    judged: tuple[Judged, ...]  # in step order
    choices: Choices
    run: bool = False  # the path is a folder of several
    resume_from: str = ""  # of a run: the newest that can be resumed from; empty where none can
    equals: tuple[str, ...] = ()  # others that can be resumed from, of the same step as that one
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
    def findings(self) -> tuple[Finding, ...]:
        """Of the checkpoint, worst first; of a run those of its newest."""
        return self.newest.judgement.findings
