"""How the picture lies: how far it is tilted, and how far it is stretched in one direction.

Both are given to the whole picture, object and all; what lay beyond its borders is mirrored. Pictures are tilted
however their class looks, so all donors will do. How wide an object is may well make its class (a lizard is wider than
an owl), so pictures are stretched only as others of their own class (``within_class``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues.cue import Cue, Glances
from foveate.report.discovery.cues.placement import stands
from foveate.report.discovery.cues.surroundings import gaussian
from foveate.report.discovery.outlines import MARGIN, core

FURTHEST = 40.0
"""Degrees that a picture is turned by at most."""
WIDEST = 2.0
"""A picture is stretched at most this much beside its other side."""
FINEST = 1.0
"""Width in pixels of the blur before directions are read: the pixels themselves lie level, however the picture lies."""

Laying = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(x, mask, donor, donor_mask)`` to where each place of ``x`` comes from once it lies as the donor does:
``[B, 2, 3]``, for ``affine_grid``."""


def _slopes(images: Tensor, width: float = FINEST) -> tuple[Tensor, Tensor]:
    """How the light changes to the right and downwards, ``[B, H - 2, W - 2]`` each."""
    light = gaussian((images * images.new_tensor((0.299, 0.587, 0.114)).view(1, 3, 1, 1)).sum(1), width)
    return light[:, 1:-1, 2:] - light[:, 1:-1, :-2], light[:, 2:, 1:-1] - light[:, :-2, 1:-1]


def tilt(images: Tensor) -> Tensor:
    """How far pictures ``[B, 3, H, W]`` are tilted clockwise, in degrees from -45 to 45, ``[B]``.

    What stands or lies in a scene makes edges at right angles, so a tilt is the direction that edges share up to right
    angles: the mean of ``exp(4i angle)`` over all places, each as heavy as its edge.

    >>> places, turn = torch.arange(60.0), math.radians(10)
    >>> down = places[:, None] * math.cos(turn) - places * math.sin(turn)
    >>> lines = ((down / 3).sin() * 60 + 120).expand(1, 3, 60, 60)              # they fall by 10 degrees to the right
    >>> round(float(tilt(lines))), round(float(tilt(lines.flip(-1))))
    (10, -10)
    """
    across, down = _slopes(images)
    strength, angle = (across**2 + down**2).sqrt(), 4 * torch.atan2(down, across)
    return torch.rad2deg(
        torch.atan2((strength * angle.sin()).sum((1, 2)), (strength * angle.cos()).sum((1, 2)) + 1e-9) / 4
    )


def stretch(images: Tensor, masks: Tensor, rim: float = 0.0) -> Tensor:
    """How wide objects are beside their height: logarithm, 0 where all is even, ``[B]``.

    The mean of what the outlines ``[B, H, W]`` say and of what the pattern within them says, which falls off more
    slowly in the direction that it is stretched in. Surroundings do not count: a sea has all its lines in one
    direction, and a wood in the other.

    >>> flat = torch.zeros(1, 48, 48)
    >>> flat[:, 16:32, 8:40] = 1
    >>> round(float(stretch(torch.full((1, 3, 48, 48), 9.0), flat)), 2)      # twice as wide as high, without a pattern
    0.35
    """
    inside = core(masks, rim)
    height, width = masks.shape[-2:]
    total = inside.sum((1, 2)).clamp(min=1.0)
    spreads = []
    for places in (torch.arange(width).to(images), torch.arange(height).to(images)[:, None]):
        middle = (inside * places).sum((1, 2)) / total
        spreads.append((inside * (places - middle.view(-1, 1, 1)) ** 2).sum((1, 2)) / total + 0.1)
    across, down = (
        (inside[:, 1:-1, 1:-1] * part.abs()).sum((1, 2)) / total + 0.1 for part in _slopes(images, FINEST / 2)
    )
    return (0.5 * (spreads[0] / spreads[1]).log() + (down / across).log()) / 2


def tilting(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The step to ``x`` tilted as the donor is, around the middle."""
    apart = (tilt(donor) - tilt(x) + 45) % 90 - 45
    turn = torch.deg2rad(apart.clamp(-FURTHEST, FURTHEST))
    height, width = x.shape[-2:]
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = turn.cos()
    theta[:, 0, 1], theta[:, 1, 0] = turn.sin() * height / width, -turn.sin() * width / height
    return theta


def stretching(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The step to ``x`` stretched as the donor is, around its object, which stays as large."""
    apart = stretch(donor, donor_mask) - stretch(x, mask)
    half = apart.clamp(-math.log(WIDEST), math.log(WIDEST)) / 2
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = (-half).exp(), half.exp()
    theta[:, :, 2] = stands(mask)[0] * (1 - torch.stack([theta[:, 0, 0], theta[:, 1, 1]], 1))
    return theta


def moved(images: Tensor, theta: Tensor) -> Tensor:
    """``[B, C, H, W]`` by a step; beyond the borders pictures are mirrored."""
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def exchange_tilt(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` tilted as the donor is."""
    return moved(x, tilting(x, mask, donor, donor_mask))


def exchange_aspect(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` stretched as the donor is."""
    return moved(x, stretching(x, mask, donor, donor_mask))


def lying_alike(cue: Cue, step: Laying) -> Cue:
    """The exchange of ``cue`` with donors that are first brought to lie as the recipients do.

    What is left of its pull does not come from how pictures lie.
    """
    exchange = cue.exchange
    if exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")

    def levelled(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        theta = step(donor, donor_mask, x, mask)
        both = moved(torch.cat([donor_mask[:, None].to(donor), donor], 1), theta)
        return exchange(x, mask, both[:, 1:], (both[:, 0] > 0.5).to(donor_mask.dtype))

    return replace(cue, exchange=levelled)


def _read_tilt(seen: Glances) -> NDArray[np.float64]:
    return tilt(seen.small)[:, None].double().numpy()


def _read_stretch(seen: Glances) -> NDArray[np.float64]:
    """The masks here have a margin, which is taken off again."""
    return stretch(seen.small, seen.masks, MARGIN)[:, None].double().numpy()


TILT = Cue(
    "tilt", "how the picture is tilted", _read_tilt, exchange_tilt,
    comparatives=("tilted further to the left", "tilted further to the right"),
    trial="Tilt {object} picture {theirs}", theirs="as {donor} is tilted",
)  # fmt: skip
ASPECT = Cue(
    "aspect", "how stretched the picture is", _read_stretch, exchange_aspect, needs_objects=True, outlined=True,
    within_class=True, comparatives=("narrower", "wider"),
    trial="Stretch {object} picture {theirs}", theirs="as {donor} is stretched",
)  # fmt: skip
STEPS: dict[str, Laying] = {TILT.key: tilting, ASPECT.key: stretching}
"""How pictures come to lie, by key."""
