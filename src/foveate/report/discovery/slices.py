"""Error slices: bunches of similar images of one class on which a model is right far less often than on average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.system import System
from foveate.data.preprocess import Preprocess
from foveate.measure import wilson_interval
from foveate.report.abilities import embedder_of
from foveate.report.discovery.objects import Objects
from foveate.report.discovery.probes import holm

SMALLEST_SLICE = 12
"""Smallest slice that is looked at."""
TOGETHER = 16
"""Images read at full size at a time."""
BELOW = 0.10
"""A slice must be this far below the average to be reported."""


@dataclass(frozen=True)
class Slice:
    """Similar images of class ``label`` with low accuracy; ``members`` are rows of the embeddings, the most typical
    first."""

    label: int
    members: tuple[int, ...]
    correct: int
    average: float
    p: float
    adjusted: float

    @property
    def n(self) -> int:
        return len(self.members)

    @property
    def accuracy(self) -> float:
        return self.correct / self.n

    @property
    def low(self) -> float:
        return wilson_interval(self.correct, self.n)[0]

    @property
    def high(self) -> float:
        return wilson_interval(self.correct, self.n)[1]


def find_slices(
    embeddings: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    predictions: NDArray[np.int64],
    *,
    most: int = 6,
    seed: int = 0,
) -> list[Slice]:
    """Cluster the images of every class and test each cluster's errors against the average.

    The test is binomial (would so few be right by luck?), corrected for the number of clusters (Holm); clusters
    under ``SMALLEST_SLICE`` images are passed over. K-means on the first 24 principal components.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(0, 1, (150, 4)), rng.normal(9, 1, (50, 4))])
    >>> y = np.zeros(200, dtype=np.int64)
    >>> said = np.where(np.arange(200) < 150, 0, 1)             # every image of the second bunch is wrong
    >>> found = find_slices(x, y, said)
    >>> sum(s.n for s in found), found[0].accuracy
    (50, 0.0)
    """
    from scipy import stats
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    x = np.asarray(embeddings, dtype=np.float64)
    right = predictions == labels
    average = float(right.mean())
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    if min(x.shape) > 24:
        x = PCA(24, random_state=seed).fit_transform(x)
    bunches: list[tuple[int, NDArray[np.int64]]] = []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        count = int(np.clip(len(mine) // 40, 1, 12))
        if len(mine) < SMALLEST_SLICE:
            continue
        cluster = (
            KMeans(count, n_init=4, random_state=seed).fit_predict(x[mine]) if count > 1 else np.zeros(len(mine), int)
        )
        bunches += [
            (int(label), _typical_first(x, mine[cluster == c]))
            for c in range(count)
            if (cluster == c).sum() >= SMALLEST_SLICE
        ]
    if not bunches or average >= 1.0:
        return []
    p = [float(stats.binom.cdf(int(right[rows].sum()), len(rows), average)) for _, rows in bunches]
    found = [
        Slice(label, tuple(int(i) for i in rows), int(right[rows].sum()), average, float(a), float(b))
        for (label, rows), a, b in zip(bunches, p, holm(p), strict=True)
        if b < 0.05 and right[rows].mean() <= average - BELOW
    ]
    return sorted(found, key=lambda s: (s.p, s.accuracy))[:most]


def _typical_first(x: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """``rows`` in the order of their distance to their middle."""
    return rows[np.argsort(((x[rows] - x[rows].mean(0)) ** 2).sum(1), kind="stable")]


def embeddings_of(
    system: System, objects: Objects, positions: NDArray[np.int64], tick: Callable[[int], None]
) -> NDArray[np.float64]:
    """Features to cluster by: the model's own, those of the ViT that found the objects, or small pictures."""
    own = embedder_of(system)
    out: list[Tensor] = []
    for start in range(0, len(positions), TOGETHER):
        at = [int(i) for i in positions[start : start + TOGETHER]]
        tick(len(at))
        images = [] if own is None and objects.knows(at) else [objects.dataset[i].image for i in at]
        found = own(images) if own is not None else objects.embedding(images, at)
        out.append(_small_pictures(images) if found is None else found)
    return torch.cat(out).double().numpy()


def _small_pictures(images: list[Tensor]) -> Tensor:
    view = Preprocess((8, 8))
    return torch.stack([view.prepare(image).float().flatten() for image in images])
