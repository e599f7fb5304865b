"""container.unreadable: a file that loading refuses."""

from collections.abc import Iterator
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.model import Contents
from ckpttool.protocols import Case, Needs, NotChecked
from ckpttool.rules._loaders import Loader, Unpickling, consequence, exception_of_broken, loader_of
from ckpttool.rules._siblings import fall_back
from ckpttool.rules._troubles import UNREADABLE, Trouble, troubles_of
from ckpttool.sources import head
from ckpttool.values import Trust

# Codes of what we did not read, though loading may well do: over a limit, or of a kind that we do not know.
_UNREAD = frozenset(
    ("file.limit", "file.unsupported", "zip.unread-member", "layout.too-large", "optimizer.too-large",
     "module.too-deep", "layout.not-yet")
)  # fmt: skip
# Codes of what torch.load reads all the same, in one of two ways.
_READ_ALL_THE_SAME = frozenset(("zip.local-header", "zip.second-archive", "zip.marked-as-folder"))
# Classes that torch 2.13 raises, where the code alone decides.
_OF_TORCH = ("torch-zip", "torch-legacy", "torch-tar")
_RAISES = {
    "zip.missing-storage": "RuntimeError",
    "zip.storage-size": "RuntimeError",
    "zip.no-version": "RuntimeError",
    "zip.torch-1.4": "RuntimeError",
    "file.unreadable": "PermissionError",
}


class Unreadable:
    """A file that a resume has to read is cut short, damaged, or something else than its name says.

    What: every file of the checkpoint is opened and its structure read; a zip archive's directory, members and sizes
    are held against each other, a safetensors header against the file's size, a pickle is read to its end. What can be
    read is held against the library that reads it: torch.load refuses what pickle.dump or safetensors wrote.

    Why: the trainer raises when it comes to that file, often after the model was already loaded. A random_states file
    of Accelerate is an exception: it goes on without a word, with other random numbers. What no trainer reads when
    training goes on (`training_args.bin`) is only a warning.

    Example: `error: optimizer.pt: the archive has no end record …; _load_optimizer_and_scheduler of the Trainer raises
    RuntimeError`

    Reference: torch/serialization.py `load`, torch 2.13; safetensors 0.8; accelerate/checkpointing.py
    `load_accelerator_state`, 1.15; transformers/trainer.py, 5.24; issues
    ultralytics#5793, pytorch-lightning#688.
    """

    code: ClassVar[str] = UNREADABLE
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding | NotChecked]:
        troubles = list(troubles_of(case.checkpoint, self.code))
        told = {t.file for t in troubles if t.finding.code.startswith("file.")}
        for trouble in troubles:
            found = trouble.finding
            if trouble.empty or found.severity is Severity.NOTE:
                continue
            if found.code == "index.unreadable-shard" and any(file and file in found.message for file in told):
                continue  # the shard itself is told of
            if found.code in _UNREAD:
                place = f"{found.where}: " if found.where else ""
                yield NotChecked(code=self.code, why=f"{place}{found.message}")
                continue
            yield self._judged(case, trouble)
        for file, contents in case.checkpoint.contents.items():
            yield from self._other_format(case, file, contents)

    def _other_format(self, case: Case, file: str, contents: Contents) -> Iterator[Finding]:
        """A file that we can read, and the library that the trainer reads it with cannot."""
        loader = loader_of(case, file)
        name = file or case.checkpoint.path
        exception = _of_format(contents, loader, name)
        if not exception or not loader.call or loader.unpickling is Unpickling.OF_THE_SCRIPT:
            return
        severity, said = consequence(loader, exception)
        written = "pickle.dump wrote it, not torch.save" if contents.container == "pickle" else ""
        yield Finding(
            code=self.code,
            severity=severity,
            where=name,
            message=f"{written or f'it is a {contents.container} file by its content'}; {said}",
            hint=fall_back(case, "write it with torch.save" if written else "give it its own name again"),
        )

    def _judged(self, case: Case, trouble: Trouble) -> Finding:
        found = trouble.finding
        lasting = found.code == "zip.torch-1.4"  # a warning of the reader's, since it can be read here
        if found.code in _READ_ALL_THE_SAME or (found.severity is not Severity.ERROR and not lasting):
            severity, message = Severity.WARNING, found.message
        else:
            severity, said = consequence(loader_of(case, trouble.file), _class(case, trouble))
            message = f"{found.message}; {said}"
        hint = found.hint if severity is Severity.WARNING else fall_back(case, found.hint)
        where = found.where or trouble.file
        return Finding(code=self.code, severity=severity, where=where, message=message, hint=hint)


def _of_format(contents: Contents, loader: Loader, name: str) -> str:
    """The class of what reading a file of another format raises; empty where the format is the library's."""
    form = contents.container
    if name.endswith(".safetensors"):
        return "SafetensorError" if form in ("pickle", *_OF_TORCH) else ""
    if name.rpartition("/")[2] == ".metadata" or form not in ("pickle", "safetensors"):
        return ""
    if form == "safetensors":
        return "UnpicklingError"
    # torch takes the first object for a mark of its old format, if it can be unpickled at all: `weights_only` reads no
    # protocol above 3, and only its own globals.
    whole = loader.unpickling is Unpickling.ANYTHING
    plain = head(contents.source, 2)[1:] < b"\x04" and all(g.trust is Trust.ACCEPTED for g in contents.globals)
    return "RuntimeError" if whole or plain else "UnpicklingError"


def _class(case: Case, trouble: Trouble) -> str:
    """The class of what is raised; empty where it is not certain."""
    known = _RAISES.get(trouble.finding.code)
    return known or exception_of_broken(trouble.file or case.checkpoint.path, trouble.finding)
