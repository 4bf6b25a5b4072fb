"""LOOK without looking: everywhere alike, in the middle, or where the true mask is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import DataError
from foveate.look.gaze import Gaze
from foveate.parameters import Part, configured


@configured
class Everywhere(Part):
    """Every place counts the same.

    >>> Everywhere()(torch.rand(2, 3, 8, 8)).map.shape
    torch.Size([2, 1, 1])
    """

    def __call__(self, images: Tensor) -> Gaze:
        return Gaze(torch.ones(len(images), 1, 1), kind="everywhere")


@configured
class Centre(Part):
    """A bump in the middle of the image.

    Args:
        cells: rows and columns of the map.

    >>> bool(Centre(cells=3)(torch.rand(1, 3, 8, 8)).map[0].argmax() == 4)
    True
    """

    cells: int = 8

    def __call__(self, images: Tensor) -> Gaze:
        line = torch.linspace(-1, 1, self.cells)
        bump = torch.exp(-2 * (line[:, None] ** 2 + line[None] ** 2))
        return Gaze(bump.expand(len(images), -1, -1).contiguous(), kind="centre")


@configured
class Truth(Part):
    """Where the object is, by its true mask: a bound for every look. Reads images with their mask as a fourth channel.

    Args:
        cells: rows and columns of the map; each holds the share of its pixels that are object.

    >>> seen = torch.cat([torch.rand(1, 3, 4, 4), torch.eye(4)[None, None]], 1)
    >>> Truth(cells=2)(seen).map.tolist()
    [[[0.5, 0.0], [0.0, 0.5]]]
    """

    cells: int = 16
    reads_masks = True

    def __call__(self, images: Tensor) -> Gaze:
        if images.shape[1] != 4:
            raise DataError(
                "this model looks where the true mask is and was given images alone; give a dataset that has masks."
            )
        return Gaze(F.adaptive_avg_pool2d(images[:, 3:], (self.cells, self.cells))[:, 0], kind="true mask")
