"""Does attention lie on the object? Mass, hit, concentration, and how they change over layers and off centre.

Maps are attention (or any non-negative heat) on a patch grid, ``[B, h, w]``; they count as upsampled
bilinearly to the image (patch centres kept in place). The object is given as pixel boxes or as masks.

Reference: A² (Attending on Attention), localisation and concentration tables. Whether the paper measures on
patches or on pixels is not said; we use pixels, and differences of about a point are to be expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from foveate.errors import DataError

Size = int | tuple[int, int]


@lru_cache(maxsize=64)
def bilinear_weights(cells: int, pixels: int) -> Tensor:
    """How much each of ``cells`` grid values counts in each of ``pixels``: ``float64 [pixels, cells]``.

    Bilinear upsampling is linear and acts on one axis at a time, so a map ``A`` at ``(H, W)`` is
    ``bilinear_weights(h, H) @ A @ bilinear_weights(w, W).T``: the same as ``interpolate(mode="bilinear",
    align_corners=False)``. Do not write into the result: it is shared.

    >>> bilinear_weights(2, 4)
    tensor([[1.0000, 0.0000],
            [0.7500, 0.2500],
            [0.2500, 0.7500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    if cells < 1 or pixels < 1:
        raise DataError(f"a map needs at least one cell and one pixel; got {cells} and {pixels}.")
    centre = ((torch.arange(pixels, dtype=torch.float64) + 0.5) * (cells / pixels) - 0.5).clamp(0, cells - 1)
    low = centre.floor().long().clamp(max=max(cells - 2, 0))
    high = (low + 1).clamp(max=cells - 1)
    share = centre - low
    weights = torch.zeros(pixels, cells, dtype=torch.float64)
    rows = torch.arange(pixels)
    weights.index_put_((rows, low), 1 - share, accumulate=True)
    weights.index_put_((rows, high), share, accumulate=True)
    return weights


def attention_mass(maps: ArrayLike | Tensor, where: ArrayLike | Tensor, image_size: Size | None = None) -> Tensor:
    """Share of the attention that lies on the object: ``sum over object / sum over image``, ``float64 [B]``.

    Args:
        maps: ``[B, h, w]``, non-negative.
        where: masks ``[B, H, W]`` in ``[0, 1]``; or, when ``image_size`` is given, pixel boxes
            ``(x0, y0, x1, y1)``, end exclusive, ``[B, 4]`` or ``[B, n, 4]`` (their union counts; NaN for a
            box that is not there).
        image_size: side, or ``(height, width)``, of the image the boxes live in.

    An image without any known box, or whose map is all zero, gives NaN. The mass of a uniform map is the
    object's share of the area; compare with that.

    >>> attention_mass(torch.ones(1, 4, 4), torch.tensor([[0.0, 0.0, 8.0, 4.0]]), image_size=16)
    tensor([0.1250], dtype=torch.float64)
    """
    grid, masks, known = _prepare(maps, where, image_size)
    rows, columns = _axes(grid, masks)
    # The weights are moved to the mask's side: the map is never written at full size.
    on_object = (grid * (rows.T @ masks @ columns)).sum((1, 2))
    total = (grid * torch.outer(rows.sum(0), columns.sum(0))).sum((1, 2))
    return torch.where(known & (total > 0), on_object / torch.where(total > 0, total, 1.0), float("nan"))


def attention_hit(maps: ArrayLike | Tensor, where: ArrayLike | Tensor, image_size: Size | None = None) -> Tensor:
    """1 where the largest attention lies on the object, else 0, ``float64 [B]`` (NaN where no box is known).

    Args: as for :func:`attention_mass`; a mask counts where it is at least one half. The first pixel in
    raster order is taken among equally large ones.

    >>> attention_hit(torch.eye(2)[None], torch.tensor([[0.0, 0.0, 8.0, 8.0]]), image_size=16)
    tensor([1.], dtype=torch.float64)
    """
    grid, masks, known = _prepare(maps, where, image_size)
    rows, columns = _axes(grid, masks)
    # image by image: the upsampled maps of a whole dataset would not fit
    peaks = torch.stack([_peak((rows @ one @ columns.T).flatten()) for one in grid])
    hit = masks.flatten(1).gather(1, peaks[:, None])[:, 0] >= 0.5
    return torch.where(known & (grid.sum((1, 2)) > 0), hit.double(), float("nan"))


def attention_concentration(maps: ArrayLike | Tensor, shares: Sequence[float] = (0.10, 0.25)) -> dict[str, Tensor]:
    """How concentrated attention is over the patches of each image.

    Args:
        maps: ``[B, h, w]`` (or ``[B, N]``), renormalised here.
        shares: the ``top-q`` figures wanted: mass in the ``ceil(q N)`` largest patches.

    Returns:
        ``"entropy"``, normalised by ``log N`` (1 for a uniform map, 0 for a single patch), and ``"top-10%"``,
        ``"top-25%"``, each ``float64 [B]``.

    >>> {name: round(float(v), 3) for name, v in attention_concentration(torch.ones(1, 16, 16)).items()}
    {'entropy': 1.0, 'top-10%': 0.102, 'top-25%': 0.25}
    """
    p = _as_tensor(maps).flatten(1)
    n = p.shape[1]
    p = p / p.sum(1, keepdim=True)
    entropy = torch.special.entr(p).sum(1) / math.log(n) if n > 1 else torch.zeros(len(p), dtype=p.dtype)
    ordered = p.sort(1, descending=True).values
    # 0.1 * 260 is 26.000000000000004 in floating point; the ceiling must not see that
    counts = {f"top-{100 * q:g}%": math.ceil(round(q * n, 9)) for q in shares}
    return {"entropy": entropy, **{name: ordered[:, :count].sum(1) for name, count in counts.items()}}


def attention_shares(rows: Tensor, registers: int) -> dict[str, Tensor]:
    """Where a CLS row goes: shares on CLS itself, on registers, on patches; they sum to 1.

    Args:
        rows: softmax rows ``[..., 1 + registers + N]``, tokens in the order CLS, registers, patches.
        registers: how many tokens stand between CLS and the patches.

    >>> attention_shares(torch.tensor([0.1, 0.2, 0.3, 0.4]), registers=1)
    {'cls': tensor(0.1000), 'registers': tensor(0.2000), 'patches': tensor(0.7000)}
    """
    if rows.shape[-1] < registers + 2:
        raise DataError(f"{rows.shape[-1]} tokens cannot hold CLS, {registers} registers and a patch.")
    return {
        "cls": rows[..., 0],
        "registers": rows[..., 1 : 1 + registers].sum(-1),
        "patches": rows[..., 1 + registers :].sum(-1),
    }


def localisation_curve(
    maps_per_layer: Sequence[Tensor], where: ArrayLike | Tensor, image_size: Size | None = None
) -> dict[str, Tensor]:
    """Mean mass and hit of every layer, ``{"mass": [L], "hit": [L]}``; arguments as for
    :func:`attention_mass`.

    >>> curve = localisation_curve([torch.ones(1, 2, 2), torch.eye(2)[None]], torch.eye(2)[None])
    >>> curve["mass"].tolist()
    [0.5, 1.0]
    """
    masses = [attention_mass(maps, where, image_size).nanmean() for maps in maps_per_layer]
    hits = [attention_hit(maps, where, image_size).nanmean() for maps in maps_per_layer]
    return {"mass": torch.stack(masses), "hit": torch.stack(hits)}


def centre_distance(where: ArrayLike | Tensor, image_size: Size | None = None) -> Tensor:
    """Distance of the object's centre from the image's, ``float64 [B]``: 0 in the middle, 1 in a corner.

    Args: as for :func:`attention_mass`. The centre of several boxes, or of a mask, is its centre of mass.

    >>> centre_distance(torch.tensor([[4.0, 4.0, 12.0, 12.0], [0.0, 0.0, 8.0, 8.0]]), image_size=16).tolist()
    [0.0, 0.5]
    """
    masks, known = _masks(where, image_size)
    height, width = masks.shape[1:]
    total = masks.sum((1, 2))
    y = (masks.sum(2) @ (torch.arange(height, dtype=torch.float64) + 0.5)) / total / height - 0.5
    x = (masks.sum(1) @ (torch.arange(width, dtype=torch.float64) + 0.5)) / total / width - 0.5
    pixels = torch.hypot(x * width, y * height)
    return torch.where(known & (total > 0), pixels / math.hypot(width / 2, height / 2), float("nan"))


@dataclass(frozen=True)
class DistanceStratum:
    """One row of :func:`by_centre_distance`.

    Attributes:
        name: ``"all"``, ``"furthest 10%"``, ``"nearest 10%"`` ….
        count: images in it.
        distance: their mean distance.
        average: mean of the values.
        worst_group: the smallest mean over the groups present, or None when no groups were given.
    """

    name: str
    count: int
    distance: float
    average: float
    worst_group: float | None


def by_centre_distance(
    distances: ArrayLike | Tensor,
    values: ArrayLike | Tensor,
    groups: ArrayLike | Tensor | None = None,
    shares: Sequence[float] = (0.01, 0.05, 0.10, 0.25),
) -> list[DistanceStratum]:
    """A figure (correct or not, mass, hit) for the images whose object is furthest from and nearest to the
    centre.

    Args:
        distances: from :func:`centre_distance`, ``[B]``; images with NaN are left out.
        values: one number per image, ``[B]``; NaN is left out of means.
        groups: group of every image, ``[B]``.
        shares: shares of the images (rounded up, so never empty); sorting is stable.

    Reference: A², table on centre bias (the 1 % of Waterbirds furthest from and nearest to the centre).

    >>> for row in by_centre_distance([0.1, 0.9, 0.5, 0.2], [1, 0, 1, 1], shares=[0.5]):
    ...     print(row.name, row.count, row.average)
    all 4 0.75
    furthest 50% 2 0.5
    nearest 50% 2 1.0
    """
    d, v = np.asarray(distances, dtype=np.float64), np.asarray(values, dtype=np.float64)
    g = None if groups is None else np.asarray(groups)
    if d.ndim != 1 or v.shape != d.shape or (g is not None and g.shape != d.shape):
        raise DataError("distances, values and groups must be one number per image, all of one length.")
    order = np.argsort(d, kind="stable")
    order = order[~np.isnan(d[order])]
    if not len(order):
        raise DataError("no image has a known distance; give boxes or masks of the objects.")
    parts = [("all", order)]
    for share in shares:
        count = math.ceil(round(share * len(order), 9))
        if not 0 < count <= len(order):
            raise DataError(f"shares must lie in (0, 1]; got {share}.")
        parts += [(f"furthest {100 * share:g}%", order[-count:]), (f"nearest {100 * share:g}%", order[:count])]
    return [
        DistanceStratum(
            name,
            len(rows),
            float(d[rows].mean()),
            _mean(v[rows]),
            None if g is None else min(_mean(v[rows][g[rows] == one]) for one in np.unique(g[rows])),
        )
        for name, rows in parts
    ]


def _peak(values: Tensor) -> Tensor:
    """The first of the largest values; at the border whole strips are equal, up to rounding."""
    return (values >= values.max() * (1 - 1e-12)).int().argmax()


def _mean(values: np.ndarray) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def _as_tensor(array: ArrayLike | Tensor) -> Tensor:
    tensor = array if isinstance(array, Tensor) else torch.as_tensor(np.asarray(array))
    return tensor.detach().cpu().double()


def _prepare(maps: ArrayLike | Tensor, where: ArrayLike | Tensor, size: Size | None) -> tuple[Tensor, Tensor, Tensor]:
    """Maps ``[B, h, w]``, masks ``[B, H, W]`` and which images have a known object, all checked."""
    grid = _as_tensor(maps)
    if grid.ndim != 3:
        raise DataError(f"expected maps [B, h, w]; found {tuple(grid.shape)}.")
    if not bool(torch.isfinite(grid).all()) or bool((grid < 0).any()):
        raise DataError("attention maps must be finite and not negative.")
    masks, known = _masks(where, size)
    if len(masks) != len(grid):
        raise DataError(f"{len(grid)} maps but objects for {len(masks)} images.")
    return grid, masks, known


def _axes(grid: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    return bilinear_weights(grid.shape[1], masks.shape[1]), bilinear_weights(grid.shape[2], masks.shape[2])


def _masks(where: ArrayLike | Tensor, size: Size | None) -> tuple[Tensor, Tensor]:
    """Boxes or masks as masks ``[B, H, W]``; boxes cover the pixels at their borders in part."""
    given = _as_tensor(where)
    if size is None:
        if given.ndim != 3:
            raise DataError(
                f"expected masks [B, H, W]; found {tuple(given.shape)}. For boxes, give image_size as well."
            )
        known = ~given.isnan().flatten(1).any(1)
        given = given.nan_to_num(0.0)
        if bool((given < 0).any()) or bool((given > 1).any()):
            raise DataError("masks must lie in [0, 1]; divide 8-bit masks by 255.")
        return given, known
    height, width = (size, size) if isinstance(size, int) else size
    boxes = given[:, None] if given.ndim == 2 else given
    if boxes.ndim != 3 or boxes.shape[-1] != 4:
        raise DataError(f"expected boxes [B, 4] or [B, n, 4] as (x0, y0, x1, y1); found {tuple(given.shape)}.")
    there = ~boxes.isnan().any(-1)
    x0, y0, x1, y1 = boxes.nan_to_num(0.0).unbind(-1)
    rows, columns = _cover(y0, y1, height), _cover(x0, x1, width)  # [B, n, H], [B, n, W]
    masks = torch.zeros(len(boxes), height, width, dtype=torch.float64)
    for i in range(boxes.shape[1]):
        masks = torch.maximum(masks, rows[:, i, :, None] * columns[:, i, None, :] * there[:, i, None, None])
    return masks, there.any(1)


def _cover(start: Tensor, stop: Tensor, pixels: int) -> Tensor:
    """Share of each pixel that ``[start, stop)`` covers."""
    edge = torch.arange(pixels, dtype=torch.float64)
    return (torch.minimum(stop[..., None], edge + 1) - torch.maximum(start[..., None], edge)).clamp(0, 1)
