"""The images of a dataset that can be read, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import UnreadableImage


def readable(dataset: GroupedDataset, positions: Iterable[int]) -> Iterator[tuple[int, Tensor]]:
    """``(position, uint8 [3, H, W])`` of every image at ``positions`` that can be read; the others are passed over."""
    for i in (int(i) for i in positions):
        try:
            image = dataset[i].image
        except UnreadableImage:
            continue
        yield i, image
