"""From counts to plain words: how far accuracy depends on an attribute, and what may be said about it.

Nothing here accuses a model without evidence; the thresholds are in :mod:`foveate.report.gaps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.measure import GroupReport, wilson_interval
from foveate.measure.groups import SMALL_GROUP
from foveate.report.gaps import FOUND_GAP, Level, Share, toward_attribute, widest_spread, within_class_gap

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


# -- the verdict ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What may be said about one model.

    Attributes:
        level: ``found``, ``hint``, ``none``, ``unclear`` (too few images), or ``untested`` (no attributes).
        headline: a few words.
        sentences: plain words with the numbers; the first one is the verdict.
        evidence: what decided: ``training`` (majority against minority), ``spread`` (groups of a class),
            ``classes`` (no attributes), or ``experiment`` (properties exchanged between images).
        sides: the two sides compared, each ``{name, n, correct, accuracy, low, high}``.
        gap: the gap that decided, or None.
        measured: what the groups showed, as part of a sentence; empty without groups.
        agreement: how groups and experiments stand to each other: ``groups`` or ``experiments`` (only one of them
            spoke), ``agree``, ``differ`` (a sentence says why they can), ``apart`` (they speak of different
            properties), or ``open`` (the experiments cannot tell).
        levels: what each of the two says by itself, ``{"groups": level, "experiments": level}``.
        compared: what the groups compared, a value of ``evidence``, whatever decided in the end.
    """

    level: Level
    headline: str
    sentences: list[str]
    evidence: str
    sides: list[dict[str, Any]] = field(default_factory=list)
    gap: dict[str, float] | None = None
    measured: str = ""
    agreement: str = "groups"
    levels: dict[str, Level] = field(default_factory=dict)
    compared: str = ""

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
    judged = replace(judged, levels={"groups": judged.level}, compared=judged.evidence)
    # A model that reads nothing but the shortcut may average at chance too; there the gap says it all.
    remark = None if judged.level in ("found", "hint") else hardly_better_than_guessing(report)
    if remark is None:
        return judged
    headline = "Hardly better than guessing" if judged.level == "none" else judged.headline
    return replace(judged, headline=headline, sentences=[*judged.sentences, remark])


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
    measured = f"it is {rates} ({inside}a difference of {points(gap.value)}; {interval})"
    return Verdict(level, _HEADLINES[level].format(what=what), sentences, "training", sides, asdict(gap), measured)


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
    measured = f"it is right on {rates} ({numbers})"
    return Verdict(level, headline.format(what=what), [first, why], "spread", sides, asdict(gap), measured)


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
