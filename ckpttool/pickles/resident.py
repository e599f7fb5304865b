"""How much memory the process holds right now."""

import os
import resource
import sys
from pathlib import Path

_STATM = "/proc/self/statm"  # Linux: sizes in pages, the second is the resident one

_UNITS = {"darwin": 1}  # bytes in which `ru_maxrss` counts; kilobytes elsewhere


def resident_bytes() -> int:
    """Resident memory in bytes: now on Linux, the peak so far elsewhere."""
    try:
        return int(Path(_STATM).read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak * _UNITS.get(sys.platform, 1024)
