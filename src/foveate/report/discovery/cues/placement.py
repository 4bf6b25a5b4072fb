"""How the object stands in the picture: how large it is, and where.

Whoever steps closer sees object and surroundings larger, and less of the surroundings: so the whole picture is enlarged
or reduced around its object. To stand elsewhere, the object is moved on its own background.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import fill_object
from foveate.report.discovery.cues.cue import Cue, Glances
from foveate.report.discovery.cues.surroundings import soft

LARGEST = 2.5
"""An object is made at most this much larger, or smaller, in side."""
CLOSE = 2.0
"""How much a picture is enlarged to be one that is seen from close."""


def exchange_size(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` seen from as close as the donor: enlarged or reduced until its object is as large in the picture.

    Beyond its borders a reduced picture goes on with its own surroundings, mirrored.
    """
    centre, side = stands(mask)
    scale = (stands(donor_mask)[1] / side).clamp(1 / LARGEST, LARGEST)
    behind = fill_object(x, (mask > 0.5).float())
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1 / scale
    reach = (1 - 1 / scale).abs()[:, None]  # an enlarged picture ends where the old one did
    theta[:, :, 2] = torch.where(scale[:, None] > 1, centre.clamp(-reach, reach), centre * (1 - 1 / scale[:, None]))
    grid = F.affine_grid(theta, list(x.shape), align_corners=True)
    around = F.grid_sample(behind, grid, padding_mode="reflection", align_corners=True)
    both = F.grid_sample(torch.cat([soft(mask)[:, None], x], 1), grid, align_corners=True)
    return both[:, :1] * both[:, 1:] + (1 - both[:, :1]) * around


def from_as_close(cue: Cue) -> Cue:
    """The exchange of ``cue`` with donors that are all seen from close.

    What is left of its pull does not come from how close a picture was taken. (How large an object is that fills its
    picture no mask tells, so donors are not brought to one size.)
    """
    exchange = cue.exchange
    if exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")

    def levelled(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return exchange(x, mask, *enlarged(donor, donor_mask))

    return replace(cue, exchange=levelled)


def enlarged(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Pictures ``[B, 3, H, W]`` and their masks ``[B, H, W]`` seen from close, around the object as far as the picture
    reaches.

    >>> x = torch.zeros(1, 3, 9, 9)
    >>> x[..., 4, 4] = 8.0
    >>> near, mask = enlarged(x, (x[:, 0] > 0).float())
    >>> near[0, 0, 4, 3:6].tolist(), near[0, 0, 0, 0].item()
    ([4.0, 8.0, 4.0], 0.0)
    """
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1 / CLOSE
    theta[:, :, 2] = stands(mask)[0].clamp(1 / CLOSE - 1, 1 - 1 / CLOSE)
    grid = F.affine_grid(theta, list(x.shape), align_corners=True)
    both = F.grid_sample(torch.cat([mask[:, None].float(), x], 1), grid, align_corners=True)
    return both[:, 1:], (both[:, 0] > 0.5).to(mask.dtype)


def exchange_position(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The object of ``x`` where the donor's is, as large as before."""
    centre, side = stands(mask)
    wanted, _ = stands(donor_mask)
    return _moved(x, mask, centre, wanted, torch.ones_like(side))


def stands(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Middle of the masks in ``[-1, 1]``, ``[B, 2]`` as x and y, and the side of a square as large, ``[B]``."""
    height, width = mask.shape[-2:]
    on = (mask > 0.5).float()
    total = on.sum((1, 2)).clamp(min=1.0)
    across = (on * torch.linspace(-1, 1, width)).sum((1, 2)) / total
    down = (on * torch.linspace(-1, 1, height)[:, None]).sum((1, 2)) / total
    return torch.stack([across, down], 1), (total / (height * width)).sqrt()


def _moved(x: Tensor, mask: Tensor, centre: Tensor, wanted: Tensor, scale: Tensor) -> Tensor:
    """The object taken from its place, which is filled in from around, and put where it is wanted, ``scale`` times as
    large."""
    behind = fill_object(x, (mask > 0.5).float())
    # grid_sample asks where each place of the result comes from
    theta = torch.zeros(len(x), 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1 / scale
    theta[:, :, 2] = centre - wanted / scale[:, None]
    grid = F.affine_grid(theta, list(x.shape), align_corners=True)
    moved = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True)
    alpha = F.grid_sample(soft(mask)[:, None], grid, mode="bilinear", padding_mode="zeros", align_corners=True)
    return alpha * moved + (1 - alpha) * behind


def _read_size(seen: Glances) -> NDArray[np.float64]:
    return stands(seen.masks)[1].clamp(min=1e-3).log()[:, None].double().numpy()


def _read_position(seen: Glances) -> NDArray[np.float64]:
    return stands(seen.masks)[0].double().numpy()


SIZE = Cue(
    "size", "how large the object is in the picture", _read_size, exchange_size, needs_objects=True, outlined=True,
    comparatives=("smaller in the picture", "larger in the picture"), trial="Make {object} {theirs}",
    theirs="as large in the picture as the object of {donor}",
)  # fmt: skip
POSITION = Cue(
    "position", "where the object is in the picture", _read_position, exchange_position, needs_objects=True,
    trial="Move {object} {theirs}", theirs="to where the object of {donor} is",
)  # fmt: skip
