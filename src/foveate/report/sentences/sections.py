"""What the sections of the page open with, and the notes at its end."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from foveate.measure import GroupReport, GroupRow
from foveate.measure.groups import SMALL_GROUP
from foveate.report.discovery.cues import BY_KEY
from foveate.report.discovery.discover import ErrorSlice
from foveate.report.discovery.mask_tests import MaskTests
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.heat import HeatOnObject, HeatShare
from foveate.report.sentences.groups import no_answer
from foveate.report.sentences.numbers import percent, points

HEAT_NAMES = {"grad-cam": "Grad-CAM"}


def heat(found: HeatOnObject) -> str:
    """Where a model looks when it is right and when it is wrong."""
    sides = {"right": found.right, "wrong": found.wrong}
    parts = [
        f"when it is {name}, {percent(side.on_object)} of the heat lies on the object, which fills "
        f"{percent(side.area)} of the picture ({_compared(side)})"
        for name, side in sides.items()
        if side is not None
    ]
    name = HEAT_NAMES.get(found.kind, found.kind)
    return f"Where it looks ({name}, {found.images} images): {'; '.join(parts)}."


def _compared(side: HeatShare) -> str:
    if side.more_than_area_low > 0:
        return "more than an even spread"
    return "less than an even spread" if side.more_than_area_high < 0 else "no more than an even spread"


def least_and_most(model: str, worst: GroupRow, best: GroupRow) -> str:
    """On which group a model is right least and most often."""
    if worst.name == best.name:
        return f"{model} is right on {percent(worst.accuracy)} of {worst.name}."
    return (
        f"{model} is right most often on {best.name} ({percent(best.accuracy)}) and least often on {worst.name} "
        f"({percent(worst.accuracy)})."
    )


def other_groups(accuracies: Sequence[float]) -> str:
    """Where the groups lie that are not shown."""
    return (
        f"The {len(accuracies)} other groups lie between {percent(min(accuracies))} and {percent(max(accuracies))}, "
        f"half of them above {percent(statistics.median(accuracies))}."
    )


def taken_apart(model: str, tests: MaskTests) -> str:
    """What the mask tests say about a model."""
    cost = f"{points(tests.bg_gap)} lower than" if round(100 * tests.bg_gap) > 0 else "no lower than"
    return (
        f"{model} is right on {percent(tests.object_only)} of the objects alone and on "
        f"{percent(tests.background_only)} of the backgrounds alone; accuracy on any background is {cost} on "
        f"backgrounds of other images of the class (BG-GAP). When objects and backgrounds are exchanged, "
        f"{percent(tests.cep)} of the change in its output comes from the object (CEP; 100 % would be an "
        f"object-only model). {tests.images} images."
    )


def given_away(telling: Sequence[tuple[str, PropertyProbe]]) -> str:
    """What the images tell about the class by properties alone, best first; ``telling`` has names and probes."""
    if not telling:
        return "None of the properties tells the class in these images, so the images themselves reward no shortcut."
    name, best = telling[0]
    others = f"; {len(telling) - 1} more tell something" if len(telling) > 1 else ""
    return (
        f"{name[0].upper()}{name[1:]} alone tells the class of {percent(best.score)} of the images (guessing: "
        f"{percent(best.chance)}){others}. That is what the images offer; whether a model takes the offer, the "
        "experiments say."
    )


def error_slice(s: ErrorSlice) -> str:
    """A bunch of errors: how many, how wrong, and what is unlike the rest."""
    unlike = f" They are {' and '.join(word for _, word in s.unlike)} than the rest of their class." if s.unlike else ""
    if not s.unlike and s.by in BY_KEY:
        unlike = f" They stand out by {BY_KEY[s.by].name}."
    taken = f", most often taken for {s.mistaken_for}" if s.mistaken_for else ""
    return (
        f"{s.n} similar images of {s.name}: {percent(s.accuracy)} right{taken}; the average is "
        f"{percent(s.average)} (p = {s.adjusted:.2g} after correction).{unlike}"
    )


# -- notes ----------------------------------------------------------------------------------------


def foreign_counts(model: str) -> str:
    return f"The training counts of {model} belong to other groups than this dataset's and were not used."


def empty_maps(model: str, empty: int) -> str:
    return f"{model}: {empty} heat maps were empty and are not counted."


def about_the_images(
    reports: Mapping[str, GroupReport], unread: int, usual_share: float | None, what: str
) -> list[str]:
    """Groups that are small or empty, images unreadable or without an answer, even training counts.

    Args:
        reports: by model.
        unread: images that could not be read.
        usual_share: how much of a class its most frequent attribute makes up in training; None without counts.
        what: what to call the attribute.
    """
    notes: list[str] = []
    report = next(iter(reports.values()))  # what is said of groups is the same for all
    small = [row for row in report.groups if row.n < SMALL_GROUP]
    if small:
        notes.append(
            f"{len(small)} of {len(report.groups)} groups have fewer than {SMALL_GROUP} images, so their accuracies "
            f"are very uncertain: {_first_of([f'{row.name} ({row.n})' for row in small])}."
        )
    if report.empty:
        notes.append(f"{len(report.empty)} groups have no image in this dataset: {_first_of(report.empty)}.")
    if unread:
        total = report.n + report.skipped
        notes.append(f"{unread} of {total} images could not be read and are not counted.")
    for model, own in reports.items():
        notes += no_answer(model, own)
    if usual_share is not None and report.minority is None:
        notes.append(
            f"In training the {what} is spread evenly over each class (its most frequent value makes up "
            f"{percent(usual_share)}), so there is no majority and no minority."
        )
    return notes


def _first_of(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")
