"""The persistent ids of the legacy stream: storages, views of storages, and classes with their source text.

Source: `persistent_id` in `_legacy_save` and `persistent_load` in `_legacy_load`, torch/serialization.py, torch 2.13;
views of storages were written until torch 1.0.
"""

from ckpttool.blocks import FindingLog, Severity
from ckpttool.containers._torch_storages import AbsentSource, StorageId, StorageTable, class_name, storage_id, text
from ckpttool.containers._words import counted
from ckpttool.errors import DamagedFile
from ckpttool.values import StorageRef, Value


class LegacyIds:
    """Answers persistent ids while the object is read, and remembers what they said."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._table = StorageTable()
        self._nowhere = AbsentSource(where, "the file ends before this storage")
        self._views: dict[str, tuple[StorageRef, StorageRef, int]] = {}  # key: view, storage, first byte in it
        self.sources: dict[str, Value] = {}  # class: source file and text

    @property
    def by_key(self) -> dict[str, StorageRef]:
        """The storages that the file holds, without views of them."""
        return self._table.by_key

    @property
    def units(self) -> dict[str, int]:
        """Bytes of what each storage counts in the file."""
        return self._table.units

    def storages(self) -> list[StorageRef]:
        """All storages, and the views of them."""
        return [*self.by_key.values(), *(view for view, _, _ in self._views.values())]

    def __call__(self, pid: Value) -> Value:
        """What stands for a persistent id: a storage, or the class whose source the file carries."""
        match pid:
            case (kind, cls, file, source) if text(kind) == "module":
                value: Value = cls
                if source is not None:
                    self.sources[class_name(value)] = {"file": file, "source": source}
                return value
        sid = storage_id(pid, views=True)
        storage = self._table.claim(sid, self._nowhere)
        return storage if sid.view is None else self._view(sid, sid.view, storage)

    def _view(self, sid: StorageId, view: tuple[str, int, int], storage: StorageRef) -> StorageRef:
        key, start, nbytes = view
        if key in self._views:
            return self._views[key][0]
        if start + nbytes > storage.nbytes:
            raise DamagedFile(
                f"a view of storage {sid.key!r} ends at byte {start + nbytes:,}, the storage has {storage.nbytes:,}",
                hint="get the file again",
            )
        part = StorageRef(storage.source, start, nbytes, key=key, location=sid.location, dtype=sid.dtype)
        self._views[key] = part, storage, start
        return part

    def place_views(self) -> None:
        """Point the views at their storages' bytes, once those are known."""
        for view, storage, start in self._views.values():
            view.source, view.start = storage.source, storage.start + start

    def report_sources(self, log: FindingLog) -> None:
        """Say that the file carries source text."""
        if self.sources:
            log.add(
                "legacy.source",
                Severity.NOTE,
                "the file carries the source text of " + counted(list(self.sources), "class", "classes"),
                where=self._where,
                hint="torch.load compares it with the class that it imports; nothing runs it",
            )
