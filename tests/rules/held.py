"""What one rule says of a checkpoint held against another, and of a file that a test edited."""

from contextlib import ExitStack, closing

import torch

from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.validation.scanning import scan


def against(rule, path, other, *, values=False):
    """Findings of one rule, and why it could not look."""
    with ExitStack() as open_files:
        mine, its = (open_files.enter_context(closing(open_path(p))) for p in (path, other))
        case = Case(checkpoint=mine, other=its, values=scan(mine) if values else None)
        return list(rule.check(case))


def alone(rule, path, *, values=False, run=None, **more):
    """Findings of one rule on one checkpoint.

    Args:
        run: the name of the checkpoint, where the path is a run.
    """
    with closing(open_path(path)) as opened:
        mine = opened if run is None else next(c for c in opened.checkpoints if c.path.rstrip("/").endswith(run))
        case = Case(checkpoint=mine, run=None if run is None else opened, values=scan(mine) if values else None, **more)
        return list(rule.check(case))


def brief(said):
    """Severity and place of findings; of what was not checked that alone."""
    return [("not checked", f.why) if isinstance(f, NotChecked) else (str(f.severity), f.where) for f in said]


def said(findings):
    """The messages, in one text."""
    return "\n".join(f.message for f in findings)


def edited(source, target, change):
    """A file loaded, changed in place by a function (or replaced by what it returns), and saved."""
    value = torch.load(source, weights_only=False)
    changed = change(value)
    torch.save(value if changed is None else changed, target)
    return target
