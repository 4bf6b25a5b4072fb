"""Batches of images that carry their masks as a fourth channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch, Loader
from foveate.data.preprocess import Preprocess
from foveate.engine import ImageFeed, derived_seed
from foveate.look.mask_source import MasksMissing, MaskSource, as_bytes, masks_from


def true_mask(dataset: GroupedDataset, index: int, view: Preprocess) -> Tensor:
    """The dataset's mask of image ``index`` as the network sees it, ``uint8 [h, w]``."""
    mask = dataset.mask(index)
    if mask is None:
        raise MasksMissing(
            f"masks='truth' hides what the true masks leave out, but {dataset.name} has no mask for "
            f"{dataset.where(index)}. Add a 'mask' column to the CSV, or use masks='found' or masks='u2netp'."
        )
    return as_bytes(view.prepare_mask(mask))


def with_masks(view: Preprocess, images: Tensor, masks: Tensor) -> Tensor:
    """Normalised images with their masks as a fourth channel: ``float32 [B, 4, h, w]``, masks in ``[0, 1]``."""
    return torch.cat([view.normalise(images), masks[:, None].float() / 255], 1)


class MaskedFeed(ImageFeed):
    """Images with their masks as a fourth channel; both are mirrored and shifted alike.

    Masks are made once an image and kept in memory while they fit into ``cache_bytes``.

    Args:
        loader: reads the images.
        source: makes the masks; None reads the dataset's own.
        augment, seed: as for :class:`~foveate.engine.ImageFeed`.
        cache_bytes: memory for masks.
    """

    def __init__(
        self,
        loader: Loader,
        source: MaskSource | None = None,
        augment: bool = False,
        seed: int = 0,
        cache_bytes: int = 1 << 29,
    ):
        super().__init__(loader, augment, seed)
        self.source = source
        h, w = loader.preprocess.size
        self._kept: dict[int, Tensor] | None = {} if len(loader.dataset) * h * w <= cache_bytes else None

    def __call__(self, batches: Sequence[NDArray[np.int64]], epoch: int, first: int = 0) -> Iterator[Batch]:
        view = self.loader.preprocess
        for step, batch in enumerate(self.loader(batches), start=first):
            both = torch.cat([batch.inputs, self._masks(batch)[:, None]], 1)
            if self.augment:
                both = view.augment(both, torch.Generator().manual_seed(derived_seed(self.seed, epoch, step)))
            batch.inputs = with_masks(view, both[:, :3], both[:, 3])
            yield batch

    def evaluate(self, batch_size: int) -> Iterator[Batch]:
        for batch in self.loader.in_order(batch_size):
            batch.inputs = with_masks(self.loader.preprocess, batch.inputs, self._masks(batch))
            yield batch

    def _masks(self, batch: Batch) -> Tensor:
        positions = batch.indices.tolist()
        if self._kept is not None and all(i in self._kept for i in positions):
            return torch.stack([self._kept[i] for i in positions])
        if self.source is None:
            made = torch.stack([true_mask(self.dataset, i, self.loader.preprocess) for i in positions])
        else:
            made = masks_from(self.source, batch.inputs)
        if self._kept is not None:
            self._kept.update(zip(positions, made, strict=True))
        return made
