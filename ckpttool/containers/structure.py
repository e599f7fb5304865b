"""What a conversion wrote: a structure document beside safetensors files, or in the metadata of one.

Source: docs/formats/structure.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from ckpttool import structures
from ckpttool.blocks import Finding, Severity
from ckpttool.containers._globals import Survey, global_uses
from ckpttool.containers._structures import STRUCTURE
from ckpttool.errors import DamagedFile
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Contents
from ckpttool.pickles import Mention
from ckpttool.sources import ByteSpan, Source, head
from ckpttool.structures import Document
from ckpttool.values import TensorRef, Value

_FIRST = 256  # bytes in which a document says that it is one
_HOLDERS = ("safetensors", "sharded")


class StructureReader:
    """Recognises a document by itself; `read_structure` reads it with the files beside it."""

    name: ClassVar[str] = "structure"

    def sniff(self, source: Source) -> bool:
        return structures.is_document(head(source, _FIRST))

    def read(self, source: Source, limits: Limits) -> Contents:
        document = read_document(source, limits)
        what = document.name or "a checkpoint"
        alone = Finding(
            code="structure.alone",
            severity=Severity.ERROR,
            message=f"it says how {what} was put together; the files beside it were not opened",
            where=source.name,
            hint="name the folder",
        )
        return Contents(
            name=source.name, container=self.name, source=source, root={}, problems=(alone,), complete=False
        )


def read_document(source: Source, limits: Limits) -> Document:
    """Read a document that is a file.

    Raises:
        DamagedFile: it is none.
        LimitExceeded: it is longer than the limits allow.
    """
    longest = ByteSpan(0, min(source.size, limits.pickle + 1))
    return structures.parsed(source.read(longest), source.name, limits)


def read_structure(
    source: Source,
    *,
    open_tensors: Callable[[str], Contents],
    open_document: Callable[[str], Source],
    limits: Limits = DEFAULT_LIMITS,
) -> Contents:
    """Read a document with the files beside it as the one file that they came from.

    Args:
        source: the main document.
        open_tensors: opens a safetensors file, or an index of several, by the name that the document has for it.
        open_document: the same for the document of a part.

    Raises:
        DamagedFile: the documents are not sound, or do not fit the files beside them.
    """
    main = read_document(source, limits)
    opened: dict[str, Contents] = {}

    def tensors(name: str) -> Mapping[str, TensorRef]:
        contents = opened[name] = open_tensors(name)
        return _tensors_of(contents)

    root = structures.decode(
        main,
        tensors=tensors,
        documents=lambda name: read_document(open_document(name), limits),
        where=source.name,
        limits=limits,
    )
    read = Contents(
        name=main.name or source.name,
        container=StructureReader.name,
        source=source,
        problems=tuple(p for c in opened.values() for p in c.problems),
        facts={**_facts(main), "files": list(opened)},
        complete=all(c.complete for c in opened.values()),
    )
    return _with_tree(read, root, limits)


def restored(contents: Contents, limits: Limits = DEFAULT_LIMITS) -> Contents:
    """A safetensors file, or an index with its shards, with the tree that it was made from.

    What has no structure with it comes back as it is.

    Raises:
        DamagedFile: the structure is not sound, or another program changed the tensors or their names.
    """
    text = contents.facts.get(STRUCTURE)
    if not isinstance(text, str):
        return contents
    main = structures.parsed(text.encode("utf-8", "surrogatepass"), contents.name, limits)
    tensors = _tensors_of(contents)

    def beside(name: str) -> Mapping[str, TensorRef]:
        if name:
            raise DamagedFile(f"the structure in a file's metadata names another file, {name[:100]!r}")
        return tensors

    root = structures.decode(main, tensors=beside, where=contents.name, limits=limits)
    return _with_tree(replace(contents, facts={**contents.facts, **_facts(main)}), root, limits)


def _facts(main: Document) -> dict[str, Value]:
    """What a document says of the original."""
    facts: dict[str, Value] = {"original": main.name, "was": main.container}
    return {**facts, "protocol": main.protocol} if main.protocol else facts


def _tensors_of(contents: Contents) -> Mapping[str, TensorRef]:
    if contents.container not in _HOLDERS or not isinstance(contents.root, dict):
        raise DamagedFile("it is no safetensors file, nor an index of such", where=contents.name)
    return {name: tensor for name, tensor in contents.root.items() if isinstance(tensor, TensorRef)}


def _with_tree(contents: Contents, root: Value, limits: Limits) -> Contents:
    """The contents with a tree, the storages that it looks at and the globals that it names."""
    survey = Survey(root, limits, calls=True)
    named = {
        ref: Mention(0, called=True, runs=ref in survey.running, explained=ref not in survey.unexplained)
        for ref in survey.places
    }
    return replace(
        contents,
        root=root,
        storages=tuple(survey.storages.values()),
        globals=global_uses(named, survey, contents.source.name),
    )
