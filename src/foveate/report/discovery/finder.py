"""A ViT that finds objects: one pass of it an image, in batches, kept in the feature store for every later audit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.engine.bf16 import bf16_problem
from foveate.errors import StorageError
from foveate.extract import open_backbone
from foveate.extract.backbone import Backbone
from foveate.extract.store import FeatureStore
from foveate.look import cls_attention
from foveate.measure import fill_object
from foveate.report.discovery.outlines import attention_mask, grow

log = logging.getLogger("foveate")
BATCH = 16
"""Images that pass through the network together."""
READOUT = "audit: CLS attention, CLS token, CLS token with the object painted over; 1"
"""Names what is kept; the number goes up when it changes."""
SIDES = {"vit-s-focus": (140, 98)}
"""Sides at which a network looks for the object, and at the picture with the object painted over: to tell a scene takes
fewer patches than to outline an animal, and half the patches take half the time. Others look at their own size."""
LARGE = 10**7
"""Weights from which on a network is worth reading in bf16, where the processor can: it takes half the time, attention
changes by about 1 % and embeddings by less."""


@dataclass(frozen=True)
class Sighting:
    """What the network saw in ``B`` images.

    Attributes:
        attention: of the CLS token over the patches, ``[B, h, w]``.
        embedding: of the images, ``[B, D]``.
        surroundings: of the images with their object painted over, ``[B, D]``.
    """

    attention: Tensor
    embedding: Tensor
    surroundings: Tensor


class Finder:
    """Looks at images with the ViT called ``name``; see :func:`foveate.extract.open_backbone`.

    Each image passes through the network twice: as it is, which gives attention and embedding together, and with its
    object painted over. What :meth:`look` saw is kept in the feature store under the weights, the pixels and the
    preprocessing, so another model, or another day, starts from it.

    >>> finder = Finder("micro-vit")
    >>> seen = finder.see([torch.zeros(3, 40, 50, dtype=torch.uint8)] * 2)
    >>> [tuple(part.shape) for part in (seen.attention, seen.embedding, seen.surroundings)]
    [(2, 8, 8), (2, 96), (2, 96)]
    """

    def __init__(self, name: str):
        side, around = SIDES.get(name, (None, None))
        self.backbone, self.view = open_backbone(name, side)
        self.around, self.around_size = self.backbone, self.view.size
        if around is not None:
            other, view = open_backbone(name, around)
            self.around, self.around_size = other, view.size
        large = sum(p.numel() for p in self.backbone.parameters()) >= LARGE
        self.half = large and bf16_problem() is None
        if self.half:
            for layer in (*self.backbone.modules(), *self.around.modules()):
                if isinstance(layer, nn.Linear):
                    layer.to(torch.bfloat16)  # as autocast would for every batch
        blank = torch.zeros(1, 3, *self.view.size)
        with self._precision():
            # refuses a network without attention
            self.grid = tuple(cls_attention(self.backbone.net, blank).map.shape[-2:])

    def see(self, images: Sequence[Tensor]) -> Sighting:
        """Look at images ``uint8 [3, H, W]`` now, without the store."""
        inputs = self.view.normalise(torch.stack([self.view.prepare(image) for image in images]))
        with torch.no_grad():
            return self._cut(self._readout(self.backbone, inputs).float().cpu())

    def _precision(self) -> torch.autocast:
        device = next(self.backbone.parameters()).device
        return torch.autocast(device.type, torch.bfloat16, enabled=self.half)

    @property
    def _key(self) -> str:
        smaller = "" if self.around is self.backbone else f" at {self.around_size[0]} px"
        return f"{READOUT}{smaller}{' in bf16' * self.half}"

    def _readout(self, backbone: Backbone, inputs: Tensor) -> Tensor:
        """The read-out for the store: normalised images ``[B, 3, h, w]`` to rows of attention and two embeddings."""
        with self._precision():
            gaze = cls_attention(backbone.net, inputs, return_features=True)
            found = torch.stack([grow(blown_up(attention_mask(m), inputs.shape[-2:])) for m in gaze.map.float().cpu()])
            plates, net = fill_object(inputs.float(), found.to(inputs.device)), backbone
            if self.around is not self.backbone:
                plates, net = F.interpolate(plates, self.around_size, mode="bilinear", antialias=True), self.around
            hidden = cls_attention(net.to(inputs.device).net, plates.to(inputs), return_features=True)
            tokens = (g.scores["features"][:, 0].float() for g in (gaze, hidden))
            return torch.cat([gaze.map.float().flatten(1), *tokens], 1)

    def look(
        self, dataset: GroupedDataset, positions: NDArray[np.int64], tick: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """One row for every image at ``positions``, ``[n, h * w + 2 D]``, from the store where it is there.

        Rows of images that cannot be read are NaN. A store that cannot be written (a full disk, a machine where
        nothing may be kept) costs time and no more.
        """
        chosen = dataset.subset(positions)
        said = 0

        def told(done: int, total: int) -> None:
            nonlocal said
            if tick is not None:
                tick(done - said)
            said = done

        try:
            kept = FeatureStore().read(
                self.backbone, chosen, self.view, readout=self._readout, key=self._key, batch_size=BATCH,
                on_bad="skip", progress=told,
            )  # fmt: skip
        except StorageError as error:
            log.warning("what the object finder sees cannot be kept: %s", error)
            return self._look_again(chosen)
        told(len(positions), len(positions))
        return np.asarray(kept.array)

    def _look_again(self, dataset: GroupedDataset) -> NDArray[np.float32]:
        """All rows in memory."""
        from foveate.data.loading import Loader

        loader, out = Loader(dataset, self.view, on_bad="skip", cache_bytes=0), None
        for batch in loader.in_order(BATCH):
            with torch.no_grad():
                rows = self._readout(self.backbone, self.view.normalise(batch.inputs)).float().cpu().numpy()
            out = np.full((len(dataset), rows.shape[1]), np.nan, np.float32) if out is None else out
            out[batch.indices.numpy()] = rows
        return np.zeros((0, 0), np.float32) if out is None else out

    def sighting(self, rows: NDArray[np.float32]) -> Sighting:
        """What rows of :meth:`look` mean."""
        return self._cut(torch.from_numpy(np.array(rows)))

    def _cut(self, rows: Tensor) -> Sighting:
        height, width = self.grid
        places = height * width
        each = (rows.shape[1] - places) // 2
        attention, embedding, surroundings = rows.split([places, each, each], 1)
        return Sighting(attention.unflatten(1, (height, width)), embedding, surroundings)


def blown_up(mask: Tensor, size: Sequence[int]) -> Tensor:
    """A mask on the grid of patches ``[h, w]`` in pixels; a squashing preprocessing is undone by stretching."""
    return F.interpolate(mask[None, None], tuple(size), mode="nearest")[0, 0]
