"""How the picture was stored: the quality of its JPEG encoding, read off the pixels and given by encoding again."""

from __future__ import annotations

import io

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveate.report.discovery.cues.cue import Cue, Glances, finer_half

QUALITIES = (10, 20, 35, 50, 70)
"""Qualities that are told apart."""
PLAIN = 100
"""What a picture without traces of JPEG counts as."""
_READ = 160
"""Pixels of a side that the quality is read from: the middle of the picture."""
_TRACE = 0.8
"""Encoding again on the old grid of blocks changes this much less than on a shifted one, when there are traces."""


def jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Pixels ``[H, W, 3]`` encoded as JPEG and decoded."""
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "JPEG", quality=quality)
    return np.asarray(Image.open(held, formats=("JPEG",)))


def jpeg_quality(pixels: NDArray[np.uint8]) -> float:
    """The JPEG quality pixels ``[H, W, 3]`` were last stored with, one of ``QUALITIES``, or ``PLAIN`` without traces.

    What was quantised on a grid of blocks changes little when it is quantised again with the same steps on the same
    grid, and as much as anything on a shifted grid.

    Reference: Farid 2009, "Exposing digital forgeries from JPEG ghosts".

    >>> noise = np.random.default_rng(0).normal(0, 30, (64, 64, 3)).cumsum(1) % 255
    >>> [jpeg_quality(jpeg(noise.astype(np.uint8), q)) for q in (20, 70)], jpeg_quality(noise.astype(np.uint8))
    ([20, 70], 100)
    """
    height, width = (8 * ((side - 8) // 8) for side in pixels.shape[:2])
    if height < 16 or width < 16:
        return PLAIN
    top, left = (8 * (max(0, side - _READ) // 16) for side in (height, width))
    height, width = min(height, _READ), min(width, _READ)
    on_grid = pixels[top : top + height, left : left + width]
    shifted = pixels[top + 4 : top + 4 + height, left + 4 : left + 4 + width]
    change = [[_change(part, quality) for part in (on_grid, shifted)] for quality in QUALITIES]
    ratios = [on / max(off, 1e-6) for on, off in change]
    best = int(np.argmin(ratios))
    return QUALITIES[best] if ratios[best] < _TRACE else PLAIN


def _change(pixels: NDArray[np.uint8], quality: int) -> float:
    pixels = np.ascontiguousarray(pixels)
    return float(((jpeg(pixels, quality).astype(np.float32) - pixels) ** 2).mean())


def exchange_quality(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` stored with the donor's JPEG quality; what a coarser encoding took from ``x`` before stays lost."""
    out = []
    for own, other in zip(x, donor, strict=True):
        quality = jpeg_quality(_array(other))
        out.append(
            own if quality == PLAIN else torch.from_numpy(jpeg(_array(own), int(quality)).copy()).permute(2, 0, 1)
        )
    return torch.stack([image.to(x) for image in out])


def _array(image: Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image.round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


def _read_quality(seen: Glances) -> NDArray[np.float64]:
    return np.asarray([[jpeg_quality(_array(image))] for image in seen.images], dtype=np.float64)


QUALITY = Cue(
    "jpeg", "the JPEG quality", _read_quality, exchange_quality, full_size=True, receives=finer_half,
    part_of="background", aspect="its JPEG quality",
    comparatives=("more compressed", "less compressed"), trial="Store {object} with {theirs}",
    theirs="the JPEG quality of {donor}",
)  # fmt: skip
