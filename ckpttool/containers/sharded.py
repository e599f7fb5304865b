"""Weights in several files, and the index that says which file holds which tensor (`*.index.json`).

The index is JSON: `{"metadata": {"total_size": bytes}, "weight_map": {name: file}}`; the files are safetensors or
`torch.save` files beside it. Sources: `split_torch_state_dict_into_shards` of huggingface_hub 1.0;
`load_sharded_checkpoint` of transformers 5.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ckpttool.blocks import Finding, FindingLog, Severity
from ckpttool.containers._structures import without_structure
from ckpttool.containers._words import counted
from ckpttool.errors import CkptError, DamagedFile, LimitExceeded, PathNotFound
from ckpttool.limits import Limits
from ckpttool.model import Contents
from ckpttool.pickles.words import spoken
from ckpttool.sources import ByteSpan, Source, head
from ckpttool.values import Record, TensorRef, Value

_PEEKED = 1 << 16  # bytes in which the weight map begins
_HARMLESS = ("index.wrong-shard", "index.unlisted-key", "index.twice")  # loaders read all files and find them
_HINT = "get the files again, or make the index again from them"
_SPACE = b" \t\r\n"


class ShardedReader:
    """Recognises an index by itself; `read_sharded` reads it with its shards."""

    name: ClassVar[str] = "sharded"

    def sniff(self, source: Source) -> bool:
        start = head(source, _PEEKED)
        return start.lstrip(_SPACE)[:1] == b"{" and b'"weight_map"' in start

    def read(self, source: Source, limits: Limits) -> Contents:
        _, files = _parse(source, limits)
        alone = Finding(
            code="index.alone",
            severity=Severity.ERROR,
            message=f"the index names {len(set(files.values())):,} files for {len(files):,} tensors; none was opened",
            where=source.name,
            hint="name the folder, or give the index its usual name: *.index.json",
        )
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root={},
            problems=(alone,),
            complete=False,
            files=files,
        )


def read_sharded(source: Source, open_shard: Callable[[str], Contents], limits: Limits) -> Contents:
    """Read an index and all shards that it names, as one file with the tensors in the order of the index.

    Args:
        source: the index.
        open_shard: opens a file beside the index by the name in it; its errors become findings.

    Raises:
        DamagedFile: the index cannot be read.
        LimitExceeded: it is too long.
    """
    metadata, weight_map = _parse(source, limits)
    log = FindingLog()
    shards = _open_shards(source, weight_map, open_shard, log)
    root, files = _merge(source, weight_map, {n: _entries(c, log) for n, c in shards.items()}, log)
    if len(shards) == len(set(weight_map.values())):
        _check_total(source, metadata.get("total_size"), root, log)
    problems = (*log.items, *(p for c in shards.values() for p in c.problems))
    facts: dict[str, Value] = {}
    facts |= {
        "metadata": without_structure(metadata, facts),
        "shards": {name: c.container for name, c in shards.items()},
    }
    return Contents(
        name=source.name,
        container=ShardedReader.name,
        source=source,
        root=_as_shards(root, [c.root for c in shards.values()]),
        storages=tuple(s for c in shards.values() for s in c.storages),
        globals=tuple(g for c in shards.values() for g in c.globals),
        problems=problems,
        facts=facts,
        complete=all(p.severity is not Severity.ERROR for p in problems) and all(c.complete for c in shards.values()),
        files=files,
    )


def _parse(source: Source, limits: Limits) -> tuple[dict[str, Value], dict[str, str]]:
    """Metadata and weight map of an index.

    Raises:
        DamagedFile: it is no such JSON.
        LimitExceeded: it is longer, or names more, than the limits allow.
    """
    if source.size > limits.header:
        raise LimitExceeded(
            f"the index has {source.size:,} bytes, the limit is {limits.header:,}",
            where=source.name,
            hint="raise it with --limit header=SIZE",
        )
    text = source.read(ByteSpan(0, source.size))
    if text.count(b":") > limits.members:
        raise LimitExceeded(
            f"the index has {text.count(b':'):,} names, the limit is {limits.members:,}",
            where=source.name,
            hint="raise it with --limit members=N",
        )
    try:
        top = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"the index is no JSON: {error}", where=source.name, hint="get the file again") from error
    match top:
        case {"weight_map": dict(weight_map)} if all(isinstance(file, str) for file in weight_map.values()):
            metadata = top.get("metadata")
        case _:
            raise DamagedFile(
                "the index has no weight_map of names and files", where=source.name, hint="get the file again"
            )
    if len(set(weight_map.values())) > limits.files:
        raise LimitExceeded(
            f"the index names {len(set(weight_map.values())):,} files, the limit is {limits.files:,}",
            where=source.name,
            hint="raise it with --limit files=N",
        )
    return metadata if isinstance(metadata, dict) else {}, weight_map


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _open_shards(
    source: Source, weight_map: Mapping[str, str], open_shard: Callable[[str], Contents], log: FindingLog
) -> dict[str, Contents]:
    """The shards that can be read, by name; what cannot is a finding."""
    shards: dict[str, Contents] = {}
    missing, unreadable = [], []
    for name, count in Counter(weight_map.values()).items():
        try:
            shards[name] = open_shard(_inside(name))
        except PathNotFound:
            missing.append(f"{name!r} (tensors: {count:,})")
        except CkptError as error:
            unreadable.append(f"{name!r} (tensors: {count:,}; {error})")
    report = _Reporter(source, log)
    report("index.missing-shard", missing, "file is not there", "files are not there")
    report("index.unreadable-shard", unreadable, "file cannot be read", "files cannot be read")
    return shards


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Turns a list of names into one finding about the index; none where the list is empty."""

    source: Source
    log: FindingLog

    def __call__(self, code: str, names: list[str], one: str, many: str) -> None:
        if names:
            severity = Severity.WARNING if code in _HARMLESS else Severity.ERROR
            self.log.add(code, severity, counted(names, one, many), where=self.source.name, hint=_HINT)


def _inside(name: str) -> str:
    """The name of a shard, once it is one that lies beside its index.

    Raises:
        DamagedFile: it leaves the folder, or is an index itself.
    """
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/") or not name:
        raise DamagedFile(
            "the name leaves the folder of the index",
            hint="do not trust this checkpoint; nothing outside the folder was opened",
        )
    if name.endswith(".json"):
        raise DamagedFile("the name is that of an index, not of a shard", hint="do not trust this checkpoint")
    return name


def _entries(contents: Contents, log: FindingLog) -> Mapping[str, Value]:
    """What a shard holds by name."""
    entries = contents.root if isinstance(contents.root, dict) else {}
    named = {key: value for key, value in entries.items() if isinstance(key, str)}
    if len(named) != len(entries) or not isinstance(contents.root, dict):
        log.add(
            "index.no-state-dict",
            Severity.ERROR,
            "the shard holds something else than tensors by name",
            where=contents.name,
            hint="get the file again",
        )
    return named


def _as_shards(root: dict[str, Value], shards: Sequence[Value]) -> dict[str, Value]:
    """The merged entries as a dict of the class that all shards have, with the attributes of the first."""
    first = shards[0] if shards else None
    if not isinstance(first, Record) or not all(isinstance(s, Record) and s.cls == first.cls for s in shards):
        return root
    whole = Record(first.cls, first.args)
    whole.update(root)
    whole.state = first.state
    return whole


def _merge(
    source: Source, weight_map: Mapping[str, str], shards: Mapping[str, Mapping[str, Value]], log: FindingLog
) -> tuple[dict[str, Value], dict[str, str]]:
    """Tensors in the order of the index, those that it does not name last; and the file of each."""
    owners: dict[str, str] = {}
    twice = [repr(key) for file, entries in shards.items() for key in entries if owners.setdefault(key, file) != file]
    files: dict[str, str] = {}
    absent, elsewhere = [], []
    for key, file in weight_map.items():
        if file not in shards:
            continue
        if key in shards[file]:
            files[key] = file
        elif key in owners:
            files[key] = owners[key]
            elsewhere.append(f"{key!r} is in {owners[key]!r} instead of {file!r}")
        else:
            absent.append(f"{key!r} in {file!r}")
    unlisted = [key for key in owners if key not in weight_map]
    files.update({key: owners[key] for key in unlisted})
    report = _Reporter(source, log)
    report(
        "index.absent-key",
        absent,
        "tensor is not in the file that the index names",
        "tensors are not in the files that the index names",
    )
    report(
        "index.wrong-shard",
        elsewhere,
        "tensor is in another file than the index says",
        "tensors are in other files than the index says",
    )
    report(
        "index.unlisted-key",
        [repr(key) for key in unlisted],
        "tensor is not in the index",
        "tensors are not in the index",
    )
    report("index.twice", twice, "tensor is in more than one file", "tensors are in more than one file")
    return {key: shards[file][key] for key, file in files.items()}, files


def _check_total(source: Source, total: Value, root: Mapping[str, Value], log: FindingLog) -> None:
    """Hold the index's `total_size` against the tensors; shared memory may be counted once or for each name."""
    tensors = [t for t in root.values() if isinstance(t, TensorRef)]
    each = sum(t.nbytes for t in tensors)
    once = sum(s.nbytes for s in {id(t.storage): t.storage for t in tensors if t.storage}.values())
    if total is not None and total not in (each, once):
        log.add(
            "index.total-size",
            Severity.WARNING,
            f"the index says {spoken(total)} for the bytes of all tensors, they have {each:,}",
            where=source.name,
            hint="loading does not look at it; make the index again from the files",
        )
