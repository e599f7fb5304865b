"""Findings as SARIF 2.1.0, for code scanning and the viewers that read it.

Source: "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", OASIS, and "SARIF support for code
scanning" of GitHub.
"""

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from ckpttool.blocks import Severity
from ckpttool.render.extras import needed
from ckpttool.render.findings import UNREADABLE, ToldCheckpoint, ToldFinding, checkpoints, rules

if TYPE_CHECKING:
    from sarif_pydantic import Location, Result, Sarif

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.SILENT: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def writer(version: str) -> Callable[[Mapping[str, Any], TextIO], None]:
    """`write`, once its library is known to be there.

    Args:
        version: of this program.

    Raises:
        UsageError: it is not.
    """
    needed("sarif_pydantic")
    return functools.partial(write, version=version)


def write(document: Mapping[str, Any], stream: TextIO, *, version: str) -> None:
    """Write one log with one run, in ASCII.

    Args:
        document: what `render.findings.checkpoints` reads; `rules` are told with their summaries.
        stream: text.
        version: of this program.

    Raises:
        UsageError: sarif-pydantic is not installed.
    """
    from ckpttool.render.json import encode  # noqa: PLC0415

    told = _log(document, version).model_dump(mode="json", by_alias=True, exclude_none=True)
    stream.write(encode(told) + "\n")


def _log(document: Mapping[str, Any], version: str) -> "Sarif":
    sarif = needed("sarif_pydantic")
    told = [*checkpoints(document)]
    ran = rules(document)
    places = {code: n for n, (code, _) in enumerate(ran)}
    descriptors = [
        sarif.ReportingDescriptor(id=code, short_description=sarif.Message(text=summary or code))
        for code, summary in ran
    ]
    run = sarif.Run(
        tool=sarif.Tool(driver=sarif.ToolDriver(name="ckpt", version=version, rules=descriptors)),
        invocations=[_invocation(told)],
        results=[_result(f, c, places) for c in told for f in c.findings],
    )
    log: Sarif = sarif.Sarif(schema_uri=SCHEMA, runs=[run])
    return log


def _invocation(told: list[ToldCheckpoint]) -> Any:
    """Whether all could be read, and which rules could not look."""
    sarif = needed("sarif_pydantic")
    notifications = [
        {"level": "note", "message": {"text": f"{c.path}: not checked: {why}"}, "associatedRule": {"id": code}}
        for c in told
        for code, why in c.unchecked.items()
    ]
    return sarif.Invocation.model_validate(
        {
            "executionSuccessful": all(c.verdict != UNREADABLE for c in told),
            "toolConfigurationNotifications": notifications,
        }
    )


def _result(finding: ToldFinding, checkpoint: ToldCheckpoint, places: Mapping[str, int]) -> "Result":
    sarif = needed("sarif_pydantic")
    result: Result = sarif.Result(
        rule_id=finding.code,
        rule_index=places.get(finding.code),
        level=sarif.Level(_LEVELS[finding.severity]),
        message=sarif.Message(text=finding.text),
        locations=[_location(finding, checkpoint)],
        partial_fingerprints={"ckptFinding/v1": _fingerprint(finding, checkpoint)},
        properties={"severity": finding.severity.value, "fails": finding.fails},
    )
    return result


def _location(finding: ToldFinding, checkpoint: ToldCheckpoint) -> "Location":
    sarif = needed("sarif_pydantic")
    physical = sarif.PhysicalLocation(
        artifact_location=sarif.ArtifactLocation(uri=_uri(finding.file or checkpoint.path)),
        region=sarif.Region(start_line=finding.line),  # code scanning wants a line of every place
    )
    logical = [sarif.LogicalLocation(fully_qualified_name=finding.where)] if finding.where else None
    location: Location = sarif.Location(physical_location=physical, logical_locations=logical)
    return location


def _uri(path: str) -> str:
    posix = PurePath(path).as_posix()
    return f"file://{quote(posix)}" if posix.startswith("/") else quote(posix)


def _fingerprint(finding: ToldFinding, checkpoint: ToldCheckpoint) -> str:
    """The same for a finding that comes again, whatever its numbers are."""
    return hashlib.sha256(f"{checkpoint.path}\0{finding.code}\0{finding.where}".encode()).hexdigest()
