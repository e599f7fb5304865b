"""What of a checkpoint reached a script: the live state, as a probe wrote it down, against what the files hold.

One file, one part. Nothing here says how bad something is: rules do.
"""

from ckpttool.arrival.arriving import Arrival, arrival
from ckpttool.arrival.digests import Digests
from ckpttool.arrival.outcome import Change, Outcome

DIGESTS = "digests of the checkpoint's tensors"  # in the notes of a case: a `Digests` that knows some already

__all__ = ["DIGESTS", "Arrival", "Change", "Digests", "Outcome", "arrival"]
