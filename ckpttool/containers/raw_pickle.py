"""A bare pickle, as `pickle.dump` writes it: protocols 0 to 5, recognised by content.

Protocols 2 and later begin with PROTO; 0 and 1 have no mark, so a file is taken for one of them only where the
machine gets through it, or is asked for a global before it breaks. joblib writes pickles with raw arrays in between,
which nothing but joblib gets past: they are refused by name. Sources: CPython 3.13 Lib/pickle.py; joblib 1.5
numpy_pickle.py.
"""

import re
from collections.abc import Iterable
from typing import ClassVar

from ckpttool.blocks import Severity
from ckpttool.containers._globals import Survey, global_uses, merge_globals
from ckpttool.containers._legacy_stream import NestedStorages, looks_legacy
from ckpttool.containers._pickle_rest import read_rest
from ckpttool.containers._pickled import open_stream
from ckpttool.errors import CkptError, LimitExceeded, TruncatedFile, UnsupportedFormat
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.model import Contents
from ckpttool.pickles import LOAD_FROM_BYTES, load
from ckpttool.sources import ByteSpan, Source, head
from ckpttool.values import GlobalRef

_HIGHEST = 5  # protocol
_PEEKED = 1 << 16  # bytes that decide whether a file without a mark is a pickle
_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


class RawPickleReader:
    """Reads bare pickles."""

    name: ClassVar[str] = "pickle"

    def sniff(self, source: Source) -> bool:
        start = head(source, _PEEKED)
        if start[:1] == b"\x80":
            return len(start) > 1 and start[1] <= _HIGHEST and not looks_legacy(source)
        if not start or start[:2] == b"PK" or looks_legacy(source):  # P is an opcode, and begins zip archives
            return False
        return _gets_through(start, whole=source.size <= _PEEKED)

    def read(self, source: Source, limits: Limits) -> Contents:
        span = ByteSpan(0, source.size)
        stream = open_stream(source, span, where=source.name, limits=limits)
        nested = NestedStorages(source.name, limits)
        try:
            pickle = stream.load(0, limits, nested=nested)
        except CkptError as error:
            _refuse_joblib(error.seen, source)
            raise
        _refuse_joblib(pickle.globals, source)
        rest = read_rest(stream, pickle.end, limits)
        survey = Survey(pickle.value, limits)
        whole = not (nested.unread or survey.places[LOAD_FROM_BYTES] or LOAD_FROM_BYTES in rest.globals)
        for more in (nested.globals, rest.globals):
            merge_globals(pickle.globals, more)
        problems = (*pickle.problems, *rest.problems)
        return Contents(
            name=source.name,
            container=self.name,
            source=source,
            root=pickle.value,
            storages=tuple(survey.storages.values()),
            globals=global_uses(pickle.globals, survey, source.name, (LOAD_FROM_BYTES,) if whole else ()),
            facts={"protocol": pickle.protocol},
            problems=problems,
            complete=all(p.severity is not Severity.ERROR for p in problems),
        )


def _gets_through(start: bytes, *, whole: bool) -> bool:
    """Whether the first bytes of a file without a mark are opcodes that could be a pickle's."""
    try:
        load(start, where="", limits=DEFAULT_LIMITS)
    except (TruncatedFile, LimitExceeded) as error:
        return not whole or _named(error.seen)
    except CkptError as error:
        return _named(error.seen)
    return True


def _named(seen: Iterable[GlobalRef]) -> bool:
    return any(_NAME.fullmatch(ref.module) and _NAME.fullmatch(ref.name) for ref in seen)


def _refuse_joblib(seen: Iterable[GlobalRef], source: Source) -> None:
    for ref in seen:
        if ref.module.endswith("joblib.numpy_pickle"):
            raise UnsupportedFormat(
                f"joblib wrote this pickle, with raw arrays between the opcodes ({ref}): what follows them "
                "cannot be analysed",
                where=source.name,
                hint="load it with joblib where you trust it, and save the arrays in another format",
            )
