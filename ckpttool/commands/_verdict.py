"""Whether something is wrong with a checkpoint: what the exit code says."""

from collections.abc import Iterable, Iterator

from ckpttool.blocks import Finding, Severity
from ckpttool.commands._names import dotted
from ckpttool.model import Checkpoint, GlobalUse
from ckpttool.values import Trust


def dangers(checkpoint: Checkpoint) -> Iterator[Finding]:
    """A finding for each global that resolves or calls code by itself."""
    for use in checkpoint.globals():
        if use.trust is Trust.DANGEROUS:
            yield Finding(
                code="global.dangerous",
                severity=Severity.ERROR,
                message=f"loading it the usual way {'calls' if use.called else 'imports'} {use.ref}",
                where=_place(use),
                hint="do not load this file with pickle or torch.load(weights_only=False); ask where it comes from",
            )


def _place(use: GlobalUse) -> str:
    at = f"{use.file} @ byte {use.offset:,}"
    return f"{dotted(use.paths[0]) or 'the root'}, {at}" if use.paths else at


def wrong(checkpoint: Checkpoint, findings: Iterable[Finding]) -> bool:
    """Whether a part is damaged, missing, dangerous, or could not be looked into."""
    incomplete = any(not contents.complete for contents in checkpoint.contents.values())
    return incomplete or any(finding.severity is Severity.ERROR for finding in findings)
