"""Where the object is, for the experiments: masks or boxes of the dataset, attention of a ViT, or the middle.

What is returned is generous on purpose: the object and a margin around it. An exchange of backgrounds then leaves a
little of the old background with the object, which makes a pull look smaller; a tight mask that missed a part of the
object would leave it in the "background" and accuse models that look at the object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError
from foveate.look import cls_attention
from foveate.report.heat import object_mask

MARGIN = 0.08
"""Margin around the object, as a share of the image's shorter side."""
SOURCES = {
    "masks": "the masks of the dataset",
    "boxes": "the boxes of the dataset",
    "vit-s-focus": "the attention of a ViT-S (DINOv2-S fine-tuned for saliency)",
    "micro-vit": "the attention of the small ViT that comes with foveate",
    "centre": "the middle of the picture, for want of anything better",
}

Locate = Callable[[list[Tensor]], list[Tensor]]


@dataclass
class Objects:
    """Finds objects in the images of one dataset.

    Attributes:
        source: what the masks come from, a key of ``SOURCES``.
        embed: images to embeddings ``[B, D]`` when the source is a network, else None.
    """

    dataset: GroupedDataset
    source: str
    locate: Locate | None = None
    embed: Callable[[list[Tensor]], Tensor] | None = None

    @property
    def words(self) -> str:
        return SOURCES.get(self.source, f"the attention of {self.source}")

    @property
    def sure(self) -> bool:
        """Whether the masks are good enough to accuse a model on their ground."""
        return self.source != "centre"

    @property
    def estimated(self) -> bool:
        """Whether the places are guesses of a network or of the frame, and not given with the images."""
        return self.locate is not None

    def masks(self, images: list[Tensor], positions: list[int]) -> list[Tensor | None]:
        """A generous mask ``float [H, W]`` for every image ``uint8 [3, H, W]``; None where there is none."""
        if self.locate is not None:
            return [grow(mask) for mask in self.locate(images)]
        found = [object_mask(self.dataset, i, *image.shape[-2:]) for i, image in zip(positions, images, strict=True)]
        return [None if mask is None or not (mask > 0.1).any() else grow((mask > 0.1).float()) for mask in found]


def find_objects(dataset: GroupedDataset, source: str | None = None) -> Objects:
    """Choose how to find objects: what the dataset knows, else a ViT that is on the machine, else the middle.

    Args:
        source: ``"masks"``, ``"boxes"``, ``"centre"``, or the name of a ViT for
            :func:`foveate.extract.open_backbone`; None chooses.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=8, target=8, val=8, test=8)
    >>> find_objects(data.test).source
    'masks'
    """
    if source == "masks" or (source is None and dataset.masks is not None):
        return Objects(dataset, "masks")
    if source == "boxes" or (source is None and dataset.boxes is not None):
        return Objects(dataset, "boxes")
    for name in (source,) if source is not None else _on_this_machine():
        if name == "centre":
            break
        try:
            return _attending(dataset, name)
        except (FoveateError, OSError, ImportError, AttributeError):
            if source is not None:
                raise
    return Objects(dataset, "centre", _middle)


def _on_this_machine() -> list[str]:
    from foveate import assets

    there = [entry.name for entry in assets.status() if getattr(entry, "ready", False) and entry.name == "vit-s-focus"]
    return [*there, "micro-vit"]


def _attending(dataset: GroupedDataset, name: str) -> Objects:
    from foveate.extract import open_backbone

    backbone, view = open_backbone(name, 140 if name == "vit-s-focus" else None)

    @torch.no_grad()
    def run(images: list[Tensor]) -> Tensor:
        return view.normalise(torch.stack([view.prepare(image) for image in images]))

    def locate(images: list[Tensor]) -> list[Tensor]:
        maps = cls_attention(backbone.net, run(images)).map.float().cpu()
        # the geometry of a squashing preprocessing is undone by stretching the mask to the image
        found = [attention_mask(m) for m in maps]
        return [
            F.interpolate(m[None, None], i.shape[-2:], mode="nearest")[0, 0] for m, i in zip(found, images, strict=True)
        ]

    @torch.no_grad()
    def embed(images: list[Tensor]) -> Tensor:
        return backbone(run(images)).float().cpu()

    return Objects(dataset, name, locate, embed)


def attention_mask(attention: Tensor, share: float = 0.5) -> Tensor:
    """The connected places with most attention: ``[h, w]`` to 0 and 1.

    Places above ``share`` of the way from the mean to the (smoothed) maximum seed the object; it grows over neighbours
    above the mean.

    >>> heat = torch.zeros(6, 6)
    >>> heat[1:3, 1:3], heat[5, 5] = 1.0, 0.4
    >>> attention_mask(heat).int().sum().item()
    4
    """
    from scipy import ndimage

    heat = attention.numpy()
    mean = float(heat.mean())
    strong = heat >= mean + share * (float(np.quantile(heat, 0.98)) - mean)
    above = heat > mean
    regions, count = ndimage.label(above)
    if not count:
        return torch.ones_like(attention)
    weights = ndimage.sum_labels(np.where(strong, heat, 0.0), regions, np.arange(1, count + 1))
    kept = np.flatnonzero(weights >= 0.35 * weights.max()) + 1
    return torch.from_numpy(np.isin(regions, kept).astype(np.float32))


def grow(mask: Tensor, margin: float = MARGIN) -> Tensor:
    """The mask with a margin around it, ``[H, W]``, 0 or 1.

    >>> mask = torch.zeros(9, 9); mask[4, 4] = 1
    >>> int(grow(mask, 0.12).sum())
    9
    """
    reach = max(1, round(margin * min(mask.shape)))
    return F.max_pool2d((mask > 0.5).float()[None, None], 2 * reach + 1, 1, reach)[0, 0]


def _middle(images: list[Tensor]) -> list[Tensor]:
    out = []
    for image in images:
        mask = torch.zeros(image.shape[-2:])
        height, width = mask.shape
        mask[round(0.2 * height) : round(0.8 * height), round(0.2 * width) : round(0.8 * width)] = 1.0
        out.append(mask)
    return out
