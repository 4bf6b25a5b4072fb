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
looks. The donor of the own class is asked at once where the answer turned. Elsewhere it could only lower the pull, so
it is put off until the pull without it would accuse, or until asking is likely to end the experiment: a small pull is
left with its high end, which holds, and no p-value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.donors import drawn_pairs
from foveate.report.discovery.pictures import Sheet, exchange
from foveate.report.gaps import FOUND_GAP

__all__ = [
    "Predict",
    "Pull",
    "PullPlan",
    "Sheet",
    "Triple",
    "exchange",
    "measure_pull",
    "planned_looks",
    "pull_of_pairs",
]

Predict = Callable[[Tensor], NDArray[np.int64]]
Triple = tuple[int, int, int]
FEWEST_TESTED = 30
"""Fewer images than this give no verdict on a property."""
FIRST_LOOK = 56
"""Images before the first look: if not one of them turns, a pull of 10 of 100 is out of the question."""
ERROR = 0.05
"""How often, at most, any look of an experiment misses the true pull."""
HINT = 0.03
"""A pull under this is too small to mention, however sure."""
OPEN = 4.0
"""Units of squared deviation that keep an interval open when no answer moved, or all did; near the exact bound."""


@dataclass(frozen=True)
class Pull:
    """How far a property moves the model's answers; shares of images in ``[0, 1]``.

    Attributes:
        cue: the property.
        n: images tested.
        value, low, high: the pull with an interval that holds at every look together (95 %). Of a pull too small to
            accuse not every control was asked: it is at most this large, and its low end may be lower.
        p: one-sided p-value that the pull is above zero, before correction for many tests; ``adjusted`` is it after.
            1 where controls are left out, since nothing is claimed.
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


@dataclass
class Tally:
    """The answers of one experiment so far; one row an image. ``p`` is the smallest of the looks with all controls."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    turned: list[bool] = field(default_factory=list)
    control: list[bool | None] = field(default_factory=list)
    right: list[tuple[bool, bool]] = field(default_factory=list)
    p: float = 1.0

    @property
    def gains(self) -> NDArray[np.float64]:
        """1 where only the donor of another class brought its answer, -1 where only the own class's did, else 0; one
        that was not asked counts as if it had not."""
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
        enough: stop at any look whose low end reaches this; None where only what is found in itself is enough.
        small: stop at a look whose high end is under this.
    """

    looks: Sequence[int]
    tests: int = 1
    features: NDArray[np.float64] | None = None
    generous: bool = False
    until: Callable[[], bool] = lambda: False
    enough: float | None = None
    small: float = FOUND_GAP

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
    drawn = drawn_pairs(sheet, cue, plan.features, seed) if drawn is None else drawn
    if len(drawn) < FEWEST_TESTED:
        return None
    plan = replace(plan, looks=planned_looks(min(len(drawn), plan.looks[-1])) if len(plan.looks) > 1 else plan.looks)
    tally, found = Tally(), None
    for number, size in enumerate(plan.looks):
        fresh = drawn[len(tally.rows) : size]
        for start in range(0, len(fresh), batch_size):
            _ask(sheet, cue, predict, fresh[start : start + batch_size], tally, plan.generous)
        last = number == len(plan.looks) - 1 or size >= len(drawn) or plan.until()
        found = _counted(cue, sheet, tally, plan)
        if not tally.settled and controls_matter(found, plan, number, last):
            _control(sheet, cue, predict, tally, plan.generous, batch_size)
            found = _counted(cue, sheet, tally, plan)
        if last or clear(found, plan, number):
            break
    return found if found is None or tally.settled else replace(found, p=tally.p)


def clear(pull: Pull, plan: PullPlan, look: int) -> bool:
    """Whether a further look would change nothing: surely too small to matter, or found (not on the first few)."""
    if pull.high < plan.small:
        return True
    if plan.enough is not None and pull.low >= plan.enough and pull.p < ERROR:
        return True
    surely = FOUND_GAP if pull.cue.within_class else pull.cue.least  # what may belong to the class has to be the surer
    return look > 0 and pull.value >= FOUND_GAP and pull.low >= surely and pull.p * plan.tests < ERROR


def controls_matter(pull: Pull, plan: PullPlan, look: int, last: bool) -> bool:
    """Whether to ask the controls that were put off, given the pull without them, which they can only lower.

    They matter when the experiment would end here and accuse, or end in doubt. When it would go on, they are asked if
    that is likely to end it: if, as in a model that does not use the property, own donors turn as many answers.

    >>> from foveate.report.discovery.cues import BY_KEY
    >>> plan = PullPlan([56, 112, 224])
    >>> def after(n, value, high, p):
    ...     pull = Pull(BY_KEY["colour"], n, value, 2 * value - high, high, p, 1.0, 1.0)
    ...     return controls_matter(pull, plan, look=1, last=False)
    >>> after(112, 0.02, 0.08, 0.4), after(112, 0.05, 0.12, 0.1), after(112, 0.2, 0.3, 1e-6), after(112, 0.15, 0.2, 0.1)
    (False, True, True, False)
    """
    ends = last or clear(pull, plan, look)
    if ends and pull.value >= HINT and pull.p < ERROR:
        return True
    if last:
        return pull.high >= plan.small
    return not ends and plan.z * math.sqrt(2 * max(pull.value, 0.0) * pull.n + OPEN) / pull.n < plan.small


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


def _counted(cue: Cue, sheet: Sheet, tally: Tally, plan: PullPlan) -> Pull:
    gains = tally.gains
    mean, n = float(gains.mean()), len(gains)
    error = math.sqrt((float(gains.var()) * n + OPEN) / n / n)
    p = min(1.0, len(plan.looks) * 0.5 * math.erfc(mean / error / math.sqrt(2)))
    p = min(p, tally.p)
    if tally.settled:
        tally.p = p
    same, other = np.asarray(tally.right, dtype=float).mean(0)
    turned = [(i, k, int(sheet.predictions[k])) for (i, _, k), gain in zip(tally.rows, gains, strict=True) if gain > 0]
    held = [(i, k, int(sheet.labels[i])) for (i, _, k), right in zip(tally.rows, tally.right, strict=True) if right[1]]
    given_up = FOUND_GAP <= mean + plan.z * error < plan.small  # a pull that other experiments find is not sought here
    return Pull(
        cue, n, mean, mean - plan.z * error, mean + plan.z * error, p,
        float(same), float(other), tuple(turned), tuple(held), pairs=tuple(tally.rows),
        planned=n if given_up else plan.looks[-1],
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
