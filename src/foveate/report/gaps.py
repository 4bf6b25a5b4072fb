"""Gaps in accuracy between groups, with intervals: what may be called a shortcut, and what may not.

The thresholds, all in one place:

- the gap is compared *within* each class, so that hard classes alone never look like a shortcut;
- ``FOUND_GAP``: a gap has to reach ten points, and the low end of its 95 % interval five, to be called a
  shortcut;
- a gap whose interval lies above zero but which misses those marks is called a hint;
- an interval that holds zero is "no sign", or "cannot tell" when it also holds ``FOUND_GAP``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foveate.measure import GroupRow, wilson_interval
from foveate.measure.groups import SMALL_GROUP
from foveate.report.levels import Level

FOUND_GAP = 0.10
FOUND_LOW = 0.05
Z95 = 1.959963984540054
POWER = 0.8416212335729143
"""Standard errors over a limit at which an effect passes it in four of five repeats."""


@dataclass(frozen=True)
class Share:
    """``correct`` out of ``n``, with its 95 % Wilson interval."""

    correct: int
    n: int

    @property
    def value(self) -> float:
        return self.correct / self.n if self.n else math.nan

    @property
    def low(self) -> float:
        return wilson_interval(self.correct, self.n)[0]

    @property
    def high(self) -> float:
        return wilson_interval(self.correct, self.n)[1]

    @staticmethod
    def pooled(rows: Sequence[GroupRow]) -> Share:
        return Share(sum(row.correct for row in rows), sum(row.n for row in rows))


@dataclass(frozen=True)
class Gap:
    """How much more often one share is right than another: ``value`` with its interval."""

    value: float
    low: float
    high: float

    @property
    def level(self) -> Level:
        """What the gap allows to say, by the thresholds of this module.

        >>> Gap(0.57, 0.50, 0.63).level, Gap(0.2, 0.01, 0.4).level
        (<Level.FOUND: 'found'>, <Level.HINT: 'hint'>)
        >>> Gap(0.01, -0.02, 0.04).level, Gap(0.05, -0.2, 0.3).level
        (<Level.NONE: 'none'>, <Level.UNCLEAR: 'unclear'>)
        """
        if self.value >= FOUND_GAP and self.low >= FOUND_LOW:
            return Level.FOUND
        if self.low > 0:
            return Level.HINT
        return Level.UNCLEAR if self.high >= FOUND_GAP else Level.NONE

    @property
    def smallest_found(self) -> float:
        """The smallest gap that as many images would call found in four of five repeats.

        >>> round(Gap(0.0, -0.05, 0.05).smallest_found, 2), round(Gap(0.0, -0.2, 0.2).smallest_found, 2)
        (0.12, 0.34)
        """
        half = (self.high - self.low) / 2
        return min(1.0, max(FOUND_GAP, FOUND_LOW + half) + POWER * half / Z95)


def difference(a: Share, b: Share, z: float = Z95) -> Gap:
    """``a - b`` with Newcombe's interval, built from the two Wilson intervals.

    Reference: Newcombe 1998, "Interval estimation for the difference between independent proportions",
    method 10. Its example: 56/70 against 48/80.

    >>> gap = difference(Share(56, 70), Share(48, 80))
    >>> [round(v, 4) for v in (gap.value, gap.low, gap.high)]
    [0.2, 0.0524, 0.3339]
    """
    (low_a, high_a), (low_b, high_b) = wilson_interval(a.correct, a.n, z), wilson_interval(b.correct, b.n, z)
    value = a.value - b.value
    return Gap(
        value,
        value - math.hypot(a.value - low_a, high_b - b.value),
        value + math.hypot(high_a - a.value, b.value - low_b),
    )


def within_class_gap(rows: Sequence[GroupRow]) -> Gap | None:
    """Majority minus minority accuracy, compared inside each class and then averaged.

    Classes count with the Mantel-Haenszel weight ``n_a n_b / (n_a + n_b)``; the interval joins the per-class
    Newcombe intervals as independent. None when no class has test images of both kinds.
    """
    total = weighted = below = above = 0.0
    for label in sorted({row.label for row in rows}):
        mine = [row for row in rows if row.label == label]
        usual = Share.pooled([row for row in mine if row.kind == "majority"])
        unusual = Share.pooled([row for row in mine if row.kind == "minority"])
        if not usual.n or not unusual.n:
            continue
        weight = usual.n * unusual.n / (usual.n + unusual.n)
        gap = difference(usual, unusual)
        total += weight
        weighted += weight * gap.value
        below += (weight * (gap.value - gap.low)) ** 2
        above += (weight * (gap.high - gap.value)) ** 2
    if not total:
        return None
    value = weighted / total
    return Gap(value, value - math.sqrt(below) / total, value + math.sqrt(above) / total)


def widest_spread(rows: Sequence[GroupRow]) -> tuple[GroupRow, GroupRow, Gap] | None:
    """The two groups of one class that differ most: ``(better, worse, gap)``.

    Picking the largest of many differences finds large ones by luck, so the interval is widened for the number
    of pairs looked at (Bonferroni). Groups under ``SMALL_GROUP`` images are left out while others remain.
    """
    enough = [row for row in rows if row.n >= SMALL_GROUP]
    for usable in (enough, list(rows)):
        pairs = [(a, b) for a, b in combinations(usable, 2) if a.label == b.label]
        if pairs:
            break
    else:
        return None
    z = NormalDist().inv_cdf(1 - 0.025 / len(pairs))
    ordered = [(a, b) if a.accuracy >= b.accuracy else (b, a) for a, b in pairs]
    gaps = [
        (better, worse, difference(Share(better.correct, better.n), Share(worse.correct, worse.n), z))
        for better, worse in ordered
    ]
    return max(gaps, key=lambda entry: (entry[2].low, entry[2].value))


def toward_attribute(
    confusion: NDArray[np.int64], rows: Sequence[GroupRow], train_counts: NDArray[np.int64]
) -> tuple[Share, float] | None:
    """Of the mistakes on minority images: how many name the class that the attribute goes with in training.

    Args:
        confusion: ``[C, A, K]``, counts of class ``y`` with attribute ``a`` predicted as ``k``.
        rows: the groups, with their kind.
        train_counts: ``[C, A]``.

    Returns: that share, and what guessing among the other classes would give; None with two classes, where a
    mistake cannot name anything else.
    """
    classes, predicted = confusion.shape[0], confusion.shape[2]
    usual_class = train_counts.argmax(axis=0)
    hits = mistakes = 0
    if predicted <= 2:
        return None
    for row in rows:
        target = int(usual_class[row.attribute])
        if row.kind != "minority" or target == row.label or target >= classes:
            continue
        counts = confusion[row.label, row.attribute]
        hits += int(counts[target])
        mistakes += row.n - row.correct
    return (Share(hits, mistakes), 1 / (predicted - 1)) if mistakes else None
