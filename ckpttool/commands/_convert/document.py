"""A conversion for programs: the JSON of `ckpt.convert/1`."""

from collections.abc import Mapping, Sequence

from ckpttool.conversion.outcome import Outcome
from ckpttool.conversion.tally import Changed, Harm


def convert_document(outcome: Outcome) -> Mapping[str, object]:
    """All that is known of a conversion; lists are complete."""
    tally = outcome.tally
    return {
        "source": outcome.source,
        "source_kind": outcome.source_kind,
        "target": outcome.target,
        "target_kind": outcome.target_kind,
        "dry_run": outcome.dry_run,
        "verified": outcome.verified,
        "complete": not outcome.incomplete,
        "tensors": tally.tensors,
        "bytes": tally.nbytes,
        "files": [
            {"name": f.name, "kind": f.kind, "bytes": f.nbytes, "tensors": f.tensors, "sha256": f.sha256 or None}
            for f in outcome.files
        ],
        "source_sha256": dict(outcome.source_sha256),
        "ties": [{"name": c.what, "same_as": c.new} for c in tally.ties],
        "packed": [{"name": c.what, "from": c.old, "to": c.new} for c in tally.packed],
        "carried": [{"name": c.what, "kind": c.old, "as": c.new} for c in tally.carried],
        "left_out": [{"what": lost.what, "kind": lost.kind, "why": lost.why} for lost in tally.lost],
        "trimmed_bytes": tally.trimmed_bytes,
        "renamed": _changes(tally.renamed),
        "cast": _changes(tally.cast),
        "out_of_range": [_harm(harm) for harm in tally.harmed],
        "plain": _changes(tally.plain),
        "set": _changes(tally.settings),
        "opaque": [{"class": c.what, "count": int(c.old.replace(",", "")), "where": c.new} for c in tally.opaque],
        "notes": list(tally.notes),
    }


def _harm(harm: Harm) -> dict[str, str | int]:
    return {
        "name": harm.name,
        "dtype": harm.dtype,
        "elements": harm.elements,
        "overflowed": harm.overflowed,
        "became_zero": harm.became_zero,
    }


def _changes(changes: Sequence[Changed]) -> list[dict[str, str]]:
    return [{"where": c.what, "old": c.old, "new": c.new} for c in changes]
