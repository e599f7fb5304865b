"""Checks of a checkpoint: one file, one rule. The order of `RULES` is the order of findings of one severity."""

from ckpttool.protocols import Rule
from ckpttool.rules._counters import CounterRow, counter_table

__all__ = ["RULES", "CounterRow", "counter_table"]

RULES: tuple[Rule, ...] = ()
