"""Crops where a map says to look, chosen exactly, for a whole batch at once.

Reference: A² (Attending on Attention), greedy crop selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveate.data.images import decode, to_rgb
from foveate.errors import DataError
from foveate.measure.localisation import bilinear_weights

TIE = 1e-12
"""Box sums closer than this, times the largest value and the image's area, are equal: float64 rounding."""
CHUNK = 1 << 19
"""Box sums held at a time; small enough to stay in the processor's cache."""


def greedy_crops(maps: Tensor, sizes: Sequence[int], image_size: int | tuple[int, int] = 224) -> Tensor:
    """The square crops with the most attention, one after the other, without overlap.

    For every size, in the given order, the box with the largest sum of the bilinearly upsampled map among those
    that do not overlap an earlier box of the image; boxes may touch. Equal sums (up to float64 rounding): the
    first in raster order. The result is exact and the same on every machine.

    The map is never upsampled. Bilinear upsampling is linear in the grid, so all box sums of one size are
    ``Wy A Wxᵀ`` with the summed weights of every window; float32 finds the candidates, and those too close to
    tell apart are settled in float64.

    Args:
        maps: ``[B, h, w]``, finite; any grid.
        sizes: side of each crop in image pixels; the paper goes from large to small.
        image_size: side, or ``(height, width)``, of the image.

    Returns:
        ``int64 [B, n, 3]`` of ``(x, y, size)`` in image pixels, ``(-1, -1, -1)`` where nothing fits any more.

    >>> peak = torch.zeros(1, 4, 4); peak[0, 2, 1] = 1.0
    >>> greedy_crops(peak, [8, 4], image_size=16).tolist()
    [[[2, 6, 8], [0, 0, 4]]]
    """
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    _check(maps, sizes, height, width)
    grid = maps.detach().cpu().double().numpy()
    chosen = np.full((len(grid), len(sizes), 3), -1, np.int64)
    for k, size in enumerate(sizes):
        rows, columns = _window_weights(grid.shape[1], height, size), _window_weights(grid.shape[2], width, size)
        step = max(1, CHUNK // (len(rows) * len(columns)))
        room = np.empty((min(step, len(grid)), len(rows), len(columns)), np.float32)
        for start in range(0, len(grid), step):
            part = slice(start, start + step)
            _place(grid[part], rows, columns, size, chosen[part], k, TIE * height * width, room)
    return torch.from_numpy(chosen).to(maps.device)


def _check(maps: Tensor, sizes: Sequence[int], height: int, width: int) -> None:
    if maps.ndim != 3 or 0 in maps.shape[1:]:
        raise DataError(f"expected maps [B, h, w]; found {tuple(maps.shape)}.")
    if not bool(torch.isfinite(maps).all()):
        raise DataError("a map holds NaN or infinite values; crops cannot be chosen from it.")
    for size in sizes:
        if int(size) != size or size < 1:
            raise DataError(f"crop sizes must be positive whole numbers of pixels; got {size}.")
        if size > min(height, width):
            raise DataError(
                f"a crop of {size} px does not fit into an image of {height} x {width} px; "
                "use a smaller crop or larger images."
            )


def _window_weights(cells: int, pixels: int, size: int) -> NDArray[np.float64]:
    """Summed bilinear weights of every window of ``size`` pixels: ``[pixels - size + 1, cells]``."""
    summed = np.pad(bilinear_weights(cells, pixels).numpy().cumsum(0), ((1, 0), (0, 0)))
    return summed[size:] - summed[:-size]


def _place(
    grid: NDArray[np.float64],
    rows: NDArray[np.float64],
    columns: NDArray[np.float64],
    size: int,
    chosen: NDArray[np.int64],
    k: int,
    tie: float,
    room: NDArray[np.float32],
) -> None:
    """Write box number ``k`` of every image into ``chosen [B, n, 3]``; ``room`` is reused for the sums."""
    batch = len(grid)
    largest = np.abs(grid).max((1, 2))
    # Scaling by the largest value keeps tiny or huge maps inside float32.
    scaled = (grid / np.maximum(largest, 1e-300)[:, None, None]).astype(np.float32)
    half = np.matmul(rows.astype(np.float32), scaled).reshape(-1, grid.shape[2])
    sums = room[:batch]  # [B, H', W']
    np.matmul(half, columns.astype(np.float32).T, out=sums.reshape(-1, len(columns)))
    for i, left, top, taken in _earlier(chosen[:, :k]):
        sums[i, max(top - size + 1, 0) : top + taken, max(left - size + 1, 0) : left + taken] = -np.inf
    line = torch.from_numpy(sums).amax(2).numpy()
    best = line.max(1)
    # Rounding of float32 products of lengths h and w in the two sums compared, against the largest sum there
    # can be: the best one, or all pixels at the largest value when negative values may cancel.
    bound = np.where(grid.min((1, 2)) >= 0, best, float(size) ** 2)
    bound[np.isneginf(best)] = 0.0
    least = best - 2 * (grid.shape[1] + grid.shape[2] + 8) * 2.0**-24 * bound
    image, y = np.nonzero((line >= least[:, None]) & np.isfinite(best)[:, None])
    near, x = np.nonzero(sums[image, y] >= least[image, None])
    image, y = image[near], y[near]
    first = np.searchsorted(image, np.arange(batch + 1))  # candidates stand in raster order, image by image
    for i in range(batch):
        a, b = first[i], first[i + 1]
        if b == a:
            continue  # nothing fits: stays -1
        if b - a > 1:
            lines, at = np.unique(y[a:b], return_inverse=True)
            exact = (rows[lines] @ grid[i] @ columns.T)[at, x[a:b]]
            a += int(np.argmax(exact >= exact.max() - tie * largest[i]))
        chosen[i, k] = x[a], y[a], size


def _earlier(chosen: NDArray[np.int64]) -> Iterator[tuple[int, int, int, int]]:
    """``(image, x, y, size)`` of every box already placed."""
    for i, boxes in enumerate(chosen.tolist()):
        for x, y, taken in boxes:
            if taken > 0:
                yield i, x, y, taken


def extract_crops(images: Tensor, boxes: Tensor, size: int = 224, originals: Sequence[Any] | None = None) -> Tensor:
    """The crops as images of one size, bilinear (antialiased where it shrinks).

    Args:
        images: ``[B, C, H, W]``, uint8 or float: the images the boxes live in.
        boxes: ``[B, n, 3]`` of ``(x, y, size)`` from :func:`greedy_crops`; a box of -1 gives a black crop.
        size: side of the result in pixels.
        originals: the same images at full resolution, to cut from those instead: paths, PIL images or
            ``uint8 [H, W, 3]`` arrays. ``images`` must be the whole original, resized (not cut).

    Returns:
        ``[B, n, C, size, size]``, of the type of ``images``.

    >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> extract_crops(image, torch.tensor([[[1, 2, 2]]]), size=2).flatten().tolist()
    [9.0, 10.0, 13.0, 14.0]
    """
    if images.ndim != 4 or boxes.ndim != 3 or boxes.shape[-1] != 3 or len(boxes) != len(images):
        raise DataError(
            f"expected images [B, C, H, W] and boxes [B, n, 3]; found {tuple(images.shape)}, {tuple(boxes.shape)}."
        )
    height, width = images.shape[-2:]
    x, y, side = boxes.unbind(-1)
    there = side > 0
    if bool((there & ((x < 0) | (y < 0) | (x + side > width) | (y + side > height))).any()):
        raise DataError(
            f"a box reaches beyond the image of {height} x {width} px: images are smaller than the crop, or the "
            "boxes were chosen for another image_size."
        )
    if originals is not None:
        return _from_originals(images, boxes, size, originals)
    crops = images.new_zeros(*boxes.shape[:2], images.shape[1], size, size)
    for one in side[there].unique().tolist():
        i, n = torch.nonzero(side == one, as_tuple=True)
        offset = torch.arange(one, device=images.device)
        ys, xs = (y[i, n, None] + offset)[:, :, None], (x[i, n, None] + offset)[:, None, :]
        # indices first, channels last: the order advanced indexing gives
        cut = images[i[:, None, None], :, ys, xs].permute(0, 3, 1, 2)
        crops[i, n] = _resize(cut, size)
    return crops


def _resize(cut: Tensor, size: int) -> Tensor:
    if cut.shape[-2:] == (size, size):
        return cut
    values = F.interpolate(cut.float(), (size, size), mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(cut.dtype) if cut.dtype == torch.uint8 else values.to(cut.dtype)


def _from_originals(images: Tensor, boxes: Tensor, size: int, originals: Sequence[Any]) -> Tensor:
    if len(originals) != len(images):
        raise DataError(f"{len(images)} images but {len(originals)} originals.")
    if images.shape[1] != 3:
        raise DataError(f"crops from original files are RGB; the images have {images.shape[1]} channels.")
    height, width = images.shape[-2:]
    crops = torch.zeros(*boxes.shape[:2], 3, size, size, dtype=torch.uint8)
    for i, original in enumerate(originals):
        pixels = torch.from_numpy(_pixels(original).copy()).permute(2, 0, 1)
        sy, sx = pixels.shape[1] / height, pixels.shape[2] / width
        for n, (x, y, side) in enumerate(boxes[i].tolist()):
            if side > 0:
                # Cut at whole pixels before resizing, so that nothing outside the box is seen.
                top, left = round(y * sy), round(x * sx)
                bottom, right = max(round((y + side) * sy), top + 1), max(round((x + side) * sx), left + 1)
                crops[i, n] = _resize(pixels[None, :, top:bottom, left:right], size)[0]
    return (crops if images.dtype == torch.uint8 else crops.to(images.dtype) / 255).to(images.device)


def _pixels(original: Any) -> NDArray[np.uint8]:
    if isinstance(original, Image.Image):
        return np.asarray(to_rgb(original))
    if isinstance(original, (str, Path)):
        return decode(original)
    array = np.asarray(original)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise DataError(f"originals must be paths, PIL images or uint8 [H, W, 3]; found {array.dtype} {array.shape}.")
    return array
