"""From counts to plain words: how far accuracy depends on an attribute, and what may be said about it.

Nothing here accuses a model without evidence. The thresholds, all in one place:

- the gap is compared *within* each class, so that hard classes alone never look like a shortcut;
- ``FOUND_GAP``: a gap has to reach ten points, and the low end of its 95 % interval five, to be called a
  shortcut;
- a gap whose interval lies above zero but which misses those marks is called a hint;
- an interval that holds zero is "no sign", or "cannot tell" when it also holds ``FOUND_GAP``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.measure import GroupReport, GroupRow, wilson_interval
from foveate.measure.groups import SMALL_GROUP

FOUND_GAP = 0.10
FOUND_LOW = 0.05
Z95 = 1.959963984540054

Level = Literal["found", "hint", "none", "unclear", "untested"]


# -- numbers as people write them -----------------------------------------------------------------


def percent(share: float | None) -> str:
    """A share as text; a decimal only where rounding would claim all or nothing.

    >>> percent(0.5), percent(0.996), percent(1.0), percent(None)
    ('50 %', '99.6 %', '100 %', '–')
    """
    if share is None or math.isnan(share):
        return "–"
    value = 100 * share
    close = 0 < value < 0.995 or 99.0 < value < 100
    text = f"{value:.1f}" if close and f"{value:.1f}" not in ("0.0", "100.0") else f"{value:.0f}"
    return f"{text} %"


def points(difference: float) -> str:
    """A difference of shares in percentage points, as text.

    >>> points(0.574), points(-0.01)
    ('57 points', '-1 point')
    """
    value = round(100 * difference)
    return f"{value} point{'' if abs(value) == 1 else 's'}"


# -- gaps -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """``correct`` out of ``n``, with its 95 % Wilson interval."""

    correct: int
    n: int

    @property
    def value(self) -> float:
        return self.correct / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.correct, self.n)

    @staticmethod
    def pooled(rows: Sequence[GroupRow]) -> Share:
        return Share(sum(row.correct for row in rows), sum(row.n for row in rows))

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "correct": self.correct, "n": self.n, "accuracy": self.value if self.n else None,
            "low": low, "high": high,
        }  # fmt: skip


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
        ('found', 'hint')
        >>> Gap(0.01, -0.02, 0.04).level, Gap(0.05, -0.2, 0.3).level
        ('none', 'unclear')
        """
        if self.value >= FOUND_GAP and self.low >= FOUND_LOW:
            return "found"
        if self.low > 0:
            return "hint"
        return "unclear" if self.high >= FOUND_GAP else "none"


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
        mistakes += int(counts.sum() - counts[row.label])
    return (Share(hits, mistakes), 1 / (predicted - 1)) if mistakes else None


# -- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What may be said about one model.

    Attributes:
        level: ``found``, ``hint``, ``none``, ``unclear`` (too few images), or ``untested`` (no attributes).
        headline: a few words.
        sentences: plain words with the numbers; the first one is the verdict.
        evidence: what was compared: ``training`` (majority against minority), ``spread`` (groups of a class),
            ``classes`` (no attributes), or ``experiment`` (properties exchanged between images).
        sides: the two sides compared, each ``{name, n, correct, accuracy, low, high}``.
        gap: the gap that decided, or None.
    """

    level: Level
    headline: str
    sentences: list[str]
    evidence: str
    sides: list[dict[str, Any]] = field(default_factory=list)
    gap: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_HEADLINES: dict[Level, str] = {
    "found": "Leans on the {what}",
    "hint": "May lean on the {what}",
    "none": "No sign of a shortcut",
    "unclear": "Too few images to tell",
    "untested": "Not tested: no attributes",
}


def verdict(
    model: str,
    report: GroupReport,
    confusion: NDArray[np.int64],
    *,
    train_counts: NDArray[np.int64] | None = None,
    class_names: Sequence[str],
    attribute: str = "attribute",
) -> Verdict:
    """The verdict on one model, from its group report.

    Args:
        model: what to call it.
        report: accuracy by group (from :func:`foveate.measure.group_report`).
        confusion: ``[C, A, K]``; ``A`` is 1 without attributes.
        train_counts: ``[C, A]`` images per training group, or None.
        class_names: of the ``K`` predicted classes.
        attribute: what to call the attribute in a sentence ("habitat").
    """
    judged = None
    if len(report.groups):
        if train_counts is not None and report.minority is not None and report.majority is not None:
            judged = _by_training(model, report, confusion, train_counts, attribute)
        judged = judged or _by_spread(model, report, train_counts is not None, attribute)
    if judged is None:
        judged = _by_class(model, report, confusion, class_names)
    # A model that reads nothing but the shortcut may average at chance too; there the gap says it all.
    remark = None if judged.level in ("found", "hint") else hardly_better_than_guessing(report)
    return judged if remark is None else Verdict(**{**judged.__dict__, "sentences": [*judged.sentences, remark]})


def _by_training(
    model: str, report: GroupReport, confusion: NDArray[np.int64], train_counts: NDArray[np.int64], what: str
) -> Verdict | None:
    usual = Share.pooled([row for row in report.groups if row.kind == "majority"])
    unusual = Share.pooled([row for row in report.groups if row.kind == "minority"])
    gap = within_class_gap(report.groups)
    if gap is None:
        return None
    level: Level = "unclear" if min(usual.n, unusual.n) < SMALL_GROUP else gap.level
    together = f"where class and {what} go together as in training"
    rates = (
        f"right on {percent(usual.value)} of the images {together}, and on {percent(unusual.value)} where they do not"
    )
    inside = "" if abs(gap.value - (usual.value - unusual.value)) < 0.015 else "compared class by class, "
    interval = f"95 % interval {round(100 * gap.low)} to {round(100 * gap.high)}"
    if level == "found":
        first = f"{model} leans on the {what}: it is {rates} ({inside}a gap of {points(gap.value)}; {interval})."
    elif level == "hint":
        first = (
            f"{model} may lean on the {what}: it is {rates} ({inside}a gap of {points(gap.value)}; {interval}). "
            f"The gap is real but {'small' if gap.value < FOUND_GAP else 'uncertain'}."
        )
    elif level == "none":
        first = (
            f"No sign that {model} leans on the {what}: it is {rates} "
            f"({inside}a difference of {points(gap.value)}; {interval})."
        )
    else:
        first = (
            f"There are too few images to tell whether {model} leans on the {what}: it is {rates}, "
            f"and {inside}the difference may be anything from {round(100 * gap.low)} to {points(gap.high)}."
        )
    sentences = [first]
    drawn = toward_attribute(confusion, report.groups, train_counts)
    if drawn is not None and level in ("found", "hint"):
        share, chance = drawn
        sentences.append(
            f"Of its {share.n} mistakes there, {share.correct} ({percent(share.value)}) name the class that the "
            f"{what} goes with in training; guessing among the other classes would give {percent(chance)}."
        )
    sides = [
        {"name": f"{what} as in training", **usual.to_dict()},
        {"name": f"{what} unlike training", **unusual.to_dict()},
    ]
    return Verdict(level, _HEADLINES[level].format(what=what), sentences, "training", sides, asdict(gap))


def _by_spread(model: str, report: GroupReport, balanced: bool, what: str) -> Verdict | None:
    found = widest_spread(report.groups)
    if found is None:
        return None
    better, worse, gap = found
    level: Level = "unclear" if min(better.n, worse.n) < SMALL_GROUP else gap.level
    rates = f"{percent(better.accuracy)} of {better.name} and {percent(worse.accuracy)} of {worse.name}"
    numbers = (
        f"a gap of {points(gap.value)}; 95 % interval {round(100 * gap.low)} to {round(100 * gap.high)}, "
        "widened because it is the largest of many"
    )
    if level in ("found", "hint"):
        sure = "depends" if level == "found" else "may depend"
        first = f"How often {model} is right {sure} on the {what}: it is right on {rates} ({numbers})."
        headline = "Accuracy depends on the {what}" if level == "found" else "Accuracy may depend on the {what}"
    elif level == "none":
        first = (
            f"No sign that {model} depends on the {what}: the widest difference within a class is {rates} ({numbers})."
        )
        headline = _HEADLINES[level]
    else:
        first = (
            f"There are too few images to tell whether {model} depends on the {what}: it is right on {rates} "
            f"({numbers})."
        )
        headline = _HEADLINES[level]
    why = (
        f"The training images show no minority groups, so no {what} counts as the usual one."
        if balanced
        else f"How often each {what} occurred in training is not known, so no group counts as the usual one."
    )
    sides = [
        {"name": row.name, **Share(row.correct, row.n).to_dict()}
        for row in (better, worse)
    ]  # fmt: skip
    return Verdict(level, headline.format(what=what), [first, why], "spread", sides, asdict(gap))


def _by_class(model: str, report: GroupReport, confusion: NDArray[np.int64], class_names: Sequence[str]) -> Verdict:
    if report.groups:
        why = "no class occurs with two different attributes, so nothing can be compared within a class"
        todo = "Add images of one class with different attributes"
    else:
        why = "no attributes were given"
        todo = (
            "Add an 'attribute' column with what you suspect (the background, the camera, the hospital …), "
            "or attribute sub-folders"
        )
    sentences = [f"Whether {model} takes a shortcut was not tested: {why}. {todo}, and run the audit again."]
    classes = sorted(report.classes, key=lambda entry: entry[2])
    overall = f"It is right on {percent(report.average)} of the images"
    if len(classes) > 1:
        (low_name, _, low), (high_name, _, high) = classes[0], classes[-1]
        overall += f", from {percent(low)} of {low_name} to {percent(high)} of {high_name}"
    sentences.append(overall + ".")
    table = confusion.sum(axis=1).copy()
    np.fill_diagonal(table, 0)
    if table.sum():
        y, k = np.unravel_index(int(table.argmax()), table.shape)
        sentences.append(
            f"Its most frequent mistake: {class_names[int(y)]} taken for {class_names[int(k)]} "
            f"({int(table[y, k])} of {int(table.sum())} mistakes)."
        )
    return Verdict("untested", _HEADLINES["untested"] if not report.groups else "Not tested", sentences, "classes")


HARDLY = "But with"


def hardly_better_than_guessing(report: GroupReport) -> str | None:
    """A sentence when always naming the most frequent class does about as well, else None.

    A model that learned nothing shows no gap either; without this remark that would read like praise.
    """
    if len(report.classes) < 2:
        return None
    most = max(n for _, n, _ in report.classes) / report.n
    low, _ = wilson_interval(round(report.average * report.n), report.n)
    if low > most:
        return None
    return (
        f"{HARDLY} {percent(report.average)} right on average it is hardly better than always naming the most "
        f"frequent class ({percent(most)}), so the groups tell little."
    )
