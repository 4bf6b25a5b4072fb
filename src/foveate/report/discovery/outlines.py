"""Outlines of objects: from a coarse map of attention to masks, generous ones and tight ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 0.08
"""Margin around the object, as a share of the image's shorter side."""
GUIDE = 96
"""Side at which the edges of the picture guide an outline."""
REACH = 12
"""Pixels, at that side, over which an outline may move to the next edge."""
SMOOTHNESS = 3e-4
"""Variance of colours in 0 … 1 under which a place counts as flat: no edge is seen in it."""
EDGE = 0.4
"""How much of the filtered mask's range, around its middle, becomes the soft edge."""
FINEST = 320
"""Longest side at which an outline is drawn; larger pictures get it stretched."""


def attention_mask(attention: Tensor, share: float = 0.5) -> Tensor:
    """The connected places with most attention: ``[h, w]`` to 0 and 1.

    Places above ``share`` of the way from the mean to the (smoothed) maximum seed the object; it grows over neighbours
    above the mean.

    >>> heat = torch.zeros(6, 6)
    >>> heat[1:3, 1:3], heat[5, 5] = 1.0, 0.4
    >>> attention_mask(heat).int().sum().item()
    4
    """
    from scipy import ndimage

    heat = attention.numpy()
    mean = float(heat.mean())
    strong = heat >= mean + share * (float(np.quantile(heat, 0.98)) - mean)
    above = heat > mean
    regions, count = ndimage.label(above)
    if not count:
        return torch.ones_like(attention)
    weights = ndimage.sum_labels(np.where(strong, heat, 0.0), regions, np.arange(1, count + 1))
    kept = np.flatnonzero(weights >= 0.35 * weights.max()) + 1
    return torch.from_numpy(np.isin(regions, kept).astype(np.float32))


def grow(mask: Tensor, margin: float = MARGIN) -> Tensor:
    """The mask with a margin around it, ``[H, W]``, 0 or 1.

    >>> mask = torch.zeros(9, 9); mask[4, 4] = 1
    >>> int(grow(mask, 0.12).sum())
    9
    """
    return spread(mask, max(1, round(margin * min(mask.shape))))


def spread(mask: Tensor, reach: int) -> Tensor:
    """Masks ``[..., H, W]`` with ``reach`` pixels around them to all sides, 0 or 1; how many costs nothing.

    >>> spread(torch.tensor([[0.0, 0, 0, 1, 0, 0]]), 1).tolist()
    [[0.0, 0.0, 1.0, 1.0, 1.0, 0.0]]
    """
    there = (mask > 0.5).float()
    for dim in (-1, -2):
        there = (_within(there, dim, reach)[0] > 0).float()
    return there


def core(masks: Tensor, rim: float) -> Tensor:
    """The inner part of the masks ``[B, H, W]``, a share ``rim`` of the side away from their rims, where there is one.

    >>> mask = torch.zeros(1, 10, 10); mask[:, 2:7, 2:7] = 1
    >>> int(core(mask, 0.1).sum()), int(core(mask, 0.4).sum()), int(core(mask, 0.0).sum())
    (9, 25, 25)
    """
    there = (masks > 0.5).float()
    if rim <= 0:
        return there
    inner = 1 - spread(1 - there, max(1, round(rim * min(masks.shape[-2:]))))
    return torch.where(inner.amax((1, 2), keepdim=True) > 0, inner, there)


def edge_masks(attention: Tensor, images: Sequence[Tensor]) -> list[Tensor]:
    """Objects drawn to the edges in their pictures: soft masks without a margin.

    Half of the first guess are the patches of :func:`attention_mask`, half is the same on the attention stretched
    smoothly. Then the mask is taken for a linear function of the colours around every place, fitted at ``GUIDE`` pixels
    and applied at up to ``FINEST``: it turns where the colours turn. Reference: He and Sun 2015, "Fast guided filter";
    for colours, He et al. 2013, "Guided image filtering", equations 19 to 21.

    Args:
        attention: ``[B, h, w]``.
        images: ``uint8 [3, H, W]`` each, of any sizes.

    Returns ``float [H, W]`` in 0 … 1 for each.

    >>> image = torch.zeros(3, 48, 48, dtype=torch.uint8)
    >>> image[:, 10:38, 13:40] = 200
    >>> heat = torch.zeros(1, 6, 6)
    >>> heat[0, 1:5, 2:5] = 1                             # patches of 8 pixels, which miss the edges
    >>> (mask,) = edge_masks(heat, [image])
    >>> bool((mask[11:37, 14:39] > 0.5).all()), bool((mask[:, :12] < 0.5).all())
    (True, True)
    """
    side = (GUIDE, GUIDE)
    patches = torch.stack([attention_mask(heat) for heat in attention])
    stretched = F.interpolate(attention[:, None], side, mode="bilinear", align_corners=False)[:, 0]
    coarse = F.interpolate(patches[:, None], side, mode="bilinear", align_corners=False)
    coarse = (coarse + torch.stack([attention_mask(heat) for heat in stretched])[:, None]) / 2
    guides = torch.cat([F.interpolate(i[None] / 255, side, mode="bilinear", antialias=True) for i in images])
    slopes = _slopes(guides, coarse)
    out = []
    for image, slope in zip(images, slopes, strict=True):
        height, width = image.shape[-2:]
        shrink = min(1.0, FINEST / max(height, width))
        size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
        small = F.interpolate(image[None] / 255, size, mode="bilinear", antialias=True)[0]
        ramp = F.interpolate(slope[None], size, mode="bilinear", align_corners=False)[0]
        filtered = (ramp[:3] * small).sum(0) + ramp[3]
        mask = ((filtered - 0.5) / EDGE + 0.5).clamp(0, 1)
        out.append(F.interpolate(mask[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0])
    return out


def _slopes(guides: Tensor, coarse: Tensor) -> Tensor:
    """Of ``mask ≈ a · colour + b`` around every place: ``(a, b)``, ``[B, 4, S, S]``."""
    mean, level = _around(guides), _around(coarse)
    shared = _around(guides * coarse) - mean * level
    pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
    products = _around(torch.stack([guides[:, i] * guides[:, j] for i, j in pairs], 1))
    spread = products - torch.stack([mean[:, i] * mean[:, j] for i, j in pairs], 1)
    rr, rg, rb, gg, gb, bb = spread.unbind(1)
    rr, gg, bb = rr + SMOOTHNESS, gg + SMOOTHNESS, bb + SMOOTHNESS
    # the inverse of a symmetric 3 × 3 matrix by its cofactors: a solver for every place would take ten times as long
    first = torch.stack([gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb], 1)
    second = torch.stack([first[:, 1], rr * bb - rb * rb, rb * rg - rr * gb], 1)
    third = torch.stack([first[:, 2], second[:, 2], rr * gg - rg * rg], 1)
    size = first[:, 0] * rr + first[:, 1] * rg + first[:, 2] * rb
    slope = torch.stack([(row * shared).sum(1) for row in (first, second, third)], 1) / size[:, None]
    return _around(torch.cat([slope, level - (slope * mean).sum(1, keepdim=True)], 1))


def _around(values: Tensor) -> Tensor:
    """Means over squares around every place, rows and columns one after the other, cut off at the borders."""
    for dim in (-1, -2):
        sums, count = _within(values, dim, REACH)
        values = sums / count
    return values


def _within(values: Tensor, dim: int, reach: int) -> tuple[Tensor, Tensor]:
    """Sums over ``reach`` places to both sides along the last or last but one axis, and of how many places.

    By running sums: what it costs does not depend on the reach.
    """
    side = values.shape[dim]
    places = torch.arange(side)
    low, high = (places - reach).clamp(min=0), (places + reach + 1).clamp(max=side)
    sums = F.pad(values, (1, 0) if dim == -1 else (0, 0, 1, 0)).cumsum(dim)
    count = (high - low).to(values).view(-1, *[1] * (-1 - dim))
    return sums.index_select(dim, high) - sums.index_select(dim, low), count
