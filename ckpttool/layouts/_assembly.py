"""A checkpoint being put together: files are opened one by one, and what cannot be read becomes a finding."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckpttool.blocks import Finding, FindingLog, Severity
from ckpttool.elements import number
from ckpttool.errors import CkptError, NotACheckpoint
from ckpttool.layouts import _words as words
from ckpttool.layouts._json_files import read_json
from ckpttool.layouts._param_names import named
from ckpttool.layouts._parts import Parts, parts_of
from ckpttool.layouts._shards import merged, say_unindexed
from ckpttool.layouts._spots import fields_of
from ckpttool.layouts._unreadable import unreadable
from ckpttool.model import At, Checkpoint, Contents, Counter, CustomObject, PartFile, Role
from ckpttool.protocols import Found
from ckpttool.values import Value

INDEX = ".index.json"  # weights in shards, and which shard holds which name
# Endings under which trainers save; nothing else is opened uninvited.
SAVED = (
    ".pt",
    ".pth",
    ".bin",
    ".ckpt",
    ".pkl",
    ".pickle",
    ".safetensors",
    ".tar",
    ".th",
    ".t7",
    ".chkpt",
    ".checkpoint",
    ".p",
)
_HINTS = (Role.SCALER, Role.SCHEDULER, Role.RNG, Role.EMA)  # roles that a file's name may add to its structure
# Files of a trainer that hold no weights, whatever lies there.
_STATES = (Role.OPTIMIZER, Role.SCHEDULER, Role.SCALER, Role.RNG, Role.DATA, Role.CONFIG)
_MOST_PAIRS = 10_000  # optimizers times models; beyond them names stay unknown


def may_hold(name: str) -> bool:
    """Whether a file is opened uninvited: by its ending, or because it has none; never a hidden one."""
    file = name.rsplit("/", 1)[-1]
    return not file.startswith(".") and (file.lower().endswith(SAVED) or "." not in file)


class Reading:
    """What one layout has read so far of one path."""

    def __init__(self, found: Found, layout: str) -> None:
        self.found = found
        self._folder = None if found.contents else found.folder
        self.sizes = {n: e.size for n, e in self._folder.entries().items()} if self._folder else {}  # bytes
        self.names = tuple(self.sizes)
        self.parts = Parts()
        self.log = FindingLog()
        self.match_names = True  # look for parameter names by shapes; not where state is cut in flat partitions
        self._layout = layout
        self._contents: dict[str, Contents] = {}
        self._roles: dict[str, Role] = {}
        self._json: set[str] = set()  # JSON files that were read
        if found.contents is not None:
            self._contents[""] = found.contents

    def open(self, name: str, *, invited: bool = True) -> Contents | None:
        """Open a file of the folder; None, and a finding, where it cannot be read.

        Args:
            name: relative to the folder.
            invited: the trainer put it there; else a file that holds no checkpoint is passed over without a word.
        """
        if name in self._contents:
            return self._contents[name]
        try:
            contents = self.found.open(name)
        except NotACheckpoint as e:
            if invited or name.lower().endswith(SAVED):
                self._unreadable(name, e)
            return None
        except CkptError as e:
            self._unreadable(name, e)
            return None
        self._contents[name] = contents
        return contents

    def _unreadable(self, name: str, error: CkptError) -> None:
        found = unreadable(name, error)
        self.log.add(found.code, found.severity, found.message, where=found.where, hint=found.hint)

    def take(
        self,
        name: str,
        *,
        role: Role | None = None,
        rank: int | None = None,
        called: str = "",
        invited: bool = True,
    ) -> Parts | None:
        """Open a file of the folder and keep its parts; None where it cannot be read.

        Args:
            called: what parts at the root of the file are called; the file's name without ending where not given.
        """
        contents = self.open(name, invited=invited)
        if contents is None:
            return None
        stem = words.stem(name)
        called = called or name[: name.rfind("/") + 1] + stem
        parts = parts_of(
            contents.root, At(name), name=called, hint=stem, role=role, rank=rank, limits=self.found.limits
        )
        if invited and role in _STATES and parts.weights and not parts.hold_state:
            parts.weights.clear()
            parts.custom.clear()
            parts.custom.append(CustomObject(at=At(name), name=called, value=contents.root))
        return self.keep(parts, contents, name, role)

    def take_root(self, contents: Contents) -> Parts:
        """Keep the parts of a single file; its own name says what they are where its structure does not."""
        role = words.role_of_file(contents.name)
        hinted = role if role in _HINTS else None
        hint = words.stem(contents.name)
        return self.keep(parts_of(contents.root, At(""), hint=hint, role=hinted, limits=self.found.limits), contents)

    def keep(self, parts: Parts, contents: Contents, name: str = "", role: Role | None = None) -> Parts:
        """Take over parts of one file, with what its container says about its weights."""
        sharded = bool(contents.files)
        if sharded or contents.container == "safetensors":
            files = dict(contents.files)
            parts.weights[:] = [
                replace(w, files=files, in_model_order=False, stored=None if sharded else _stored(contents))
                for w in parts.weights
            ]
        self.parts.add(parts)
        if role is not None:
            self._roles[name] = role
        return parts

    def take_custom(self, name: str) -> None:
        """Keep a file as an object of the user's, unless all of it is an optimizer, a scheduler or a loss scale."""
        contents = self.open(name)
        if contents is None:
            return
        stem = words.stem(name)
        parts = parts_of(contents.root, At(name), name=stem, limits=self.found.limits)
        whole = (*((o.at) for o in parts.optimizers), *(s.at for s in parts.schedulers), *(s.at for s in parts.scalers))
        if any(at.path == () for at in whole):
            self.parts.add(parts)
        else:
            self.parts.custom.append(CustomObject(at=At(name), name=stem, value=contents.root))

    def take_loose(self, *, below: bool = False) -> None:
        """Keep the parts of all files that nobody took, by content and then by name.

        Args:
            below: those in subfolders too, not only at the top.
        """
        shards = {file for c in self._contents.values() for file in c.files.values()}
        indexes = [n for n in self.names if n.endswith(INDEX) and n not in self._roles and (below or "/" not in n)]
        for index in indexes:
            contents = self.take(index, called=words.stem(index)) and self.open(index)
            shards.update(contents.files.values() if contents else ())
        self._take_shards(below=below, listed=shards)
        for name in self.names:
            if (
                ("/" in name and not below)
                or self._is_blob(name)
                or name in shards
                or (indexes and words.is_shard(name))  # one that cannot be read was reported with its index
                or name in self._roles
                or name in self._contents
                or not may_hold(name)
            ):
                continue
            role = words.role_of_file(name)
            self.take(name, role=role if role in _HINTS else None, invited=False)

    def _take_shards(self, *, below: bool, listed: set[str]) -> None:
        """Read shards that no index names."""
        for (whole, count), files in words.shards_of(self.names).items():
            known = f"{whole}{INDEX}" in self.names or listed.intersection(files) or self._roles.keys() & files
            if not known and may_hold(whole) and (below or "/" not in whole):
                self.take_shards(whole, count, files)

    def take_shards(self, whole: str, count: int, files: Sequence[str]) -> None:
        """Read shards without their index, as one state_dict where they hold parts of one.

        Args:
            whole: what they make up: `model.safetensors`.
            count: how many do, as their names say.
        """
        before = len(self.parts.weights)
        role = words.role_of_file(whole)
        for file in files:
            self.take(file, role=role if role in (Role.MODEL, *_HINTS) else None, called=words.stem(whole))
        found = self.parts.weights[before:]
        self.parts.weights[before:] = one = merged(found)
        if found:
            say_unindexed(self.log, whole, count, files, apart=len(one) == len(found) > 1)

    def _is_blob(self, name: str) -> bool:
        """Whether a file lies in the store of a Hugging Face cache, whose `snapshots` show it under its own name."""
        cache, found, rest = name.rpartition("blobs/")
        return bool(found) and "/" not in rest and any(n.startswith(f"{cache}snapshots/") for n in self.names)

    def arguments(self, name: str, values: Mapping[str, Value]) -> None:
        """Keep arguments that a JSON file holds."""
        self.parts.add_arguments(name, At(name), values)
        self._roles[name] = Role.CONFIG

    def opened(self) -> Iterable[Contents]:
        """What was read so far."""
        return self._contents.values()

    def role(self, name: str, role: Role) -> None:
        """Say what a file is for that is not opened."""
        self._roles[name] = role

    def json(self, name: str) -> Mapping[str, Value] | None:
        """Read a small JSON file of the folder; None where it is not there, or (with a finding) cannot be read."""
        if self._folder is None or name not in self.sizes:
            return None
        try:
            value = read_json(self._folder, name, self.found.limits)
        except CkptError as e:
            self._unreadable(name, e)
            return None
        except (ValueError, RecursionError) as e:
            self.log.add(
                "json.damaged", Severity.ERROR, f"it is no JSON: {e}", where=name, hint="the save was cut short"
            )
            return None
        if not isinstance(value, dict):
            self.log.add("json.damaged", Severity.ERROR, "it holds no JSON object", where=name)
            return None
        self._json.add(name)
        return value

    def checkpoint(self, *, writer: str = "") -> Checkpoint:
        """Put together what was read; `writer` in words, with versions where the files say them."""
        parts = self.parts
        trained = [w for w in parts.weights if w.role is Role.MODEL] or parts.weights
        matched = self.match_names and len(parts.optimizers) * len(trained) <= _MOST_PAIRS
        optimizers = [named(o, trained) for o in parts.optimizers] if matched else parts.optimizers
        checkpoint = Checkpoint(
            path=self.found.path,
            layout=self._layout,
            writer=writer,
            weights=tuple(parts.weights),
            optimizers=tuple(optimizers),
            schedulers=tuple(parts.schedulers),
            scalers=tuple(parts.scalers),
            rng=tuple(parts.rng),
            data=tuple(parts.data),
            custom=tuple(parts.custom),
            counters=_once(parts.counters),
            config=parts.config,
            config_at=parts.config_at,
            config_files=parts.config_files,
            contents=dict(sorted(self._contents.items())),
            is_folder=self._folder is not None,
            limits=self.found.limits,
        )
        checkpoint.files = tuple(self._files(checkpoint))
        checkpoint.problems = (*self._refused(), *self.log.items, *parts.log.items)
        return checkpoint

    def _refused(self) -> Iterable[Finding]:
        for name, why in (self._folder.refused if self._folder else {}).items():
            message = f"it was left alone: {why}"
            yield Finding(code="folder.refused", severity=Severity.WARNING, message=message, where=name)

    def _files(self, checkpoint: Checkpoint) -> Iterable[PartFile]:
        roles = {at.file: role for at, role in reversed(list(checkpoint.roles()))} | self._roles
        if self.found.contents is not None:
            contents = self.found.contents
            role = roles.get("", Role.OTHER)
            yield PartFile(name=contents.name, size=contents.source.size, container=contents.container, role=role)
            for shard in dict.fromkeys(contents.files.values()):
                inner = self.found.open(shard)
                yield PartFile(name=shard, size=inner.source.size, container=inner.container, role=role)
            return
        shards: dict[str, str] = {}
        for index in self._contents.values():
            read = fields_of(index.facts.get("shards"))
            shards.update((file, str(read.get(file, index.container))) for file in index.files.values())
        for name, size in self.sizes.items():
            opened = self._contents.get(name)
            role = roles.get(name) or (Role.MODEL if name in shards else words.role_of_file(name))
            container = opened.container if opened else shards.get(name, "")
            taken = bool(container) or name in self._json or self._is_blob(name)
            yield PartFile(name=name, size=size, container=container, role=role, read=taken)


def _stored(contents: Contents) -> Mapping[str, Value]:
    """The metadata of a safetensors file."""
    metadata = contents.facts.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _once(counters: Iterable[Counter]) -> tuple[Counter, ...]:
    """Counters that every rank's file repeats, said once."""
    kept: dict[Any, Counter] = {}
    for counter in counters:
        kept.setdefault((counter.name, counter.key, number(counter.value)), counter)
    return tuple(kept.values())
