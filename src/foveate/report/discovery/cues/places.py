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
    wide = max(1, round(FRAME * min(height, width)))
    out = torch.ones(height, width, dtype=torch.bool)
    out[wide : height - wide, wide : width - wide] = False
    return out


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
    theirs="the frame of {donor}",
)  # fmt: skip
