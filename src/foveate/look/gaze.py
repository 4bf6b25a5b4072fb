"""What LOOK returns: where a model looked, and how to show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate import notebook


@dataclass
class Gaze:
    """Where a model looked, for a batch of B images.

    Attributes:
        map: how much each place counts, ``[B, h, w]``, non-negative, on the model's own grid.
        kind: what made it ("grad-cam", "attention", "parts", ...), for captions.
        parts: soft part maps ``[B, K + 1, h, w]`` (background last), or None.
        mask: hard selection ``[B, h, w]``, or None.
        boxes: crops ``[B, n, 3]`` as ``(x, y, size)`` in image pixels, -1 where there is none, or None.
        scores: whatever per-image figures belong to it, by name, each ``[B, ...]``.

    >>> import torch
    >>> gaze = Gaze(torch.eye(2)[None])
    >>> tuple(gaze.upsampled((8, 8)).shape)
    (1, 8, 8)
    """

    map: Tensor
    kind: str = "attention"
    parts: Tensor | None = None
    mask: Tensor | None = None
    boxes: Tensor | None = None
    scores: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.map)

    def __repr__(self) -> str:
        beside = [name for name in ("parts", "mask", "boxes") if getattr(self, name) is not None]
        height, width = self.map.shape[-2:]
        return f"Gaze({self.kind}: {', '.join([f'{len(self)} maps of {height} × {width}', *beside, *self.scores])})"

    def _repr_html_(self) -> str:
        if not len(self):
            return notebook.text(repr(self))
        side = (96, 96 * self.map.shape[-1] // self.map.shape[-2])
        shown = Gaze(self.map[:8], self.kind).draw(Tensor(min(len(self), 8), 3, *side).fill_(255).byte(), strength=1.0)
        return notebook.card(repr(self), *(notebook.picture(one) for one in shown))

    def upsampled(self, size: tuple[int, int]) -> Tensor:
        """The map at ``size = (height, width)``, bilinear, patch centres kept in place: ``[B, height, width]``."""
        return F.interpolate(self.map[:, None].float(), size, mode="bilinear", align_corners=False)[:, 0]

    def plot(self, images: Tensor, titles: Sequence[str] = ()) -> Any:
        """A Matplotlib figure: every image (``uint8 [B, 3, H, W]``), and under it the same with its map.

        >>> import torch
        >>> Gaze(torch.rand(3, 4, 4)).plot(torch.zeros(3, 3, 32, 32, dtype=torch.uint8)).axes[1].get_title()
        ''
        """
        drawn = self.draw(images)
        figure = notebook.figure(1.7 * len(self), 3.6)
        axes = figure.subplots(2, len(self), squeeze=False)
        for i, (image, map_) in enumerate(zip(images.cpu().permute(0, 2, 3, 1).numpy(), drawn, strict=True)):
            axes[0, i].imshow(image)
            axes[1, i].imshow(map_)
            axes[0, i].set_title(titles[i] if i < len(titles) else "", fontsize=9)
        for ax in axes.flat:
            ax.set_axis_off()
        return figure

    def draw(self, images: Tensor, strength: float = 0.55) -> NDArray[np.uint8]:
        """The maps laid over ``images`` (``uint8 [B, 3, H, W]``): ``uint8 [B, H, W, 3]``.

        Each map is scaled to its own maximum; crops, where there are any, are outlined in white.
        """
        from matplotlib import colormaps

        heat = self.upsampled((images.shape[-2], images.shape[-1]))
        heat = heat - heat.amin((1, 2), keepdim=True)
        heat = heat / heat.amax((1, 2), keepdim=True).clamp(min=1e-12)
        colour = colormaps["inferno"](heat.cpu().numpy())[..., :3]
        weight = strength * (0.25 + 0.75 * heat.cpu().numpy()[..., None])
        base = images.cpu().permute(0, 2, 3, 1).numpy() / 255.0
        drawn = np.clip((1 - weight) * base + weight * colour, 0, 1)
        pictures: NDArray[np.uint8] = np.rint(drawn * 255).astype(np.uint8)
        if self.boxes is not None:
            for picture, boxes in zip(pictures, self.boxes.cpu().numpy(), strict=True):
                for x, y, size in boxes:
                    if size > 0:
                        picture[y : y + size, [x, x + size - 1]] = 255
                        picture[[y, y + size - 1], x : x + size] = 255
        return pictures
