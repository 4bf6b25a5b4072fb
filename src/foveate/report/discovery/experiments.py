"""The experiments: does the model's answer follow a property when it is exchanged between images?

For every image two donors are drawn: one that the model takes for the image's own class and one that it takes for
another class *k*. Both exchanges leave the same marks of editing; only what the property says differs. The *pull* is
how much more often the answer is *k* with the second donor than with the first. Donors are chosen by what the model
says about them, not by their label: so the test also works on balanced images, where a property and the label are
independent, and a model that does not use the property shows no pull whatever the images are like. Of the images taken
for a class, those serve as donors in which the property speaks for it most clearly (a ridge regression from the
property onto the answers, each image read by a fit without it).

**When an experiment stops.** A property is looked at after 56 images, then after twice as many and so on, at most
``J`` times, and left as soon as its interval is clear. Every look uses an interval of ``1 - 0.05 / J``, so that the
chance that *any* look misses the true pull is at most 5 % (union bound); its p-value is ``J`` times the smallest of the
looks. While no answer has turned, the donor of the own class is not asked: it could only lower the pull.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.cues.cue import as_pixels
from foveate.report.gaps import FOUND_GAP, FOUND_LOW

Predict = Callable[[Tensor], NDArray[np.int64]]
Triple = tuple[int, int, int]
OVERLAP = 0.25
"""A place is not tested in images whose object covers more than this share of it."""
FEWEST_TESTED = 30
"""Fewer images than this give no verdict on a property."""
FEWEST_TAKEN = 6
"""Images of a class that must be taken for another one, and of that one for the first, to exchange what may belong to a
class: only then does it occur in both."""
FIRST_LOOK = 56
"""Images before the first look: if not one of them turns, a pull of 10 of 100 is out of the question."""
ERROR = 0.05
"""How often, at most, any look of an experiment misses the true pull."""
OPEN = 4.0
"""Units of squared deviation that keep an interval open when no answer moved, or all did; near the exact bound."""


@dataclass(frozen=True)
class Sheet:
    """The images the experiments use, at the size the model sees.

    Attributes:
        images: ``uint8 [n, 3, H, W]``.
        masks: ``[n, H, W]``, 1 on the object and a margin around it.
        labels, predictions: ``[n]``.
        confidence: the model's probability of its prediction, ``[n]``.
        positions: where the images are in the dataset, ``[n]``.
        tight: ``[n, H, W]``, 1 on the object alone; None where nothing better than ``masks`` is known.
        original: a position to the image as it is stored, ``uint8 [3, h, w]``; ``view`` makes it what the model sees.
        keeps: places that every exchange leaves as they are in its recipient, ``uint8 [n, H, W]``; None for none.
        donors: the images as donors, ``uint8 [n, 3, H, W]``; None for ``images``.
    """

    images: Tensor
    masks: Tensor
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    confidence: NDArray[np.float64]
    positions: NDArray[np.int64]
    tight: Tensor | None = None
    original: Callable[[int], Tensor] | None = field(default=None, compare=False)
    view: Preprocess | None = None
    keeps: Tensor | None = None
    donors: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)

    def first(self, n: int) -> Sheet:
        """The first ``n`` images, which are a random draw."""
        return replace(
            self, images=self.images[:n], masks=self.masks[:n], labels=self.labels[:n],
            predictions=self.predictions[:n], confidence=self.confidence[:n], positions=self.positions[:n],
            tight=None if self.tight is None else self.tight[:n],
            keeps=None if self.keeps is None else self.keeps[:n],
            donors=None if self.donors is None else self.donors[:n],
        )  # fmt: skip


@dataclass(frozen=True)
class Pull:
    """How far a property moves the model's answers; shares of images in ``[0, 1]``.

    Attributes:
        cue: the property.
        n: images tested.
        value, low, high: the pull with an interval that holds at every look together (95 %).
        p: one-sided p-value that the pull is above zero, before correction for many tests; ``adjusted`` is it after.
        same, other: accuracy with the property of the own class (of the images as they are, where no answer turned),
            and of another class.
        examples: recipients whose answer turned, with the donor and the answer, ``(i, j, k)``: rows of the sheet.
        held: the same for recipients that were named rightly although the donor is of another class.
        generous: the pull when the object keeps a margin of its own background; None where that was not asked.
        pairs: recipient, donor of the own class and donor of another class, ``(i, j, k)``: rows of the sheet.
        planned: how many images it would have used, had it been doubtful to the end.
    """

    cue: Cue
    n: int
    value: float
    low: float
    high: float
    p: float
    same: float
    other: float
    examples: tuple[Triple, ...] = ()
    held: tuple[Triple, ...] = ()
    adjusted: float | None = None
    generous: Pull | None = None
    pairs: tuple[Triple, ...] = ()
    planned: int = 0


def planned_looks(images: int) -> list[int]:
    """After how many images an experiment is looked at.

    >>> planned_looks(500), planned_looks(100), planned_looks(40)
    ([56, 112, 224, 500], [56, 100], [40])
    """
    sizes = [FIRST_LOOK]
    while 2 * sizes[-1] <= images:
        sizes.append(2 * sizes[-1])
    if sizes[-1] < images and images < 1.2 * sizes[-1]:
        sizes.pop()  # a last look at hardly more images would cost certainty and bring none
    return [*(size for size in sizes if size < images), images]


# -- donors ---------------------------------------------------------------------------------------


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

    ``pools`` are the donors by class, by default the more confident half of the usable images.
    """
    pools = donor_pools(sheet, usable) if pools is None else pools
    rows = []
    for i in np.flatnonzero(usable):
        own = int(sheet.labels[i])
        others = [k for k in pools if k != own]
        if own not in pools or not others:
            continue
        same = pools[own][pools[own] != i]
        other = pools[others[int(rng.integers(len(others)))]]
        other = other[other != i]
        if len(same) and len(other):
            rows.append((i, int(rng.choice(same)), int(rng.choice(other))))
    found = np.asarray(rows, dtype=np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def usable_images(sheet: Sheet, cue: Cue) -> NDArray[np.bool_]:
    """Which images a property can be tested in: for a fixed place, those whose object is elsewhere."""
    if cue.region is None:
        return np.ones(len(sheet), dtype=bool)
    region = cue.region(sheet.images.shape[-2], sheet.images.shape[-1])
    return (sheet.masks[:, region] > 0.5).float().mean(1).numpy() <= OVERLAP


# -- measuring ------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The answers of one experiment so far; one row an image."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    turned: list[bool] = field(default_factory=list)
    control: list[bool | None] = field(default_factory=list)
    right: list[tuple[bool, bool]] = field(default_factory=list)

    @property
    def gains(self) -> NDArray[np.float64]:
        """1 where only the donor of another class brought its answer, -1 where only the own class's did, else 0."""
        return np.asarray([float(t) - float(bool(c)) for t, c in zip(self.turned, self.control, strict=True)])

    @property
    def settled(self) -> bool:
        """Whether the own class's donor was asked wherever it matters for an accusation."""
        return all(c is not None for c in self.control)


@dataclass(frozen=True)
class PullPlan:
    """How one experiment is run.

    Attributes:
        looks: after how many images to look, from :func:`planned_looks`.
        tests: how many properties are tested in all: each has to be that much surer (Bonferroni) to stop as found.
        features: the property in numbers for every row of the sheet, ``[n, d]``, to choose donors by.
        generous: whether the object keeps a margin of its background, for cues that cut it out.
        until: an image or moment after which no further look is begun; True means stop.
    """

    looks: Sequence[int]
    tests: int = 1
    features: NDArray[np.float64] | None = None
    generous: bool = False
    until: Callable[[], bool] = lambda: False

    @property
    def z(self) -> float:
        return NormalDist().inv_cdf(1 - ERROR / 2 / len(self.looks))


def measure_pull(
    sheet: Sheet,
    cue: Cue,
    predict: Predict,
    *,
    plan: PullPlan | None = None,
    drawn: NDArray[np.int64] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Pull | None:
    """Exchange ``cue`` between the images of ``sheet`` and see whether the answers follow it.

    Args:
        predict: ``uint8 [B, 3, H, W]`` to class indices ``[B]``.
        plan: when to look and stop; by default one look at all images.
        drawn: recipients and their donors, as :func:`draw_donors` gives them, ``[n, 3]``; by default drawn here.

    Returns None when there are too few images, or all answers are of one class.
    """
    if cue.exchange is None:
        return None
    plan = plan or PullPlan([len(sheet)])
    drawn = drawn_pairs(sheet, cue, plan, seed) if drawn is None else drawn
    if len(drawn) < FEWEST_TESTED:
        return None
    plan = replace(plan, looks=planned_looks(min(len(drawn), plan.looks[-1])) if len(plan.looks) > 1 else plan.looks)
    tally, found = Tally(), None
    for number, size in enumerate(plan.looks):
        fresh = drawn[len(tally.rows) : size]
        for start in range(0, len(fresh), batch_size):
            _ask(sheet, cue, predict, fresh[start : start + batch_size], tally, plan.generous)
        last = number == len(plan.looks) - 1 or size >= len(drawn) or plan.until()
        if tally.gains.sum() > 0 and not tally.settled:
            _control(sheet, cue, predict, tally, plan.generous, batch_size)
        found = _counted(cue, sheet, tally, plan, found)
        if last or clear(found, plan.tests, number):
            break
    return found


def drawn_pairs(sheet: Sheet, cue: Cue, plan: PullPlan, seed: int) -> NDArray[np.int64]:
    """Recipients in random order, each with a donor taken for its own class and one taken for another, ``[n, 3]``."""
    rng = np.random.default_rng([seed, sum(map(ord, cue.key))])
    place, usable = usable_images(sheet, cue), np.ones(len(sheet), dtype=bool)
    speaks = None
    if plan.features is not None:
        usable = usable if cue.receives is None else cue.receives(plan.features)
        speaks = spoken_for(plan.features, sheet.predictions)
    drawn = np.concatenate(
        [
            np.stack(draw_donors(sheet, place & usable & to, rng, donor_pools(sheet, place & of, speaks)), 1)
            for to, of in _kept_apart(sheet, cue)
        ]
    )
    return drawn[rng.permutation(len(drawn))]


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


def clear(pull: Pull, tests: int, look: int) -> bool:
    """Whether a further look would change nothing: surely too small to matter, or found (not on the first few)."""
    if pull.high < FOUND_GAP:
        return True
    enough = FOUND_GAP if pull.cue.within_class else FOUND_LOW  # what may belong to the class has to be the surer
    return look > 0 and pull.value >= FOUND_GAP and pull.low >= enough and pull.p * tests < ERROR


def _ask(sheet: Sheet, cue: Cue, predict: Predict, drawn: NDArray[np.int64], tally: Tally, generous: bool) -> None:
    """Exchange with the donor of another class; where the answer is that class, with the own class's too."""
    i, j, k = drawn[:, 0], drawn[:, 1], drawn[:, 2]
    answers, target, truth = predict(exchange(sheet, cue, i, k, generous)), sheet.predictions[k], sheet.labels[i]
    turned = answers == target
    control: list[bool | None] = [None] * len(i)
    same = sheet.predictions[i] == truth
    if turned.any():
        asked = np.flatnonzero(turned)
        own = predict(exchange(sheet, cue, i[asked], j[asked], generous))
        for row, said in zip(asked, own, strict=True):
            control[row], same[row] = bool(said == target[row]), bool(said == truth[row])
    tally.rows += [(int(a), int(b), int(c)) for a, b, c in drawn]
    tally.turned += [bool(t) for t in turned]
    tally.control += control
    tally.right += [(bool(a), bool(b)) for a, b in zip(same, answers == truth, strict=True)]


def _control(sheet: Sheet, cue: Cue, predict: Predict, tally: Tally, generous: bool, batch_size: int) -> None:
    """Ask the donor of the own class wherever that was put off."""
    left = [row for row, asked in enumerate(tally.control) if asked is None]
    for start in range(0, len(left), batch_size):
        rows = left[start : start + batch_size]
        i, j, k = (np.asarray([tally.rows[row][part] for row in rows]) for part in range(3))
        answers = predict(exchange(sheet, cue, i, j, generous))
        for row, said, target, truth in zip(rows, answers, sheet.predictions[k], sheet.labels[i], strict=True):
            tally.control[row] = bool(said == target)
            tally.right[row] = (bool(said == truth), tally.right[row][1])


def _counted(cue: Cue, sheet: Sheet, tally: Tally, plan: PullPlan, before: Pull | None) -> Pull:
    gains = tally.gains
    mean, n = float(gains.mean()), len(gains)
    error = math.sqrt((float(gains.var()) * n + OPEN) / n / n)
    p = min(1.0, len(plan.looks) * 0.5 * math.erfc(mean / error / math.sqrt(2)))
    same, other = np.asarray(tally.right, dtype=float).mean(0)
    turned = [(i, k, int(sheet.predictions[k])) for (i, _, k), gain in zip(tally.rows, gains, strict=True) if gain > 0]
    held = [(i, k, int(sheet.labels[i])) for (i, _, k), right in zip(tally.rows, tally.right, strict=True) if right[1]]
    return Pull(
        cue, n, mean, mean - plan.z * error, mean + plan.z * error, p if before is None else min(p, before.p),
        float(same), float(other), tuple(turned), tuple(held), pairs=tuple(tally.rows),
        planned=plan.looks[-1],
    )  # fmt: skip


def pull_of_pairs(
    sheet: Sheet, cue: Cue, predict: Predict, pairs: Sequence[Triple], generous: bool = False, batch_size: int = 32
) -> float:
    """The pull of an exchange for given recipients and donors, to compare exchanges on the same images."""
    gains: list[float] = []
    for start in range(0, len(pairs), batch_size):
        i, j, k = np.asarray(pairs[start : start + batch_size]).T
        other, same = (predict(exchange(sheet, cue, i, donors, generous)) for donors in (k, j))
        target = sheet.predictions[k]
        gains += list((other == target).astype(float) - (same == target))
    return float(np.mean(gains))


def exchange(
    sheet: Sheet, cue: Cue, recipients: Sequence[int] | NDArray[np.int64], donors: Any, generous: bool = False
) -> Tensor:
    """The recipients with the donors' property, ``uint8 [B, 3, H, W]``; ``generous`` leaves a margin at the object."""
    if cue.exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")
    rows, others = np.asarray(recipients), np.asarray(donors)
    i, j = torch.as_tensor(rows), torch.as_tensor(others)
    if cue.full_size and sheet.original is not None and sheet.view is not None:
        made = torch.stack([_at_full_size(sheet, cue, int(i), int(j)) for i, j in zip(rows, others, strict=True)])
    else:
        tight = sheet.masks if sheet.tight is None or generous else sheet.tight
        cut, hidden = tight if cue.cuts or cue.outlined else sheet.masks, tight if cue.outlined else sheet.masks
        giving = sheet.images if sheet.donors is None else sheet.donors
        made = as_pixels(cue.exchange(sheet.images[i].float(), cut[i].float(), giving[j].float(), hidden[j].float()))
    return made if sheet.keeps is None else torch.where(sheet.keeps[i][:, None] > 0, sheet.images[i], made)


def _at_full_size(sheet: Sheet, cue: Cue, i: int, j: int) -> Tensor:
    if cue.exchange is None or sheet.original is None or sheet.view is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged at full size")
    x, donor = (sheet.original(int(sheet.positions[row])).float()[None] for row in (i, j))
    empty = [torch.zeros(image.shape[0], *image.shape[-2:]) for image in (x, donor)]
    return sheet.view.prepare(as_pixels(cue.exchange(x, empty[0], donor, empty[1]))[0])
