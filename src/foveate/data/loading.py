"""Batches for networks: decoded, prepared, cached while they fit, and never stopped by one bad image."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from foveate.data.ahead import Ahead
from foveate.data.dataset import GroupedDataset
from foveate.data.images import read_at_least, reads_in_threads
from foveate.data.jpeg import GAP
from foveate.data.memory import cache_bytes as free_for_images
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, UnreadableImage

log = logging.getLogger("foveate")
OnBad = Literal["raise", "skip"]


@dataclass
class Batch:
    """What one training or prediction step gets.

    Attributes:
        inputs: ``uint8 [B, 3, h, w]`` images, or features of any shape ``[B, ...]``.
        labels: ``int64 [B]``.
        attributes, groups: ``int64 [B]`` or None.
        indices: ``int64 [B]``, positions in the dataset.
        bad: images of this batch that could not be read (they are not in ``inputs``).
    """

    inputs: Tensor
    labels: Tensor
    attributes: Tensor | None
    groups: Tensor | None
    indices: Tensor
    bad: list[tuple[int, UnreadableImage]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with its tensors on ``device``; to a GPU they go through pinned memory, beside its work."""
        pin = torch.device(device).type == "cuda"

        def move(t: Tensor) -> Tensor:
            return (t.pin_memory() if pin and not t.is_cuda else t).to(device, non_blocking=True)

        return Batch(
            move(self.inputs), move(self.labels), None if self.attributes is None else move(self.attributes),
            None if self.groups is None else move(self.groups), self.indices, self.bad,
        )  # fmt: skip


class Loader:
    """Reads batches of prepared images from a dataset.

    Prepared images are kept in memory while the whole dataset fits into ``cache_bytes`` (by default a quarter of
    the memory that is free), so that only the first epoch decodes. Files are decoded ahead, in threads, when that turns
    out to be quicker (:class:`~foveate.data.ahead.Ahead`), and large JPEGs no larger than needed
    (:mod:`foveate.data.jpeg`). With ``on_bad="skip"`` an unreadable image is left out, named once in the log, and
    remembered in :attr:`bad`; with ``"raise"`` it stops the run with its name.

    >>> import numpy as np
    >>> from foveate.data.images import ArrayImages
    >>> ds = GroupedDataset(ArrayImages(np.zeros((4, 8, 8, 3), np.uint8)), [0, 0, 1, 1], ["cat", "dog"])
    >>> loader = Loader(ds, Preprocess((8, 8)))
    >>> [tuple(batch.inputs.shape) for batch in loader([[0, 1, 2], [3]])]
    [(3, 3, 8, 8), (1, 3, 8, 8)]
    """

    def __init__(
        self,
        dataset: GroupedDataset,
        preprocess: Preprocess,
        *,
        workers: int = 0,
        on_bad: OnBad = "raise",
        cache_bytes: int | None = None,
    ):
        if on_bad not in ("raise", "skip"):
            raise DataError(f"unknown on_bad '{on_bad}'; use 'raise' or 'skip'.")
        self.dataset = dataset
        self.preprocess = preprocess
        self.workers = workers
        self.on_bad = on_bad
        self.bad: dict[int, UnreadableImage] = {}
        h, w = preprocess.size
        self.least = (GAP * h, GAP * w)
        fits = len(dataset) * 3 * h * w <= (free_for_images() if cache_bytes is None else cache_bytes)
        self._cache = torch.empty((len(dataset), 3, h, w), dtype=torch.uint8) if fits else None
        self._cached = np.zeros(len(dataset), dtype=bool)
        threads = None if workers == 0 and reads_in_threads(dataset.images) else 1
        self._ahead: Ahead[int, Tensor | UnreadableImage | None] = Ahead(self._tried, threads)

    def __call__(self, batches: Sequence[Sequence[int] | NDArray[np.int64]]) -> Iterator[Batch]:
        """One :class:`Batch` for every list of positions; a batch whose images are all bad is left out."""
        lists = [np.asarray(b, dtype=np.int64) for b in batches]
        if all(self._cached[positions].all() for positions in lists):
            loaded: Iterator[Batch] = (self._kept(positions) for positions in lists)
        elif self.workers:
            loaded = iter(
                DataLoader(
                    _Reader(self),
                    sampler=lists,
                    batch_size=None,
                    num_workers=self.workers,  # type: ignore[arg-type]
                )
            )
        else:
            read = self._ahead([positions.tolist() for positions in lists])
            loaded = (self._batch(positions, found) for positions, found in zip(lists, read, strict=True))
        for batch in loaded:
            for index, error in batch.bad:
                self._note(index, error)
            if len(batch):
                if self.workers:
                    self._keep(batch)
                yield batch

    def in_order(self, batch_size: int = 64) -> Iterator[Batch]:
        """The whole dataset once, in order."""
        positions = np.arange(len(self.dataset))
        return self([positions[i : i + batch_size] for i in range(0, len(positions), batch_size)])

    def _note(self, index: int, error: UnreadableImage) -> None:
        if self.on_bad == "raise":
            raise UnreadableImage(
                error.where, f"{error.reason}. Remove it, or go on without it: on_bad='skip' (--on-bad skip)"
            )
        if index not in self.bad:
            self.bad[index] = error
            log.warning("skipped: %s", error)

    def _prepared(self, index: int) -> Tensor:
        if self._cache is not None and self._cached[index]:
            return self._cache[index]
        pixels = read_at_least(self.dataset.images, index, self.least)
        # as it lies in memory: resizing takes it so, and turning a large image around costs more than decoding it
        image = self.preprocess.prepare(torch.from_numpy(np.require(pixels, requirements=["C", "W"])).permute(2, 0, 1))
        if self._cache is not None:
            self._cache[index] = image
            self._cached[index] = True
        return image

    def _tried(self, index: int) -> Tensor | UnreadableImage | None:
        """Image ``index``, why it cannot be read, or None when that is known."""
        if index in self.bad:
            return None
        try:
            return self._prepared(index)
        except UnreadableImage as error:
            return error

    def _keep(self, batch: Batch) -> None:
        """Keep what another process has read."""
        if self._cache is not None:
            self._cache[batch.indices] = batch.inputs
            self._cached[batch.indices.numpy()] = True

    def _kept(self, positions: NDArray[np.int64]) -> Batch:
        assert self._cache is not None
        return self._labelled(self._cache[torch.from_numpy(positions)], positions, [])

    def _read(self, positions: NDArray[np.int64]) -> Batch:
        return self._batch(positions, [self._tried(i) for i in positions.tolist()])

    def _batch(self, positions: NDArray[np.int64], found: Sequence[Tensor | UnreadableImage | None]) -> Batch:
        bad = [(int(i), e) for i, e in zip(positions, found, strict=True) if isinstance(e, UnreadableImage)]
        images = [image for image in found if isinstance(image, Tensor)]
        kept = positions[[isinstance(image, Tensor) for image in found]]
        stacked = torch.stack(images) if images else torch.empty((0, 3, *self.preprocess.size), dtype=torch.uint8)
        return self._labelled(stacked, kept, bad)

    def _labelled(self, images: Tensor, kept: NDArray[np.int64], bad: list[tuple[int, UnreadableImage]]) -> Batch:
        ds = self.dataset
        return Batch(
            inputs=images,
            labels=torch.from_numpy(ds.labels[kept]),
            attributes=None if ds.attributes is None else torch.from_numpy(ds.attributes[kept]),
            groups=None if ds.groups is None else torch.from_numpy(ds.groups[kept]),
            indices=torch.from_numpy(kept),
            bad=bad,
        )


class _Reader(torch.utils.data.Dataset[Batch]):
    """Lets DataLoader workers read whole batches."""

    def __init__(self, loader: Loader):
        self.loader = loader

    def __getitem__(self, positions: NDArray[np.int64]) -> Batch:  # type: ignore[override]
        return self.loader._read(positions)
