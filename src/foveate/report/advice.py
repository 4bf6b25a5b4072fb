"""What to do: which steps fit what was found and what the user has; their words are in the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.report.levels import Level, Word
from foveate.report.verdict import Verdict


class Step(Word):
    """Something to do after an audit."""

    MEND = "mend"
    KEEP = "keep"
    TRAIN_FURTHER = "train further"
    MORE_IMAGES = "more images"
    MAKE_TESTABLE = "make testable"
    CURE = "cure"
    MAKE_GROUPS = "make groups"
    DAR = "DAR"
    A2 = "A2"
    IFAM = "IFAM"
    A2_ZERO_SHOT = "A2ZeroShot"
    AUDIT_AGAIN = "audit again"


def next_steps(verdicts: Sequence[Verdict], attributes: bool) -> list[Step]:
    """Steps in the order to try them; "keep it" only when all was tested, nothing found and every image got an answer.

    Args:
        verdicts: one a model.
        attributes: whether the images have group labels.
    """
    steps = _against_shortcuts(verdicts, attributes)
    if any(verdict.unanswered for verdict in verdicts):
        return [Step.MEND, *(step for step in steps if step is not Step.KEEP)]
    return steps


def _against_shortcuts(verdicts: Sequence[Verdict], attributes: bool) -> list[Step]:
    if not any(verdict.level.accuses for verdict in verdicts):
        levels = {verdict.level for verdict in verdicts}
        if any(verdict.guessing for verdict in verdicts):
            return [Step.TRAIN_FURTHER, *([Step.MAKE_TESTABLE] if Level.UNTESTED in levels else [])]
        open_ones = [Step.MORE_IMAGES] if Level.UNCLEAR in levels else []
        open_ones += [Step.MAKE_TESTABLE] if Level.UNTESTED in levels else []
        return open_ones or [Step.KEEP]  # what was not settled is no ground to keep a model
    groups = [] if attributes else [Step.MAKE_GROUPS]
    return [Step.CURE, *groups, Step.DAR, Step.A2, Step.IFAM, Step.A2_ZERO_SHOT, Step.AUDIT_AGAIN]
