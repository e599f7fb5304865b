"""What the result is to be: its format, and whether it is a file or a folder."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ckpttool.conversion.options import Options
from ckpttool.errors import UsageError

Format = Literal["safetensors", "torch"]

TORCH_ENDINGS = frozenset({".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".tar", ".th", ".t7"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where the result is to stand, and what it is."""

    path: Path
    format: Format
    folder: bool


def target_of(text: str, options: Options, *, from_folder: bool, already: Format | None) -> Target:
    """The target as its name, `--to` and the source say it.

    Args:
        from_folder: the source is a folder that stays one.
        already: the format that the source has; None for one that is neither.

    Raises:
        UsageError: the name says one format and `--to` the other; nothing says which.
    """
    path = Path(text)
    ending = path.suffix.lower()
    named = "safetensors" if ending == ".safetensors" else "torch" if ending in TORCH_ENDINGS else ""
    as_folder = text.endswith((os.sep, "/")) or (path.is_dir() and not path.is_symlink()) or not named
    if as_folder:
        named = ""
    if named and options.to and named != options.to:
        raise UsageError(
            f"{path.name!r} is the name of a {named} file, and --to says {options.to}",
            hint="change the name, or leave --to out",
        )
    wanted = options.to or named
    if not wanted:
        if already == "safetensors":
            raise UsageError(
                "nothing says what it is to become; it is safetensors already",
                where=text,
                hint="say --to torch, or name a file such as model.pt",
            )
        wanted = "safetensors"
    file = not as_folder or (wanted == "torch" and not from_folder and not options.max_shard_bytes)
    if file and path.is_dir():
        raise UsageError(
            "it is a folder, the result is a file", where=text, hint=f"name a file in it: {path / 'model.pt'}"
        )
    if file and text.endswith("/"):
        raise UsageError("it has the name of a folder, the result is a file", where=text, hint="leave the / out")
    return Target(path, "torch" if wanted == "torch" else "safetensors", not file)
