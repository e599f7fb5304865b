"""What the readers and layouts found wrong, by the rule that answers for it.

They say what is wrong with the bytes; a rule says what becomes of a resume. `OWNERS` sends each of their codes to the
one rule that tells of it, and what is not named there is `container.unreadable`, so that nothing is lost.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ckpttool.blocks import Finding
from ckpttool.model import Checkpoint

UNREADABLE: Final = "container.unreadable"

# The rule of each code. A code of another family of rules is theirs to tell.
OWNERS: Final[Mapping[str, str]] = {
    "accelerate.missing": "container.incomplete",
    "hf-trainer.missing": "container.incomplete",
    "hf-trainer.half-restored": "optimizer.missing",
    "folder.refused": "container.incomplete",
    "zip.crc": "container.bitrot",
    "zip.big-endian": "container.bitrot",
    "index.missing": "shard.missing",
    "index.missing-shard": "shard.missing",
    "dcp.missing-shard": "shard.missing",
    "dcp.short-shard": "shard.missing",
    "deepspeed.missing-rank": "shard.missing",
    "index.absent-key": "shard.index",
    "index.wrong-shard": "shard.index",
    "index.unlisted-key": "shard.index",
    "index.twice": "shard.index",
    "index.total-size": "shard.index",
    "index.no-state-dict": "shard.index",
    "optimizer.too-large": "container.unreadable",
}


class Trouble(NamedTuple):
    """A finding of a reader or a layout, and the file it speaks of."""

    file: str  # relative to the checkpoint's folder; empty for a single file, or for the folder itself
    finding: Finding
    empty: bool = False  # it is about a file of no bytes, or a folder of no files


def owner(finding: Finding) -> str:
    """The rule that answers for a finding."""
    return OWNERS.get(finding.code, UNREADABLE)


def by_rule(checkpoint: Checkpoint) -> Iterator[tuple[str, Finding]]:
    """Everything that readers and layouts found wrong, with the code of the rule that tells of it."""
    for code in dict.fromkeys((*OWNERS.values(), UNREADABLE)):
        for trouble in troubles_of(checkpoint, code):
            yield "container.incomplete" if trouble.empty and code == UNREADABLE else code, trouble.finding


def troubles_of(checkpoint: Checkpoint, rule: str) -> Iterator[Trouble]:
    """What a rule has to answer for, each with its file."""
    sizes = {f.name: f.size for f in checkpoint.files}
    names = sorted(sizes, key=len, reverse=True)
    for finding in checkpoint.problems:
        if owner(finding) == rule:
            file = next((n for n in names if _speaks_of(finding.where, n)), "") if checkpoint.is_folder else ""
            unread = finding.code == "file.not-a-checkpoint" and finding.message.endswith(" is empty")
            yield Trouble(file, finding, empty=unread or sizes.get(file) == 0)
    for file, contents in checkpoint.contents.items():
        yield from (Trouble(file, finding) for finding in contents.problems if owner(finding) == rule)


def _speaks_of(where: str, name: str) -> bool:
    """Whether a place begins with a file's name: `optimizer.bin`, `optimizer.bin @ byte 7`, `a.pt:a/version`."""
    return where.startswith(name) and where[len(name) : len(name) + 1] in ("", " ", ":")
