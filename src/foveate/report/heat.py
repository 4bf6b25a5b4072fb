"""Where the models looked: heat maps of chosen images, and how much of the heat lies on the object."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import UnreadableImage
from foveate.look.gaze import Gaze
from foveate.measure import core_gradcam_percentage
from foveate.report.gaps import Z95
from foveate.report.groups import percent

GAZE_IMAGES = 64
"""How many images (half of them right, half wrong where there are as many) the heat-map figures rest on."""
BATCH = 16
"""Images looked at together."""


def gaze_at(system: Any, images: Sequence[Tensor], batch: int = BATCH) -> list[Gaze] | None:
    """The gaze of ``system`` on each image, one :class:`Gaze` of batch size one each.

    None when the system has nothing to show (no ``look``, or it is not implemented).
    """
    look = getattr(system, "look", None)
    if look is None:
        return None
    out: list[Gaze] = []
    for start in range(0, len(images), batch):
        try:
            gaze = look(list(images[start : start + batch]))
        except NotImplementedError:
            return None
        if gaze is None:
            return None
        out.extend(_one(gaze, i) for i in range(len(gaze)))
    return out


def _one(gaze: Gaze, i: int) -> Gaze:
    def cut(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[i : i + 1].detach().cpu()

    return replace(
        gaze,
        map=gaze.map[i : i + 1].detach().cpu(),
        parts=cut(gaze.parts),
        mask=cut(gaze.mask),
        boxes=cut(gaze.boxes),
        scores={},
    )


def seen_by(system: Any) -> Any | None:
    """The system's :class:`~foveate.data.preprocess.Preprocess` when it cuts images: its maps cover the cut only."""
    view = getattr(system, "preprocess_", None)
    return view if getattr(view, "fit", None) == "crop" else None


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


def choose(
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


def object_share(
    system: Any,
    dataset: GroupedDataset,
    predictions: NDArray[np.int64],
    *,
    n: int = GAZE_IMAGES,
    seed: int = 0,
    tick: Callable[[int], None] | None = None,
) -> dict[str, Any] | None:
    """How much of the system's heat lies on the object, for right and for wrong predictions.

    None without masks and boxes, or when the system has no map. Otherwise ``{kind, images, empty, right, wrong,
    sentence}``, where ``right`` and ``wrong`` hold ``{n, on_object, low, high, area,
    more_than_area_low, more_than_area_high}`` or None.
    """
    if dataset.masks is None and dataset.boxes is None:
        return None
    right, read = predictions == dataset.labels, predictions >= 0
    groups = dataset.labels if dataset.groups is None else dataset.groups
    sides: dict[str, list[tuple[float, float]]] = {"right": [], "wrong": []}
    empty, kind = 0, ""
    chosen = choose(right & read, ~right & read, groups, n, seed)
    for start in range(0, len(chosen), BATCH):  # in batches, since images may be large
        positions = chosen[start : start + BATCH]
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
                sides["right" if right[i] else "wrong"].append((share, float(mask.mean())))
    images = sum(len(values) for values in sides.values())
    found: dict[str, Any] = {"kind": kind, "images": images, "empty": empty}
    found.update({side: _mean(values) for side, values in sides.items()})
    found["sentence"] = _sentence(found)
    return found if found["images"] else None


def _with_objects(
    system: Any, dataset: GroupedDataset, positions: NDArray[np.int64]
) -> list[tuple[int, Tensor, Tensor]]:
    """``(position, image, mask)`` of those images that can be read and have an object, as the system sees them."""
    view = seen_by(system)
    found = []
    for i in (int(i) for i in positions):
        try:
            image = dataset[i].image
        except UnreadableImage:
            continue
        mask = object_mask(dataset, i, image.shape[-2], image.shape[-1])
        if mask is not None:
            found.append((i, image, mask if view is None else view.prepare_mask(mask)))
    return found


def _mean(values: list[tuple[float, float]]) -> dict[str, float] | None:
    if not values:
        return None
    share, area = np.asarray(values).T
    half = Z95 * float(share.std(ddof=1)) / len(share) ** 0.5 if len(share) > 1 else 1.0
    extra = share - area
    extra_half = Z95 * float(extra.std(ddof=1)) / len(extra) ** 0.5 if len(extra) > 1 else 1.0
    mean = float(share.mean())
    return {
        "n": len(share),
        "on_object": mean,
        "low": max(0.0, mean - half),
        "high": min(1.0, mean + half),
        "area": float(area.mean()),
        "more_than_area_low": float(extra.mean()) - extra_half,
        "more_than_area_high": float(extra.mean()) + extra_half,
    }


def _sentence(found: dict[str, Any]) -> str:
    def compared(side: dict[str, float]) -> str:
        if side["more_than_area_low"] > 0:
            return "more than an even spread"
        return "less than an even spread" if side["more_than_area_high"] < 0 else "no more than an even spread"

    parts = [
        f"when it is {side}, {percent(found[side]['on_object'])} of the heat lies on the object, which fills "
        f"{percent(found[side]['area'])} of the picture ({compared(found[side])})"
        for side in ("right", "wrong")
        if found[side]
    ]
    name = {"grad-cam": "Grad-CAM"}.get(found["kind"], found["kind"])
    return f"Where it looks ({name}, {found['images']} images): {'; '.join(parts)}."
