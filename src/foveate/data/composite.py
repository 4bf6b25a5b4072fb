"""Pasting one cut-out object onto one background: the pixels of :func:`foveate.data.compose`.

The cut-out is resized and feathered with colours weighted by its mask, so that nothing of the photograph
around the object leaks into its rim (no halo).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from foveate.data.images import FileImages, decode, decode_mask
from foveate.errors import DataError


@dataclass(frozen=True)
class Placement:
    """Where things go. ``x`` and ``y`` run from 0 to 1 over the places where the object fits wholly.

    Attributes:
        scale: longer side of the object's tight box, as a share of the output side.
        x, y: object position: 0 left / top, 1 right / bottom.
        flip: mirror the object.
        background_x, background_y: which square of the background is used, likewise from 0 to 1.
        background_flip: mirror the background.
    """

    scale: float
    x: float
    y: float
    flip: bool = False
    background_x: float = 0.5
    background_y: float = 0.5
    background_flip: bool = False


def tight_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int] | None:
    """``(x0, y0, x1, y1)`` around the true pixels, end exclusive, or None when there are none.

    >>> tight_box(np.array([[0, 0, 0], [0, 1, 1]], dtype=bool))
    (1, 1, 3, 2)
    """
    across, down = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    if not len(across):
        return None
    return int(across[0]), int(down[0]), int(across[-1]) + 1, int(down[-1]) + 1


def paste(
    photo: NDArray[np.uint8],
    mask: NDArray[np.bool_],
    background: NDArray[np.uint8],
    where: Placement,
    size: int,
    feather: float = 1.0,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Paste the masked object onto the background.

    Args:
        photo: photograph of the object, ``[H, W, 3]``.
        mask: true on the object, ``[H, W]``.
        background: any size, ``[h, w, 3]``; its largest square (chosen by ``where``) is resized to ``size``.
        where: scale and position.
        size: output side in pixels.
        feather: standard deviation, in output pixels, of the soft edge; 0 leaves it as hard as resizing does.

    Returns:
        The composite ``uint8 [size, size, 3]`` and its mask ``uint8 [size, size]`` (255 where the object
        covers at least half of a pixel).

    >>> red = np.zeros((4, 4, 3), np.uint8) + np.array([255, 0, 0], np.uint8)
    >>> image, mask = paste(red, np.ones((4, 4), bool), np.zeros((9, 9, 3), np.uint8), Placement(0.5, 0, 1), 8, 0)
    >>> tight_box(mask > 0), image[7, 0].tolist(), image[0, 0].tolist()
    ((0, 4, 4, 8), [255, 0, 0], [0, 0, 0])
    """
    x0, y0, x1, y1 = _need_box(mask)
    on = np.where(mask[y0:y1, x0:x1], 255, 0).astype(np.uint8)
    # Pillow weights the colours of RGBA images by alpha when it resizes them
    cut = _fit(Image.fromarray(np.dstack([photo[y0:y1, x0:x1], on])), where, size)
    left, top = _corner(cut, where, size)
    sharp = np.asarray(cut)
    if feather > 0:
        margin = math.ceil(3 * feather)
        soft = np.asarray(_blur(cut, margin, feather))
        colour, alpha = soft[..., :3].copy(), soft[..., 3]
        inner = colour[margin:-margin, margin:-margin]
        solid = sharp[..., 3] >= 250
        inner[solid] = sharp[..., :3][solid]  # only the rim is blurred, the object stays sharp
        left, top = left - margin, top - margin
    else:
        colour, alpha = sharp[..., :3], sharp[..., 3]
    image = _square(background, where, size)
    there, here = _overlap(alpha.shape, left, top, size)
    weight = alpha[here][..., None].astype(np.float32) / 255.0
    scene = image[there].astype(np.float32)
    image[there] = np.rint(scene + weight * (colour[here].astype(np.float32) - scene)).astype(np.uint8)
    return image, _place(alpha, left, top, size)


def paste_mask(mask: NDArray[np.bool_], where: Placement, size: int, feather: float = 1.0) -> NDArray[np.uint8]:
    """The mask :func:`paste` would return, without the pixels."""
    x0, y0, x1, y1 = _need_box(mask)
    cut = _fit(Image.fromarray(np.where(mask[y0:y1, x0:x1], 255, 0).astype(np.uint8)), where, size)
    left, top = _corner(cut, where, size)
    if feather <= 0:
        return _place(np.asarray(cut), left, top, size)
    margin = math.ceil(3 * feather)
    return _place(np.asarray(_blur(cut, margin, feather)), left - margin, top - margin, size)


def harden(alpha: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """255 where ``alpha`` is at least half (at least its maximum, for a sliver that never covers half)."""
    return np.where(alpha >= max(1, min(128, int(alpha.max()))), 255, 0).astype(np.uint8)


def _need_box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    box = tight_box(mask)
    if box is None:
        raise DataError("the mask marks nothing: there is no object to paste.")
    return box


def _fit(cut: Image.Image, where: Placement, size: int) -> Image.Image:
    """Resize the cut-out so that its longer side is ``scale * size``; mirror it if asked."""
    zoom = where.scale * size / max(cut.size)
    width, height = (min(size, max(1, round(side * zoom))) for side in cut.size)
    cut = cut.resize((width, height), Image.Resampling.BILINEAR)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if where.flip else cut


def _corner(cut: Image.Image, where: Placement, size: int) -> tuple[int, int]:
    return round(where.x * (size - cut.width)), round(where.y * (size - cut.height))


def _blur(cut: Image.Image, margin: int, feather: float) -> Image.Image:
    """Blur with an empty margin around; RGBA colours are weighted by alpha, so none come from outside."""
    wide = Image.new(cut.mode, (cut.width + 2 * margin, cut.height + 2 * margin), 0)
    wide.paste(cut, (margin, margin))
    if cut.mode == "L":
        return wide.filter(ImageFilter.GaussianBlur(feather))
    return wide.convert("RGBa").filter(ImageFilter.GaussianBlur(feather)).convert("RGBA")


_Window = tuple[slice, slice]


def _overlap(shape: tuple[int, ...], left: int, top: int, size: int) -> tuple[_Window, _Window]:
    """Where a patch of ``shape`` at (left, top) meets the picture: the window there, and in the patch."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = min(top + shape[0], size), min(left + shape[1], size)
    there = (slice(y0, y1), slice(x0, x1))
    return there, (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))


def _place(alpha: NDArray[np.uint8], left: int, top: int, size: int) -> NDArray[np.uint8]:
    mask = np.zeros((size, size), np.uint8)
    there, here = _overlap(alpha.shape, left, top, size)
    mask[there] = harden(alpha[here])
    return mask


def _square(background: NDArray[np.uint8], where: Placement, size: int) -> NDArray[np.uint8]:
    height, width = background.shape[:2]
    side = min(height, width)
    left, top = round(where.background_x * (width - side)), round(where.background_y * (height - side))
    picture = Image.fromarray(np.ascontiguousarray(background[top : top + side, left : left + side]))
    picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    if where.background_flip:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(picture)


class Recipe:
    """Everything needed to render a list of composites: which object, which background, where.

    Args:
        photos, masks, scenes: files of object, mask and background of every composite.
        places: its :class:`Placement`.
        size, feather: see :func:`paste`.
        threshold: mask values from here up are object.
    """

    def __init__(
        self,
        photos: Sequence[Path],
        masks: Sequence[Path],
        scenes: Sequence[Path],
        places: Sequence[Placement],
        size: int,
        feather: float,
        threshold: int,
    ):
        self.photos, self.masks, self.scenes = list(photos), list(masks), list(scenes)
        self.places = list(places)
        self.size, self.feather, self.threshold = size, feather, threshold

    def __len__(self) -> int:
        return len(self.photos)

    def where(self, i: int) -> str:
        return f"{self.photos[i]} on {self.scenes[i]}"

    def render(self, i: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Composite ``i`` and its mask."""
        mask = decode_mask(self.masks[i]) >= self.threshold
        return paste(decode(self.photos[i]), mask, decode(self.scenes[i]), self.places[i], self.size, self.feather)

    def render_mask(self, i: int) -> NDArray[np.uint8]:
        """The mask of composite ``i`` alone."""
        return paste_mask(decode_mask(self.masks[i]) >= self.threshold, self.places[i], self.size, self.feather)

    def boxes(self) -> NDArray[np.float32]:
        """Tight boxes of all masks, ``[N, 4]`` (renders every mask once)."""
        boxes = [tight_box(self.render_mask(i) > 0) or (np.nan,) * 4 for i in range(len(self))]
        return np.array(boxes, np.float32).reshape(-1, 4)

    def digest(self, i: int) -> bytes:
        """Hash of what composite ``i`` is made from."""
        parts = FileImages([self.photos[i], self.masks[i], self.scenes[i]])
        settings = repr((self.places[i], self.size, self.feather, self.threshold)).encode()
        content = b"".join(parts.digest(k) for k in range(3))
        return hashlib.blake2b(content + settings, digest_size=16).digest()


class Composites:
    """Image source that renders a :class:`Recipe` when read."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe

    def __len__(self) -> int:
        return len(self.recipe)

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.recipe.render(i)[0]

    def where(self, i: int) -> str:
        return self.recipe.where(i)

    def digest(self, i: int) -> bytes:
        return self.recipe.digest(i)


class CompositeMasks(Composites):
    """Mask source that goes with :class:`Composites`."""

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.recipe.render_mask(i)
