"""storage.oversized: a file holds storages of which tensors look at little."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from ckpttool.blocks import Finding, Severity
from ckpttool.elements import tensors_in
from ckpttool.keypaths import spelled_path
from ckpttool.model import Contents
from ckpttool.protocols import Case, Needs
from ckpttool.values import KeyPath, TensorRef

_LEAST = 1 << 16  # bytes that nothing looks at, below which nobody cares
_SHARE = 2  # a storage is oversized where tensors look at less than one part in so many


class Oversized:
    """A small tensor drags a large storage into the file, because it was saved as a view of it.

    What: the bytes of each storage against the bytes that tensors in the file look at.

    Why: `torch.save` writes the whole storage behind a view: ten numbers of a large buffer cost as much as the buffer,
    on the disk and in memory after loading. Save `tensor.clone()` instead.

    Example: `warning: model.pt: 1 storage has 401,408 bytes of which tensors use 40 (slice)`

    Reference: torch/serialization.py `_save`, torch 2.13; issue pytorch#40157.
    """

    code: ClassVar[str] = "storage.oversized"
    needs: ClassVar[Needs] = Needs.NOTHING

    def check(self, case: Case) -> Iterator[Finding]:
        for name, contents in case.checkpoint.contents.items():
            found = list(_oversized(contents))
            if not found:
                continue
            have, used = sum(f[0] for f in found), sum(f[1] for f in found)
            largest = max(found, key=lambda f: f[0] - f[1])
            one = len(found) == 1
            storages = "1 storage has" if one else f"{len(found):,} storages have"
            yield Finding(
                code=self.code,
                severity=Severity.WARNING,
                where=name or contents.name,
                message=f"{storages} {have:,} bytes of which tensors use {used:,}; "
                f"{'it is looked at' if one else 'the largest is looked at'} by {largest[2]}",
                hint="save tensor.clone() instead of a view, or make a compact copy: ckpt convert FILE OUT",
            )


def _oversized(contents: Contents) -> Iterator[tuple[int, int, str]]:
    """Bytes, bytes in use, and the name of a tensor, of each storage that is looked at and far too large."""
    views: dict[int, list[tuple[KeyPath, TensorRef]]] = {}
    for path, tensor in tensors_in(contents.root):
        if tensor.storage is not None and tensor.storage.nbytes > _LEAST:
            views.setdefault(id(tensor.storage), []).append((path, tensor))
    for looked in views.values():
        storage = looked[0][1].storage
        assert storage is not None  # noqa: S101  # those without are not in `views`
        used = _used([tensor for _, tensor in looked])
        if storage.nbytes - used >= _LEAST and storage.nbytes > _SHARE * used:
            yield storage.nbytes, used, spelled_path(looked[0][0]) or "the root"


def _used(tensors: Sequence[TensorRef]) -> int:
    """Bytes that tensors of one storage look at, about: no more than their spans cover, nor than they have together."""
    views = {(t.storage_offset, t.shape, t.stride, t.dtype): t for t in tensors}
    spans = sorted(_span(t) for t in views.values() if t.numel)
    covered, end = 0, 0
    for first, last in spans:
        covered += max(0, last - max(first, end))
        end = max(end, last)
    return min(covered, sum(t.nbytes for t in views.values()))


def _span(tensor: TensorRef) -> tuple[int, int]:
    """The bytes from the first to the last element, the end exclusive."""
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride, strict=False))
    first = tensor.dtype.nbytes(tensor.storage_offset)
    return first, first + tensor.dtype.nbytes(reach + 1)
