"""Error slices: bunches of similar images of one class on which a model is right far less often than on average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.system import System
from foveate.data.preprocess import Preprocess
from foveate.export.swift import Swift
from foveate.measure import wilson_interval
from foveate.report.abilities import embedder_of
from foveate.report.discovery.objects import Objects
from foveate.report.discovery.probes import FOLDS, holm

SMALLEST_SLICE = 12
"""Smallest slice that is looked at."""
TOGETHER = 16
"""Images read at full size at a time."""
COMPONENTS = 24
"""Principal components that bunches are looked for in."""
SHARES = (0.1, 0.2)
"""Of a class: how many images at the end of a direction of errors are a bunch."""
STIFF = 3.0
"""Ridge of the direction of errors for each image, on standardised components."""
BELOW = 0.10
"""A slice must be this far below the average to be reported."""


@dataclass(frozen=True)
class Slice:
    """Similar images of class ``label`` with low accuracy.

    ``members`` are rows of the embeddings, the most typical first; ``by`` is the key of the property they stand out by,
    empty where they are alike by the embedding.
    """

    label: int
    members: tuple[int, ...]
    correct: int
    average: float
    p: float
    adjusted: float
    by: str = field(default="", kw_only=True)

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
    properties: Mapping[str, NDArray[np.float64]] | None = None,
    most: int = 6,
    seed: int = 0,
) -> list[Slice]:
    """Look for bunches of errors in every class, by the embeddings and by each of the ``properties`` ``[n, d]``.

    There are two ways to a bunch. Clusters (k-means on the first 24 principal components) know nothing of errors. A
    *direction* of errors is a ridge regression of being wrong onto the components; every image is placed on it by a
    regression that never saw it, and the images at its end are a bunch. The test is binomial (would so few be right by
    luck, given the average, and for a direction the average of its class?), corrected for the number of bunches (Holm).
    Bunches under ``SMALLEST_SLICE`` images are passed over, and those that are mostly in a surer one.

    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(0, 1, (150, 4)), rng.normal(9, 1, (50, 4))])
    >>> y = np.zeros(200, dtype=np.int64)
    >>> said = np.where(np.arange(200) < 150, 0, 1)             # every image of the second bunch is wrong
    >>> found = find_slices(x, y, said)
    >>> sum(s.n for s in found), found[0].accuracy
    (50, 0.0)
    """
    from scipy import stats

    right = predictions == labels
    average = float(right.mean())
    if average >= 1.0 or not len(labels):
        return []
    x = _components(np.asarray(embeddings, dtype=np.float64), seed)
    spaces = {"": x, **{key: _components(values, seed) for key, values in (properties or {}).items()}}
    bunches: list[tuple[str, NDArray[np.int64], float]] = []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        bunches += [("", rows, average) for rows in _clusters(x, mine, seed)]
        own = float(right[mine].mean())
        for key, space in spaces.items():
            bunches += [(key, rows, min(own, average)) for rows in _directions(space, mine, ~right[mine])]
    if not bunches:
        return []
    p = [float(stats.binom.cdf(int(right[rows].sum()), len(rows), usual)) for _, rows, usual in bunches]
    found: list[Slice] = []
    for at in np.argsort(p, kind="stable"):
        by, rows, _ = bunches[at]
        taken = {i for s in found for i in s.members}
        if right[rows].mean() <= average - BELOW and np.mean([int(i) in taken for i in rows]) <= 0.5:
            members, correct = tuple(int(i) for i in rows), int(right[rows].sum())
            found.append(Slice(int(labels[rows[0]]), members, correct, average, p[at], float(holm(p)[at]), by=by))
    return [s for s in found if s.adjusted < 0.05][:most]


def _components(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The first principal components of standardised ``values`` ``[n, d]``, at most ``COMPONENTS``."""
    from sklearn.decomposition import PCA

    spread = values.std(0)
    x = (values - values.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    return PCA(COMPONENTS, random_state=seed).fit_transform(x) if min(x.shape) > COMPONENTS else x


def _clusters(x: NDArray[np.float64], mine: NDArray[np.int64], seed: int) -> list[NDArray[np.int64]]:
    from sklearn.cluster import KMeans

    count = int(np.clip(len(mine) // 40, 1, 12))
    if len(mine) < SMALLEST_SLICE:
        return []
    cluster = KMeans(count, n_init=4, random_state=seed).fit_predict(x[mine]) if count > 1 else np.zeros(len(mine), int)
    bunches = [mine[cluster == c] for c in range(count)]
    return [_typical_first(x, rows) for rows in bunches if len(rows) >= SMALLEST_SLICE]


def _directions(
    x: NDArray[np.float64], mine: NDArray[np.int64], wrong: NDArray[np.bool_]
) -> Iterator[NDArray[np.int64]]:
    """The images at the end of the direction of errors, for each of ``SHARES``; none with hardly any error."""
    if len(mine) < 4 * SMALLEST_SLICE or wrong.sum() < FOLDS:
        return
    spread = x[mine].std(0)
    z = (x[mine] - x[mine].mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    place = np.zeros(len(mine))
    for round_ in range(2):
        fold = np.random.default_rng(round_).permutation(len(mine)) % FOLDS
        for f in range(FOLDS):
            seen, away = z[fold != f], wrong[fold != f] - wrong[fold != f].mean()
            weights = np.linalg.solve(seen.T @ seen + STIFF * len(seen) * np.eye(z.shape[1]), seen.T @ away)
            place[fold == f] += z[fold == f] @ weights / max(float((seen @ weights).std()), 1e-9)
    order = mine[np.argsort(-place, kind="stable")]
    for share in SHARES:
        if round(share * len(mine)) >= SMALLEST_SLICE:
            yield order[: round(share * len(mine))]


def _typical_first(x: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """``rows`` in the order of their distance to their middle."""
    return rows[np.argsort(((x[rows] - x[rows].mean(0)) ** 2).sum(1), kind="stable")]


def embeddings_of(
    system: System, objects: Objects, positions: NDArray[np.int64], tick: Callable[[int], None], asks: Swift
) -> NDArray[np.float64]:
    """Features to cluster by: the model's own (remembered by what ``asks`` it, or through a graph, where that agrees),
    those of the ViT that found the objects, or small pictures."""
    own = asks.embed if asks.trunk is not None else embedder_of(system, quick=asks.by_graph)
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
