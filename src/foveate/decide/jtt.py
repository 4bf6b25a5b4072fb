"""Just Train Twice: what a first model gets wrong is shown more often to the second.

Reference: Liu et al. 2021, "Just train twice: improving group robustness without training group information",
algorithm 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.errors import DataError


def error_set(predictions: ArrayLike, labels: ArrayLike) -> NDArray[np.int64]:
    """Positions of the training samples the first model got wrong.

    >>> error_set([0, 1, 1], [0, 0, 1])
    array([1])
    """
    p, y = np.asarray(predictions), np.asarray(labels)
    if p.shape != y.shape:
        raise DataError(f"error_set: {len(p)} predictions for {len(y)} labels; give one each.")
    return np.flatnonzero(p != y)


def upsample_errors(n: int, errors: ArrayLike, factor: int) -> NDArray[np.int64]:
    """Positions to train the second model on: all ``n``, then ``factor`` extra copies of every error.

    An error is thus seen ``1 + factor`` times, as in the original. Without errors this is plain ERM.

    Args:
        n: training samples.
        errors: positions, or a boolean mask ``[n]``, of the errors.
        factor: λ_up, extra copies of each.

    >>> upsample_errors(4, [1], factor=2)
    array([0, 1, 2, 3, 1, 1])
    """
    chosen = np.asarray(errors)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise DataError(f"upsample_errors: a mask of shape {chosen.shape} for {n} samples.")
        chosen = np.flatnonzero(chosen)
    chosen = chosen.astype(np.int64)
    if factor < 0 or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < n):
        raise DataError(f"upsample_errors: positions must be in 0 … {n - 1} and the factor at least 0, got {factor}.")
    return np.concatenate([np.arange(n), np.tile(chosen, factor)])
