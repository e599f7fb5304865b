"""Shards whose index is missing: what each of them holds is a part of one state_dict."""

from collections.abc import Sequence
from dataclasses import replace

from ckpttool.blocks import FindingLog, Severity
from ckpttool.layouts import _words as words
from ckpttool.model import Weights
from ckpttool.names import leading


def merged(shards: Sequence[Weights]) -> list[Weights]:
    """The state_dicts that are all of their file as one, unless two of them hold the same name; others stay."""
    whole = [w for w in shards if not w.at.path]
    names = [name for w in whole for name in w.tensors]
    if len(whole) < 2 or len(set(names)) < len(names):  # noqa: PLR2004  # one alone is what it is
        return [*shards]
    tensors = {name: tensor for w in whole for name, tensor in w.tensors.items()}
    one = replace(
        whole[0],
        tensors=tensors,
        paths={name: path for w in whole for name, path in w.paths.items()},
        files={name: w.at.file for w in whole for name in w.tensors},
        extra={name: value for w in whole for name, value in w.extra.items()},
        modules={name: value for w in whole for name, value in w.modules.items()},
        stored=None,
        prefix=leading(tensors),
        in_model_order=False,
    )
    return [one, *(w for w in shards if w.at.path)]


def say_unindexed(log: FindingLog, whole: str, count: int, files: Sequence[str], *, apart: bool) -> None:
    """Say that the index is missing, and how many of the shards.

    Args:
        apart: they were not merged.
    """
    index = f"{whole}.index.json"
    told = f"the index of {words.count(len(files), 'shard')} is missing; "
    log.add(
        "index.missing",
        Severity.WARNING,
        told
        + ("they are read one by one, because some names are in several" if apart else "they are read as one model"),
        where=index,
        hint="loaders do not find the shards without it; get it again, or make it from them",
    )
    if len(files) < count:
        log.add(
            "index.missing-shard",
            Severity.ERROR,
            f"{len(files):,} of {count:,} shards are there",
            where=index,
            hint="the save was interrupted or the copy is partial; get the others",
        )
