"""The most telling images: confident mistakes in the worst groups, as small pictures inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.look.gaze import Gaze
from foveate.measure import UNREADABLE, decided_by_shares, name_of
from foveate.report.abilities import cut_of, gaze_at, view_of
from foveate.report.reading import readable

PICTURE_SIDE = 208
"""Longer side of a picture in the report, in pixels."""
SMALL_SIDE = 128
"""The same where more than ``FEW_MODELS`` models are shown beside each other."""
FEW_MODELS = 4
LEAD_SIDE = 300
"""Longer side of the pictures that open the report."""


def data_uri(pixels: NDArray[np.uint8], quality: int = 84) -> str:
    """``uint8 [H, W, 3]`` as a JPEG inside a ``data:`` address.

    >>> data_uri(np.zeros((4, 4, 3), np.uint8))[:23]
    'data:image/jpeg;base64,'
    """
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def small_picture(image: Tensor, side: int = PICTURE_SIDE) -> NDArray[np.uint8]:
    """``uint8 [3, H, W]`` as a thumbnail ``[h, w, 3]``."""
    return thumbnail(np.ascontiguousarray(image.permute(1, 2, 0).numpy()), side)


def thumbnail(pixels: NDArray[np.uint8], side: int = PICTURE_SIDE) -> NDArray[np.uint8]:
    """The same picture with its longer side at ``side`` pixels; small ones grow, so that maps look smooth."""
    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


def overlay(gaze: Gaze, image: Tensor, side: int = PICTURE_SIDE) -> NDArray[np.uint8]:
    """The gaze of one image over it, at thumbnail size.

    Crops are in image pixels, so a gaze with crops is drawn at full size and then made small.
    """
    import torch

    if gaze.boxes is not None:
        return thumbnail(gaze.draw(image[None])[0], side)
    small = small_picture(image, side)
    return gaze.draw(torch.from_numpy(small.copy()).permute(2, 0, 1)[None])[0]


PART_COLOURS = (
    (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (240, 228, 66),
    (148, 103, 189), (140, 86, 75), (127, 127, 127),
)  # fmt: skip
"""Colours of parts, in order, that people with colour-blindness can tell apart; they repeat after ten."""


def kept_places(gaze: Gaze, image: Tensor) -> NDArray[np.uint8] | None:
    """The image with what the model's hard selection left out darkened, or None without a selection."""
    if gaze.mask is None:
        return None
    small = small_picture(image)
    kept = _on_pixels(gaze.mask.float(), small)[0, ..., None]
    return np.rint(small * (0.15 + 0.85 * kept)).astype(np.uint8)


def part_places(gaze: Gaze, image: Tensor) -> NDArray[np.uint8] | None:
    """The image tinted by the part that claims each place (the last one, the background, stays plain), or None."""
    if gaze.parts is None:
        return None
    small = small_picture(image)
    owner = _on_pixels(gaze.parts[0].float(), small).argmax(axis=0)
    background = gaze.parts.shape[1] - 1
    palette = np.asarray([PART_COLOURS[k % len(PART_COLOURS)] for k in range(background)] + [(0, 0, 0)])
    weight = np.where(owner == background, 0.0, 0.55)[..., None]
    return np.rint((1 - weight) * small + weight * palette[owner]).astype(np.uint8)


def _on_pixels(maps: Tensor, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    """``[K, h, w]`` on the model's grid to ``[K, H, W]``, each place a square, so that the grid shows."""
    import torch.nn.functional as F

    return F.interpolate(maps[:, None], picture.shape[:2], mode="nearest")[:, 0].numpy()


@dataclass(frozen=True)
class GazeView:
    """A further picture of where a model looked, which places it kept or which part claims each, as a ``data:``
    address."""

    kind: Literal["kept", "parts"]
    picture: str


@dataclass(frozen=True)
class ExampleAnswer:
    """What one model says about an example, and where it looked.

    Attributes:
        right: whether that is the image's class.
        kind: of heat map; None, as ``overlay``, when the model has no map.
        overlay: the heat map over the image, as a ``data:`` address.
        views: further pictures, of what it kept and which parts it saw.
    """

    model: str
    prediction: str
    probability: float
    right: bool
    kind: str | None = None
    overlay: str | None = None
    views: tuple[GazeView, ...] = ()


@dataclass(frozen=True)
class Example:
    """An image of the report with what every model says about it; ``picture`` is a ``data:`` address."""

    index: int
    where: str
    label: str
    attribute: str | None
    picture: str
    answers: tuple[ExampleAnswer, ...]


def views_of(gaze: Gaze, image: Tensor) -> tuple[GazeView, ...]:
    """Further pictures of where a model looked: which places it kept, and which parts it saw."""
    kept, parts = kept_places(gaze, image), part_places(gaze, image)
    views = [] if kept is None else [GazeView("kept", data_uri(kept))]
    return (*views, *([] if parts is None else [GazeView("parts", data_uri(parts))]))


def worst_examples(
    predictions: NDArray[np.int64],
    confidence: NDArray[np.float64],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    n: int,
    most_groups: int = 4,
) -> list[int]:
    """Positions of up to ``n`` confident mistakes, taken in turn from the groups with the lowest accuracy.

    >>> worst_examples(np.array([1, 1, 0, 1]), np.array([0.6, 0.9, 0.8, 0.7]), np.array([0, 0, 0, 1]),
    ...                np.array([0, 0, 0, 1]), n=2)
    [1, 0]
    """
    read = predictions != UNREADABLE
    wrong = read & (predictions != labels)
    order = sorted(np.unique(groups[wrong]), key=lambda g: (-wrong[groups == g].sum() / read[groups == g].sum(), g))
    piles = []
    for g in order[:most_groups]:
        mine = np.flatnonzero(wrong & (groups == g))
        piles.append([int(i) for i in mine[np.argsort(-confidence[mine], kind="stable")]])
    taken: list[int] = []
    while any(piles) and len(taken) < n:
        for pile in piles:
            if pile and len(taken) < n:
                taken.append(pile.pop(0))
    rank = {int(g): position for position, g in enumerate(order)}
    return sorted(taken, key=lambda i: (rank[int(groups[i])], -confidence[i]))


def illustrate(
    positions: list[int],
    systems: Mapping[str, Any],
    dataset: GroupedDataset,
    probabilities: Mapping[str, NDArray[np.float64]],
    class_names: list[str],
) -> list[Example]:
    """The chosen images with what every system says about them and where it looked; unreadable ones are left out.

    With many systems pictures are smaller and the further views left out: the page stays one small file.
    """
    side = PICTURE_SIDE if len(systems) <= FEW_MODELS else SMALL_SIDE
    chosen = dict(readable(dataset, positions))
    images = list(chosen.values())
    answers: dict[int, list[ExampleAnswer]] = {i: [] for i in chosen}
    for name, system in systems.items():
        gazes = gaze_at(system, images) if images else None
        for j, (i, image) in enumerate(chosen.items()):
            row = probabilities[name][i]
            k = int(decided_by_shares(row[None])[0])
            if k == UNREADABLE:
                continue
            said = ExampleAnswer(
                name, name_of(k, class_names), 0.0 if k < 0 else float(row[k]), k == int(dataset.labels[i])
            )
            answers[i].append(said if gazes is None else _with_gaze(said, gazes[j], image, system, side))
    names = dataset.attribute_names or []
    return [
        Example(
            i, dataset.where(i), dataset.class_names[dataset.labels[i]],
            None if dataset.attributes is None else names[dataset.attributes[i]],
            data_uri(small_picture(image, side)), tuple(answers[i]),
        )
        for i, image in chosen.items()
    ]  # fmt: skip


def looked_at(system: Any, gaze: Gaze, image: Tensor) -> Tensor:
    """The image as its gaze covers it: crops are in pixels of what the model saw, and the map of a cut image covers
    the cut only."""
    seen = cut_of(system) if gaze.boxes is None else view_of(system)
    return image if seen is None else seen.prepare(image)


def _with_gaze(said: ExampleAnswer, gaze: Gaze, image: Tensor, system: Any, side: int) -> ExampleAnswer:
    drawn = looked_at(system, gaze, image)
    views = views_of(gaze, drawn) if side == PICTURE_SIDE else ()
    return replace(said, kind=gaze.kind, overlay=data_uri(overlay(gaze, drawn, side)), views=views)
