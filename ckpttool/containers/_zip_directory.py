"""The directory of a zip archive: where the bytes of each member are, and what does not fit together.

A parser of our own, because torch and Python's `zipfile` disagree about odd archives, and whoever checks a file must
see what torch would read: offsets count from the first byte of the file, the folder of the first entry is the root,
flag bits and names of local headers and checksums are not looked at. Where that leaves room for two answers (two
members of one name, overlapping members, a directory that is longer than its entries) the archive is refused.

Sources: APPNOTE.TXT 6.3.10; `mz_zip_reader_read_central_dir` of miniz 3.0 and `PyTorchStreamReader::init` in
caffe2/serialize/inline_container.cc, torch 2.13.
"""

from ckpttool.blocks import Severity
from ckpttool.containers._words import counted
from ckpttool.containers._zip import ENTRY, IN_ZIP64, Archive, broken_directory, zip64
from ckpttool.containers._zip_end import find_end
from ckpttool.containers._zip_locals import hold_against_local_headers
from ckpttool.errors import DamagedFile, LimitExceeded, TruncatedFile
from ckpttool.limits import Limits
from ckpttool.sources import ByteSpan, Source

_FOLDER = 0x10  # attribute of DOS, by which miniz goes
_BYTES_PER_MEMBER = 128  # in a directory; torch writes about 70


def open_archive(source: Source, limits: Limits) -> Archive:
    """Parse the directory and hold it against the local headers; no member is read.

    Raises:
        TruncatedFile: there is no directory.
        DamagedFile: the directory can be understood in two ways.
        LimitExceeded: more members than the limits allow.
    """
    end = find_end(source)
    if end is None:
        raise TruncatedFile(
            "the zip archive has no directory at its end",
            where=f"{source.name} @ byte {source.size:,}",
            hint="the save or the download was cut short; compare the size with the original",
        )
    if end.count > limits.members or end.directory.size > _BYTES_PER_MEMBER * limits.members:
        raise LimitExceeded(
            f"the archive has {end.count:,} members in a directory of {end.directory.size:,} bytes, "
            f"the limit is {limits.members:,} members",
            where=f"{source.name} @ byte {end.directory.start:,}",
            hint="raise it with --limit members=N",
        )
    archive = Archive(source, end, source.read(end.directory))
    _report_surroundings(archive)
    _parse_entries(archive)
    hold_against_local_headers(archive)
    return archive


def _report_surroundings(archive: Archive) -> None:
    end = archive.end
    if end.shift and archive.source.read(ByteSpan(0, 4)) == b"PK\3\4":
        archive.report(
            "zip.several-archives",
            Severity.ERROR,
            f"{end.shift:,} bytes stand in front of the archive, and begin with another one; only the last was read",
            hint="a file of torch.distributed.checkpoint (.distcp) is a row of archives; inspect its folder instead",
        )
    elif end.shift:
        archive.report(
            "zip.prefix",
            Severity.ERROR,
            f"{end.shift:,} bytes stand in front of the archive, and nothing here looked into them",
            hint="torch.load does not find the archive behind them; cut them off",
        )
    if end.between:
        archive.report(
            "zip.second-archive",
            Severity.ERROR,
            f"{end.between:,} bytes lie between the archive's directory and its end, perhaps a second archive: "
            "torch reads the first, Python's zipfile the last",
            at=end.directory.end,
            hint="do not trust a check by another tool; a .distcp file of a distributed checkpoint looks so too",
        )
    if end.contradictions:
        archive.report(
            "zip.end-record",
            Severity.ERROR,
            f"the end of the archive contradicts itself: {'; '.join(end.contradictions)}",
            at=end.directory.end,
            hint="torch.load refuses such an archive; get the file again",
        )
    if end.after:
        archive.report("zip.trailing", Severity.WARNING, f"{end.after:,} bytes follow the archive", at=end.after_start)


def _parse_entries(archive: Archive) -> None:
    """Fill the index; two members of one name are refused, and miniz does not tell upper from lower case."""
    directory, index = archive.directory, archive.index
    folded: set[bytes] = set()
    folders: list[str] = []
    unpack, most = ENTRY.unpack_from, len(directory) - ENTRY.size
    at = 0
    for number in range(archive.end.count):
        signature = b""
        if at <= most:
            signature, _, _, _, packed, size, n, extra, comment, disk, attributes, header = unpack(directory, at)
        if signature != b"PK\1\2" or at + 46 + n + extra + comment > len(directory) or disk > 1:
            raise broken_directory(archive, at, f"entry {number + 1:,} of {archive.end.count:,} is no directory entry")
        if IN_ZIP64 in (packed, size, header):
            packed, _, header = zip64(archive, at)
        raw = directory[at + 46 : at + 46 + n]
        folded.add(raw.lower())
        if len(folded) == number:
            raise _two_of_one_name(archive, at, raw)
        name = raw.decode("utf-8", "surrogateescape")
        index[name] = number
        archive.entries.append(at)
        archive.packed.append(packed)
        archive.headers.append(header + archive.end.shift)
        if attributes & _FOLDER and size:
            folders.append(name)
        at += 46 + n + extra + comment
    if at != len(directory):
        raise broken_directory(archive, at, f"{len(directory) - at:,} bytes follow the directory's last entry")
    if folders:
        archive.report(
            "zip.marked-as-folder",
            Severity.ERROR,
            counted(folders, "member is marked as a folder", "members are marked as folders", quote=True),
            hint="torch.load reads nothing from them and takes what is in its memory for their bytes",
        )


def _two_of_one_name(archive: Archive, at: int, name: bytes) -> DamagedFile:
    return DamagedFile(
        f"two members are called {name.decode('utf-8', 'surrogateescape')!r}",
        where=f"{archive.source.name} @ byte {archive.end.directory.start + at:,}",
        hint="which one is loaded depends on the reader; do not trust this file",
    )
