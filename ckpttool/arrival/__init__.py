"""What of a checkpoint reached a script: the live state, as a probe wrote it down, against what the files hold.

One file, one part. Nothing here says how bad something is: rules do.
"""

from ckpttool.arrival.arriving import Arrival, arrival, stands
from ckpttool.arrival.outcome import Change, Outcome

__all__ = ["Arrival", "Change", "Outcome", "arrival", "stands"]
