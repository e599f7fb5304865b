"""`lightning.version`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Checkpoint
from ckpttool.protocols import Case, Needs
from ckpttool.rules._generators import kind
from ckpttool.values import Value

_VERSION = "pytorch-lightning_version"
_MARKS = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")
_FEWEST = 4  # of the marks; so many together are Lightning's
_CONNECTOR = "lightning/pytorch/trainer/connectors/checkpoint_connector.py"
_MIGRATION = "lightning/pytorch/utilities/migration"
_ONLY = "Trying to restore learning rate scheduler state but checkpoint contains only the model"
_BEFORE_1_6 = (
    "epoch_loop.batch_loop.optimizer_loop.optim_progress",
    "epoch_loop.batch_loop.manual_loop.optim_step_progress",
    "epoch_progress",
)
_OLD_STATE = "epoch_loop.state_dict"
_RELEASE = re.compile(r"\s*v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?[-_.+a-z0-9]*\s*", re.IGNORECASE)


class LightningVersion:
    """A Lightning checkpoint without a key that Lightning reads, or of a version that is not the installed one.

    What: `pytorch-lightning_version`, `state_dict`, `lr_schedulers`, `loops.fit_loop`, and before 1.6 `global_step`,
    `epoch` and the loops' own names of then; whether the version is one, and, where it is known which one is
    installed, whether it is newer. Of `optimizer_states` `optimizer.missing` tells.

    Why: `fit(ckpt_path=)` raises KeyError on each of them, some after the weights were loaded.

    Example: `lr_schedulers is not there: Lightning raises KeyError`

    Reference: lightning/pytorch/trainer/connectors/checkpoint_connector.py, lightning/pytorch/utilities/migration,
    Lightning 2.6; unitaryai/detoxify#45.
    """

    code: ClassVar[str] = "lightning.version"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        here = case.checkpoint
        root = _root(here)
        if here.layout != "lightning":
            if here.layout == "plain" and sum(key in root for key in _MARKS) >= _FEWEST:
                yield self._error(_VERSION, f"KeyError: {_VERSION!r} in _get_version ({_MIGRATION}/utils.py)")
            return
        version = root.get(_VERSION)
        yield from self._keys(root)
        if isinstance(version, str):
            yield from self._old(root, version)
            yield from self._newer(version, case.installed or {})
        else:
            yield self._invalid(kind(version))

    def _keys(self, root: Mapping[Any, Value]) -> Iterator[Finding]:
        if "state_dict" not in root:
            yield self._error("state_dict", f"KeyError: 'state_dict' in load_model_state_dict ({_CONNECTOR})")
        if "lr_schedulers" not in root and "optimizer_states" in root:  # optimizer.missing tells of both
            raised = f"KeyError: '{_ONLY}…' in restore_optimizers_and_schedulers ({_CONNECTOR})"
            yield self._error("lr_schedulers", raised)
        loops = root.get("loops")
        if isinstance(loops, dict) and "fit_loop" not in loops and not _before_1_6(root.get(_VERSION)):
            yield self._error("loops.fit_loop", f"KeyError: 'fit_loop' in restore_loops ({_CONNECTOR})")

    def _old(self, root: Mapping[Any, Value], version: str) -> Iterator[Finding]:
        release = _release(version)
        if release is None:
            yield self._invalid(repr(version[:40]))
        elif release < (1, 6, 0):
            for key in ("global_step", "epoch"):
                if key not in root:
                    yield self._error(
                        key, f"KeyError: {key!r} when it migrates a file of {version} ({_MIGRATION}/migration.py)"
                    )

        if release is not None and release < (1, 6, 5):
            yield from self._migrated(root, release)

    def _migrated(self, root: Mapping[Any, Value], release: tuple[int, int, int]) -> Iterator[Finding]:
        """Entries of the loops that the migration of an old file looks up; a newer file has others."""
        loops = root.get("loops")
        fit = loops.get("fit_loop") if isinstance(loops, dict) else None
        if not isinstance(fit, dict):
            return  # put in by the migration, or told of otherwise
        wanted = (*_BEFORE_1_6, _OLD_STATE) if release < (1, 6, 0) else (_OLD_STATE,)
        for key in (k for k in wanted if k not in fit):
            yield self._error(
                f"loops.fit_loop.{key}", f"KeyError: {key!r} when it migrates a file so old ({_MIGRATION}/migration.py)"
            )
            return

    def _invalid(self, spelled: str) -> Finding:
        return self._finding(
            Severity.ERROR,
            _VERSION,
            f"the version is {spelled}: Lightning raises InvalidVersion in migrate_checkpoint ({_MIGRATION}/utils.py)",
            "set it to the version that saved the file",
        )

    def _newer(self, version: str, installed: Mapping[str, str]) -> Iterator[Finding]:
        have = installed.get("lightning") or installed.get("pytorch-lightning")
        mine, its = _release(version), _release(have or "")
        if mine is not None and its is not None and mine > its:
            yield self._finding(
                Severity.WARNING,
                _VERSION,
                f"it was saved by Lightning {version}, and {have} is installed, which takes it as it is and warns",
                f"install lightning>={version}",
            )

    def _error(self, key: str, raised: str) -> Finding:
        return self._finding(
            Severity.ERROR,
            key,
            f"{key} is not there: Lightning raises {raised}",
            "resume from a checkpoint that has it",
        )

    def _finding(self, severity: Severity, where: str, message: str, hint: str) -> Finding:
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _root(checkpoint: Checkpoint) -> Mapping[Any, Value]:
    contents = checkpoint.contents.get("")
    return contents.root if contents is not None and isinstance(contents.root, dict) else {}


def _release(version: str) -> tuple[int, int, int] | None:
    """The release that a version names, `2.6.1` as (2, 6, 1); None for what is no version."""
    match = _RELEASE.fullmatch(version)
    return None if match is None else (int(match[1]), int(match[2] or 0), int(match[3] or 0))


def _before_1_6(version: Value) -> bool:
    """Whether Lightning puts the loops in by itself (migration.py `_migrate_loop_global_step_to_progress_tracking`)."""
    release = _release(version) if isinstance(version, str) else None
    return release is not None and release < (1, 6, 0)
