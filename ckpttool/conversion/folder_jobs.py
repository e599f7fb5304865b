"""A trainer's folder converted: the same folder, with its weights (or all its pickles) in the other format."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ckpttool import containers
from ckpttool.conversion import surgery
from ckpttool.conversion.folders import INDEX, WeightFile, format_of, safe_name, stem_of, torch_name, weight_files
from ckpttool.conversion.options import Options
from ckpttool.conversion.originals import Job, original_of
from ckpttool.conversion.products import (
    Product,
    add_text,
    safetensors_file,
    structured,
    torch_file,
    torch_shards,
)
from ckpttool.conversion.tally import Lost, Tally
from ckpttool.conversion.targets import Format, target_of
from ckpttool.errors import NotACheckpoint, UnsupportedFormat, UsageError
from ckpttool.layouts import may_hold
from ckpttool.model import Checkpoint, Contents, Role
from ckpttool.opening.converted import OriginalNames
from ckpttool.sources import Folder
from ckpttool.structures import MAIN, WHOLE, Document, Part

STRUCTURE = "structure"  # container of what a conversion took apart
_STAY = frozenset({Role.CONFIG, Role.OTHER})  # kept whatever parts are chosen
_NAMED = 4  # files in a sentence


def folder_job(checkpoint: Checkpoint, target: str, options: Options, tally: Tally, changed: frozenset[str]) -> Job:
    """Plan the conversion of a folder into a folder.

    Args:
        changed: files whose trees were edited by `--set`, to be written anew.

    Raises:
        UnsupportedFormat: the weights lie together with other parts in files that the trainer reads as they are.
        UsageError: there is nothing to convert.
    """
    return _FolderJob(checkpoint, target, options, tally, changed).planned()


class _FolderJob:
    def __init__(
        self, checkpoint: Checkpoint, target: str, options: Options, tally: Tally, changed: frozenset[str]
    ) -> None:
        self._checkpoint = checkpoint
        self._options = options
        self._tally = tally
        self._changed = changed
        # The last one shows the files under their original names, where a conversion made the folder.
        self._folder = next(source for source in reversed(checkpoint.opened) if isinstance(source, Folder))
        goal = target_of(target, options, from_folder=True, already=self._already())
        self._format: Format = goal.format
        kind = f"{goal.format}, everything" if options.everything else f"{goal.format} weights"
        self._job = Job(target=goal, kind=f"the same folder, {kind}", tally=tally)
        # What a conversion made goes back to what it was; the rest of such a folder was always as it is.
        self._made = any(c.container == STRUCTURE or "original" in c.facts for c in checkpoint.contents.values())
        self._done: set[str] = set()  # files that are converted, left out or copied

    def _already(self) -> Format | None:
        """The format of all weights, where converting to it again would change nothing."""
        options = self._options
        if options.everything or options.edits_weights or options.max_shard_bytes or self._changed:
            return None
        formats = {format_of(w.contents) for w in weight_files(self._checkpoint)}
        return "safetensors" if formats == {"safetensors"} else None

    def planned(self) -> Job:
        if self._options.edits_weights:
            surgery.edit_weights(self._checkpoint, self._options, self._tally)
        self._leave_out()
        self._convert_weights()
        self._convert_rest()
        if not self._job.products:
            raise UsageError(
                "there is nothing to convert in the folder",
                where=self._checkpoint.path,
                hint="say --everything for the files beside the weights, or --to torch",
            )
        self._copy_rest()
        self._require_names()
        self._job.storages = [s for c in self._checkpoint.contents.values() for s in c.storages]
        return self._job

    def _leave_out(self) -> None:
        """Leave out the files of parts that are not kept."""
        kept = {*self._options.parts, *_STAY}
        for file in self._checkpoint.files if self._options.parts else ():
            if file.role not in kept:
                self._done.add(file.name)
                self._tally.lost.append(Lost(file.name, f"{file.role}, {file.size:,} bytes", "--part"))

    def _convert_weights(self) -> None:
        files = {w.name: w for w in weight_files(self._checkpoint)}
        for weights in self._checkpoint.weights:
            file = weights.at.file
            apart = self._checkpoint.contents[file].container == STRUCTURE  # it is put together again as a whole
            if file not in files and not self._options.everything and file not in self._done and not apart:
                raise UnsupportedFormat(
                    "the file holds the weights together with other parts, and its trainer reads no safetensors there",
                    where=file,
                    hint="take the weights alone, as NAME.safetensors with --part model, or convert with --everything",
                )
        for name, found in files.items():
            if name in self._done or not self._to_convert(found):
                continue
            self._done.update(found.files)
            product = self._weights(found)
            product.mode_from = self._folder.path / name
            self._job.products.append(product)

    def _to_convert(self, file: WeightFile) -> bool:
        options = self._options
        edited = options.edits_weights or options.max_shard_bytes or options.map_location or file.name in self._changed
        found = format_of(file.contents)
        if self._format == "torch" and self._made and "original" not in file.contents.facts and not edited:
            return False  # it was safetensors before the folder was converted
        return found is not None and (found != self._format or bool(edited))

    def _weights(self, file: WeightFile) -> Product:
        options, whole = self._options, file.name.removesuffix(INDEX)
        known = file.contents.facts.get("original")
        before = str(known) if isinstance(known, str) and known and "/" not in known else ""
        original = original_of(before or whole, file.contents, file.contents.root, options, self._tally)
        shards = self._shards(file)
        if self._format == "safetensors":
            name = safe_name(whole)
            if name in self._planned():  # of `extra.pt` and `extra.bin` one keeps its ending
                name = f"{whole}.safetensors"
            return safetensors_file(name, original, WHOLE, options, self._tally, shards=shards)
        if shards or options.max_shard_bytes:
            return torch_shards(torch_name(whole), original, options, self._tally, shards=shards)
        name = before if before and not before.endswith(".safetensors") else torch_name(whole)
        name = f"{whole.rpartition('/')[0]}/{name}" if "/" in whole and "/" not in name else name
        return torch_file(name, original, options, self._tally)

    def _shards(self, file: WeightFile) -> list[list[str]] | None:
        """The names per shard as they are now; None where it is one file, or is to be cut anew."""
        if not file.contents.files or self._options.max_shard_bytes:
            return None
        shards: dict[str, list[str]] = {}
        for name, shard in file.weights.files.items():
            shards.setdefault(shard, []).append(name)
        return list(shards.values())

    def _convert_rest(self) -> None:
        """With `--everything` every other pickle, and back; else only what `--set` changed."""
        documents: dict[str, list[str]] = {}
        for name, contents in self._rest():
            format_ = format_of(contents)
            wanted, apart = self._options.everything, contents.container == STRUCTURE
            if self._format == "safetensors" and (apart or (wanted and format_ == "torch")):
                product, documents[name] = self._document(name, contents, documents)
            elif (apart and self._format == "torch") or name in self._changed:
                original = original_of(name, contents, contents.root, self._options, self._tally)
                product = torch_file(name, original, self._options, self._tally)
            else:
                continue
            self._done.add(name)
            product.mode_from = self._folder.path / name
            self._job.products.append(product)
        if documents:
            main = Document(form="folder", name=Path(self._checkpoint.path).name, files=documents)
            product = Product()
            add_text(product, MAIN, "".join(main.text()), "structure")
            self._job.products.append(product)

    def _rest(self) -> Iterator[tuple[str, Contents]]:
        """Files that are not weights and can be read, opened by the layout or not."""
        opened: Mapping[str, Contents] = self._checkpoint.contents
        yield from ((name, c) for name, c in opened.items() if name not in self._done)
        apart = self._folder.taken_apart if isinstance(self._folder, OriginalNames) else frozenset()
        for name in self._folder.entries():
            wanted = name in apart or (self._options.everything and may_hold(name))
            if wanted and name not in opened and name not in self._done:
                try:
                    contents = self._opened(name)
                except (NotACheckpoint, UnsupportedFormat) as error:
                    self._tally.notes.append(f"{name} stays as it is: {error.message}")
                    continue
                self._checkpoint.contents = {**self._checkpoint.contents, name: contents}
                yield name, contents

    def _opened(self, name: str) -> Contents:
        if isinstance(self._folder, OriginalNames) and name in self._folder.taken_apart:
            return self._folder.put_together(name, self._options.limits)
        return containers.read(self._folder.open(name), self._options.limits)

    def _document(self, name: str, contents: Contents, documents: Mapping[str, list[str]]) -> tuple[Product, list[str]]:
        """One pickle as a document and a safetensors file that are called as it was."""
        stem = stem_of(name)[0]
        taken = {*self._folder.entries(), *self._planned(), *(n for names in documents.values() for n in names)}
        if f"{stem}.json" in taken or f"{stem}.safetensors" in taken or f"{stem}.json" == MAIN:
            stem = name
        document = f"{stem}.json"
        original = original_of(name, contents, contents.root, self._options, self._tally)
        parts = (Part(document=document, tensors=f"{stem.rpartition('/')[2]}.safetensors"),)
        product = structured(original, parts, self._options, self._tally, document=document)
        return product, [document, *(f.name for f in product.files if f.name != document)]

    def _planned(self) -> list[str]:
        """The names of the files that will be written."""
        return [file.name for product in self._job.products for file in product.files]

    def _require_names(self) -> None:
        """Refuse to write two files under one name.

        Raises:
            UsageError: weights would be called like a file that stays, or like other weights.
        """
        seen: set[str] = set()
        for name in self._planned():
            if name in seen:
                raise UsageError(
                    f"two files of the result would be called {name!r}",
                    where=self._checkpoint.path,
                    hint="the folder holds the same weights twice, or files that differ in their endings alone; "
                    "move one of them away",
                )
            seen.add(name)

    def _copy_rest(self) -> None:
        for name in self._folder.entries():
            if name not in self._done:
                self._job.copy(name, self._folder.open(name), self._folder.path / name)
        for name, why in self._folder.refused.items():
            self._tally.lost.append(Lost(name, why, "links and devices are not copied"))
