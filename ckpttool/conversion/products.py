"""One thing converted: the files that will hold it, planned byte for byte, and how to prove that they do.

A proof reads the written files with the readers that everyone uses, and walks the tree that comes back beside the one
that was to be written; the bytes are compared by `writers.reading_back`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckpttool import containers, structures
from ckpttool.conversion.options import Options
from ckpttool.conversion.outcome import WrittenFile
from ckpttool.conversion.same_objects import same_objects
from ckpttool.conversion.shards import index_text, shard_names, split
from ckpttool.conversion.tally import Changed, Lost, Tally
from ckpttool.conversion.trees import everything
from ckpttool.conversion.walk import first_difference
from ckpttool.model import Contents
from ckpttool.opening import read_converted, restored_folder
from ckpttool.sources import FileSource, Folder
from ckpttool.structures import KEY, Encoded, Part, stored_as
from ckpttool.values import Record, TensorRef, Value
from ckpttool.writers.packed import run_of
from ckpttool.writers.plans import FilePlan, Literal
from ckpttool.writers.safetensors import Stored, plan_safetensors
from ckpttool.writers.torch_save import plan_torch

Proof = Callable[[Path], str | None]  # given where the plans' names lead; says what is not as it was to be

_INDEX = ".index.json"
_FORMAT = {"format": "pt"}  # transformers refuses a file that does not say it


@dataclass(slots=True, kw_only=True)
class Product:
    """Files to write, in this order, and the proof."""

    plans: list[FilePlan] = field(default_factory=list)
    files: list[WrittenFile] = field(default_factory=list)  # beside the plans
    proofs: list[Proof] = field(default_factory=list)
    root: Value = None  # the tree that is written
    mode_from: Path | None = None  # the file whose permissions the results have; None: the source's

    def add(self, plan: FilePlan, file: WrittenFile) -> None:
        """One more file."""
        self.plans.append(plan)
        self.files.append(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """What is converted: the tree as edited, and what it was."""

    name: str  # of the file, as it is called when it comes back
    contents: Contents
    root: Value
    labels: Mapping[int, str] = field(default_factory=dict)  # FQNs that are not the key paths, by `id` of the tensor

    @property
    def protocol(self) -> int:
        """Of the pickle that the names of globals come from."""
        told = self.contents.facts.get("protocol", 2)
        return told if isinstance(told, int) else 2

    @property
    def metadata(self) -> dict[str, str]:
        """What the metadata of a safetensors source says, but for ours and what we say again."""
        told = self.contents.facts.get("metadata")
        texts = told.items() if isinstance(told, dict) and self.contents.container == "safetensors" else ()
        names = self.contents.root if isinstance(self.contents.root, dict) else {}
        return {k: v for k, v in texts if isinstance(k, str) and isinstance(v, str) and k != KEY and v not in names}


def torch_file(name: str, original: Original, options: Options, tally: Tally) -> Product:
    """A tree as one torch file."""
    root = original.root
    planned = plan_torch(
        name, root, protocol=original.protocol, map_location=options.map_location, limits=options.limits
    )
    tally.trimmed_bytes += sum(s.dropped for s in planned.storages)
    count = _count(root, tally, options)
    product = Product(root=root)
    product.add(planned.plan, WrittenFile(name=name, kind="torch", nbytes=planned.plan.size, tensors=count))
    product.proofs.append(lambda place: first_difference(root, _read(place, name).root, options.limits))
    return product


def _count(root: Value, tally: Tally, options: Options) -> int:
    """Count the tensors of a tree that are written as they are."""
    count = 0
    storages: dict[int, int] = {}
    for _, value in everything(root, options.limits):
        if isinstance(value, TensorRef):
            count += 1
            if value.storage is not None:
                place = hash((id(value.storage), value.storage_offset, value.shape, value.stride))
                storages[place] = value.nbytes
    tally.tensors += count
    tally.nbytes += sum(storages.values())
    return count


def _read(place: Path, name: str) -> Contents:
    """A written file; `place` is itself, or the folder that it lies in."""
    return containers.read(FileSource(place / name if place.is_dir() else place, name))


def safetensors_file(  # noqa: PLR0913  # what is written, how, and in which pieces
    name: str,
    original: Original,
    parts: Sequence[Part],
    options: Options,
    tally: Tally,
    *,
    shards: Sequence[Sequence[str]] | None = None,
) -> Product:
    """A tree as one safetensors file, with what the format has no words for in its metadata; or as shards of it.

    Args:
        name: of the file; of shards the name that the whole would have.
        shards: names per shard; None: as `--max-shard-size` cuts them.
    """
    encoded = _encoded(original, parts, options, tally)
    tensors = encoded.tensors.get("", {})
    _count_stored(tensors, encoded, tally)
    document = encoded.main.compact()
    aliases = _aliases("", encoded)
    metadata = {**_FORMAT, **original.metadata, **aliases, KEY: document}
    product = Product(root=original.root)
    shards = _shards(tensors, shards, options)
    if len(shards) == 1:
        _add_safetensors(product, name, tensors, metadata, options)
    else:
        _add_shards(product, name, tensors, shards, {**aliases, KEY: document}, options)
    where = name if len(shards) == 1 else name + _INDEX
    product.proofs.append(
        lambda place: first_difference(original.root, _restored(place, where, options), options.limits)
    )
    return product


def _aliases(file: str, encoded: Encoded) -> dict[str, str]:
    """What the metadata of a file says of tied names that are not written: the name whose bytes each has."""
    return {alias: kept for of, alias, kept in encoded.ties if of == file}


def _shards(
    tensors: Mapping[str, TensorRef], given: Sequence[Sequence[str]] | None, options: Options
) -> Sequence[Sequence[str]]:
    """Names per shard: as given, without those that are tied to another; or cut by size."""
    if given is None:
        return split(tensors, options.max_shard_bytes) if options.max_shard_bytes else [[*tensors]]
    kept = [[name for name in names if name in tensors] for names in given]
    known = {name for names in kept for name in names}
    kept[-1] += [name for name in tensors if name not in known]
    return [names for names in kept if names] or [[]]


def _encoded(original: Original, parts: Sequence[Part], options: Options, tally: Tally) -> Encoded:
    encoded = structures.encode(
        original.root,
        name=original.name,
        container=original.contents.container,
        protocol=original.protocol,
        parts=parts,
        labels=original.labels,
        duplicate_ties=options.duplicate_ties,
        limits=options.limits,
    )
    tally.trimmed_bytes += sum(d.nbytes for d in encoded.dropped)
    again = same_objects(original.root, parts, encoded.tensors)
    encoded = replace(encoded, ties=(*encoded.ties, *again))
    tally.ties += [Changed(alias, "", kept) for _, alias, kept in encoded.ties]
    return encoded


def _count_stored(tensors: Mapping[str, TensorRef], encoded: Encoded, tally: Tally) -> None:
    """Count tensors as they lie in a safetensors file, and note those that lie otherwise than before."""
    tally.tensors += len(tensors) + len(encoded.ties)
    for name, tensor in tensors.items():
        tally.nbytes += tensor.nbytes
        stored = stored_as(tensor)
        if not stored.plain:
            tally.carried.append(Changed(name, tensor.dtype.name, f"{stored.code} {list(stored.shape)}"))
        elif not tensor.contiguous:
            tally.packed.append(Changed(name, f"strides {list(tensor.stride)}", _grown(tensor)))


def _grown(tensor: TensorRef) -> str:
    held = 1
    for extent, step in zip(tensor.shape, tensor.stride, strict=True):
        held *= extent if step else 1
    if held == tensor.numel:
        return "side by side"
    return f"side by side, {tensor.dtype.nbytes(held):,} → {tensor.nbytes:,} bytes"


def _add_safetensors(
    product: Product, name: str, tensors: Mapping[str, TensorRef], metadata: Mapping[str, str], options: Options
) -> None:
    laid: dict[str, Stored] = {}
    for key, tensor in tensors.items():
        stored = stored_as(tensor)
        laid[key] = Stored(stored.code, stored.shape, *run_of(stored.tensor, options.limits, key))
    plan = plan_safetensors(name, laid, metadata)
    product.add(plan, WrittenFile(name=name, kind="safetensors", nbytes=plan.size, tensors=len(laid)))


def _add_shards(  # noqa: PLR0913, PLR0917  # what is cut, how, and what is said of it
    product: Product,
    name: str,
    tensors: Mapping[str, TensorRef],
    shards: Sequence[Sequence[str]],
    said: Mapping[str, str],
    options: Options,
) -> None:
    """The shards, and their index behind them."""
    stem, ending = name.removesuffix(".safetensors"), ".safetensors"
    files = shard_names(stem, ending, len(shards))
    for file, names in zip(files, shards, strict=True):
        _add_safetensors(product, file, {n: tensors[n] for n in names}, _FORMAT, options)
    total = sum(t.nbytes for t in tensors.values())
    parameters = sum(t.numel for t in tensors.values())
    beside = [file.rpartition("/")[2] for file in files]
    add_text(product, name + _INDEX, index_text(shards, beside, total, parameters, said), "index")


def add_text(product: Product, name: str, text: str, kind: str) -> None:
    """A file of text."""
    data = text.encode()
    plan = FilePlan(name=name, size=len(data), literals=(Literal(0, data),))
    product.add(plan, WrittenFile(name=name, kind="index" if kind == "index" else "structure", nbytes=len(data)))


def torch_shards(
    name: str,
    original: Original,
    options: Options,
    tally: Tally,
    *,
    shards: Sequence[Sequence[str]] | None = None,
) -> Product:
    """A flat state_dict as several torch files, and their index behind them; arguments as of `safetensors_file`."""
    tensors: dict[str, TensorRef] = {}
    entries = original.root if isinstance(original.root, dict) else {}
    for key, value in entries.items():
        if isinstance(value, TensorRef) and isinstance(key, str):
            tensors[key] = value
        else:
            tally.lost.append(Lost(str(key), type(value).__name__, "shards hold tensors alone"))
    shards = _shards(tensors, shards, options)
    product = Product(root=dict(tensors))
    stem, dot, ending = name.rpartition(".")
    files = shard_names(stem, dot + ending, len(shards))
    for file, names in zip(files, shards, strict=True):
        part = torch_file(file, replace(original, root=_part(entries, tensors, names)), options, tally)
        product.plans += part.plans
        product.files += part.files
        product.proofs += part.proofs
    if len(shards) > 1:
        total = sum(t.nbytes for t in tensors.values())
        beside = [file.rpartition("/")[2] for file in files]
        text = index_text(shards, beside, total, sum(t.numel for t in tensors.values()), {})
        add_text(product, name + _INDEX, text, "index")
    return product


def _part(entries: Value, tensors: Mapping[str, TensorRef], names: Sequence[str]) -> dict[str, TensorRef]:
    """Some tensors of a state_dict, as a dict of its class with its attributes (`_metadata`)."""
    part: dict[str, TensorRef] = {}
    if isinstance(entries, Record):
        part = record = Record(entries.cls, entries.args)
        record.state = entries.state
    part.update((name, tensors[name]) for name in names)
    return part


def structured(original: Original, parts: Sequence[Part], options: Options, tally: Tally, *, document: str) -> Product:
    """A tree as JSON documents with safetensors files beside them.

    Args:
        document: the name of the main one; it is written last.
    """
    encoded = _encoded(original, parts, options, tally)
    product = Product(root=original.root)
    for file, tensors in encoded.tensors.items():
        _count_stored(tensors, replace(encoded, ties=()), tally)
        if tensors:
            _add_safetensors(product, file, tensors, {**_FORMAT, **_aliases(file, encoded)}, options)
    tally.tensors += len(encoded.ties)
    for name, made in reversed(encoded.documents.items()):
        add_text(product, name, "".join(made.text()), "structure")

    def proof(place: Path) -> str | None:
        folder = Folder(place)
        try:
            return first_difference(
                original.root, restored_folder(folder, document, options.limits, own=True), options.limits
            )
        finally:
            folder.release()

    product.proofs.append(proof)
    return product


def _restored(place: Path, name: str, options: Options) -> Value:
    """The tree that a written safetensors file, or an index of shards, gives back."""
    return read_converted(place / name if place.is_dir() else place, options.limits, own=True).root
