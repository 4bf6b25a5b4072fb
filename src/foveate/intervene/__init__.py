"""Changing what a trained model looks at: remove parts, remove unusual tokens, find what to remove; verify."""

from foveate.intervene.leave_one_out import LeaveOneOut, leave_one_out
from foveate.intervene.rehearsal import Rehearsal
from foveate.intervene.search import Effect, effect, foreground_overlap, greedy_removal, search_parts
from foveate.intervene.verify import Verified, VerifyReport, verify
from foveate.restrict.removal import TokenThresholds, calibrate_tokens, remove_parts, remove_tokens

__all__ = [
    "Effect",
    "LeaveOneOut",
    "Rehearsal",
    "TokenThresholds",
    "Verified",
    "VerifyReport",
    "calibrate_tokens",
    "effect",
    "foreground_overlap",
    "greedy_removal",
    "leave_one_out",
    "remove_parts",
    "remove_tokens",
    "search_parts",
    "verify",
]
