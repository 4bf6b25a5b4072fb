"""Where the object is, for the experiments: masks or boxes of the dataset, attention of a ViT, or the middle.

There are two masks of every object. The generous one holds the object and a margin around it: an exchange of
backgrounds then leaves a little of the old background with the object, which makes a pull look smaller; a mask that
missed a part of the object would leave it in the "background" and accuse models that look at the object. The tight one
ends where the object does, as well as that is known, with a soft edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError
from foveate.report.discovery.finder import Finder, Sighting, blown_up
from foveate.report.discovery.outlines import attention_mask, edge_masks, grow
from foveate.report.heat import object_mask

SOURCES = {
    "masks": "the masks of the dataset",
    "boxes": "the boxes of the dataset",
    "vit-s-focus": "the attention of a ViT-S (DINOv2-S fine-tuned for saliency)",
    "micro-vit": "the attention of the small ViT that comes with foveate",
    "centre": "the middle of the picture, for want of anything better",
}


@dataclass
class Objects:
    """Finds objects in the images of one dataset.

    Attributes:
        source: what the masks come from, a key of ``SOURCES``.
        finder: the network that finds them, where it is one.
    """

    dataset: GroupedDataset
    source: str
    finder: Finder | None = None
    _rows: dict[int, NDArray[np.float32]] = field(default_factory=dict, repr=False)

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
        return self.source not in ("masks", "boxes")

    def look(self, positions: NDArray[np.int64], tick: Callable[[int], None] | None = None) -> None:
        """Have the network look at the images at ``positions`` now, all in one go and for good: what it sees is
        remembered here, and in the feature store. Without a network nothing is done."""
        if self.finder is not None:
            rows = self.finder.look(self.dataset, positions, tick)
            self._rows.update((int(i), row) for i, row in zip(positions, rows, strict=True) if np.isfinite(row[0]))

    def masks(self, images: Sequence[Tensor], positions: Sequence[int]) -> list[Tensor | None]:
        """A generous mask ``float [H, W]``, 0 or 1, for every image ``uint8 [3, H, W]``; None where there is none."""
        if self.source == "centre":
            return [grow(_middle(image)) for image in images]
        seen = self.sighting(images, positions)
        if seen is not None:
            coarse = [attention_mask(m) for m in seen.attention]
            return [grow(blown_up(m, i.shape[-2:])) for m, i in zip(coarse, images, strict=True)]
        return [None if m is None else grow((m > 0.1).float()) for m in self._given(images, positions)]

    def tight(self, images: Sequence[Tensor], positions: Sequence[int]) -> list[Tensor | None]:
        """The same objects without a margin, ``float [H, W]`` in 0 … 1 with a soft edge; None where there is none."""
        if self.source == "centre":
            return [_middle(image) for image in images]
        seen = self.sighting(images, positions)
        if seen is not None:
            return list(edge_masks(seen.attention, images))
        return self._given(images, positions)

    def embedding(self, images: Sequence[Tensor], positions: Sequence[int]) -> Tensor | None:
        """The images as the network sees them, ``[B, D]``; None without a network."""
        seen = self.sighting(images, positions)
        return None if seen is None else seen.embedding

    def surroundings(self, images: Sequence[Tensor], positions: Sequence[int]) -> Tensor | None:
        """The images as the network sees them with the object painted over, ``[B, D]``; None without a network."""
        seen = self.sighting(images, positions)
        return None if seen is None else seen.surroundings

    def sighting(self, images: Sequence[Tensor], positions: Sequence[int]) -> Sighting | None:
        """What the network saw in images: remembered from :meth:`look`, or seen now."""
        if self.finder is None:
            return None
        if not self.knows(positions):
            return self.finder.see(images)
        return self.finder.sighting(np.stack([self._rows[int(i)] for i in positions]))

    def knows(self, positions: Sequence[int]) -> bool:
        """Whether all these images were looked at: then the images themselves are not needed to say what was seen."""
        return len(positions) > 0 and all(int(i) in self._rows for i in positions)

    def _given(self, images: Sequence[Tensor], positions: Sequence[int]) -> list[Tensor | None]:
        """The dataset's own masks or boxes; None for one that marks nothing."""
        found = [object_mask(self.dataset, i, *image.shape[-2:]) for i, image in zip(positions, images, strict=True)]
        return [None if mask is None or not (mask > 0.1).any() else mask for mask in found]


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
            return Objects(dataset, name, Finder(name))
        except (FoveateError, OSError, ImportError, AttributeError):
            if source is not None:
                raise
    return Objects(dataset, "centre")


def _on_this_machine() -> list[str]:
    from foveate import assets

    there = [entry.name for entry in assets.status() if getattr(entry, "ready", False) and entry.name == "vit-s-focus"]
    return [*there, "micro-vit"]


def _middle(image: Tensor) -> Tensor:
    mask = torch.zeros(image.shape[-2:])
    height, width = mask.shape
    mask[round(0.2 * height) : round(0.8 * height), round(0.2 * width) : round(0.8 * width)] = 1.0
    return mask
