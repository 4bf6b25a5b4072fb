"""How much of a model's heat lies on the object, on images chosen evenly from right and wrong answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import UnreadableImage
from foveate.look.gaze import Gaze
from foveate.measure import UNREADABLE, core_gradcam_percentage
from foveate.report.abilities import LOOK_BATCH, cut_of, gaze_at
from foveate.report.gaps import Z95
from foveate.report.reading import readable

GAZE_IMAGES = 64
"""How many images (half of them right, half wrong where there are as many) the heat-map figures rest on."""


def object_mask(dataset: GroupedDataset, index: int, height: int, width: int) -> Tensor | None:
    """What covers the object in image ``index``: its mask, else its box, as ``float [H, W]``; None without both."""
    try:
        mask = dataset.mask(index)
    except UnreadableImage:
        mask = None
    if mask is not None:
        return mask
    if dataset.boxes is None or not np.isfinite(dataset.boxes[index]).all():
        return None
    x0, y0, x1, y1 = (round(float(v)) for v in dataset.boxes[index])
    covered = torch.zeros(height, width)
    covered[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)] = 1.0
    return covered


def heat_on_object(gaze: Gaze, mask: Tensor) -> float | None:
    """Share of the heat that lies on the object, in ``[0, 1]``; None when the map is empty.

    Args:
        gaze: of one image, map ``[1, h, w]``.
        mask: ``[H, W]``, 1 on the object.

    >>> heat_on_object(Gaze(torch.ones(1, 2, 2)), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    0.25
    """
    share = core_gradcam_percentage(gaze.map.float().clamp(min=0), mask).value
    return None if math.isnan(share) else share


def choose_images(
    right: NDArray[np.bool_], wrong: NDArray[np.bool_], groups: NDArray[np.int64], n: int, seed: int
) -> NDArray[np.int64]:
    """Up to ``n`` positions, half right and half wrong where there are as many, spread evenly over the groups."""
    rng = np.random.default_rng(seed)

    def spread(which: NDArray[np.bool_], most: int) -> list[int]:
        piles = [list(rng.permutation(np.flatnonzero(which & (groups == g)))) for g in np.unique(groups[which])]
        taken: list[int] = []
        while piles and len(taken) < most:
            for pile in piles:
                if pile and len(taken) < most:
                    taken.append(int(pile.pop()))
            piles = [pile for pile in piles if pile]
        return taken

    wrongs = spread(wrong, n - min(n // 2, int(right.sum())))
    return np.asarray(sorted(wrongs + spread(right, n - len(wrongs))), dtype=np.int64)


@dataclass(frozen=True)
class HeatShare:
    """How much of the heat lies on the object, over ``n`` images.

    Attributes:
        on_object, low, high: the mean share with its 95 % interval.
        area: the share of the picture that the object fills: what an even spread would give.
        more_than_area_low, more_than_area_high: interval of the difference.
    """

    n: int
    on_object: float
    low: float
    high: float
    area: float
    more_than_area_low: float
    more_than_area_high: float

    @staticmethod
    def of(values: list[tuple[float, float]]) -> HeatShare | None:
        """From ``(share, area)`` of each image; None without any."""
        if not values:
            return None
        share, area = np.asarray(values).T
        half = Z95 * float(share.std(ddof=1)) / len(share) ** 0.5 if len(share) > 1 else 1.0
        extra = share - area
        extra_half = Z95 * float(extra.std(ddof=1)) / len(extra) ** 0.5 if len(extra) > 1 else 1.0
        mean, more = float(share.mean()), float(extra.mean())
        return HeatShare(
            len(share), mean, max(0.0, mean - half), min(1.0, mean + half), float(area.mean()),
            more - extra_half, more + extra_half,
        )  # fmt: skip


@dataclass(frozen=True)
class HeatOnObject:
    """How much of a system's heat lies on the object, for right and for wrong predictions.

    Attributes:
        kind: of heat map.
        images: how many were counted.
        empty: how many maps were empty.
    """

    kind: str
    images: int
    empty: int
    right: HeatShare | None
    wrong: HeatShare | None


def measure_heat(
    system: Any,
    dataset: GroupedDataset,
    predictions: NDArray[np.int64],
    *,
    n: int = GAZE_IMAGES,
    seed: int = 0,
    tick: Callable[[int], None] | None = None,
) -> HeatOnObject | None:
    """Look at up to ``n`` images with ``system``; None without masks and boxes, or when the system has no map."""
    if dataset.masks is None and dataset.boxes is None:
        return None
    right, read = predictions == dataset.labels, predictions != UNREADABLE
    groups = dataset.labels if dataset.groups is None else dataset.groups
    sides: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    empty, kind = 0, ""
    chosen = choose_images(right & read, ~right & read, groups, n, seed)
    for start in range(0, len(chosen), LOOK_BATCH):  # in batches, since images may be large
        positions = chosen[start : start + LOOK_BATCH]
        seen = _with_objects(system, dataset, positions)
        gazes = gaze_at(system, [image for _, image, _ in seen]) if seen else []
        if gazes is None:
            return None
        if tick is not None:
            tick(len(positions))
        for (i, _, mask), gaze in zip(seen, gazes, strict=True):
            kind = gaze.kind
            share = heat_on_object(gaze, mask)
            if share is None:
                empty += 1
            else:
                sides[bool(right[i])].append((share, float(mask.mean())))
    images = sum(len(values) for values in sides.values())
    if not images:
        return None
    return HeatOnObject(kind, images, empty, HeatShare.of(sides[True]), HeatShare.of(sides[False]))


def _with_objects(
    system: Any, dataset: GroupedDataset, positions: NDArray[np.int64]
) -> list[tuple[int, Tensor, Tensor]]:
    """``(position, image, mask)`` of those images that can be read and have an object, as the system sees them."""
    view = cut_of(system)
    found = []
    for i, image in readable(dataset, positions):
        mask = object_mask(dataset, i, image.shape[-2], image.shape[-1])
        if mask is not None:
            found.append((i, image, mask if view is None else view.prepare_mask(mask)))
    return found
