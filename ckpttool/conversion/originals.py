"""The tree that is written of one source file: edited, cleaned of what may not be written, and said whose it was."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ckpttool.conversion import opaque, places
from ckpttool.conversion.casting import Cast
from ckpttool.conversion.options import Options
from ckpttool.conversion.outcome import WrittenFile
from ckpttool.conversion.parts import PROGRAMS
from ckpttool.conversion.plain import plain, still_refused
from ckpttool.conversion.products import Original, Product
from ckpttool.conversion.tally import Changed, Tally
from ckpttool.conversion.targets import Target
from ckpttool.conversion.trees import everything
from ckpttool.errors import UnsupportedFormat
from ckpttool.keypaths import spelled_path
from ckpttool.model import Contents
from ckpttool.sources import Source
from ckpttool.values import StorageRef, TensorRef, Value
from ckpttool.writers.plans import FilePlan, Piece


@dataclass(slots=True, kw_only=True)
class Job:
    """A conversion, planned: nothing is written yet."""

    target: Target
    kind: str  # of the result, in words
    products: list[Product] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    storages: list[StorageRef] = field(default_factory=list)  # of all files that are converted

    def copy(self, name: str, source: Source, path: Path) -> None:
        """A file that stays as it is, and lies at `path`."""
        pieces = (Piece(0, source, 0, source.size, name),) if source.size else ()
        product = Product(mode_from=path)
        product.add(
            FilePlan(name=name, size=source.size, pieces=pieces),
            WrittenFile(name=name, kind="copied", nbytes=source.size),
        )
        self.products.append(product)

    def used(self, options: Options) -> Iterator[StorageRef]:
        """The storages that tensors of the result come from."""
        for product in self.products:
            for _, value in everything(product.root, options.limits):
                if isinstance(value, TensorRef) and value.storage is not None:
                    cast = value.storage.source
                    yield cast.read_from if isinstance(cast, Cast) else value.storage
                elif isinstance(value, StorageRef):
                    yield value


def require_no_program(contents: Iterable[Contents]) -> None:
    """Refuse to convert as a whole what holds a program, which nothing here carries.

    Raises:
        UnsupportedFormat: one of the files does.
    """
    for one in contents:
        if one.container in PROGRAMS:
            raise UnsupportedFormat(
                f"a {one.container} archive holds a program beside its tensors, which cannot be carried",
                where=one.name,
                hint="take its weights alone with --part model",
            )


def original_of(name: str, contents: Contents, root: Value, options: Options, tally: Tally) -> Original:
    """What is written of a file, once all that was asked for is done to its tree.

    Args:
        name: of the file when it comes back.

    Raises:
        DangerousObject: something would run code when the result is loaded.
    """
    if options.plain:
        root, changes = plain(root, options.limits)
        tally.plain += changes
    if options.drop_opaque:
        root, lost = opaque.dropped(root, options.limits)
        tally.lost += lost
    if options.plain and (refused := still_refused(root, options.limits)):
        tally.notes.append(refused if contents.name in ("", name) else f"{name}: {refused}")
    for kept in opaque.require_harmless(root, contents, options.allow_opaque, options.limits):
        tally.opaque.append(Changed(str(kept.ref), f"{kept.count:,}", spelled_path(kept.path) or "the top"))
    if options.map_location:
        places.move_to(root, options.map_location, options.limits)
    return Original(name=name, contents=contents, root=root)
