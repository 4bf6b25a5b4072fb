"""A mark on the object: a colour that a few of its places have in some images, and that answers follow.

A collar is told from a beak by the images themselves. A beak belongs to its class; a mark also sits on objects of other
classes now and then, and there the answers follow it. Such colours are looked for in one half of the images; in the
other half the mark is taken away, or put on at the same place of the object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import fill_object
from foveate.report.discovery.cues.cue import Cue

LEVELS = 6
"""Steps that each colour is divided into, to count colours."""
NEAR = 60.0
"""Colours that differ by less than this (of 255, over red, green and blue together) count as one."""
SMALLEST, LARGEST = 0.015, 0.3
"""A mark covers at least and at most so much of the object."""
FEWEST = 4
"""Images of a class that must show a colour, and that must not, before anything is said."""
RARELY = 1e-4
"""A colour is a candidate when chance would so rarely make answers follow it."""


@dataclass(frozen=True)
class Mark:
    """A colour, ``(red, green, blue)``, that answers follow from one class to ``answer``."""

    colour: tuple[float, float, float]
    answer: int


def shares(images: Tensor, masks: Tensor) -> NDArray[np.float64]:
    """Which share of each object has which colour, ``[B, LEVELS ** 3]``; ``uint8 [B, 3, H, W]``, ``[B, H, W]``."""
    steps = (images.long() * LEVELS) // 256
    cell = (steps[:, 0] * LEVELS + steps[:, 1]) * LEVELS + steps[:, 2]
    on = (masks > 0.5).double()
    out = torch.zeros(len(images), LEVELS**3, dtype=torch.float64)
    out.scatter_add_(1, cell.flatten(1), on.flatten(1))
    return (out / on.flatten(1).sum(1, keepdim=True).clamp(min=1.0)).numpy()


def find_mark(images: Tensor, masks: Tensor, labels: NDArray[np.int64], answers: NDArray[np.int64]) -> Mark | None:
    """The colour of a few places on the object that wrong answers follow most surely; None where there is none."""
    share = shares(images, masks)
    best: tuple[float, Mark] | None = None
    for cell in np.flatnonzero((share > SMALLEST).sum(0) >= 2 * FEWEST):
        there = share[:, cell] > SMALLEST
        if np.median(share[there, cell]) > LARGEST:
            continue
        for label in np.unique(labels):
            mine = labels == label
            with_it, without = mine & there, mine & ~there
            if min(with_it.sum(), without.sum(), (~mine & there).sum()) < FEWEST:
                continue
            for answer in np.unique(answers[with_it & (answers >= 0) & (answers != label)]):
                p = _follows(answers[with_it] == answer, answers[without] == answer)
                if p < RARELY and (best is None or p < best[0]):
                    best = (p, Mark(_mean_colour(images, masks, int(cell), there), int(answer)))
    return None if best is None else best[1]


def _follows(with_it: NDArray[np.bool_], without: NDArray[np.bool_]) -> float:
    """One-sided p-value that an answer is given more often with it than without (normal approximation)."""
    n, m = len(with_it), len(without)
    whole = (with_it.sum() + without.sum() + 1) / (n + m + 2)
    z = (with_it.mean() - without.mean()) / math.sqrt(whole * (1 - whole) * (1 / n + 1 / m))
    return 0.5 * math.erfc(z / math.sqrt(2))


def _mean_colour(images: Tensor, masks: Tensor, cell: int, there: NDArray[np.bool_]) -> tuple[float, float, float]:
    low = torch.tensor([cell // LEVELS**2, cell // LEVELS % LEVELS, cell % LEVELS])
    chosen = images[torch.from_numpy(there)]
    on = (masks[torch.from_numpy(there)] > 0.5) & ((chosen.long() * LEVELS // 256) == low.view(1, 3, 1, 1)).all(1)
    red, green, blue = (float(chosen[:, c][on].float().mean()) for c in range(3))
    return red, green, blue


def marked(images: Tensor, masks: Tensor, mark: Mark) -> Tensor:
    """Where objects have the mark's colour, ``float [B, H, W]``, with a rim of a pixel."""
    away = (images.float() - torch.tensor(mark.colour).view(1, 3, 1, 1)).abs().sum(1)
    on = ((away < NEAR) & (masks > 0.5)).float()
    return F.max_pool2d(on[:, None], 3, 1, 1)[:, 0]


def object_mark(mark: Mark) -> Cue:
    """The cue of a mark that was found: its exchange takes it away, or puts it on at the same place of the object."""

    def exchange(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        bare = fill_object(x, marked(x, mask, mark))
        where, pixels = _aligned(marked(donor, donor_mask, mark), donor, donor_mask, mask)
        put = ((where > 0.5) & (mask > 0.5)).float()[:, None]
        return put * pixels + (1 - put) * bare

    return replace(OBJECT_MARK, exchange=exchange)


def _aligned(where: Tensor, donor: Tensor, donor_mask: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The donors' marks and pixels, moved so that the boxes around the objects fall together."""
    to, of = _boxes(mask), _boxes(donor_mask)
    scale = of[:, 1] / to[:, 1]
    theta = torch.zeros(len(mask), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = scale[:, 0], scale[:, 1]
    theta[:, :, 2] = of[:, 0] - scale * to[:, 0]
    grid = F.affine_grid(theta, [len(mask), 1, *mask.shape[-2:]], align_corners=True)
    both = F.grid_sample(torch.cat([where[:, None], donor], 1), grid, align_corners=True, padding_mode="border")
    return both[:, 0], both[:, 1:]


def _boxes(mask: Tensor) -> Tensor:
    """Middle and half side of the box around each object in ``[-1, 1]``, as x and y: ``[B, 2, 2]``."""
    out = torch.zeros(len(mask), 2, 2)
    for i, one in enumerate(mask > 0.5):
        for axis, side in ((0, one.any(0)), (1, one.any(1))):
            on = torch.nonzero(side).flatten().float()
            low, high = (on.min(), on.max() + 1) if len(on) else (torch.tensor(0.0), torch.tensor(float(len(side))))
            out[i, 0, axis] = (low + high) / len(side) - 1
            out[i, 1, axis] = (high - low).clamp(min=1.0) / len(side)
    return out


OBJECT_MARK = Cue(
    "object-mark", "a mark on the object", needs_objects=True, searched=True, trial="Give {object} {theirs}",
    theirs="the mark on the object of {donor}",
)  # fmt: skip
