"""The members of torch's zip archives that hold no tensors: what the small ones say, and those that nothing uses.

Sources: `_save` and `_load` in torch/serialization.py, `PyTorchStreamReader::init` in
caffe2/serialize/inline_container.cc, torch 2.13.
"""

from ckpttool.blocks import Severity
from ckpttool.containers._words import counted
from ckpttool.containers._zip import Archive
from ckpttool.containers._zip_members import place, read_text
from ckpttool.errors import CkptError
from ckpttool.limits import Limits
from ckpttool.pickles.words import spoken
from ckpttool.sources import ByteSpan
from ckpttool.values import Value

_VERSIONS = [str(n) for n in range(1, 11)]  # of the file format, that torch 2.13 reads
_SMALL = ("version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id", ".data/version")
_MOST_PEEKED = 256  # members whose first bytes are looked at
_LEAST_PICKLE = 4  # bytes
_HIGHEST_PROTOCOL = 5


def archive_facts(archive: Archive, limits: Limits) -> dict[str, Value]:
    """What the small members of an archive say, and findings where torch would refuse them."""
    facts: dict[str, Value] = {"folder": archive.folder, "members": len(archive)}
    for name in _SMALL:
        text = read_text(archive, name, limits)
        if text is not None:
            facts[name.removeprefix(".data/").removeprefix(".")] = (
                text if name == "byteorder" else text.strip("\0 \r\n")
            )
    _check_version(archive, facts.get("version"))
    order = facts.get("byteorder", "little")
    if order == "big":
        archive.report(
            "zip.big-endian",
            Severity.WARNING,
            "the file says that its storages are big-endian; their values are shown that way, as torch.load reads them",
            hint="where no big-endian machine wrote this file, the values are not what was saved",
        )
    elif order != "little":
        archive.report(
            "zip.byteorder",
            Severity.ERROR,
            f"byteorder is {spoken(order)}, which torch.load refuses",
            hint="get the file again",
        )
    return facts


def _check_version(archive: Archive, version: Value) -> None:
    names = [n for n in ("version", ".data/version") if archive.find(f"{archive.folder}/{n}")]
    if not names:
        archive.report(
            "zip.no-version",
            Severity.ERROR,
            f"the archive has no member '{archive.folder}/version'",
            hint="torch.load refuses it; torch.save always writes one",
        )
    elif isinstance(version, str) and version not in _VERSIONS:
        archive.report(
            "zip.version",
            Severity.ERROR,
            f"the archive's version is {spoken(version)}, torch 2.13 reads {_VERSIONS[0]} to {_VERSIONS[-1]}",
            hint="a newer torch may have written it, or the file is damaged",
        )


def report_unused(archive: Archive, known: frozenset[str], limits: Limits) -> list[str]:
    """Name the members that nothing refers to, those outside of the root folder, and those that look like pickles."""
    folder = archive.folder
    small = {f"{folder}/{name}" for name in _SMALL}
    extra = [n for n in archive if n not in known and n not in small and not n.endswith("/")]
    outside = [n for n in archive if not n.startswith(f"{folder}/")]
    if outside:
        archive.report(
            "zip.two-roots",
            Severity.ERROR,
            counted(
                outside,
                f"member lies outside of the folder {folder!r}",
                f"members lie outside of the folder {folder!r}",
                quote=True,
            ),
            hint="torch.load refuses such an archive",
        )
    if extra:
        archive.report(
            "zip.extra-members",
            Severity.NOTE,
            counted(
                extra,
                "member is used by nothing in the checkpoint",
                "members are used by nothing in the checkpoint",
                quote=True,
            ),
            hint="torch.load never reads them",
        )
    pickles = [n for n in extra[:_MOST_PEEKED] if _looks_like_pickle(archive, n, limits)]
    if pickles:
        archive.report(
            "zip.hidden-pickle",
            Severity.WARNING,
            counted(
                pickles,
                "member looks like a pickle, is used by nothing, and was not looked into",
                "members look like pickles, are used by nothing, and were not looked into",
                quote=True,
            ),
            hint="torch.load never reads them; find out who put them there",
        )
    return extra


def _looks_like_pickle(archive: Archive, name: str, limits: Limits) -> bool:
    member = archive.member(name)
    if member.size < _LEAST_PICKLE:
        return False
    try:
        source, start = place(archive, member, limits)
        first = source.read(ByteSpan(start, start + 2))
    except CkptError:
        return False
    return first[:1] == b"\x80" and first[1] <= _HIGHEST_PROTOCOL
