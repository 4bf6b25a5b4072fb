"""What the training loop reads from: images through a loader, or features already in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch, Loader
from foveate.engine.seeds import derived_seed

Indices = NDArray[np.int64]


class Feed(Protocol):
    """Turns lists of positions into batches of float inputs ready for the network."""

    dataset: GroupedDataset

    def __call__(self, batches: Sequence[Indices], epoch: int, first: int = 0) -> Iterator[Batch]: ...

    def evaluate(self, batch_size: int) -> Iterator[Batch]: ...


class ImageFeed:
    """Images: prepared by the loader, augmented (in training) and normalised batch by batch.

    The augmentation of step ``s`` of epoch ``e`` depends only on ``(seed, e, s)``.
    """

    def __init__(self, loader: Loader, augment: bool = False, seed: int = 0):
        self.loader = loader
        self.dataset = loader.dataset
        self.augment = augment
        self.seed = seed

    def __call__(self, batches: Sequence[Indices], epoch: int, first: int = 0) -> Iterator[Batch]:
        view = self.loader.preprocess
        for step, batch in enumerate(self.loader(batches), start=first):
            if self.augment:
                generator = torch.Generator().manual_seed(derived_seed(self.seed, epoch, step))
                batch.inputs = view.augment(batch.inputs, generator)
            batch.inputs = view.normalise(batch.inputs)
            yield batch

    def evaluate(self, batch_size: int) -> Iterator[Batch]:
        for batch in self.loader.in_order(batch_size):
            batch.inputs = self.loader.preprocess.normalise(batch.inputs)
            yield batch


class TensorFeed:
    """Features ``[N, ...]`` of a frozen network (an array, a memory map, or a tensor) instead of images.

    With ``[N, copies, ...]`` features of augmented copies, each step of training draws one copy per image;
    evaluation always reads copy 0, which is the plain image. ``rows`` gives the row of ``inputs`` for every item of
    ``dataset`` when some rows are to be left out.
    """

    def __init__(
        self,
        inputs: Tensor | NDArray[np.float32],
        dataset: GroupedDataset,
        *,
        copies: bool = False,
        seed: int = 0,
        rows: Indices | None = None,
    ):
        self.inputs = inputs
        self.dataset = dataset
        self.copies = copies
        self.seed = seed
        self.rows = rows

    def plain(self) -> NDArray[np.float32]:
        """The features of every item's plain image, ``[len(dataset), ...]``, for solvers that take all at once."""
        found = np.asarray(self.inputs[:, 0] if self.copies else self.inputs)
        return found if self.rows is None else found[self.rows]

    def _batch(self, positions: Indices, which: Indices | None) -> Batch:
        ds = self.dataset
        at = positions if self.rows is None else self.rows[positions]
        taken = self.inputs[at] if which is None else self.inputs[at, which]
        inputs = taken if isinstance(taken, Tensor) else torch.from_numpy(np.ascontiguousarray(taken))
        return Batch(
            inputs.float(),
            torch.from_numpy(ds.labels[positions]),
            None if ds.attributes is None else torch.from_numpy(ds.attributes[positions]),
            None if ds.groups is None else torch.from_numpy(ds.groups[positions]),
            torch.from_numpy(positions),
        )

    def __call__(self, batches: Sequence[Indices], epoch: int, first: int = 0) -> Iterator[Batch]:
        for step, positions in enumerate(batches, start=first):
            which = None
            if self.copies:
                rng = np.random.default_rng([self.seed, epoch, step])
                which = rng.integers(0, self.inputs.shape[1], len(positions))
            yield self._batch(np.asarray(positions, dtype=np.int64), which)

    def evaluate(self, batch_size: int) -> Iterator[Batch]:
        for start in range(0, len(self.dataset), batch_size):
            positions = np.arange(start, min(start + batch_size, len(self.dataset)))
            yield self._batch(positions, np.zeros_like(positions) if self.copies else None)
