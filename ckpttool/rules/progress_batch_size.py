"""`progress.batch-size`."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.arrival import Arrival, Outcome
from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._arrived import apart, arrived


class ProgressBatchSize:
    """The run has another batch size, accumulation or world size, so that its counters mean another position.

    What: the settings that the checkpoint keeps against those of the script, and whether training stopped inside an
    epoch.

    Why: steps and batches are counted in batches. Between epochs another batch size is a wish that is fulfilled;
    inside one the batches that are passed over are others than those that were seen, and a schedule that counts steps
    ends elsewhere.

    Example: `batch_size is 32 saved and 64 in the run`

    Reference: transformers/trainer.py `compare_trainer_and_checkpoint_args`, transformers 5.24, which warns.
    """

    code: ClassVar[str] = "progress.batch-size"
    needs: ClassVar[Needs] = Needs.FACTS

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding for all such settings, and a note of what else the arguments changed."""
        found = arrived(case)
        if found is None:
            return
        if found.pace:
            inside = self._inside(found)
            said = apart([one.change for one in found.pace])
            meaning = (
                "; the batches that are passed over are of another size than those that were seen" if inside else ""
            )
            yield Finding(
                code=self.code,
                severity=self._severity(found) if inside else Severity.NOTE,
                where=found.pace[0].change.name,
                message=f"{said}{meaning}",
                hint="finish the epoch with the old setting, or begin a new one" if inside else "",
            )

    def _severity(self, found: Arrival) -> Severity:
        """Batches of another size that are passed over by their number are other samples than those that were seen."""
        resized = any(one.what == "batch size" for one in found.pace)
        return Severity.SILENT if resized and any(ld.skipped for ld in found.steps.loaders) else Severity.WARNING

    def _inside(self, found: Arrival) -> bool:
        """Whether the run passes over batches of an epoch."""
        return any(ld.skipped or ld.given > 1 + ld.ahead for ld in found.steps.loaders) or any(
            p.outcome is Outcome.CHANGED for p in found.positions
        )
