"""Which images make up each batch of each epoch: pure functions of seed and epoch.

A plan is anything with ``batches(epoch, size)``; because it depends on nothing else, a resumed run and
every process of a distributed run see the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from foveate.engine.feed import Indices


class Plan(Protocol):
    """Gives the batches of an epoch as lists of dataset positions."""

    def batches(self, epoch: int, size: int) -> Sequence[Indices]: ...


class Piece(NamedTuple):
    """What goes through the network at once: a batch, or a part of one."""

    positions: Indices
    weight: float
    """What its mean loss counts in the loss of its step."""
    step: int


def in_parts(batches: Sequence[Indices], weights: Sequence[float], pieces: int) -> list[Piece]:
    """Every batch in ``pieces`` of nearly equal size, whose weights add up to that of the batch.

    No piece is one image alone, which has no batch statistics, unless the batch is.

    >>> [(p.positions.tolist(), round(p.weight, 2), p.step) for p in in_parts([np.arange(5), np.arange(3)], [1, 1], 2)]
    [([0, 1, 2], 0.6, 0), ([3, 4], 0.4, 0), ([0, 1, 2], 1.0, 1)]
    """
    if pieces == 1:
        return [Piece(batch, weight, i) for i, (batch, weight) in enumerate(zip(batches, weights, strict=True))]
    return [
        Piece(piece, weight * len(piece) / len(batch), i)
        for i, (batch, weight) in enumerate(zip(batches, weights, strict=True))
        for piece in np.array_split(batch, min(pieces, max(len(batch) // 2, 1)))
    ]


def _cut(order: Indices, size: int) -> list[Indices]:
    return [order[i : i + size] for i in range(0, len(order), size)]


class Shuffled:
    """Every position in ``positions`` once an epoch, in a new order each time.

    ``positions`` may repeat: that is how JTT counts its error set more often.

    >>> [b.tolist() for b in Shuffled(4, seed=0).batches(epoch=0, size=3)]
    [[2, 0, 1], [3]]
    """

    def __init__(self, positions: int | ArrayLike, seed: int = 0):
        self.positions: Indices = (
            np.arange(positions) if isinstance(positions, int) else np.asarray(positions, dtype=np.int64)
        )
        self.seed = seed

    def batches(self, epoch: int, size: int) -> list[Indices]:
        rng = np.random.default_rng([self.seed, epoch])
        return _cut(rng.permutation(self.positions), size)


class Drawn:
    """``count`` positions an epoch drawn with replacement, with probability proportional to ``weights``."""

    def __init__(self, weights: ArrayLike, count: int | None = None, seed: int = 0):
        values = np.asarray(weights, dtype=np.float64)
        self.shares = values / values.sum()
        self.count = len(values) if count is None else count
        self.seed = seed

    def batches(self, epoch: int, size: int) -> list[Indices]:
        rng = np.random.default_rng([self.seed, epoch])
        return _cut(rng.choice(len(self.shares), size=self.count, p=self.shares), size)


class Fixed:
    """Batches made beforehand by a function of the epoch (contrastive batches, for instance)."""

    def __init__(self, make: Callable[[int], Sequence[Indices]]):
        self.make = make

    def batches(self, epoch: int, size: int) -> Sequence[Indices]:
        return self.make(epoch)
