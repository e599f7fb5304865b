"""How much memory the process holds right now."""

import contextlib
import os
import sys

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def resident_bytes() -> int:
    """Resident memory in bytes: now on Linux, the peak so far elsewhere, 0 where nobody can say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
