"""Which of torch's zip archives a file is, from the names in its directory.

Sources: `load` and `_is_torchscript_zip` in torch/serialization.py, torch/export/pt2_archive/constants.py,
torch/package/package_exporter.py, torch 2.13.
"""

import itertools
import re

from ckpttool.containers._zip_end import find_end
from ckpttool.errors import DamagedFile
from ckpttool.sources import Source, head

_MARKS = (  # the member that tells what an archive is, in the order in which torch.load looks for them
    (b"/constants.pkl", "torchscript"),
    (b"/archive_format", "torch-export"),
    (b"serialized_exported_program.json", "torch-export"),  # torch 2.1 to 2.6
    (b"/.data/extern_modules", "torch-package"),
    (b"/data.pkl", "torch-zip"),
    (b"/model.json", "torchscript"),  # torch 1.0 to 1.2
)
_MOST_DIRECTORY = 1 << 27  # bytes; reading a larger one fails by name anyway
_MOST_LOOKS = 100_000  # for one mark in a directory
_MOST_NAME = 4096  # bytes of the name of a mark


def kind_of(source: Source) -> str:
    """Which of torch's archives this is; empty for anything else.

    An archive behind other bytes is one only where those bytes are not of a format that torch would read instead.
    """
    first = head(source, 262)
    in_front = first[:4] == b"PK\3\4"
    if not in_front and (first[:1] == b"\x80" or first[8:9] == b"{" or first[257:] == b"ustar"):
        return ""
    try:
        end = find_end(source)
    except DamagedFile:
        return "torch-zip" if in_front else ""
    if end is None or end.directory.size > _MOST_DIRECTORY:
        return "torch-zip" if in_front else ""
    directory = source.read(end.directory)
    kinds = (kind for mark, kind in _MARKS if _has_entry(directory, mark))
    return next(kinds, "torch-zip" if _has_entry(directory, b"/data.pkl", any_case=True) else "")


def _has_entry(directory: bytes, suffix: bytes, *, any_case: bool = False) -> bool:
    """Whether the name of an entry ends so: a first look, which parsing the directory confirms."""
    if not any_case and suffix not in directory:
        return False
    found = re.finditer(re.escape(suffix), directory, re.IGNORECASE if any_case else 0)
    for match in itertools.islice(found, _MOST_LOOKS):
        entry = directory.rfind(b"PK\1\2", max(0, match.start() - _MOST_NAME), match.start())
        name = directory[entry + 46 : match.end()]
        told = int.from_bytes(directory[entry + 28 : entry + 30], "little")
        if entry >= 0 and told == len(name) and name.count(b"/") == suffix.count(b"/"):
            return True
    return False
