"""Whether something is wrong with a checkpoint: what the exit code says."""

import math
from collections.abc import Iterable, Iterator

from ckpttool.blocks import Finding, Severity
from ckpttool.commands._names import dotted
from ckpttool.commands._words import figure
from ckpttool.model import At, Checkpoint, Contents, GlobalUse, LossScale
from ckpttool.values import Trust


def findings_of(checkpoint: Checkpoint) -> list[Finding]:
    """All that is odd about a checkpoint, before any values are read."""
    return [*checkpoint.all_problems(), *dangers(checkpoint), *_dead_scales(checkpoint)]


def is_dead(scale: LossScale) -> bool:
    """Whether no training comes of a loss scale: it is zero, negative, infinite or NaN."""
    return scale.enabled and scale.scale is not None and not 0 < scale.scale < math.inf


def _dead_scales(checkpoint: Checkpoint) -> Iterator[Finding]:
    for scale in filter(is_dead, checkpoint.scalers):
        yield Finding(
            code="scaler.dead",
            severity=Severity.WARNING,
            message=f"the loss scale is {figure(scale.scale)}: no gradient survives it",
            where=_at(scale.at),
            hint="set it to a usual value (65,536) before resuming, and look for what brought it there",
        )


def _at(at: At) -> str:
    return ": ".join(filter(None, (at.file, dotted(at.path))))


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


def _unread(contents: Contents) -> bool:
    """Whether a part could not be looked into; of a TorchScript program the tensors are all that is wanted here."""
    listed = contents.container == "torchscript" and contents.root is not None
    return not contents.complete and not listed


def wrong(checkpoint: Checkpoint, findings: Iterable[Finding]) -> bool:
    """Whether a part is damaged, missing, dangerous, or could not be looked into."""
    return any(map(_unread, checkpoint.contents.values())) or any(
        finding.severity is Severity.ERROR for finding in findings
    )
