"""What is said of a file or a folder that cannot be read."""

from ckpttool.blocks import Finding, Severity
from ckpttool.errors import CkptError

_DENIED = "its permissions keep you out; ask its owner, or change them with chmod"
_SEEN = 5  # globals named in the finding about a pickle that broke


def unreadable(name: str, error: CkptError) -> Finding:
    """The finding about a file or a folder that cannot be read.

    Args:
        name: its place, where the error does not say a nearer one.
    """
    seen = [str(ref) for ref in error.seen][:_SEEN]
    named_before = f"; before that it names {', '.join(seen)}" if seen else ""
    cause = error.__cause__
    refused = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    denied = isinstance(cause, PermissionError)
    return Finding(
        code="file.unreadable" if refused else f"file.{error.code}",
        severity=Severity.ERROR,
        message=f"{error.message}{named_before}",
        where=error.where or name,
        hint=error.hint or (_DENIED if denied else "copy the file from its source again"),
    )
