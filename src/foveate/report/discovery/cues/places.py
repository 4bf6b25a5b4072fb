"""Marks at a fixed place: something in a corner, the frame of the picture."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.report.discovery.cues.cue import SIDE, Cue, Exchange, Region, by_image

CORNER = 0.2
"""Side of a corner patch as a share of the image's shorter side."""
FRAME = 0.08
"""Width of the frame as a share of the shorter side."""
CORNERS = {"tl": "top left", "tr": "top right", "bl": "bottom left", "br": "bottom right"}


def at_place(region: Region) -> Exchange:
    """The donor's pixels at a fixed place."""

    def exchange(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return torch.where(region(x.shape[-2], x.shape[-1]).to(x.device), donor, x)

    return exchange


def corner(which: str) -> Region:
    """The region of a corner: ``which`` is two letters, ``t`` or ``b`` and ``l`` or ``r``.

    >>> corner("tr")(5, 5).int().tolist()[0]
    [0, 0, 0, 0, 1]
    """

    def region(height: int, width: int) -> Tensor:
        side = max(1, round(CORNER * min(height, width)))
        out = torch.zeros(height, width, dtype=torch.bool)
        rows = slice(0, side) if which[0] == "t" else slice(height - side, height)
        out[rows, slice(0, side) if which[1] == "l" else slice(width - side, width)] = True
        return out

    return region


def frame(height: int, width: int) -> Tensor:
    """The rim of the picture, its corners included.

    >>> frame(5, 5).int().tolist()[:2]
    [[1, 1, 1, 1, 1], [1, 0, 0, 0, 1]]
    """
    return _rim(height, width, max(1, round(FRAME * min(height, width))))


def _rim(height: int, width: int, wide: int) -> Tensor:
    out = torch.ones(height, width, dtype=torch.bool)
    out[wide : height - wide, wide : width - wide] = False
    return out


EVEN = 0.35
"""A rim is a frame when its colour varies less than this share of the picture's inside."""
EDGE = 3.0
"""Or when a line along it is this many times as sharp as the lines of the picture are."""


def framed(images: Tensor) -> Tensor:
    """Which pictures ``[B, 3, H, W]`` have a rim of its own, and not just more of the scene: ``bool [B]``.

    Its colour is even, or there is a sharp line between it and the inside on three sides at least.

    >>> scene = torch.rand(1, 3, 40, 40, generator=torch.Generator().manual_seed(0)) * 200
    >>> drawn = torch.where(frame(40, 40), torch.full_like(scene, 90.0), scene)
    >>> framed(torch.cat([scene, drawn])).tolist()
    [False, True]
    """
    images = images.float()
    height, width = images.shape[-2:]
    rim = _rim(height, width, max(1, round(FRAME * min(height, width)) // 2))
    inside = ~frame(height, width)
    even = images[:, :, rim].std(2).mean(1) < EVEN * images[:, :, inside].std(2).mean(1)
    lines = []
    for axis in (2, 3):
        steps = images.diff(dim=axis).abs().mean((1, 5 - axis))  # [B, side - 1]
        usual, reach = steps.median(1).values.clamp(min=0.5), max(2, round(1.5 * FRAME * min(height, width)))
        lines += [steps[:, :reach].amax(1) / usual, steps[:, -reach:].amax(1) / usual]
    return even | (torch.stack(lines).sort(0).values[1] >= EDGE)


def _corner_cue(which: str, name: str) -> Cue:
    region = corner(which)

    def read(small: Tensor) -> list[float]:
        inside = region(SIDE, SIDE)
        side = int(inside.sum() ** 0.5)
        patch = small[0][:, inside].reshape(1, 3, side, side)
        return F.adaptive_avg_pool2d(patch, 4).flatten().tolist()

    return Cue(
        f"corner-{which}", f"something in the {name} corner", by_image(read), at_place(region), region,
        part_of="frame", family="the corners", theirs=f"the {name} corner of {{donor}}",
    )  # fmt: skip


def _read_frame(small: Tensor) -> list[float]:
    """Mean of each colour over the four sides of the frame, and its spread over the whole."""
    region, half = frame(SIDE, SIDE), SIDE // 4
    out: list[float] = []
    for rows, columns in (
        (slice(0, half), slice(None)), (slice(SIDE - half, SIDE), slice(None)),
        (slice(None), slice(0, half)), (slice(None), slice(SIDE - half, SIDE)),
    ):  # fmt: skip
        part, here = small[0][:, rows, columns], region[rows, columns]
        out += part[:, here].mean(1).tolist()
    return [*out, *small[0][:, region].std(1).tolist()]


CORNER_CUES = tuple(_corner_cue(which, name) for which, name in CORNERS.items())
FRAME_CUE = Cue(
    "frame", "the frame of the picture", by_image(_read_frame), at_place(frame), frame, part_of="background",
    drawn=framed, theirs="the frame of {donor}",
)  # fmt: skip
