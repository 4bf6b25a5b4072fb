"""Changing what a trained model looks at: remove parts, remove unusual tokens, find what to remove."""

from foveate.intervene.leave_one_out import LeaveOneOut, leave_one_out
from foveate.restrict.removal import TokenThresholds, calibrate_tokens, remove_parts, remove_tokens

__all__ = [
    "LeaveOneOut",
    "TokenThresholds",
    "calibrate_tokens",
    "leave_one_out",
    "remove_parts",
    "remove_tokens",
]
