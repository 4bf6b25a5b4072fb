"""What can be read off every image besides its object: low-level properties, corners, border, background, metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import UnreadableImage
from foveate.measure import fill_object
from foveate.report.discovery.cues.exchanges import CORNERS, border, corner, luminance
from foveate.report.discovery.objects import Objects

SIDE = 96
"""Images are looked at with this side (squashed): properties then mean the same for images of all sizes."""
GIVEN = "column:attribute"
"""Key of the attribute that the user gave."""
MOST_VALUES = 50
"""A column of text with more values than this names things; it does not group them."""

Features = NDArray[np.float64]


@dataclass
class Observations:
    """Properties of the images at ``positions``, each ``[n, d]``, by key, and what each is called."""

    positions: NDArray[np.int64]
    features: dict[str, Features] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


NAMES = {
    "background": "the background", "brightness": "the brightness", "colour": "the colour cast",
    "sharpness": "the sharpness", "shape": "the size and shape of the picture", "compression": "the file size",
    "border": "the border of the picture",
    **{f"corner-{key}": f"something in the {name} corner" for key, name in CORNERS.items()},
}  # fmt: skip


def low_level(image: Tensor, stored_bytes: int | None = None) -> dict[str, list[float]]:
    """Simple properties of one image ``uint8 [3, H, W]``.

    >>> sorted(low_level(torch.zeros(3, 8, 8, dtype=torch.uint8)))[:4]
    ['border', 'brightness', 'colour', 'corner-bl']
    """
    height, width = image.shape[-2:]
    small = F.interpolate(image[None].float(), (SIDE, SIDE), mode="bilinear", antialias=True)
    mean = small.mean((2, 3))[0]
    light = float(luminance(small)[0])
    spread = small.amax(1) - small.amin(1)
    fine = small - F.avg_pool2d(small, 3, 1, 1, count_include_pad=False)
    out = {
        "brightness": [light, float(small.mean(1).std())],
        "colour": [float(mean[0] - light), float(mean[2] - light), float(spread.mean())],
        "sharpness": [float(fine.abs().mean().clamp(min=1e-3).log())],
        "shape": [float(np.log(width / height)), float(np.log(width * height))],
        "border": _pooled(small, border(SIDE, SIDE)),
    }
    for key in CORNERS:
        region = corner(key)(SIDE, SIDE)
        side = int(region.sum() ** 0.5)
        patch = small[0][:, region].reshape(1, 3, side, side)
        out[f"corner-{key}"] = F.adaptive_avg_pool2d(patch, 4).flatten().tolist()
    if stored_bytes is not None:
        out["compression"] = [float(np.log(max(stored_bytes, 1) / (height * width)))]
    return out


def _pooled(small: Tensor, region: Tensor) -> list[float]:
    """Mean and spread of each colour over the four sides of ``region``."""
    out: list[float] = []
    half = SIDE // 4
    for rows, columns in (
        (slice(0, half), slice(None)), (slice(SIDE - half, SIDE), slice(None)),
        (slice(None), slice(0, half)), (slice(None), slice(SIDE - half, SIDE)),
    ):  # fmt: skip
        part, here = small[0][:, rows, columns], region[rows, columns]
        out += part[:, here].mean(1).tolist()
    inside = small[0][:, region]
    return [*out, *inside.std(1).tolist()]


def background_descriptor(images: Tensor, masks: Tensor) -> Tensor:
    """Plates (the object painted over) described by coarse colours and amounts of detail: ``[B, 108]``.

    Args: ``images`` ``float [B, 3, S, S]``, ``masks`` ``[B, S, S]``.
    """
    plates = fill_object(images, (masks > 0.5).float())
    fine = (plates - F.avg_pool2d(plates, 3, 1, 1, count_include_pad=False)).abs().mean(1, keepdim=True)
    coarse = F.adaptive_avg_pool2d(plates, 5).flatten(1)
    detail = F.adaptive_avg_pool2d((fine + 1e-3).log() * 10, 5).flatten(1)
    return torch.cat([coarse, detail, plates.std((2, 3)), plates.mean((2, 3)), plates.amax(1).std((1, 2))[:, None],
                      plates.amin(1).std((1, 2))[:, None]], 1)  # fmt: skip


def observe(
    dataset: GroupedDataset,
    positions: NDArray[np.int64],
    objects: Objects,
    *,
    batch: int = 16,
    attribute: str = "attribute",
    tick: Callable[[int], None] | None = None,
) -> Observations:
    """Read the properties of the images at ``positions``, batch by batch; unreadable images are left out.

    ``attribute`` is what to call the dataset's attribute in a sentence.
    """
    rows: dict[str, list[list[float]]] = {}
    kept: list[int] = []
    embedded: list[Tensor] = []
    for start in range(0, len(positions), batch):
        images: list[Tensor] = []
        mine: list[int] = []
        for i in positions[start : start + batch]:
            try:
                images.append(dataset[int(i)].image)
                mine.append(int(i))
            except UnreadableImage:
                continue
        if tick is not None:
            tick(len(positions[start : start + batch]))
        if not images:
            continue
        small = torch.cat(
            [F.interpolate(i[None].float(), (SIDE, SIDE), mode="bilinear", antialias=True) for i in images]
        )
        masks = torch.stack([_small_mask(m) for m in objects.masks(images, mine)])
        for values in background_descriptor(small, masks).tolist():
            rows.setdefault("background", []).append(values)
        if objects.embed is not None:
            plates = fill_object(small, (masks > 0.5).float()).round().clamp(0, 255).to(torch.uint8)
            embedded.append(objects.embed(list(plates)))
        for i, image in zip(mine, images, strict=True):
            for key, values in low_level(image, _stored(dataset, i)).items():
                rows.setdefault(key, []).append(values)
        kept += mine
    found = {key: np.asarray(values, dtype=np.float64) for key, values in rows.items() if len(values) == len(kept)}
    if embedded:
        found["background"] = np.concatenate([found["background"], torch.cat(embedded).double().numpy()], 1)
    out = Observations(np.asarray(kept, dtype=np.int64), found, {key: NAMES[key] for key in found})
    for name, column in metadata(dataset, out.positions).items():
        out.features[f"column:{name}"] = column
        out.names[f"column:{name}"] = f"the column '{name}'"
    if GIVEN in out.names:
        out.names[GIVEN] = f"the {attribute}"
    return out


def _small_mask(mask: Tensor | None) -> Tensor:
    if mask is None:
        return torch.zeros(SIDE, SIDE)
    return F.interpolate(mask[None, None], (SIDE, SIDE), mode="nearest")[0, 0]


def _stored(dataset: GroupedDataset, i: int) -> int | None:
    """Bytes of the image file, for images that are files."""
    try:
        return Path(dataset.where(i)).stat().st_size
    except OSError:
        return None


def _same_split(values: Any, attributes: NDArray[np.int64] | None, positions: NDArray[np.int64]) -> bool:
    """Whether a column splits the images just as the attribute does, and so is the attribute once more."""
    if attributes is None:
        return False
    pairs = set(zip(values.astype(str), attributes[positions], strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def metadata(dataset: GroupedDataset, positions: NDArray[np.int64]) -> dict[str, Features]:
    """Columns of the dataset as features: numbers as they are, text and categories as one column a value."""
    columns: dict[str, Any] = dict(dataset.extras)
    if dataset.attributes is not None:
        columns["attribute"] = dataset.attributes
    out: dict[str, Features] = {}
    for name, raw in columns.items():
        values = np.asarray(raw)
        if values.ndim != 1 or len(values) != len(dataset):
            continue
        values = values[positions]
        unique = np.unique(values.astype(str))
        if len(unique) < 2 or (name != "attribute" and _same_split(values, dataset.attributes, positions)):
            continue
        if np.issubdtype(values.dtype, np.floating):
            out[name] = np.nan_to_num(values.astype(np.float64))[:, None]
        elif len(unique) <= min(MOST_VALUES, max(2, len(values) // 5)):
            out[name] = (values.astype(str)[:, None] == unique[None]).astype(np.float64)
        elif np.issubdtype(values.dtype, np.integer):
            out[name] = values.astype(np.float64)[:, None]
    return out
