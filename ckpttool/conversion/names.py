"""Names of weights edited: chosen, renamed, prefixes taken off; two that become one are refused."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from ckpttool.conversion.options import Options
from ckpttool.errors import NoSuchKey, UsageError
from ckpttool.names import leading

_SHOWN = 3  # names in a message
_PREFIX = "--strip-prefix"


@dataclass(slots=True)
class Renamed:
    """What became of the names of one state_dict."""

    new: dict[str, str] = field(default_factory=dict)  # old name: new name, of those that stay
    left_out: list[str] = field(default_factory=list)
    effects: set[str] = field(default_factory=set)  # renames and the prefix, as they were given, that changed a name


def edited_names(names: Sequence[str], options: Options, where: str) -> Renamed:
    """Names under the options: `--select/--exclude` see the old ones, then the prefix goes, then renames in order.

    Raises:
        UsageError: a rename does not compile, or two tensors get one name.
    """
    chosen = _chooser(options)
    result = Renamed()
    spell = spelling(names, options, result.effects)
    owners: dict[str, str] = {}
    for name in names:
        if not chosen(name):
            result.left_out.append(name)
            continue
        new = spell(name)
        if new in owners:
            raise UsageError(
                f"{owners[new]!r} and {name!r} would both be called {new!r}",
                where=where,
                hint="narrow the rename so that every tensor keeps a name of its own",
            )
        owners[new] = name
        result.new[name] = new
    return result


def spelling(names: Iterable[str], options: Options, effects: set[str] | None = None) -> Callable[[str], str]:
    """The function from an old name to its new one.

    Args:
        effects: is told which renames changed a name, and of the prefix as `--strip-prefix`.

    Raises:
        UsageError: a rename is not `REGEX=NEW`, or its expression does not compile.
    """
    rules = [_rule(setting) for setting in options.renames]
    prefix = leading(names) if options.strip_prefix == "auto" else options.strip_prefix
    told = set() if effects is None else effects

    def spell(name: str) -> str:
        if prefix and name.startswith(prefix):
            name = name.removeprefix(prefix)
            told.add(_PREFIX)
        for (pattern, new), given in zip(rules, options.renames, strict=True):
            try:
                old, name = name, pattern.sub(new, name)
            except (re.error, IndexError) as e:
                raise UsageError(f"{new!r} does not fit {pattern.pattern!r}: {e}") from e
            if name != old:
                told.add(given)
        return name

    return spell


def _rule(setting: str) -> tuple[re.Pattern[str], str]:
    old, equals, new = setting.partition("=")
    if not equals or not old:
        raise UsageError(f"{setting!r} is not a rename", hint="write it like --rename '^backbone\\.=model.'")
    try:
        return re.compile(old), new
    except re.error as e:
        raise UsageError(f"{old!r} is not a regular expression: {e}") from e


def _chooser(options: Options) -> Callable[[str], bool]:
    wanted, unwanted = _matcher(options.select), _matcher(options.exclude)
    return lambda name: (wanted is None or bool(wanted.match(name))) and not (unwanted and unwanted.match(name))


def _matcher(globs: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, globs))) if globs else None


def require_effect(edits: Mapping[str, Renamed], options: Options, where: str) -> None:
    """Refuse options that match nothing: a wrong pattern must not pass for a file without such tensors.

    Args:
        edits: by state_dict.

    Raises:
        NoSuchKey: nothing is left, or a pattern, a rename or the prefix matches nothing.
    """
    old = [name for renamed in edits.values() for name in (*renamed.new, *renamed.left_out)]
    kept = [name for renamed in edits.values() for name in renamed.new]
    shown = f"the first names are {', '.join(old[:_SHOWN])}" if old else "it holds no weights"
    if (options.select or options.exclude) and not kept:
        asked = " ".join((*options.select, *(f"without {g}" for g in options.exclude)))
        raise NoSuchKey(f"no tensor is left by {asked}", where=where, hint=shown)
    for option, globs in (("--select", options.select), ("--exclude", options.exclude)):
        for glob in globs:
            if not any(re.match(translate(glob), name) for name in old):
                raise NoSuchKey(f"no tensor matches {option} {glob}", where=where, hint=shown)
    effects = {effect for renamed in edits.values() for effect in renamed.effects}
    if options.strip_prefix and _PREFIX not in effects:
        raise NoSuchKey(f"{_PREFIX} changes no name", where=where, hint=shown)
    for rename in options.renames:
        if rename not in effects:
            raise NoSuchKey(f"--rename {rename} changes no name", where=where, hint=shown)
