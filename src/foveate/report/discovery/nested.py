"""Which cue explains a pull: a frame is part of the background, and a mark in a corner part of the frame.

Exchanging the whole exchanges its parts as well, and a part of a scene shows something of the scene. So of two cues
that both turn answers each is exchanged once more with the other given back (:meth:`Cue.without`), on the same images:
what is left of the pull is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foveate.report.discovery.cues import BY_KEY, Cue
from foveate.report.discovery.cues.placement import SIZE, from_as_close
from foveate.report.discovery.experiments import Predict, Pull, Sheet, Triple, pull_of_pairs
from foveate.report.discovery.outlines import core
from foveate.report.gaps import FOUND_GAP

COMPARED = 80
"""Images on which an exchange and the same exchange without a part are compared."""
STANDS = 0.4
"""A part that keeps this share of its pull when another is given back counts beside it."""
LEFT, LEAST_LEFT = 0.45, 0.13
"""A whole that keeps this share of its pull, and this much of it, when its parts are given back counts beside them."""
MOSTLY_LEFT = 0.6, 0.08
"""A faint whole counts with less, when most of it is left."""
EXPLAINS = 0.65
"""A place that pulls less than this share of the background is a bit of the scene: a frame that is the whole shortcut
pulls like the whole."""
ADDS = 0.2
"""A part that takes less than this share from the pull of the whole is only a bit of it."""
ALONG = 0.5
"""A property of the whole picture is shared by the objects when they go at least half of its way."""
MEASURED = 200
"""Images that this is measured on."""
SHOWN = 0.1
"""A place counts as a thing of its own when at least this share of the pictures shows it so."""
SAID = 0.05
"""Share of a property's variation within classes that must go with the answers to tell what the model reads."""
LEVELLED = 0.6
"""A cue that keeps less than this share of its pull with donors that are all seen from close comes from the size."""
FAINT = 0.2
"""Size can explain what has up to five times its pull: it is read off coarse outlines, and its pull is the fainter."""
SMALLER = 0.1
"""Of two parts that pull alike the smaller one goes first."""
WORTH = 0.3
"""A part with less than this share of the whole's pull is a bit of it without being asked."""


@dataclass
class Nesting:
    """Which accused cue is explained by which, and how much of a whole's pull a part holds, by key."""

    explained: dict[str, Cue] = field(default_factory=dict)
    holds: dict[str, float] = field(default_factory=dict)

    def follow_up(self) -> None:
        """What was explained by what is explained now is explained by that."""
        for key, by in list(self.explained.items()):
            self.explained[key] = self.explained.get(by.key, by)


def wholes(cue: Cue) -> list[str]:
    """Keys of the cues that hold this one, the nearest first.

    >>> wholes(BY_KEY["corner-tr"])
    ['frame', 'background']
    """
    out = []
    while cue.part_of is not None and cue.part_of in BY_KEY:
        cue = BY_KEY[cue.part_of]
        out.append(cue.key)
    return out


def disentangle(
    sheet: Sheet, predict: Predict, accused: Sequence[Pull], features: Mapping[str, NDArray[np.float64]] | None = None
) -> Nesting:
    """Tell accused cues apart that hold each other.

    First the parts among themselves, strongest first: one that loses its pull when a stronger one is given back is
    explained by it. Then the whole: it stands when enough of its pull is left with the remaining parts given back. The
    colour of a scene is the scene's: what the objects do not share is no property of the picture.
    """
    found = Nesting()
    whole = next((pull for pull in accused if pull.cue.key == "background"), None)
    parts = sorted(
        (p for p in accused if wholes(p.cue)), key=lambda pull: -pull.value * (1 + SMALLER * len(wholes(pull.cue)))
    )
    if whole is not None:
        for pull in parts:
            if pull.value < WORTH * whole.value or not shared(sheet, pull.cue) or not shown(sheet, pull.cue):
                found.explained[pull.cue.key] = whole.cue
    kept: list[Pull] = []
    for pull in parts:
        if pull.cue.key in found.explained:
            continue
        by = next((strong for strong in kept if not _stands(sheet, predict, pull, strong)), None)
        if by is None:
            kept.append(pull)
        else:
            found.explained[pull.cue.key] = by.cue
    if whole is not None:
        _of_the_whole(sheet, predict, whole, kept, found, features or {})
        reason = found.explained.get(whole.cue.key)
        for pull in parts:  # a rim without a frame is what the whole is
            if reason is not None and pull.cue.drawn is not None and found.explained.get(pull.cue.key) == whole.cue:
                found.explained[pull.cue.key] = reason
    return found


def from_closer(sheet: Sheet, predict: Predict, accused: Sequence[Pull], found: Nesting) -> None:
    """Who sees one class from closer sees other surroundings: what loses its pull once all donors are seen from close
    is explained by the size of the object. Adds to ``found``."""
    size = next((pull for pull in accused if pull.cue.key == SIZE.key and pull.value >= FOUND_GAP), None)
    if size is None:
        return
    for pull in accused:
        if pull is size or pull.cue.key in found.explained or pull.value > size.value / FAINT:
            continue
        if not can_be_levelled(sheet, pull, accused):
            continue
        pairs = pull.pairs[:COMPARED]
        own = pull_of_pairs(sheet, pull.cue, predict, pairs)
        if pull_of_pairs(sheet, from_as_close(pull.cue), predict, pairs) < LEVELLED * own:
            found.explained[pull.cue.key] = size.cue
    found.follow_up()


def can_be_levelled(sheet: Sheet, pull: Pull, accused: Sequence[Pull]) -> bool:
    """Whether donors can be enlarged, turned or stretched to see what is left of a pull: not where it may come from
    something at a place, such as a frame, which would be moved out of the picture."""
    places = [p for p in accused if p.cue.region is not None and p.cue.drawn is not None and shown(sheet, p.cue)]
    held = any(place.value >= EXPLAINS * pull.value for place in places)
    return not (pull.cue.full_size or pull.cue.region is not None or held)


def shown(sheet: Sheet, cue: Cue) -> bool:
    """Whether some pictures show a place as a thing of its own; where none does, it is a bit of the scene."""
    drawn = cue.drawn
    if drawn is None:
        return True
    return sheet.measured(drawn, lambda: float(drawn(sheet.first(MEASURED).images).float().mean())) >= SHOWN


def shared(sheet: Sheet, cue: Cue) -> bool:
    """Whether the objects show a property of the whole picture as their surroundings do.

    Between images of one class that the model names differently, how far do the objects differ in it, for every step
    that the surroundings differ?
    """
    if cue.measure is None:
        return True
    outside, inside = sheet.measured(cue.measure, lambda: _out_and_in(sheet.first(MEASURED), cue))
    sheet, outside, inside = sheet.first(MEASURED), outside.copy(), inside.copy()
    for values in (outside, inside):
        for label in np.unique(sheet.labels):
            values[sheet.labels == label] -= values[sheet.labels == label].mean(0)
    met = along = 0.0
    for label in np.unique(sheet.labels):
        for answer in np.unique(sheet.predictions):
            mine = (sheet.labels == label) & (sheet.predictions == answer)
            if mine.any():
                out, in_ = outside[mine].mean(0), inside[mine].mean(0)
                met, along = met + mine.sum() * float(out @ out), along + mine.sum() * float(out @ in_)
    if met < SAID * float((outside**2).sum()):  # the answers do not tell; how the images vary by themselves does
        met, along = float((outside**2).sum()), float((outside * inside).sum())
    return along > ALONG * met


def _out_and_in(sheet: Sheet, cue: Cue) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A property of the whole picture as the surroundings and as the objects show it, ``[n, d]`` each."""
    if cue.measure is None:
        raise ValueError(f"'{cue.key}' cannot be measured")
    images, tight = sheet.images.float(), sheet.masks if sheet.tight is None else sheet.tight
    outside = cue.measure(images, sheet.masks.float()).double().numpy()
    return outside, cue.measure(images, 1 - core(tight.float(), 0.05)).double().numpy()


def _stands(sheet: Sheet, predict: Predict, pull: Pull, strong: Pull) -> bool:
    pairs = pull.pairs[:COMPARED]
    own = pull_of_pairs(sheet, pull.cue, predict, pairs)
    return pull_of_pairs(sheet, pull.cue.without(strong.cue), predict, pairs) >= max(STANDS * own, FOUND_GAP / 2)


def _of_the_whole(
    sheet: Sheet,
    predict: Predict,
    whole: Pull,
    kept: Sequence[Pull],
    found: Nesting,
    features: Mapping[str, NDArray[np.float64]],
) -> None:
    if not kept:
        return
    pairs = whole.pairs[:COMPARED]
    full = pull_of_pairs(sheet, whole.cue, predict, pairs)
    for pull in kept:
        mine, of = _given_back_to(pull.cue, whole, features), full
        if mine != pairs:
            of = pull_of_pairs(sheet, whole.cue, predict, mine)
        rest = pull_of_pairs(sheet, whole.cue.without(pull.cue), predict, mine)
        found.holds[pull.cue.key] = share_held(of, rest)
    bare = whole.cue
    for pull in kept:
        bare = bare.without(pull.cue)
    rest = full * (1 - max(found.holds.values())) if len(kept) == 1 else pull_of_pairs(sheet, bare, predict, pairs)
    if left_over(full, rest):
        for pull in kept:
            if pull.cue.aspect is not None or found.holds[pull.cue.key] < ADDS:
                found.explained[pull.cue.key] = whole.cue
        return
    enough = [pull for pull in kept if pull.cue.region is None or pull.value >= EXPLAINS * whole.value]
    if enough:
        found.explained[whole.cue.key] = max(enough, key=lambda pull: found.holds[pull.cue.key]).cue
    else:
        found.explained |= {pull.cue.key: whole.cue for pull in kept}


def left_over(full: float, rest: float) -> bool:
    """Whether ``rest`` of a whole's pull ``full``, with its parts given back, is enough to count beside them.

    >>> left_over(0.6, 0.2), left_over(0.6, 0.3), left_over(0.2, 0.1), left_over(0.2, 0.12)
    (False, True, False, True)
    """
    share, least = MOSTLY_LEFT
    return rest >= max(LEFT * full, LEAST_LEFT) or rest >= max(share * full, least)


def _given_back_to(cue: Cue, whole: Pull, features: Mapping[str, NDArray[np.float64]]) -> tuple[Triple, ...]:
    """The pairs of the whole's exchange in which a part can be given back: coarse images, where it only coarsens."""
    if cue.receives is None or cue.key not in features:
        return whole.pairs[:COMPARED]
    fine = cue.receives(features[cue.key])
    coarse = tuple(pair for pair in whole.pairs if not fine[pair[0]])[:COMPARED]
    return coarse if len(coarse) >= COMPARED // 4 else whole.pairs[:COMPARED]


def share_held(full: float, rest: float) -> float:
    """How much of a pull goes with a part, when ``rest`` is left without it.

    >>> share_held(0.6, 0.15), share_held(0.6, 0.7), share_held(0.0, 0.0)
    (0.75, 0.0, 0.0)
    """
    return 0.0 if full <= 0 else min(1.0, max(0.0, 1 - rest / full))
