"""Where a failure becomes a sentence on stderr and an exit code."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TextIO

from ckpttool.errors import CkptError

CLOSED_PIPE, BUG, INTERRUPTED = 141, 70, 130


def exit_code_of(action: Callable[[], int]) -> int:
    """Run the action; its own code, or the code of what went wrong, which is said on stderr.

    A closed pipe ends quietly, as the signal that other programs die of would. Anything but a `CkptError` is a bug of
    ours and shows a traceback.
    """
    try:
        code = action()
        sys.stdout.flush()
    except CkptError as error:
        code = _refused(error)
    except BrokenPipeError:
        # What is still buffered must not fail once more when Python exits.
        with contextlib.suppress(OSError):  # a stream that was closed from the start has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED_PIPE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:  # the disk is full, the terminal is gone, a device fails
        code = _refused(CkptError(error.strerror or str(error), where=str(error.filename or "")))
    except MemoryError:
        code = _refused(CkptError("there is not enough memory", hint="raise what the process may take"))
    except Exception:  # noqa: BLE001  # the last line of defence: whatever is left is a bug
        code = _broken(sys.stderr)
    return code


def _refused(error: CkptError) -> int:
    from ckpttool.render.printable import printable

    lines = [f"error: {printable(error.message)}"]
    lines += [f"  at: {printable(error.where)}"] if error.where else []
    lines += [f"  hint: {printable(error.hint)}"] if error.hint else []
    sys.stderr.write("\n".join(lines) + "\n")
    return error.exit_code


def _broken(stream: TextIO) -> int:
    import platform
    import traceback

    from ckpttool import __version__
    from ckpttool.render.printable import printable

    stream.writelines(printable(line) + "\n" for line in traceback.format_exc().splitlines())
    stream.write(
        f"\nThis is a bug of ckpt {__version__} (Python {platform.python_version()}, {platform.platform()}), "
        "whatever the file holds.\nPlease open an issue with the lines above and, where you can, with the file.\n"
    )
    return BUG
