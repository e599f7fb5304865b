"""Moves that the real folders would take, and overlays do not: of a folder below one, and between two of them.

The kernel says EXDEV then, as between two disks. What is moved is copied, and removed where it was.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import Any, Callable


def install() -> None:
    """Replace `os.rename`, `os.replace` and `os.link`."""
    for name in ("rename", "replace"):
        setattr(os, name, _copying(getattr(os, name), _move))
    os.link = _copying(os.link, _copy)


def _copying(real: Callable[..., None], instead: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(real)
    def call(src: Any, dst: Any, **kwargs: Any) -> None:
        try:
            real(src, dst, **kwargs)
        except OSError as error:
            if error.errno != errno.EXDEV or any(
                value is not None for name, value in kwargs.items() if "dir_fd" in name
            ):
                raise
            instead(real, src, dst)

    for names in (os.supports_dir_fd, os.supports_follow_symlinks):
        if real in names:
            names.add(call)
    return call


def _move(real: Callable[..., None], src: Any, dst: Any) -> None:
    import shutil  # it takes its time

    if os.path.isdir(src) and not os.path.islink(src):
        if os.path.isdir(dst):
            os.rmdir(dst)  # as the kernel, which takes an empty one
        shutil.copytree(src, dst, symlinks=True)
        shutil.rmtree(src)
        return
    beside = f"{os.fsdecode(dst)}.{os.getpid()}"
    shutil.copy2(src, beside, follow_symlinks=False)
    real(beside, os.fsdecode(dst))
    os.unlink(src)


def _copy(_real: Callable[..., None], src: Any, dst: Any) -> None:
    import shutil

    if os.path.lexists(dst):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
    shutil.copy2(src, dst, follow_symlinks=False)
