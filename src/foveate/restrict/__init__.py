"""RESTRICT: what is let through."""

from foveate.restrict.crops import extract_crops, greedy_crops
from foveate.restrict.masks import early_mask, keep_parts, late_mask, straight_through
from foveate.restrict.removal import TokenThresholds, calibrate_tokens, remove_parts, remove_tokens

__all__ = [
    "TokenThresholds", "calibrate_tokens", "early_mask", "extract_crops", "greedy_crops", "keep_parts", "late_mask",
    "remove_parts", "remove_tokens", "straight_through",
]  # fmt: skip
