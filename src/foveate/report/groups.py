"""What the groups of a given attribute say about one model: how far its accuracy depends on the attribute.

Nothing here accuses a model without evidence; the thresholds are in :mod:`foveate.report.gaps`, the words in
:mod:`foveate.report.sentences`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from foveate.measure import GroupReport, GroupRow, wilson_interval
from foveate.measure.groups import SMALL_GROUP
from foveate.report.gaps import Gap, Share, toward_attribute, widest_spread, within_class_gap
from foveate.report.levels import Evidence, Level


@dataclass(frozen=True)
class ByTraining:
    """Images whose attribute is usual for their class in training, against the others.

    Attributes:
        usual, unusual: how many of each are named rightly.
        gap: the difference, compared inside each class.
        drawn: of the mistakes on unusual images, those that name the class the attribute goes with in training, and
            what guessing among the other classes would give; None with two classes.
    """

    usual: Share
    unusual: Share
    gap: Gap
    drawn: tuple[Share, float] | None = None
    evidence: ClassVar[Evidence] = Evidence.TRAINING

    @property
    def level(self) -> Level:
        return Level.UNCLEAR if min(self.usual.n, self.unusual.n) < SMALL_GROUP else self.gap.level


@dataclass(frozen=True)
class BySpread:
    """The two groups of one class that differ most, where no attribute counts as the usual one.

    ``counted``: whether the training images are known (and show no minority groups), or not known at all.
    """

    better: GroupRow
    worse: GroupRow
    gap: Gap
    counted: bool = False
    evidence: ClassVar[Evidence] = Evidence.SPREAD

    @property
    def level(self) -> Level:
        return Level.UNCLEAR if min(self.better.n, self.worse.n) < SMALL_GROUP else self.gap.level


@dataclass(frozen=True)
class ByClass:
    """Nothing to compare within a class: no attributes, or only one for each class.

    ``mistake`` is the most frequent one, ``(class, taken for, times, mistakes)``.
    """

    mistake: tuple[str, str, int, int] | None = None
    evidence: ClassVar[Evidence] = Evidence.CLASSES
    level: ClassVar[Level] = Level.UNTESTED
    gap: ClassVar[None] = None


@dataclass(frozen=True)
class GroupVerdict:
    """What the groups say about one model.

    Attributes:
        comparison: what was compared, with the numbers.
        report: the accuracies by group that it rests on.
        guessing: the share of the most frequent class, where the model hardly beats always naming it, and is not
            accused: a model that learned nothing shows no gap either, and silence would read like praise.
    """

    comparison: ByTraining | BySpread | ByClass
    report: GroupReport
    guessing: float | None = None

    @property
    def level(self) -> Level:
        return self.comparison.level

    @property
    def evidence(self) -> Evidence:
        return self.comparison.evidence


def judge_groups(
    report: GroupReport,
    confusion: NDArray[np.int64],
    *,
    train_counts: NDArray[np.int64] | None = None,
    class_names: Sequence[str],
) -> GroupVerdict:
    """What the groups say about one model, from its group report.

    Args:
        report: accuracy by group (from :func:`foveate.measure.group_report`).
        confusion: ``[C, A, K]``; ``A`` is 1 without attributes.
        train_counts: ``[C, A]`` images per training group, or None.
        class_names: of the ``K`` predicted classes.
    """
    comparison: ByTraining | BySpread | ByClass = (
        _by_training(report, confusion, train_counts)
        or _by_spread(report, counted=train_counts is not None)
        or ByClass(_mistake(confusion, class_names))
    )
    # A model that reads nothing but the shortcut may average at chance too; there the gap says it all.
    guessing = None if comparison.level.accuses else hardly_better_than_guessing(report)
    return GroupVerdict(comparison, report, guessing)


def _by_training(
    report: GroupReport, confusion: NDArray[np.int64], train_counts: NDArray[np.int64] | None
) -> ByTraining | None:
    if train_counts is None or report.minority is None or report.majority is None:
        return None
    gap = within_class_gap(report.groups)
    if gap is None:
        return None
    return ByTraining(
        Share.pooled([row for row in report.groups if row.kind == "majority"]),
        Share.pooled([row for row in report.groups if row.kind == "minority"]),
        gap,
        toward_attribute(confusion, report.groups, train_counts),
    )


def _by_spread(report: GroupReport, counted: bool) -> BySpread | None:
    found = widest_spread(report.groups)
    return None if found is None else BySpread(*found, counted)


def _mistake(confusion: NDArray[np.int64], class_names: Sequence[str]) -> tuple[str, str, int, int] | None:
    table = confusion.sum(axis=1).copy()
    np.fill_diagonal(table, 0)
    if not table.sum():
        return None
    y, k = (int(i) for i in np.unravel_index(int(table.argmax()), table.shape))
    return class_names[y], class_names[k], int(table[y, k]), int(table.sum())


def hardly_better_than_guessing(report: GroupReport) -> float | None:
    """The share of the most frequent class, when always naming it does about as well; else None."""
    if len(report.classes) < 2:
        return None
    most = max(n for _, n, _ in report.classes) / report.n
    low, _ = wilson_interval(round(report.average * report.n), report.n)
    return None if low > most else most
