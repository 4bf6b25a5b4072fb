"""Who gives and who gets: the donors of an experiment, chosen by what the model says about them.

The draw is made so that models share it: recipients come in one order for all, and a recipient's donor is the first in
an order common to all models that qualifies. Models that mostly agree then exchange mostly the same images, and what
was made, or seen, of such a pair serves all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.pictures import Sheet

OVERLAP = 0.25
"""A place is not tested in images whose object covers more than this share of it."""
FEWEST_TAKEN = 6
"""Images of a class that must be taken for another one, and of that one for the first, to exchange what may belong to a
class: only then does it occur in both."""


def spoken_for(
    features: NDArray[np.float64], answers: NDArray[np.int64], within: NDArray[np.int64] | None = None
) -> dict[int, NDArray[np.float64]]:
    """How much each image's property speaks for each class that the model names, by class: ``[n]``.

    ``within`` divides the images into parts ``[n]``, and only what the property says within a part counts.

    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> spoken_for(x, np.array([0, 0, 0, 1, 1, 1]))[1].round(1).tolist()[::3]
    [-0.0, 0.8]
    """
    classes = np.unique(answers[answers >= 0])
    hot = (answers[:, None] == classes).astype(np.float64)
    for part in () if within is None else np.unique(within):
        hot[within == part] -= hot[within == part].mean(0)
    read = left_out(features, hot)
    return {int(k): read[:, column] for column, k in enumerate(classes)}


def left_out(features: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """What ridge regressions from ``features`` ``[n, d]`` say of ``targets`` ``[n, P]``; every image is read by the fit
    that leaves it out, which for ridge regression needs no second fit."""
    spread = features.std(0)
    x = np.clip((features - features.mean(0))[:, spread > 1e-9] / spread[spread > 1e-9], -6, 6)
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    gram = x.T @ x + np.diag([max(1.0, 0.02 * len(x))] * (x.shape[1] - 1) + [1e-6])
    hat = x @ np.linalg.solve(gram, x.T)
    own = np.clip(np.diag(hat), 0, 0.99)[:, None]
    return np.asarray((hat @ targets - own * targets) / (1 - own))


def donor_pools(
    sheet: Sheet, usable: NDArray[np.bool_], speaks: dict[int, NDArray[np.float64]] | None = None
) -> dict[int, NDArray[np.int64]]:
    """Of the images the model takes for a class, the half in which the property speaks for it most clearly, by class.

    ``speaks`` is from :func:`spoken_for`; without it the model's confidence decides.
    """
    pools: dict[int, NDArray[np.int64]] = {}
    able = usable & (sheet.predictions >= 0)  # an image without an answer speaks for no class
    for k in np.unique(sheet.predictions[able]):
        mine = np.flatnonzero(able & (sheet.predictions == k))
        order = _ranks(sheet.confidence[mine])
        if speaks is not None and int(k) in speaks:
            order = order + 2 * _ranks(speaks[int(k)][mine])
        pools[int(k)] = mine[np.argsort(-order, kind="stable")][: max(2, (len(mine) + 1) // 2)]
    return pools


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def draw_donors(
    sheet: Sheet,
    usable: NDArray[np.bool_],
    rng: np.random.Generator,
    pools: dict[int, NDArray[np.int64]] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For every usable image a donor taken for its own class and one taken for another: ``(recipient, same, other)``.

    Every image has all others in a random order of its own, and its donor is the first of the pool in that order: any
    of the pool is as likely as any other, and models whose pools have most images in common draw mostly the same.
    ``pools`` are the donors by class, by default the more confident half of the usable images.
    """
    pools = donor_pools(sheet, usable) if pools is None else pools
    rows = []
    for i in range(len(sheet)):
        place, turn = rng.random(len(sheet)), rng.random()  # for unusable images too: the draw is the same for all
        own = int(sheet.labels[i])
        others = [k for k in pools if k != own]
        if not usable[i] or own not in pools or not others:
            continue
        place[i] = np.inf
        same, other = pools[own], pools[others[int(turn * len(others))]]
        j, k = int(same[place[same].argmin()]), int(other[place[other].argmin()])
        if i not in (j, k):
            rows.append((i, j, k))
    found = np.asarray(rows, dtype=np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def usable_images(sheet: Sheet, cue: Cue) -> NDArray[np.bool_]:
    """Which images a property can be tested in: for a fixed place, those whose object is elsewhere."""
    if cue.region is None:
        return np.ones(len(sheet), dtype=bool)
    region = cue.region(sheet.images.shape[-2], sheet.images.shape[-1])
    return (sheet.masks[:, region] > 0.5).float().mean(1).numpy() <= OVERLAP


def drawn_pairs(
    sheet: Sheet, cue: Cue, features: NDArray[np.float64] | None = None, seed: int = 0
) -> NDArray[np.int64]:
    """Recipients in random order, each with a donor taken for its own class and one taken for another, ``[n, 3]``.

    ``features`` are the property in numbers for every row of the sheet, ``[n, d]``, to choose donors by.
    """
    rng = np.random.default_rng([seed, sum(map(ord, cue.key))])
    order = rng.permutation(len(sheet))
    place, usable = usable_images(sheet, cue), np.ones(len(sheet), dtype=bool)
    speaks = None
    if features is not None:
        usable = usable if cue.receives is None else cue.receives(features)
        speaks = spoken_for(features, sheet.predictions)
    drawn = np.concatenate(
        [
            np.stack(draw_donors(sheet, place & usable & to, rng, donor_pools(sheet, place & of, speaks)), 1)
            for to, of in _kept_apart(sheet, cue)
        ]
    )
    return drawn[np.argsort(order[drawn[:, 0]])]


def _kept_apart(sheet: Sheet, cue: Cue) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """The images that get a cue and those that give it, ``[n]`` each, for every lot that is kept to itself.

    What may belong to a class stays within it, and is given only by images whose class and answer are mistaken for each
    other: pale foxes that are all taken for wolves say nothing against a model, unless red wolves are taken for foxes.
    """
    if not cue.within_class:
        everyone = np.ones(len(sheet), dtype=bool)
        return [(everyone, everyone)]
    lots = []
    for label in np.unique(sheet.labels):
        mine = sheet.labels == label
        both = [int(label)]
        for other in np.unique(sheet.labels[~mine]):
            there, back = ((sheet.labels == a) & (sheet.predictions == b) for a, b in ((label, other), (other, label)))
            if min(there.sum(), back.sum()) >= FEWEST_TAKEN:
                both.append(int(other))
        lots.append((mine, mine & np.isin(sheet.predictions, both)))
    return lots
