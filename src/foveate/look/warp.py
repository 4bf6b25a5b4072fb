"""A rotation, translation and scaling of images, and its inverse on their part maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class AffineWarp:
    """Turn by ``angle``, scale by ``scale`` about the centre, then shift by ``shift``; reversible.

    ``warp(images)`` applies it (bilinear) and ``warp.inverse(maps)`` undoes it: shift back, then turn back and scale by
    ``1 / scale``. Shifts are shares of the height and width, so the same warp fits images and their much smaller
    maps. Zero outside. No shear (PDiscoFormer, equivariance loss).

    Args:
        angle: degrees, counter-clockwise.
        shift: ``(x, y)`` as shares of width and height; positive is right and down.
        scale: above 1 enlarges.

    >>> image = torch.tensor([[0.0, 1.0], [2.0, 3.0]])[None, None]
    >>> AffineWarp(angle=90)(image)[0, 0].round()
    tensor([[1., 3.],
            [0., 2.]])
    >>> AffineWarp(shift=(0.5, 0.0)).inverse(AffineWarp(shift=(0.5, 0.0))(image))[0, 0].round()
    tensor([[0., 0.],
            [2., 0.]])
    """

    angle: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"a warp's scale must be positive; got {self.scale}.")

    @classmethod
    def random(
        cls,
        generator: torch.Generator | None = None,
        *,
        max_angle: float = 90.0,
        max_shift: float = 0.11,
        scales: tuple[float, float] = (0.8, 1.4),
    ) -> AffineWarp:
        """A warp drawn uniformly from the ranges of the paper: one for a whole batch."""
        angle, x, y, scale = torch.rand(4, generator=generator).tolist()
        return cls(
            angle=(2 * angle - 1) * max_angle,
            shift=((2 * x - 1) * max_shift, (2 * y - 1) * max_shift),
            scale=scales[0] + scale * (scales[1] - scales[0]),
        )

    def __call__(self, images: Tensor) -> Tensor:
        """``images [B, C, H, W]``, warped."""
        return _sample(images, self._matrix(images, inverse=True))

    def inverse(self, maps: Tensor, *, smooth: bool = False) -> Tensor:
        """``maps [B, C, h, w]`` of warped images, brought back to where the unwarped images have them.

        In two steps, each taking the nearest value, as the authors do (github.com/ananthu-aniraj/pdiscoformer,
        utils/data_utils/reversible_affine_transform.py, whose inverse leaves the interpolation at torchvision's
        default). ``smooth=True`` does it in one bilinear step, which leaves less of the maps' own grain in the
        equivariance loss: it comes out 15 to 76 % lower, so its weight means another thing.
        """
        if smooth:
            return _sample(maps, self._matrix(maps, inverse=False))
        shifted = AffineWarp(shift=(-self.shift[0], -self.shift[1]))
        turned = AffineWarp(angle=-self.angle, scale=1 / self.scale)
        for step in (shifted, turned):
            maps = _sample(maps, step._matrix(maps, inverse=True), mode="nearest")
        return maps

    def _matrix(self, images: Tensor, inverse: bool) -> Tensor:
        """2x3 matrix from output to input positions, both from -1 to 1: of T (``inverse=False``) or of T⁻¹."""
        height, width = images.shape[-2:]
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        # counter-clockwise as seen, with y pointing down; the aspect keeps a turn a turn on oblong images
        turn = self.scale * torch.tensor(
            [[cos, sin * height / width], [-sin * width / height, cos]], dtype=torch.float64
        )
        move = 2 * torch.tensor(self.shift, dtype=torch.float64)
        if inverse:
            turn = torch.linalg.inv(turn)
            move = -turn @ move
        return torch.cat([turn, move[:, None]], 1)


def _sample(images: Tensor, matrix: Tensor, mode: str = "bilinear") -> Tensor:
    theta = matrix.to(images.device, images.dtype).expand(len(images), 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, padding_mode="zeros", align_corners=False)
