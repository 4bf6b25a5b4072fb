"""How the object stands in the picture: how large it is, and where. It is moved on its own background."""

from __future__ import annotations

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


def exchange_size(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The object of ``x`` as large in the picture as the donor's, around the place where it was."""
    centre, side = _stands(mask)
    _, wanted = _stands(donor_mask)
    return _moved(x, mask, centre, centre, (wanted / side).clamp(1 / LARGEST, LARGEST))


def exchange_position(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The object of ``x`` where the donor's is, as large as before."""
    centre, side = _stands(mask)
    wanted, _ = _stands(donor_mask)
    return _moved(x, mask, centre, wanted, torch.ones_like(side))


def _stands(mask: Tensor) -> tuple[Tensor, Tensor]:
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
    return _stands(seen.masks)[1].clamp(min=1e-3).log()[:, None].double().numpy()


def _read_position(seen: Glances) -> NDArray[np.float64]:
    return _stands(seen.masks)[0].double().numpy()


SIZE = Cue(
    "size", "how large the object is in the picture", _read_size, exchange_size, needs_objects=True,
    comparatives=("smaller in the picture", "larger in the picture"), trial="Make {object} {theirs}",
    theirs="as large in the picture as the object of {donor}",
)  # fmt: skip
POSITION = Cue(
    "position", "where the object is in the picture", _read_position, exchange_position, needs_objects=True,
    trial="Move {object} {theirs}", theirs="to where the object of {donor} is",
)  # fmt: skip
