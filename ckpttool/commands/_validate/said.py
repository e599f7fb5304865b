"""Verdicts in words: of a checkpoint alone, and of a script that was run with it."""

from typing import Final

from ckpttool.blocks import Style
from ckpttool.commands._validate.judged import Judged
from ckpttool.validation.judging import Verdict

_OF_FILES: Final = {
    Verdict.RESUMABLE: "resumable, as far as was checked",
    Verdict.RAISES: "the resume raises",
    Verdict.SILENTLY_WRONG: "the resume goes on silently wrong",
    Verdict.NOT_JUDGED: "not judged: nothing in it is resumed, it holds weights alone",
}
_OF_SCRIPTS: Final = {
    Verdict.RESUMABLE: "this script resumes from it, as far as was checked",
    Verdict.RAISES: "this script raises when it resumes from it",
    Verdict.SILENTLY_WRONG: "this script goes on from it silently wrong",
    Verdict.NOT_JUDGED: "not judged: the script did not come to where training would go on",
}
_WEIGHTS: Final = "holds weights alone"
STYLES: Final[dict[Verdict, Style]] = {
    Verdict.RESUMABLE: "good",
    Verdict.RAISES: "bad",
    Verdict.SILENTLY_WRONG: "bad",
    Verdict.NOT_JUDGED: "warn",
}


def said(judged: Judged) -> str:
    """The verdict in words."""
    if judged.facts is None and judged.judgement.verdict is Verdict.NOT_JUDGED and judged.holds != _WEIGHTS:
        return f"not judged: it {judged.holds}"
    return (_OF_FILES if judged.facts is None else _OF_SCRIPTS)[judged.judgement.verdict]
