"""RESTRICT as an object: what every restriction is, and the one that lets everything through."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.extract.views import ReaderShape, Views
from foveate.look.gaze import Gaze
from foveate.parameters import Part, configured

Chosen = tuple[int, ...]
"""Numbers of the views that are read."""


class Restriction(Part):
    """Lets some views of an image through. A subclass gives :meth:`__call__`, and the rest where the plain answer
    does not fit."""

    def fit(self, data: GroupedDataset, frame: int | None, reader: ReaderShape) -> int:
        """Look at the images' sizes; returns the side in pixels at which images must be read.

        Args:
            data: what will be read.
            frame: side of the image as the look sees it, or None when it sees any.
            reader: the network that will read the views.
        """
        return max(frame or 0, reader.size)

    def choices(self) -> dict[Any, Chosen]:
        """Sets of views to choose from on validation images, by what the choice is called; one set is no choice."""
        return {"all": (0,)}

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        """The ``views`` of images ``[B, 3, H, W]`` in ``[0, 1]``, as they are to be read."""
        raise NotImplementedError

    def shown(self, gaze: Gaze, images: Tensor, reader: ReaderShape, views: Chosen) -> Gaze:
        """The gaze with what was let through drawn into it, for a person."""
        return gaze


@configured
class Nothing(Restriction):
    """Everything is let through.

    >>> import torch
    >>> images = torch.rand(2, 3, 8, 8)
    >>> Nothing()(images, Gaze(torch.ones(2, 1, 1)), ReaderShape(8, (1, 1)), (0,)).crops is None
    True
    """

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        return Views(images[:, :3])


def on_grid(maps: Tensor, grid: tuple[int, int]) -> Tensor:
    """Maps ``[B, h, w]`` on another grid, antialiased, never negative.

    >>> import torch
    >>> on_grid(torch.ones(1, 4, 4), (2, 2)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """
    if tuple(maps.shape[1:]) == tuple(grid):
        return maps
    moved = F.interpolate(maps[:, None].float(), grid, mode="bilinear", align_corners=False, antialias=True)
    return moved[:, 0].clamp(min=0)
