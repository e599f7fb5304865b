"""`ckpt validate`: is this checkpoint whole, and would training continue as if never stopped?"""

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckpttool import params
from ckpttool.blocks import Progress

if TYPE_CHECKING:
    from ckpttool.commands._validate.report import ValidateReport


def validate(  # noqa: PLR0913  # one parameter for each option of the command
    path: params.CheckpointPath,
    *,
    values: params.Values = False,
    no_values: params.NoValues = False,
    crc: params.CrcOnly = False,
    counters: params.Counters = False,
    against: params.Against = None,
    manifest: params.Manifest = None,
    write_manifest: params.WriteManifest = None,
    rules: params.OnlyRules = None,
    skip_rules: params.SkipRules = None,
    strict: params.Strict = False,
    fail_on: params.FailOn = None,
    script: params.Script = None,
    module: params.Module = None,
    args: params.ScriptArgs = None,
    python: params.Python = None,
    steps: params.Steps = 0,
    timeout: params.Timeout = 300.0,
    online: params.Online = False,
    limit: params.RaisedLimits = None,
    progress: Progress | None = None,
) -> "ValidateReport":
    """Say whether a checkpoint is whole and would resume, running nothing in it.

    Most resumes that go wrong say nothing: counters, learning rates, moments, loss scale or RNG are lost without a
    word. Each check is a rule; `ckpt rules` lists them. Of a run folder every checkpoint is checked, and the newest
    one to resume from is named. Defaults come from [tool.ckpt] of pyproject.toml, or from ckpt.toml.

    With --script your own script is run, with the arguments it would resume with, up to where training would go on,
    and what it holds then is held against the checkpoint. This runs your code, in a sandbox; nothing else in ckpt does.

    Examples:
      ckpt validate checkpoint-500                   whole, and consistent?
      ckpt validate checkpoints/                     which is the newest good one?
      ckpt validate last.ckpt --counters             the counters, side by side
      ckpt validate a.pt --against b.pt              the same model and groups?
      ckpt validate ck/ --write-manifest ck.sha256   against bit rot, later:
      ckpt validate ck/ --manifest ck.sha256
      ckpt validate ck/ --format github              in a workflow
      ckpt validate last.pt --script train.py -- --resume {checkpoint}
      ckpt validate out/ --module my.train -- --out out --resume
      ckpt validate last.pt --format github --script train.py -- --resume {checkpoint}

    Exit codes:
      0   resumable, as far as was checked
      1   findings: the resume raises or goes on silently wrong
      2   could not be judged: unreadable, or weights alone
      70  a bug of ckpt
    """
    from ckpttool.commands._validate import asked  # `--help` must not pay for it

    question = asked.question(
        os.fspath(path), script=script, module=module, args=args, python=python, steps=steps, seconds=timeout,
        online=online, against=against,
    )  # fmt: skip
    with ExitStack() as stack:
        pending = asked.pending(question, stack) if question is not None else None
        from ckpttool.commands._validate import choices, validating  # what takes longest runs while the script does

        wanted = choices.choices(
            values=values, no_values=no_values, crc=crc, counters=counters, rules=rules, skip_rules=skip_rules,
            strict=strict, fail_on=fail_on, limits=limit, against=against, manifest=manifest,
            write_manifest=write_manifest, question=question,
        )  # fmt: skip
        return validating.report(os.fspath(path), wanted, progress, pending)
