"""Training stopped inside an epoch, and where in the data was not saved."""

import re
from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint, DataPosition
from ckpttool.protocols import Case, Needs
from ckpttool.rules._bounded import bounded
from ckpttool.rules._loops import LOOPS, loops_of
from ckpttool.rules._places import place

_ORDER = ("_sampler_iter_state", "_index_sampler_state", "fetcher_state", "dataset_state")
_LOADER = re.compile(r"dl_state_dict(?:_\d+)?\.bin")  # container.misplaced tells what it holds
_INSIDE = ("batch_idx", "batch", "iter_in_epoch", "step_in_epoch")  # counters that start over with each epoch


class DataPositionMissing:
    """A checkpoint from the middle of an epoch without the state of a sampler or a data loader.

    What: counters that say that an epoch was running, and no position in its data, or a position without the order
    it belongs to. The Trainer, DeepSpeed, Megatron-LM and Composer work it out from their counters and their seed.

    Why: batches that were seen come again and others are left out; an epoch may replay the order of the first one.

    Example: `loops.fit_loop: 3 batches into an epoch, and the data loader kept no state: the epoch begins again with
    its first batch`

    Reference: lightning loops/training_epoch_loop.py (2.6), which warns; accelerate/checkpointing.py (1.15),
    `save_accelerator_state`; accelerate#4203, accelerate#4232, accelerate#4233.
    """

    code: ClassVar[str] = "data.position-missing"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        """One finding at the most for each loader."""
        checkpoint = case.checkpoint
        match checkpoint.layout:
            case "lightning":
                yield from self._lightning(checkpoint)
            case "hf-trainer":
                yield from self._trainer(checkpoint)
            case "accelerate":
                yield from self._accelerate(checkpoint)
            case _ if checkpoint.optimizers and not checkpoint.data:
                yield from self._others(checkpoint)

    def _finding(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)

    def _lightning(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """A loader with `state_dict` is kept by Lightning; any other begins its epoch anew, and Lightning warns."""
        loops = loops_of(checkpoint)
        done = loops.batches.get("processed", 0) if loops else 0
        if loops is None or loops.loader or loops.last_batch or not done or not checkpoint.optimizers:
            return
        if any(d.name != LOOPS for d in checkpoint.data):
            return
        message = f"{done:,} batches into an epoch, and the data loader kept no state: the order is drawn anew"
        hint = "save at the end of an epoch, or use a loader with state_dict (torchdata's StatefulDataLoader)"
        yield self._finding(Severity.WARNING, place(loops.at, "epoch_loop.batch_progress"), message, hint)

    def _trainer(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """The Trainer skips the batches it has seen, unless it was told not to."""
        epoch = next((bounded(c.value) for c in checkpoint.counters if c.name == "epoch"), None)
        if checkpoint.config.get("ignore_data_skip") is True and epoch is not None and epoch % 1:
            message = f"ignore_data_skip was asked for, and epoch is {epoch:g}: the epoch begins again with its data"
            yield self._finding(Severity.NOTE, "trainer_state.json: epoch", message, "")

    def _accelerate(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """`sampler.bin` is hardly ever written; `dl_state_dict.bin` only for stateful loaders."""
        kept = checkpoint.data or any(_LOADER.fullmatch(part.name) for part in checkpoint.files)
        if not kept and checkpoint.optimizers:
            message = "Accelerate kept no position in the data: the script skips the batches of the epoch itself"
            hint = "skip_first_batches after set_epoch, or use_stateful_dataloader=True"
            yield self._finding(Severity.NOTE, "", message, hint)
        for position in checkpoint.data:
            yield from self._order(position)

    def _order(self, position: DataPosition) -> Iterator[Finding]:
        """A loader that counts batches of an order that it does not keep.

        Source: torchdata/stateful_dataloader/stateful_dataloader.py (0.11), `_StatefulSingleProcessDataLoaderIter`
        """
        fields = position.fields
        done = bounded(fields.get("_num_yielded")) or 0
        if done <= 0 or fields.get("_iterator_finished") is True or any(fields.get(k) is not None for k in _ORDER):
            return
        message = f"{done:,} batches into an epoch, and the loader kept their number but no order: unless it is not "
        message += "shuffled, or shuffles by a seed, the batches skipped are others"
        yield self._finding(Severity.NOTE, place(position.at, "_num_yielded"), message, "seed the sampler by the epoch")

    def _others(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        """A script that counts batches within the epoch tells where it stopped, not in which order."""
        for counter in checkpoint.counters:
            done = bounded(counter.value)
            if counter.key.rsplit(".", 1)[-1] in _INSIDE and done is not None and done > 0:
                message = f"{counter.key} is {done:g}, within an epoch, and no sampler or loader state is kept"
                hint = "skip as many batches of the same order: seed the sampler by the epoch"
                yield self._finding(Severity.WARNING, place(counter.at), message, hint)
                return
