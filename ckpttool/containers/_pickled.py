"""Pickle streams inside a file: which bytes the machine is given, and what is said when one breaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ckpttool.errors import CkptError, LimitExceeded
from ckpttool.limits import Limits
from ckpttool.pickles import Mention, Pickle, load, trust_of
from ckpttool.sources import ByteSpan, Source
from ckpttool.values import GlobalRef, Trust, Value

_SHOWN = 3  # globals in one sentence


@runtime_checkable
class Mappable(Protocol):
    """A source that can show all its bytes without a copy."""

    def view(self) -> memoryview:
        """All bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that hold a pickle, or several."""

    buffer: bytes | memoryview
    base: int  # byte of the source at which the buffer begins
    source: Source  # where long arrays stay
    where: str  # file and member, for messages

    def load(
        self,
        start: int,
        limits: Limits,
        persistent: Callable[[Value], Value] | None = None,
        nested: Callable[[tuple[Any, ...]], Any] | None = None,
    ) -> Pickle:
        """Read the pickle that begins at a byte of the buffer.

        Raises:
            CkptError: as `pickles.load`; the hint names what the pickle asked for before it broke.
        """
        try:
            return load(
                self.buffer,
                where=self.where,
                start=start,
                base=self.base,
                source=self.source,
                persistent=persistent,
                nested=nested,
                limits=limits,
            )
        except CkptError as error:
            names = suspects(error.seen)
            if names:
                error.hint = "; ".join(filter(None, (error.hint, f"before that it names {names}")))
            raise


def open_stream(source: Source, span: ByteSpan, *, where: str, limits: Limits) -> Stream:
    """Read the bytes of a span, or map them where they are more than a pickle may have.

    Of mapped bytes only those are touched that the pickle itself has: tensor data behind it, or arrays in it, are not.

    Raises:
        LimitExceeded: more bytes than a pickle may have, in a source that cannot be mapped.
    """
    if span.size <= limits.pickle:
        return Stream(source.read(span), span.start, source, where)
    if isinstance(source, Mappable):
        return Stream(source.view()[span.start : span.end], span.start, source, where)
    raise LimitExceeded(
        f"the pickle may have {span.size:,} bytes, the limit is {limits.pickle:,}",
        where=where,
        hint="raise it with --limit pickle=SIZE",
    )


def suspects(globals_: Mapping[GlobalRef, Mention]) -> str:
    """The globals that torch would refuse, dangerous ones first: `posix.system (dangerous), numpy.ndarray`."""
    order = (Trust.DANGEROUS, Trust.REFUSED)
    ranked = sorted((order.index(t), r) for r, m in globals_.items() if (t := trust_of(r, called=m.runs)) in order)
    names = [f"{r} (dangerous)" if rank == 0 else str(r) for rank, r in ranked]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
