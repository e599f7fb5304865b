"""A path judged: what rules say of it, in short."""

from contextlib import closing

from ckpttool.errors import CkptError
from ckpttool.model import Run
from ckpttool.opening import open_path
from ckpttool.protocols import Case, NotChecked
from ckpttool.rules import RULES
from ckpttool.validation.judging import judge
from ckpttool.validation.scanning import scan

INSTALLED = {"torch": "2.13.0", "numpy": "2.4.6", "transformers": "5.24.0", "accelerate": "1.15.0"}


def judgements(path, *, values=False, installed=INSTALLED, rules=RULES):
    """The judgement of each checkpoint at a path, by its name."""
    with closing(open_path(path)) as opened:
        run = opened if isinstance(opened, Run) else None
        checkpoints = opened.checkpoints if run else [opened]
        found = {}
        for checkpoint in checkpoints:
            case = Case(
                checkpoint=checkpoint, run=run, installed=installed, values=scanned(checkpoint) if values else None
            )
            found[checkpoint.path.rstrip("/").rpartition("/")[2]] = judge(case, rules)
    return found


def scanned(checkpoint):
    """All values read; None where some cannot be, which the readers have said then."""
    try:
        return scan(checkpoint)
    except CkptError:
        return None


def asked(rule, path, **options):
    """What one rule says of one checkpoint: findings, and why it could not look."""
    with closing(open_path(path)) as checkpoint:
        case = Case(checkpoint=checkpoint, installed=options.get("installed", INSTALLED), values=options.get("values"))
        return list(rule.check(case))


def of_run(rule, path, name):
    """What one rule says of one checkpoint of a run."""
    with closing(open_path(path)) as run:
        one = next(c for c in run.checkpoints if c.path.rstrip("/").endswith(name))
        return list(rule.check(Case(checkpoint=one, run=run, installed=INSTALLED)))


def short(said):
    """Severity, place and message of findings; what was not checked is left out."""
    return [(str(f.severity), f.where, f.message) for f in said if not isinstance(f, NotChecked)]
