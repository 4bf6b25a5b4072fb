"""RESTRICT: what is let through.

A restriction is a part that is called with images and a gaze and gives :class:`Views`: crops or a token mask.

>>> import torch
>>> from foveate.look import Gaze
>>> gaze = Gaze(torch.tensor([[[0.1, 0.4], [0.2, 0.3]]]))
>>> reader = ReaderShape(size=8, grid=(2, 2))              # what it must know of the network that reads
>>> TopTokens(keep=0.5)(torch.rand(1, 3, 8, 8), gaze, reader, (0,)).mask.int().tolist()
[[[[0, 1], [0, 1]]]]
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from foveate.extract.views import ReaderShape, Views
from foveate.look.gaze import Gaze
from foveate.restrict.cropping import CandidateCrops, CentreCrops, Crops, GreedyCrops, ScatteredCrops, random_boxes
from foveate.restrict.crops import extract_crops, greedy_crops
from foveate.restrict.masks import early_mask, keep_parts, late_mask, straight_through
from foveate.restrict.removal import TokenThresholds, calibrate_tokens, remove_parts, remove_tokens
from foveate.restrict.restriction import Chosen, Nothing, Restriction, on_grid
from foveate.restrict.tokens import MaskedTokens, Tiles, TopTokens, attended_tokens, tiles


@runtime_checkable
class Restrict(Protocol):
    """What RESTRICT is; :class:`Restriction` has the rest of it with plain answers."""

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        """Images ``[B, 3, H, W]`` in ``[0, 1]`` and where to look to what is read of them."""
        ...


__all__ = [
    "CandidateCrops", "CentreCrops", "Crops", "GreedyCrops", "MaskedTokens", "Nothing", "ReaderShape", "Restrict",
    "Restriction", "ScatteredCrops", "Tiles", "TopTokens", "Views", "attended_tokens", "on_grid", "random_boxes",
    "tiles",
    "TokenThresholds", "calibrate_tokens", "early_mask", "extract_crops", "greedy_crops", "keep_parts", "late_mask",
    "remove_parts", "remove_tokens", "straight_through",
]  # fmt: skip
