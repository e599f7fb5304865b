"""Scripts that are really run: once to save, once asked by the probe whether they would resume."""

import runpy
import sys
import textwrap
from contextlib import closing

import torch

from ckpttool.opening import open_path
from ckpttool.probe.asking import ask
from ckpttool.probe.question import Question
from ckpttool.protocols import Case
from ckpttool.rules import RULES
from ckpttool.validation.judging import judge
from ckpttool.validation.scanning import scan

HEAD = """
import argparse, os, random, sys
import torch
from torch import nn
torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--out", default="ck.pt")
{more}
args = parser.parse_args()
"""


def written(folder, code, more=""):
    """A script after the lines that each of them begins with."""
    script = folder / "train.py"
    script.write_text(HEAD.replace("{more}", textwrap.dedent(more)) + textwrap.dedent(code))
    return script


def run(script, *args):
    """Let it train here, as `python train.py ARGS` would."""
    was, rng = sys.argv, torch.get_rng_state()
    sys.argv = [str(script), *args]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = was
        torch.set_rng_state(rng)


def facts_of(script, *args, checkpoint="ck.pt"):
    """What the probe finds, in the folder in which we are."""
    return ask(Question(checkpoint=checkpoint, script=str(script), args=args, python=sys.executable, seconds=120.0))


def resumed(folder, code, *args, more="", change=None, checkpoint="ck.pt"):
    """The judgement of a script that trained, saved, and is asked to go on.

    Args:
        change: what is done to the saved dict in between.
        args: beside `--resume` and the checkpoint.
    """
    script = written(folder, code, more)
    run(script)
    if change is not None:
        state = torch.load(checkpoint, weights_only=False)
        torch.save(change(state) or state, checkpoint)
    facts = facts_of(script, "--resume", checkpoint, *args, checkpoint=checkpoint)
    assert facts.stopped in ("backward", "optimizer step"), (
        facts.stopped,
        facts.raised,
        facts.printed,
        facts.unwatched,
        facts.exit_code,
    )
    with closing(open_path(checkpoint)) as opened:
        return judge(Case(checkpoint=opened, facts=facts, values=scan(opened)), RULES)


def said(judgement, *codes):
    """Severity, code and message of findings; of these codes only, where some are named."""
    return [f"{f.severity} {f.code}: {f.message}" for f in judgement.findings if not codes or f.code in codes]


def loud(judgement):
    """What is an error or silent, apart from random states that no script here saves."""
    return [f"{f.code}: {f.message}" for f in judgement.findings if f.severity in ("error", "silent")]
