"""Pictures of looking: an image, where attention lies, the crops it leads to, and the crops themselves."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from foveate.look import Gaze
from foveate.restrict import extract_crops

CELL = 192
"""Side of every picture on a sheet, in pixels."""
GAP, STRIP = 4, 16
COLOURS = ((255, 255, 255), (255, 214, 10), (64, 220, 255), (255, 105, 180), (130, 255, 120))
"""Outlines of the first, second, ... crop."""


def look_rows(
    images: Tensor, gaze: Gaze, captions: Sequence[str], originals: Sequence[Any] | None = None, cell: int = CELL
) -> list[NDArray[np.uint8]]:
    """One strip a picture: the image, its attention with the crops outlined, then every crop.

    Args:
        images: ``uint8 [B, 3, H, W]``, what the model saw.
        gaze: of the same images; crops are drawn where it has ``boxes``.
        captions: a line of text each.
        originals: the same images at full resolution (see :func:`~foveate.restrict.extract_crops`), for
            sharper crops.
        cell: side of each picture in the strip.

    Returns:
        ``uint8 [h, w, 3]`` for each image.

    >>> rows = look_rows(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), Gaze(torch.rand(2, 4, 4)), ["a", "b"], cell=64)
    >>> [row.shape for row in rows]
    [(84, 136, 3), (84, 136, 3)]
    """
    height, width = images.shape[-2:]
    shape = (cell, cell) if height == width else (max(1, round(cell * height / width)), cell)
    large = F.interpolate(images.float(), shape, mode="bicubic", antialias=True).round().clamp(0, 255).to(torch.uint8)
    plain = Gaze(gaze.map, gaze.kind).draw(large.cpu())  # outlines are drawn larger, below
    boxes = gaze.boxes.cpu() if gaze.boxes is not None else torch.zeros(len(images), 0, 3, dtype=torch.int64)
    crops = extract_crops(images, boxes, size=cell, originals=originals) if boxes.shape[1] else None
    rows = []
    for i, caption in enumerate(captions):
        pictures = [large[i].permute(1, 2, 0).numpy(), _outlined(plain[i], boxes[i], shape[1] / width)]
        if crops is not None:
            pictures += [
                _framed(crop.permute(1, 2, 0).numpy(), n) for n, crop in enumerate(crops[i]) if boxes[i, n, 2] > 0
            ]
        rows.append(_strip(pictures, caption, 2 + boxes.shape[1], cell))
    return rows


def look_sheet(rows: Sequence[NDArray[np.uint8]], columns: int = 1) -> Image.Image:
    """Strips from :func:`look_rows` as one picture, ``columns`` beside each other.

    >>> look_sheet([np.zeros((10, 20, 3), np.uint8)] * 3, columns=2).size
    (44, 24)
    """
    height, width = max(r.shape[0] for r in rows), max(r.shape[1] for r in rows)
    columns = min(columns, len(rows))
    lines = -(-len(rows) // columns)
    sheet = np.full((lines * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), 255, np.uint8)
    for n, row in enumerate(rows):
        y, x = (n // columns) * (height + GAP), (n % columns) * (width + GAP)
        sheet[y : y + row.shape[0], x : x + row.shape[1]] = row
    return Image.fromarray(sheet)


@functools.cache
def _font() -> tuple[Any, frozenset[int]]:
    """The font of captions, and the characters it has a sign for: Matplotlib's own, which knows most alphabets.

    The one that comes with Pillow has nothing beyond Latin-1, not even the arrow before a prediction.
    """
    import matplotlib
    from matplotlib.ft2font import FT2Font

    path = os.path.join(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    return ImageFont.truetype(path, 11), frozenset(FT2Font(path).get_charmap())


def _outlined(picture: NDArray[np.uint8], boxes: Tensor, scale: float) -> NDArray[np.uint8]:
    drawn = Image.fromarray(picture)
    pen = ImageDraw.Draw(drawn)
    for n, (x, y, size) in enumerate(boxes.tolist()):
        if size > 0:
            corner = [x * scale, y * scale, (x + size) * scale - 1, (y + size) * scale - 1]
            pen.rectangle(corner, outline=COLOURS[n % len(COLOURS)], width=2)
    return np.asarray(drawn)


def _framed(crop: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    """The crop with an edge in the colour of its outline, so that one sees which is which."""
    framed = crop.copy()
    colour = COLOURS[number % len(COLOURS)]
    for edge in (np.s_[:3], np.s_[-3:], np.s_[:, :3], np.s_[:, -3:]):
        framed[edge] = colour
    return framed


def _strip(pictures: Sequence[NDArray[np.uint8]], caption: str, places: int, cell: int) -> NDArray[np.uint8]:
    height = max(p.shape[0] for p in pictures)
    strip = np.full((height + STRIP + GAP, places * (cell + 2 * GAP) - 2 * GAP, 3), 24, np.uint8)
    for n, picture in enumerate(pictures):
        x = n * (cell + 2 * GAP)
        strip[STRIP + GAP :][: picture.shape[0], x : x + picture.shape[1]] = picture
    drawn = Image.fromarray(strip)
    font, known = _font()
    text = "".join(c if ord(c) in known else "?" for c in caption)
    pen = ImageDraw.Draw(drawn)
    while text and pen.textlength(text, font) > strip.shape[1] - 8:
        text = text[:-1]
    pen.text((4, 1), text, fill=(235, 235, 235), font=font)
    return np.asarray(drawn)
