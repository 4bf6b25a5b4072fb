"""The experiments: does the model's answer follow a property when it is exchanged between images?

For every image two donors are drawn: one that the model takes for the image's own class and one that it takes for
another class *k*. Both exchanges leave the same marks of editing; only what the property says differs. The *pull* is
how much more often the answer is *k* with the second donor than with the first. Donors are chosen by what the model
says about them, not by their label: so the test also works on balanced images, where a property and the label are
independent, and a model that does not use the property shows no pull whatever the images are like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.cues.cue import as_pixels

Predict = Callable[[Tensor], NDArray[np.int64]]
OVERLAP = 0.25
"""A place is not tested in images whose object covers more than this share of it."""
FEWEST_TESTED = 30
"""Fewer images than this give no verdict on a property."""


@dataclass(frozen=True)
class Sheet:
    """The images the experiments use, at the size the model sees.

    Attributes:
        images: ``uint8 [n, 3, H, W]``.
        masks: ``float [n, H, W]``, 1 on the object and a margin around it.
        labels, predictions: ``[n]``.
        confidence: the model's probability of its prediction, ``[n]``.
        positions: where the images are in the dataset, ``[n]``.
    """

    images: Tensor
    masks: Tensor
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    confidence: NDArray[np.float64]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Pull:
    """How far a property moves the model's answers; shares of images in ``[0, 1]``.

    Attributes:
        cue: the property.
        n: images tested.
        value, low, high: the pull with its 95 % interval.
        p: one-sided p-value that the pull is above zero, before correction for many tests; ``adjusted`` is it after.
        same, other: accuracy with the property of the own class, and of another class.
        examples: recipients whose answer turned, with the donor and the answer, ``(i, j, k)``: rows of the sheet.
        held: the same for recipients that were named rightly although the donor is of another class.
    """

    cue: Cue
    n: int
    value: float
    low: float
    high: float
    p: float
    same: float
    other: float
    examples: tuple[tuple[int, int, int], ...] = ()
    held: tuple[tuple[int, int, int], ...] = ()
    adjusted: float | None = None


def draw_donors(
    sheet: Sheet, usable: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For every usable image a donor taken for its own class and one taken for another: ``(recipient, same, other)``.

    Of the images the model takes for a class, the more confident half serve as donors: they show most clearly what
    the model takes for that class.
    """
    usable_as_donor = usable & (sheet.predictions >= 0)  # an image without an answer speaks for no class
    classes = np.unique(sheet.predictions[usable_as_donor])
    pools: dict[int, NDArray[np.int64]] = {}
    for k in classes:
        mine = np.flatnonzero(usable_as_donor & (sheet.predictions == k))
        pools[int(k)] = mine[np.argsort(-sheet.confidence[mine], kind="stable")][: max(2, (len(mine) + 1) // 2)]
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


def measure_pull(
    sheet: Sheet, cue: Cue, predict: Predict, *, rounds: int = 1, seed: int = 0, batch_size: int = 32
) -> Pull | None:
    """Exchange ``cue`` between the images of ``sheet`` and see whether the answers follow it.

    Args:
        predict: ``uint8 [B, 3, H, W]`` to class indices ``[B]``.
        rounds: donor pairs per image.

    Returns None when there are too few images, or all answers are of one class.
    """
    if cue.exchange is None:
        return None
    rng = np.random.default_rng([seed, sum(map(ord, cue.key))])
    usable = usable_images(sheet, cue)
    gained: dict[int, list[float]] = {}
    right: list[tuple[bool, bool]] = []
    turned: list[tuple[int, int, int]] = []
    held: list[tuple[int, int, int]] = []
    for _ in range(rounds):
        recipients, same, other = draw_donors(sheet, usable, rng)
        for start in range(0, len(recipients), batch_size):
            at = slice(start, start + batch_size)
            i, j, k = recipients[at], same[at], other[at]
            answers = [predict(exchange(sheet, cue, i, donors)) for donors in (j, k)]
            target = sheet.predictions[k]
            gain = (answers[1] == target).astype(float) - (answers[0] == target)
            for row, value in zip(i, gain, strict=True):
                gained.setdefault(int(row), []).append(float(value))
            truth = sheet.labels[i]
            right += list(zip(answers[0] == truth, answers[1] == truth, strict=True))
            held += [
                (int(a), int(b), int(y)) for a, b, y, said in zip(i, k, truth, answers[1], strict=True) if said == y
            ]
            turned += [(int(a), int(b), int(t)) for a, b, t, g in zip(i, k, target, gain, strict=True) if g > 0]
    if len(gained) < FEWEST_TESTED:
        return None
    values = np.asarray([np.mean(v) for v in gained.values()])
    mean, n = float(values.mean()), len(values)
    # one unit of squared deviation on top keeps the interval open when no answer moved, or all did
    error = math.sqrt((float(values.var()) * n + 1.0) / n / n)
    same_right, other_right = np.asarray(right, dtype=float).mean(0)
    return Pull(
        cue, n, mean, mean - 1.96 * error, mean + 1.96 * error, 0.5 * math.erfc(mean / error / math.sqrt(2)),
        float(same_right), float(other_right), tuple(turned), tuple(held),
    )  # fmt: skip


def exchange(sheet: Sheet, cue: Cue, recipients: Sequence[int] | NDArray[np.int64], donors: Any) -> Tensor:
    """The recipients with the donors' property, ``uint8 [B, 3, H, W]``."""
    if cue.exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")
    i, j = torch.as_tensor(np.asarray(recipients)), torch.as_tensor(np.asarray(donors))
    return as_pixels(cue.exchange(sheet.images[i].float(), sheet.masks[i], sheet.images[j].float(), sheet.masks[j]))
