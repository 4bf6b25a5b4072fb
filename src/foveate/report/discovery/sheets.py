"""The images of the experiments at the size a model sees, with their masks; made once for all models of one view."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.measure import decided_by_shares
from foveate.report.discovery.objects import Objects
from foveate.report.discovery.pictures import Kept, Sheet
from foveate.report.reading import readable

TOGETHER = 16
"""Images read at a time."""
ALL_OBJECT = 0.9
"""An image whose object covers more than this has no background to exchange."""


@dataclass(frozen=True)
class Pictured:
    """Images at the size a model sees, ``uint8 [n, 3, H, W]``, with generous and tight masks ``uint8 [n, H, W]``."""

    images: Tensor
    masks: Tensor
    tight: Tensor
    positions: NDArray[np.int64]
    kept: Kept


@dataclass
class Sheets:
    """Makes the sheet of a model from the images at ``positions``, in a random order, up to ``most`` of them.

    ``keep`` is how many bytes of exchanged pictures are kept from one model for the next.
    """

    objects: Objects
    positions: NDArray[np.int64]
    most: int
    seed: int = 0
    keep: int = 0
    _made: dict[str, Pictured] = field(default_factory=dict, repr=False)

    def of(self, view: Preprocess | None, probabilities: NDArray[np.float64]) -> Sheet:
        """The sheet of a model that sees images by ``view`` and says ``probabilities`` ``[N, K]`` about the dataset."""
        pictured, dataset = self._pictured(view), self.objects.dataset
        chances = probabilities[pictured.positions]
        return Sheet(
            pictured.images, pictured.masks, dataset.labels[pictured.positions], decided_by_shares(chances),
            chances.max(1), pictured.positions, pictured.tight, lambda i: dataset[i].image, view,
            shared=pictured.kept,
        )  # fmt: skip

    def _pictured(self, view: Preprocess | None) -> Pictured:
        if repr(view) not in self._made:
            self._made.clear()  # models of one view usually come together; a second sheet would only take memory
            self._made[repr(view)] = self._make(view)
        return self._made[repr(view)]

    def _make(self, view: Preprocess | None) -> Pictured:
        pixels: list[Tensor] = []
        masks: list[tuple[Tensor, Tensor]] = []
        kept: list[int] = []
        order = np.random.default_rng([self.seed, 2]).permutation(self.positions)
        for start in range(0, len(order), TOGETHER):
            if len(kept) >= self.most:
                break
            found = dict(readable(self.objects.dataset, order[start : start + TOGETHER]))
            images, mine = list(found.values()), list(found)
            wides, tights = self.objects.masks(images, mine), self.objects.tight(images, mine)
            for i, image, wide, tight in zip(mine, images, wides, tights, strict=True):
                if wide is None or tight is None:
                    continue
                size = view or Preprocess((image.shape[-2], image.shape[-1]))
                wide, tight = ((size.prepare_mask(mask) > 0.5).to(torch.uint8) for mask in (wide, tight))
                if wide.float().mean() > ALL_OBJECT:
                    continue
                pixels.append(size.prepare(image))
                masks.append((wide, tight))
                kept.append(i)
        if not kept:
            pixels, masks = [torch.zeros(3, 1, 1, dtype=torch.uint8)], [(torch.zeros(1, 1, dtype=torch.uint8),) * 2]
        most = min(self.most, len(kept))
        wide_ones, tight_ones = (torch.stack(kind)[:most] for kind in zip(*masks, strict=True))
        drawn = torch.stack(pixels)[:most]
        shared = Kept((drawn, wide_ones, tight_ones), self.keep)
        return Pictured(drawn, wide_ones, tight_ones, np.asarray(kept[:most], dtype=np.int64), shared)
