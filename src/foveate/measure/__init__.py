"""Metrics: plain functions of arrays. They know nothing of datasets, models or trainers."""

from foveate.measure.answers import (
    NO_ANSWER,
    UNREADABLE,
    answered,
    decided,
    decided_by_shares,
    name_of,
    shares_of,
)
from foveate.measure.auc import NoAnswerWarning, average_auc, worst_group_auc
from foveate.measure.counts import GroupRow, minority_groups, wilson_interval
from foveate.measure.entanglement import (
    CAPAccumulator,
    CEPAccumulator,
    ShareResult,
    core_activation_percentage,
    core_effect_percentage,
    core_gradcam_percentage,
    half_mask,
    mask_on_grid,
)
from foveate.measure.groups import (
    GroupReport,
    SmallGroupWarning,
    confusion_by_group,
    figures_of,
    group_report,
    ifam_worst_group,
)
from foveate.measure.localisation import (
    DistanceStratum,
    attention_concentration,
    attention_hit,
    attention_mass,
    attention_shares,
    bilinear_weights,
    by_centre_distance,
    centre_distance,
    localisation_curve,
)
from foveate.measure.metric import (
    METRICS,
    USES_GROUPS,
    USES_TRAIN_COUNTS,
    Answers,
    Metric,
    check_selectable,
    columns,
    described,
    reported,
)
from foveate.measure.paired import HIT_METRICS, Difference, Hits, difference_over_images, difference_over_seeds
from foveate.measure.parts import (
    ForegroundIoU,
    PartPoints,
    bg_gap,
    foreground_miou,
    keypoint_error,
    part_agreement,
    part_centroids,
    part_points,
    parts_at_keypoints,
)
from foveate.measure.swaps import donor_permutation, fill_object, swap

__all__ = [
    "METRICS", "NO_ANSWER", "UNREADABLE", "NoAnswerWarning", "USES_GROUPS", "USES_TRAIN_COUNTS", "answered", "decided",
    "decided_by_shares", "name_of", "shares_of", "Answers", "Metric", "check_selectable", "columns", "described",
    "reported", "CAPAccumulator", "CEPAccumulator", "DistanceStratum",
    "GroupReport", "GroupRow", "ShareResult", "SmallGroupWarning", "attention_concentration", "attention_hit",
    "attention_mass", "attention_shares", "average_auc", "bilinear_weights", "by_centre_distance",
    "centre_distance", "confusion_by_group", "figures_of",
    "core_activation_percentage", "core_effect_percentage", "core_gradcam_percentage",
    "donor_permutation", "fill_object", "group_report", "half_mask", "ifam_worst_group",
    "localisation_curve", "mask_on_grid", "minority_groups", "swap", "wilson_interval", "worst_group_auc",
    "HIT_METRICS", "Difference", "Hits", "difference_over_images", "difference_over_seeds",
    "ForegroundIoU", "PartPoints", "bg_gap", "foreground_miou", "keypoint_error", "part_agreement",
    "part_centroids", "part_points", "parts_at_keypoints",
]  # fmt: skip
