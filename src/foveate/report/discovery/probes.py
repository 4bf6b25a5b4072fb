"""Probes: how well does a property alone predict the label, the model's answers, and its errors?

A probe is a ridge regression onto the classes, read out of fold. Its score is the share of images named rightly with
every class counted alike, so always naming the most frequent class scores ``1 / classes``. The p-value comes from
retraining on shuffled targets, which for ridge regression costs one factorisation a fold for all shuffles together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FOLDS = 5
SHUFFLES = 199
"""Shuffles every property gets. One that beats them all gets more, see :func:`enough_shuffles`."""
RIDGE = 0.02
"""Strength of the ridge for each image it is fitted on."""
STRONG = 0.6
"""A property that covers this much of the way from guessing to always right stands for what it tells."""


@dataclass(frozen=True)
class PropertyProbe:
    """What one property says about one target: ``score`` against ``chance``, with the permutation p-value.

    ``adjusted`` is the p-value corrected for the number of properties looked at (Holm).
    """

    key: str
    target: str
    score: float
    chance: float
    p: float
    adjusted: float
    n: int

    @property
    def tells(self) -> bool:
        """Whether the property says something that matters: sure, and at least five points over guessing."""
        return self.adjusted < 0.05 and self.score - self.chance >= 0.05

    @property
    def strength(self) -> float:
        """How much of the way from guessing to always right it covers."""
        return (self.score - self.chance) / max(1 - self.chance, 1e-9)

    @property
    def strong(self) -> bool:
        """Whether it tells the target well enough to stand for it."""
        return self.tells and self.strength >= STRONG


def holm(values: NDArray[np.float64] | list[float]) -> NDArray[np.float64]:
    """p-values corrected for how many there are.

    Reference: Holm 1979, "A simple sequentially rejective multiple test procedure".

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    out = np.empty_like(p)
    out[order] = np.minimum(stepped, 1.0)
    return out


@dataclass(frozen=True)
class Scale:
    """Standardises features; few of them get their squares too, so that "medium" can be told from "low or high".

    >>> scale = Scale.of(np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]]))
    >>> scale(np.array([[3.0, 5.0]])).shape                     # the constant column is gone, the square is new
    (1, 2)
    """

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    squares: bool

    @staticmethod
    def of(features: NDArray[np.float64]) -> Scale:
        spread = features.std(0)
        # two-valued columns have constant squares
        few = int((spread > 1e-9).sum()) <= 6 and not np.isin(features, (0.0, 1.0)).all()
        return Scale(features.mean(0), spread, few)

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        kept = self.spread > 1e-9
        x = np.clip((features - self.mean)[:, kept] / self.spread[kept], -6, 6)
        return np.concatenate([x, (x**2 - 1) / 1.5], 1) if self.squares else x


@dataclass(frozen=True)
class Reader:
    """A fitted ridge probe: features to the class they speak for, whatever the class's frequency."""

    scale: Scale
    weights: NDArray[np.float64]
    prior: NDArray[np.float64]

    @staticmethod
    def fit(features: NDArray[np.float64], target: NDArray[np.int64], classes: int, ridge: float = RIDGE) -> Reader:
        scale = Scale.of(features)
        x = _with_ones(scale(features))
        hot = (target[:, None] == np.arange(classes)[None]).astype(np.float64)
        return Reader(scale, np.linalg.solve(_gram(x, ridge), x.T @ hot), hot.mean(0))

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class each row speaks for, ``[n]``; classes that never occurred are never named."""
        spread = np.sqrt(np.maximum(self.prior * (1 - self.prior), 1e-9))
        score = (_with_ones(self.scale(features)) @ self.weights - self.prior) / spread
        score[:, self.prior == 0] = -np.inf
        return score.argmax(1).astype(np.int64)


def _with_ones(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([x, np.ones((len(x), 1))], 1)


def _gram(x: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    return x.T @ x + np.diag([max(1.0, ridge * len(x))] * (x.shape[1] - 1) + [1e-6])


def out_of_fold(
    features: NDArray[np.float64],
    targets: NDArray[np.int64],
    classes: int,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    ridge: float = RIDGE,
) -> NDArray[np.int64]:
    """Out-of-fold answers of a ridge probe for several labelings at once.

    Args:
        features: ``[n, d]``.
        targets: ``[n, P]``, one labeling per column.

    Returns ``[n, P]``. Scores are corrected for how frequent a class is, so that rare classes get named too.
    """
    x = Scale.of(features)(features)
    n = len(x)
    fold = np.random.default_rng(seed).permutation(n) % folds
    answers = np.zeros_like(targets)
    for f in range(folds):
        train, test = fold != f, fold == f
        seen = _with_ones(x[train])
        solve = _with_ones(x[test]) @ np.linalg.solve(_gram(seen, ridge), seen.T)
        best = np.full((test.sum(), targets.shape[1]), -np.inf)
        for k in range(classes):
            hot = (targets[train] == k).astype(np.float64)
            share = hot.mean(0)
            # centred by the prior and scaled by the spread of the indicator: a balanced decision
            score = (solve @ hot - share) / np.sqrt(np.maximum(share * (1 - share), 1e-9))
            score[:, share == 0] = -np.inf
            better = score > best
            best = np.where(better, score, best)
            answers[test] = np.where(better, k, answers[test])
    return answers


def balanced_score(answers: NDArray[np.int64], targets: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """Mean over the classes that occur of the share of their images named rightly, for each column: ``[P]``."""
    shares = []
    for k in range(classes):
        mine = targets == k
        counts = mine.sum(0)
        right = ((answers == k) & mine).sum(0)
        shares.append(np.where(counts > 0, right / np.maximum(counts, 1), np.nan))
    return np.nanmean(np.stack(shares), axis=0)


def shuffled(
    target: NDArray[np.int64], within: NDArray[np.int64] | None, times: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """``times`` shuffles of ``target`` as columns; with ``within``, only among images of equal value there."""
    out = np.empty((len(target), times), dtype=target.dtype)
    blocks = [np.arange(len(target))] if within is None else [np.flatnonzero(within == v) for v in np.unique(within)]
    for t in range(times):
        for block in blocks:
            out[block, t] = target[rng.permutation(block)]
    return out


def enough_shuffles(properties: int) -> int:
    """Shuffles after which the smallest p-value is under 0.05 even when multiplied by the number of properties.

    >>> [(1 / (1 + enough_shuffles(m))) * m < 0.05 for m in (1, 10, 20, 60)]
    [True, True, True, True]
    """
    return 25 * properties - 1


def probe_all(
    features: dict[str, NDArray[np.float64]],
    target: NDArray[np.int64],
    name: str,
    *,
    within: NDArray[np.int64] | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> list[PropertyProbe]:
    """Probe ``target`` from every property; p-values are corrected over the properties.

    Args:
        features: by key, ``[n, d]`` each.
        target: ``[n]``, whole numbers.
        name: what the target is ("label", "answers", "errors").
        within: shuffle only among images of equal value here. With the label, the p-value says whether the property
            tells the target beyond what the label tells.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> x = {"shown": y[:, None] + rng.normal(0, 0.5, (200, 1)), "noise": rng.normal(size=(200, 1))}
    >>> [(p.key, p.tells) for p in probe_all(x, y, "label")]
    [('shown', True), ('noise', False)]
    """
    values, target = np.unique(target, return_inverse=True)
    classes = len(values)
    if classes < 2 or len(target) < 2 * FOLDS:
        return []
    rng = np.random.default_rng(seed)
    columns = np.concatenate([target[:, None], shuffled(target, within, shuffles, rng)], 1)
    usable = {key: matrix for key, matrix in features.items() if (matrix.std(0) > 1e-9).any()}
    more = shuffled(target, within, max(0, enough_shuffles(len(usable)) - shuffles), rng)
    found = []
    for key, matrix in usable.items():
        scores = balanced_score(out_of_fold(matrix, columns, classes, seed=seed), columns, classes)
        beaten = int((scores[1:] >= scores[0] - 1e-12).sum())
        tried = shuffles
        if not beaten and more.shape[1]:
            again = balanced_score(out_of_fold(matrix, more, classes, seed=seed), more, classes)
            beaten, tried = int((again >= scores[0] - 1e-12).sum()), shuffles + more.shape[1]
        found.append((key, float(scores[0]), (1 + beaten) / (1 + tried), float(scores[1:].mean())))
    adjusted = holm([p for _, _, p, _ in found])
    # beyond the label, guessing is what the label alone would give: the mean over shuffles within it
    return [
        PropertyProbe(key, name, score, mean if within is not None else 1 / classes, p, float(q), len(target))
        for (key, score, p, mean), q in zip(found, adjusted, strict=True)
    ]
