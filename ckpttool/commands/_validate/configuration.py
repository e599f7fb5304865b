"""Defaults of a project: `[tool.ckpt]` of pyproject.toml, or ckpt.toml, in the current folder or above it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpttool.errors import UsageError

_TYPES: dict[str, type | tuple[type, ...]] = {
    "rules": list, "skip_rules": list, "strict": bool, "fail_on": str, "values": bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a project says; empty where it says nothing."""

    rules: tuple[str, ...] | None = None
    skip_rules: tuple[str, ...] = ()
    strict: bool = False
    fail_on: str = ""
    values: bool | None = None
    path: str = field(default="", compare=False)  # of the file that says it


def read_configuration(start: Path | None = None) -> Configuration:
    """The configuration that is nearest above a folder; ckpt.toml goes before pyproject.toml.

    Args:
        start: the folder; None for the current one.

    Raises:
        UsageError: a file is no TOML, says something that there is not, or contradicts itself.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        for name in ("ckpt.toml", "pyproject.toml"):
            path = folder / name
            table = _table(path) if path.is_file() else None
            if table is not None:
                return _configuration(table, path)
    return Configuration()


def _table(path: Path) -> dict[str, Any] | None:
    """Our table of a file; None where it has none."""
    alone = path.name == "ckpt.toml"
    try:
        text = path.read_bytes()
        if not alone and b"ckpt" not in text:  # most of them; a parser is not even imported for it
            return None
        import tomllib

        top = tomllib.loads(text.decode())
    except (OSError, ValueError) as error:
        if not alone:  # that of somebody else is not ours to judge
            return None
        raise UsageError(f"it is no TOML: {error}", where=str(path)) from error
    tool = top if alone else top.get("tool")
    found = tool if alone else tool.get("ckpt") if isinstance(tool, dict) else None
    return found if isinstance(found, dict) else None


def _configuration(table: dict[str, Any], path: Path) -> Configuration:
    told: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _TYPES:
            raise UsageError(f"{key!r} is no setting", where=str(path), hint=f"the settings are {', '.join(_TYPES)}")
        if not isinstance(value, _TYPES[name]) or (isinstance(value, list) and not all(map(_is_text, value))):
            raise UsageError(f"{key!r} is {value!r}, which is of another type", where=str(path))
        told[name] = tuple(value) if isinstance(value, list) else value
    if told.get("strict") and "fail_on" in told:
        hint = 'leave one of them out; strict is fail-on = "warning"'
        raise UsageError("strict and fail-on both say what fails", where=str(path), hint=hint)
    return Configuration(path=str(path), **told)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
