"""What a model said about a picture, kept for the next time that the very same picture comes up."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

REMEMBERED = 128 * 2**20
"""Bytes of numbers that are kept: 25,000 pictures as a MobileNetV2 sees them."""

Ask = Callable[[Tensor], NDArray[np.float32]]


class Memory:
    """Asks about no picture twice, as long as the answers fit into ``limit`` bytes; those not used longest go first.

    Pictures count as the same when every byte of them is.

    >>> import torch
    >>> asked = []
    >>> def mean(pictures):
    ...     asked.append(len(pictures))
    ...     return pictures.float().mean((2, 3)).numpy()
    >>> memory, pictures = Memory(), torch.arange(96, dtype=torch.uint8).reshape(2, 3, 4, 4)
    >>> memory(pictures, mean).tolist() == memory(pictures.flip(0), mean)[::-1].tolist(), asked
    (True, [2])
    """

    def __init__(self, limit: int = REMEMBERED):
        self.limit, self.held = limit, 0
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, pictures: Tensor, ask: Ask) -> NDArray[np.float32]:
        """What ``ask`` says about pictures ``uint8 [B, 3, H, W]``, ``[B, D]``; it hears of new ones only."""
        keys = [_digest(picture) for picture in pictures]
        rows = {key: self._rows[key] for key in keys if key in self._rows}
        new = {key: place for place, key in reversed(list(enumerate(keys))) if key not in rows}
        if new:
            found = ask(pictures[sorted(new.values())])
            order = sorted(new, key=new.__getitem__)
            rows |= {key: np.array(row) for key, row in zip(order, found, strict=True)}
        for key, row in rows.items():
            self._keep(key, row)
        return np.stack([rows[key] for key in keys])

    def _keep(self, key: bytes, row: NDArray[np.float32]) -> None:
        if key not in self._rows:
            self._rows[key] = row
            self.held += row.nbytes
        self._rows.move_to_end(key)
        while self.held > self.limit:
            self.held -= self._rows.popitem(last=False)[1].nbytes


def _digest(picture: Tensor) -> bytes:
    return hashlib.sha1(picture.contiguous().numpy().data, usedforsecurity=False).digest()
