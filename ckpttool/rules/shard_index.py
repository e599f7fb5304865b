"""shard.index: the index of shards says otherwise than the shards do."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.protocols import Case, Needs
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._troubles import troubles_of

# How much each matters, and what loaders make of it; they read every file that the index names, whole.
_OUTCOMES = {
    "index.absent-key": (
        Severity.SILENT,
        "the Trainer holds the index alone against the model, so these stay as the script made them without a word",
    ),
    "index.wrong-shard": (Severity.NOTE, "loaders read all files and find it"),
    "index.unlisted-key": (
        Severity.WARNING,
        "loaders that read whole files find it, those that go by the index do not",
    ),
    "index.twice": (Severity.WARNING, "which of them is taken depends on the order in which files are read"),
    "index.total-size": (Severity.NOTE, ""),
    "index.no-state-dict": (Severity.ERROR, "load_state_dict raises"),
}


class WrongIndex:
    """The index of a sharded model and the shards do not agree about which tensors there are.

    What: each name of `weight_map` against the header of its file, and each tensor of the files against the index;
    `total_size` against the bytes; files named as shards (`model-00004-of-00005.safetensors`) that the index does not
    name.

    Why: the Trainer asks the index which names there are and loads the files with `strict=False`. A tensor that the
    index promises and no file holds keeps its random start, and nothing says so.

    Example: `silent: model.safetensors.index.json: 1 tensor is not in the file that the index names: 'lm_head.weight'
    in 'model-00002-of-00002.safetensors'; load_sharded_checkpoint …`

    Reference: transformers/trainer_utils.py `load_sharded_checkpoint`, 5.24.
    """

    code: ClassVar[str] = "shard.index"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for trouble in troubles_of(case.checkpoint, self.code):
            found = trouble.finding
            severity, said = _OUTCOMES[found.code]
            message = f"{found.message}; {said}" if said else found.message
            hint = fall_back(case, found.hint) if severity in (Severity.ERROR, Severity.SILENT) else found.hint
            yield Finding(code=self.code, severity=severity, where=found.where, message=message, hint=hint)
        yield from self._strays(case)

    def _strays(self, case: Case) -> Iterator[Finding]:
        """Files that are called as shards of a model, and that its index does not name."""
        names = [f.name for f in case.checkpoint.files]
        for index, contents in case.checkpoint.contents.items():
            if contents.container != "sharded" or not index:
                continue
            folder, _, file = index.rpartition("/")
            stem, _, rest = file.removesuffix(".index.json").rpartition(".")
            start = f"{folder}/{stem}-" if folder else f"{stem}-"
            told = {f"{folder}/{n}" if folder else n for n in contents.files.values()}
            strays = [
                n for n in names if n.startswith(start) and "-of-" in n and n.endswith(f".{rest}") and n not in told
            ]
            if strays and told:
                shown = ", ".join(strays[:3]) + (f" and {len(strays) - 3:,} more" if len(strays) > 3 else "")  # noqa: PLR2004
                yield Finding(
                    code=self.code,
                    severity=Severity.WARNING,
                    where=index,
                    message=f"{len(strays):,} files are called as shards and are not in the index: {shown}; "
                    "nothing reads them",
                    hint="an earlier save may have left them; remove them, or get the index that belongs to them",
                )
