"""What only looks like a cue of its own: surroundings that lie tilted with their picture, an object under a red lamp.

Two exchanges can turn the same answers although the model reads one thing. As with the size
(:func:`foveate.report.discovery.nested.from_closer`), donors are then brought to one value of the suspected cause: what
loses its pull by that comes from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.cues.geometry import STEPS, lying_alike
from foveate.report.discovery.cues.object_colour import OBJECT_COLOUR
from foveate.report.discovery.cues.object_mark import OBJECT_MARK
from foveate.report.discovery.experiments import Predict, Pull, Sheet, pull_of_pairs
from foveate.report.discovery.nested import COMPARED, LEVELLED, STANDS, Nesting, can_be_levelled
from foveate.report.gaps import FOUND_GAP

COLOURING = ("background", "brightness", "colour", "vignette")
"""What changes the colour of an object too: it lights or tints all of the picture, or reaches beyond an outline."""
ALIKE = 0.6
"""A cue of the picture with this share of the pull of the objects' colour makes that colour."""

MORE = 1.3
"""What pulls so many times as much as a part of it is more than the part: a coat than a few places in its colour, a
lamp than the colour of the objects under it."""


def how_it_lies(sheet: Sheet, predict: Predict, accused: Sequence[Pull], found: Nesting) -> None:
    """Who tilts or stretches a picture tilts all of it: what loses its pull once donors lie as the recipients do is
    explained by the tilt, or by the stretching. Adds to ``found``; the stronger of the two goes first."""
    causes = [pull for pull in accused if pull.cue.key in STEPS and pull.value >= FOUND_GAP]
    for cause in sorted(causes, key=lambda pull: -pull.value):
        if cause.cue.key in found.explained:
            continue
        for pull in accused:
            if pull is cause or pull.cue.key in found.explained:
                continue
            if not can_be_levelled(sheet, pull, accused):
                continue
            pairs, levelled = pull.pairs[:COMPARED], lying_alike(pull.cue, STEPS[cause.cue.key])
            if pull_of_pairs(sheet, levelled, predict, pairs) < LEVELLED * pull_of_pairs(
                sheet, pull.cue, predict, pairs
            ):
                found.explained[pull.cue.key] = cause.cue
    found.follow_up()


def beside_a_mark(accused: Sequence[Pull], found: Nesting) -> None:
    """A band on the object is in its mean colour and in the run of its pattern, and a coat in some of its colours: a
    mark on the object explains what else is read within its outline, unless that pulls clearly more."""
    mark = next((p for p in accused if p.cue.key == OBJECT_MARK.key and p.cue.key not in found.explained), None)
    inside = [p for p in accused if p.cue.within_class and p.cue.key not in found.explained]
    if mark is None or not inside:
        return
    strongest = max(inside, key=lambda pull: pull.value)
    if strongest.value > MORE * mark.value:
        found.explained[mark.cue.key] = strongest.cue
    else:
        found.explained |= {pull.cue.key: mark.cue for pull in inside}
    found.follow_up()


def whose_colour(sheet: Sheet, predict: Predict, accused: Sequence[Pull], found: Nesting) -> None:
    """A lamp or a filter colours objects too, and an object lights its picture. Adds to ``found``.

    A cue of the picture that pulls clearly more than the objects' colour explains it. One that pulls less is explained
    by that colour if it loses its pull with the objects left in their own; if it keeps it and pulls alike, it explains
    the colour.
    """
    own = next((p for p in accused if p.cue.key == OBJECT_COLOUR.key and p.cue.key not in found.explained), None)
    if own is None:
        return
    for pull in accused:
        key = pull.cue.key
        if key not in COLOURING or key in found.explained:
            continue
        more = pull.value > MORE * own.value
        if not more and _of_the_objects(sheet, predict, pull, own.cue):
            found.explained[key] = own.cue
        elif more or pull.value >= ALIKE * own.value:
            found.explained[own.cue.key] = pull.cue
            break
    found.follow_up()


def _of_the_objects(sheet: Sheet, predict: Predict, pull: Pull, colour: Cue) -> bool:
    """Whether a cue of the picture only works by the colour it gives the objects; a background gives them none."""
    if pull.cue.cuts:
        return False
    pairs = pull.pairs[:COMPARED]
    rest = pull_of_pairs(sheet, pull.cue.without(colour), predict, pairs)
    return rest < STANDS * pull_of_pairs(sheet, pull.cue, predict, pairs)
