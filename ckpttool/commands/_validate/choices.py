"""The options of `validate`, checked, with what the project's configuration says where they say nothing."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ckpttool.blocks import Severity
from ckpttool.commands._nearest import nearest
from ckpttool.commands._options import word_of
from ckpttool.commands._validate.configuration import Configuration, read_configuration
from ckpttool.errors import UsageError
from ckpttool.limits import DEFAULT_LIMITS, Limits
from ckpttool.probe.question import Question
from ckpttool.protocols import Rule
from ckpttool.rules import RULES

_THRESHOLDS = (Severity.ERROR, Severity.SILENT, Severity.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is checked, and what counts as a failure."""

    rules: tuple[Rule, ...]
    fail_on: Severity
    values: bool | None = None  # None: up to 2 GB
    figures: bool = True  # False: checksums alone
    counters: bool = False
    against: str | None = None
    manifest: str | None = None
    write_manifest: str | None = None
    question: Question | None = None  # to a script
    limits: Limits = DEFAULT_LIMITS


def choices(  # noqa: PLR0913  # one parameter for each option that is checked here
    *,
    values: bool,
    no_values: bool,
    crc: bool,
    counters: bool,
    rules: str | None,
    skip_rules: str | None,
    strict: bool,
    fail_on: str | None,
    limits: list[str] | None,
    against: str | None,
    manifest: str | None,
    write_manifest: str | None,
    question: Question | None = None,
) -> Choices:
    """Check what was asked for.

    Raises:
        UsageError: a rule or a severity that there is not, or two options that contradict each other.
    """
    if no_values and (values or crc):
        raise UsageError(
            f"{'--values' if values else '--crc'} and --no-values contradict each other", hint="leave one of them out"
        )
    if strict and fail_on is not None:
        raise UsageError("--strict and --fail-on both say what fails", hint="leave one of them out")
    if manifest is not None and write_manifest is not None and _one_file(manifest, write_manifest):
        raise UsageError(
            "--manifest and --write-manifest name one file, which would be lost before it is held against",
            where=write_manifest,
            hint="write the new one elsewhere",
        )
    told = read_configuration()
    return Choices(
        rules=_wanted(told, rules, skip_rules),
        fail_on=_threshold(told, strict=strict, fail_on=fail_on),
        values=True if crc or values else False if no_values else told.values,
        figures=not crc,
        counters=counters,
        against=against,
        manifest=manifest,
        write_manifest=write_manifest,
        question=question,
        limits=DEFAULT_LIMITS.raised(limits or []),
    )


def _one_file(one: str, other: str) -> bool:
    """Whether two paths lead to the same file, however they are spelled and whatever links lead there."""
    try:
        return os.path.realpath(one) == os.path.realpath(other) or Path(one).samefile(other)
    except (OSError, ValueError):  # one is not there
        return False


def _wanted(told: Configuration, only: str | None, skipped: str | None) -> tuple[Rule, ...]:
    """The rules that are run; rules that are named in the call are run whatever the configuration skips."""
    wanted = _words(only) if only is not None else told.rules
    if wanted is not None and not wanted:
        where, named = (told.path, "rules") if only is None else ("", "--rules")
        raise UsageError(f"{named} names no rule", where=where, hint="leave it out to check all")
    if skipped is not None:
        return _chosen(wanted, _words(skipped))
    return _chosen(wanted, told.skip_rules if only is None else ())


def _words(option: str) -> list[str]:
    return [word.strip() for word in option.split(",") if word.strip()]


def _chosen(named: Sequence[str] | None, skipped: Sequence[str]) -> tuple[Rule, ...]:
    codes = [rule.code for rule in RULES]
    only = named or ()
    for word in (*only, *skipped):
        if not any(fnmatchcase(code, word) for code in codes):
            raise UsageError(
                f"{word!r} is no rule",
                hint=nearest(word, codes) or "`ckpt rules` lists them; scheduler.* means several",
            )
    chosen = tuple(
        rule
        for rule in RULES
        if (not only or any(fnmatchcase(rule.code, w) for w in only))
        and not any(fnmatchcase(rule.code, w) for w in skipped)
    )
    if not chosen:
        raise UsageError("no rule is left to check", hint="every rule that was named is skipped, too")
    return chosen


def _threshold(told: Configuration, *, strict: bool, fail_on: str | None) -> Severity:
    if strict or (fail_on is None and told.strict):
        return Severity.WARNING
    word = fail_on if fail_on is not None else told.fail_on
    return Severity(word_of(word, [*_THRESHOLDS], "a severity that can fail")) if word else Severity.SILENT
