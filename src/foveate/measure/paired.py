"""Is one method better than another? Paired differences with a 95 % interval.

Two sources of chance, two intervals:

- *seeds*: another draw of data, start and order. Student's t on the differences of each seed
  (:func:`difference_over_seeds`); it needs two seeds, and with three it is wide, as it should be.
- *test images*: another draw of the same size from each group. A bootstrap that draws images within seed and group
  and keeps both methods' answers to an image together (:func:`difference_over_images`).

References: Student 1908, "The probable error of a mean"; Efron 1979, "Bootstrap methods".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.errors import DataError

Hits = Mapping[str, NDArray[np.bool_]]
"""By group: whether each of its test images was answered rightly, in the order of the dataset."""
DRAWS = 2000
HIT_METRICS = ("average", "majority", "minority", "worst_group")
"""What can be computed from right and wrong by group alone."""


@dataclass(frozen=True)
class Difference:
    """First minus second: the mean, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 when the interval lies on one side of zero, 0 when it does not tell.

        >>> Difference(0.2, 0.1, 0.3).sign, Difference(0.2, -0.1, 0.5).sign
        (1, 0)
        """
        return int(self.low > 0) - int(self.high < 0)


def difference_over_seeds(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Difference:
    """Mean difference of two methods over the same seeds, with Student's t interval.

    Args:
        first, second: a figure of every seed, ``[S]``, in the same order.
        level: of the interval.

    One seed has a difference and no interval: the ends are infinite.

    >>> found = difference_over_seeds([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.2, -0.048, 0.448)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise DataError(f"paired differences need the same seeds of both methods; found {a.shape} and {b.shape}.")
    each = a - b
    mean = float(each.mean())
    if len(each) < 2:
        return Difference(mean, -math.inf, math.inf)
    from scipy import stats

    half = float(stats.t.ppf((1 + level) / 2, len(each) - 1) * each.std(ddof=1) / math.sqrt(len(each)))
    return Difference(mean, mean - half, mean + half)


def difference_over_images(
    first: Sequence[Hits],
    second: Sequence[Hits],
    metric: str = "worst_group",
    minority: Collection[str] = (),
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """Mean difference of a group metric over seeds, with a percentile bootstrap over test images.

    Images are drawn with replacement within each seed and group, so that groups keep their sizes, and an image counts
    for both methods or for neither. Drawing ``n`` pairs of answers from ``n`` is one multinomial draw over the four
    kinds of pairs, which is what is done.

    Args:
        first, second: right or wrong of every seed, by group; the same groups and images in both.
        metric: one of :data:`HIT_METRICS`.
        minority: names of the groups that training has too few of, for ``majority`` and ``minority``.
        level: of the interval.
        draws: bootstrap samples.
        seed: of the draws.

    >>> right, wrong = {"a": np.array([True] * 5)}, {"a": np.array([False] * 5)}
    >>> difference_over_images([right], [wrong])
    Difference(value=1.0, low=1.0, high=1.0)
    """
    if len(first) != len(second) or not first:
        raise DataError(f"paired differences need the same seeds of both methods: {len(first)} and {len(second)}.")
    rng, values, drawn = np.random.default_rng(seed), [], np.zeros(draws)
    for a, b in zip(first, second, strict=True):
        _check_pairs(a, b)
        n = np.array([len(a[g]) for g in a])
        few = np.array([g in minority for g in a])
        kinds = np.array([_pair_kinds(a[g], b[g]) for g in a])  # [G, 4]: both, first only, second only, none
        again = np.stack([rng.multinomial(size, k / size, draws) for size, k in zip(n, kinds, strict=True)], axis=1)
        values.append(_difference(metric, kinds[None], n, few)[0])
        drawn += _difference(metric, again, n, few) / len(first)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Difference(float(np.mean(values)), float(low), float(high))


def figure_of_hits(metric: str, right: NDArray[Any], n: NDArray[Any], few: NDArray[np.bool_]) -> NDArray[np.float64]:
    """A group metric from how many of the ``n`` ``[G]`` images of each group were right, ``[..., G]``.

    >>> float(figure_of_hits("worst_group", np.array([3, 1]), np.array([4, 4]), np.array([False, True])))
    0.25
    """
    if metric not in HIT_METRICS:
        raise DataError(f"'{metric}' does not follow from right and wrong by group; known: {', '.join(HIT_METRICS)}.")
    if metric == "worst_group":
        return np.asarray((right / n).min(axis=-1))
    where = {"average": np.ones_like(few), "majority": ~few, "minority": few}[metric]
    if not where.any():
        raise DataError(f"no test group is a {metric} group of training, so there is no {metric} accuracy.")
    return np.asarray((right * where).sum(axis=-1) / n[where].sum())


def _difference(metric: str, kinds: NDArray[Any], n: NDArray[Any], few: NDArray[np.bool_]) -> NDArray[np.float64]:
    both, first, second = kinds[..., 0], kinds[..., 1], kinds[..., 2]
    return figure_of_hits(metric, both + first, n, few) - figure_of_hits(metric, both + second, n, few)


def _pair_kinds(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> list[int]:
    return [int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum()), int((~a & ~b).sum())]


def _check_pairs(a: Hits, b: Hits) -> None:
    if list(a) != list(b) or any(len(a[g]) != len(b[g]) for g in a) or not all(len(a[g]) for g in a):
        raise DataError("the two methods were not measured on the same test images; a paired difference needs that.")
