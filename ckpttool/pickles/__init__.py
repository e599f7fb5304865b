"""Pickle streams read by an opcode machine of our own: nothing is imported, nothing is called.

`load` is the only entrance. What would be a call becomes an `Opaque`, except for the pure constructors in
`constructors`, which are functions of ours over values.
"""

from ckpttool.pickles.attributes import GETATTR
from ckpttool.pickles.machine import LOAD_FROM_BYTES
from ckpttool.pickles.trust import trust_of
from ckpttool.pickles.vm import Mention, Pickle, load

__all__ = ["GETATTR", "LOAD_FROM_BYTES", "Mention", "Pickle", "load", "trust_of"]
