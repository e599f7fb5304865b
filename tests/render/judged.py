"""Documents of judgements, as `validate` makes them."""

SAID = {
    "resumable": "resumable, as far as was checked",
    "raises": "the resume raises",
    "silently-wrong": "the resume goes on silently wrong",
    "not-judged": "not judged: nothing in it is resumed, it holds weights alone",
}


def finding(code, severity, **more):
    odd = {"message": "it is odd", "where": "scaler.pt", "hint": "look again", "file": None, "line": None}
    return {"code": code, "severity": severity, **odd, **more}


def document(*findings, verdict="resumable", **more):
    """A checkpoint with findings; two rules ran, and one of them could not look."""
    return {
        "schema": "ckpt.validate/1",
        "path": "runs/a b/checkpoint-4",
        "fail_on": "silent",
        "verdict": verdict,
        "said": SAID[verdict],
        "findings": [*findings],
        "not_checked": [{"code": "rng.missing", "why": "it is not part of a run folder"}],
        "rules": [
            {"code": "scaler.empty", "summary": "The loss scale is empty."},
            {"code": "rng.missing", "summary": "No random states."},
        ],
        **more,
    }


def run(*checkpoints, resume_from=None):
    """A run of checkpoints, oldest first."""
    members = [{**c, "path": f"runs/checkpoint-{n}"} for n, c in enumerate(checkpoints, 1)]
    return {**checkpoints[-1], "path": "runs", "resume_from": resume_from, "checkpoints": members}


HOSTILE = "a\x1b[2J\n::error::forged\r%0A, : \u202e\ud800"
UNREADABLE = {
    "path": "m.pt",
    "error": {"code": "truncated", "message": "it ends too early", "where": "m.pt @ byte 9", "hint": "get it again"},
}
