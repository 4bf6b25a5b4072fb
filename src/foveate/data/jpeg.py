"""JPEG files, decoded by the quickest decoder there is and no larger than they are needed.

A JPEG can be decoded at a half, a quarter or an eighth of its size for a fraction of the work ("draft"). With
``simplejpeg`` installed (``pip install "foveate[fast]"``) files are decoded by it: the same library underneath as
Pillow's, called with the same settings, so the pixels are the same to the last bit.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

GAP = 2
"""An image is decoded at a reduced size only while that is at least this many times what the network sees.

What is left for the antialiased resize is then at least a halving, and what a network sees differs by less than one
grey level on average from what it sees of the whole image.
"""
MOST = 1 << 28
"""Larger files are left to Pillow, which does not read them whole."""
ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
Sides = tuple[int, int]


@functools.cache
def quick_decoder() -> Callable[..., NDArray[np.uint8]] | None:
    """simplejpeg's decoder, or None where it is not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return decode_jpeg


def reduction(height: int, width: int, least: Sides | None) -> int:
    """By how much (1, 2, 4 or 8) an image can be reduced and still have ``least`` pixels in height and width.

    Only by what divides both sides, as those of cameras' pictures do by 8: the last pixels of a draft would otherwise
    reach over the edge, and the picture would be shifted against its mask.

    >>> reduction(3000, 4000, (448, 448)), reduction(3001, 4000, (448, 448)), reduction(3000, 4000, None)
    (4, 1, 1)
    """
    if least is None:
        return 1
    fitting = (k for k in (8, 4, 2) if height % k == width % k == 0)
    return next((k for k in fitting if height // k >= least[0] and width // k >= least[1]), 1)


def decode_jpeg(file: BinaryIO, picture: Image.Image, least: Sides | None) -> NDArray[np.uint8] | None:
    """An RGB JPEG, upright, ``uint8 [H, W, 3]``; None when Pillow must decode it: ``picture`` is then set to a draft.

    Args:
        file: the open file of ``picture``.
        picture: with its header read and nothing decoded; its size has been looked at.
        least: height and width the upright result must have at least; None for the whole image.
    """
    if picture.format != "JPEG" or picture.mode not in ("RGB", "L"):
        return None
    turn = _UPRIGHT.get(picture.getexif().get(ORIENTATION, 1))
    if least is not None and turn in (_UPRIGHT[5], _UPRIGHT[6], _UPRIGHT[7], _UPRIGHT[8]):
        least = (least[1], least[0])
    factor = reduction(picture.height, picture.width, least)
    size = (picture.width // factor, picture.height // factor)
    decoder = quick_decoder() if picture.mode == "RGB" else None
    pixels = None if decoder is None else _decoded(decoder, file, size)
    if pixels is None:
        if factor > 1:
            picture.draft(picture.mode, size)
        return None
    return pixels if turn is None else np.asarray(Image.fromarray(pixels).transpose(turn))


def _decoded(decoder: Callable[..., Any], file: BinaryIO, size: Sides) -> NDArray[np.uint8] | None:
    """What ``decoder`` makes of the file; None when it is not sure of it, and Pillow is to be asked for the reason."""
    place = file.tell()
    try:
        if file.seek(0, os.SEEK_END) > MOST:
            return None
        file.seek(0)
        found = decoder(file.read(), min_width=size[0], min_height=size[1], min_factor=1)
    except Exception:
        found = None
    finally:
        file.seek(place)
    return found if found is not None and found.shape == (size[1], size[0], 3) else None
