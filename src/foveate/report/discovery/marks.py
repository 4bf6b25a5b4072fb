"""Marks that sit anywhere: a watermark or a second thing beside the object, found by what the model misses.

In images the model is sure of, one window after another is painted over from around it, first large ones, then smaller
ones inside the one that lowers the answer's score most. What was found there is then put into *other* images, at the
same place, and the answers are counted as in any experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import fill_object
from foveate.report.discovery.cues.cue import Cue, as_pixels
from foveate.report.discovery.cues.surroundings import soft
from foveate.report.discovery.experiments import Sheet

WindowScores = Callable[[Tensor], NDArray[np.float32]]
Box = tuple[int, int, int, int]
SEARCHED = 10
"""Images of a class that are searched."""
COARSE, FINE = 0.4, 0.25
"""Sides of the windows, as shares of the picture's."""
SHRUNK = 0.8
"""A small window is taken for the large one around it when this share of what the answer loses goes with it."""
ON_OBJECT = 0.3
"""A window that the object covers more than this share of is not beside it."""


def exchange_mark(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` without what it has where ``mask`` is 1, and with what the donor has where ``donor_mask`` is, in place."""
    alpha = soft(donor_mask)[:, None]
    return alpha * donor + (1 - alpha) * fill_object(x, (mask > 0.5).float())


MARK = Cue(
    "mark", "a mark or a thing that comes along", part_of="background", trial="Give {object} picture {theirs}",
    theirs="the mark of {donor}",
)  # fmt: skip
"""What a verdict names: it has no exchange of its own, since only images that were searched are known to have it."""
PUT = replace(MARK, exchange=exchange_mark)
"""The exchange, for a sheet from :func:`with_marks`."""


def windows(height: int, width: int, share: float, inside: Box | None = None) -> list[Box]:
    """Windows of a share of the picture's sides, as ``(top, bottom, left, right)``: three by three over the picture, or
    two by two inside a larger one.

    >>> windows(10, 10, 0.4)[:2], windows(10, 10, 0.2, inside=(0, 4, 0, 4))[-1]
    ([(0, 4, 0, 4), (0, 4, 3, 7)], (2, 4, 2, 4))
    """
    top, bottom, left, right = inside or (0, height, 0, width)
    tall, wide = max(1, round(share * height)), max(1, round(share * width))
    steps = 3 if inside is None else 2
    rows = np.linspace(top, max(top, bottom - tall), steps).round().astype(int)
    columns = np.linspace(left, max(left, right - wide), steps).round().astype(int)
    return [(int(r), int(r) + tall, int(c), int(c) + wide) for r in rows for c in columns]


def box_mask(box: Box, height: int, width: int) -> Tensor:
    """1 inside the box, ``[H, W]``."""
    out = torch.zeros(height, width)
    out[box[0] : box[1], box[2] : box[3]] = 1.0
    return out


def find_marks(sheet: Sheet, logits: WindowScores) -> dict[int, Box]:
    """The window beside the object that a sure answer hangs on most, by row of the sheet, for a few images a class."""
    found: dict[int, Box] = {}
    for k in np.unique(sheet.predictions[sheet.predictions >= 0]):
        mine = np.flatnonzero(sheet.predictions == k)
        for i in mine[np.argsort(-sheet.confidence[mine], kind="stable")][:SEARCHED]:
            box = _most_missed(sheet, int(i), logits)
            if box is not None:
                found[int(i)] = box
    return found


def _most_missed(sheet: Sheet, i: int, logits: WindowScores) -> Box | None:
    image, object_ = sheet.images[i].float(), sheet.masks[i] if sheet.tight is None else sheet.tight[i]
    height, width = image.shape[-2:]

    def free(boxes: list[Box]) -> list[Box]:
        return [b for b in boxes if float((object_[b[0] : b[1], b[2] : b[3]] > 0.5).float().mean()) <= ON_OBJECT]

    own = logits(as_pixels(image[None]))[0]
    answer = int(np.nanargmax(own)) if np.isfinite(own).all() else None
    large = free(windows(height, width, COARSE))
    if answer is None or not large:
        return None

    def drops(boxes: list[Box]) -> NDArray[np.float64]:
        masks = torch.stack([box_mask(box, height, width) for box in boxes])
        erased = as_pixels(fill_object(image[None].expand(len(boxes), -1, -1, -1), masks))
        return _margin(own[None], answer)[0] - _margin(logits(erased), answer)

    coarse = drops(large)
    best = large[int(coarse.argmax())]
    if coarse.max() <= 0:
        return None
    small = free(windows(height, width, FINE, best))
    fine = drops(small) if small else np.zeros(0)
    return small[int(fine.argmax())] if len(fine) and fine.max() >= SHRUNK * coarse.max() else best


def _margin(scores: NDArray[np.float32], answer: int) -> NDArray[np.float64]:
    others = np.delete(scores, answer, axis=1)
    return np.asarray(scores[:, answer] - others.max(1), dtype=np.float64)


def box_masks(found: dict[int, Box], images: Tensor) -> Tensor:
    """1 inside the found windows of the images ``[n, 3, H, W]``, 0 elsewhere, ``uint8 [n, H, W]``."""
    masks = torch.zeros(len(images), *images.shape[-2:], dtype=torch.uint8)
    for i, box in found.items():
        masks[i, box[0] : box[1], box[2] : box[3]] = 1
    return masks


def with_marks(sheet: Sheet, marks: Tensor) -> Sheet:
    """The sheet with marks ``uint8 [n, H, W]`` for masks, for :data:`PUT`."""
    return replace(sheet, masks=marks, tight=None)


def without_marks(sheet: Sheet, marks: Tensor) -> Sheet:
    """The sheet with the marks ``uint8 [n, H, W]`` painted over."""
    images = sheet.images.clone()
    for rows in torch.nonzero(marks.amax((1, 2))).flatten().split(64):
        images[rows] = as_pixels(fill_object(images[rows].float(), marks[rows].float()))
    return replace(sheet, images=images)


def beyond_marks(sheet: Sheet, marks: Tensor) -> Sheet:
    """The sheet for exchanges that leave marks ``uint8 [n, H, W]`` out: recipients keep their own, donors give none."""
    return replace(sheet, keeps=marks, donors=without_marks(sheet, marks).images)


def mark_pairs(sheet: Sheet, found: dict[int, Box], rng: np.random.Generator) -> NDArray[np.int64]:
    """Recipient, donor of its own class and of another, ``[n, 3]``: donors have a mark that misses the recipient's
    object, recipients were not searched."""
    object_ = sheet.masks if sheet.tight is None else sheet.tight
    covered = {
        j: (object_[:, b[0] : b[1], b[2] : b[3]] > 0.5).float().mean((1, 2)).numpy() <= ON_OBJECT
        for j, b in found.items()
    }
    rows = []
    for i in range(len(sheet)):
        if i in found:
            continue
        able = [j for j in found if covered[j][i]]
        same = [j for j in able if sheet.predictions[j] == sheet.labels[i]]
        other = [j for j in able if sheet.predictions[j] != sheet.labels[i]]
        if same and other:
            rows.append((i, int(rng.choice(same)), int(rng.choice(other))))
    return np.asarray(rows, dtype=np.int64).reshape(-1, 3)
