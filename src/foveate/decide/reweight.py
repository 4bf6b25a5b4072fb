"""Balancing groups (or classes): by weighting the loss, by drawing more often, or by leaving samples out.

These are three different things. *Loss weights* (:func:`reweight`) leave the batches as they are and scale
each sample's loss. A *sampler* (:func:`sampling_weights`, :class:`BalancedSampler`) changes which samples a
batch holds and leaves the loss alone. *Subsampling* (:func:`subsample`) shrinks the dataset once. Under SGD
the first two do not give the same model. Pass labels instead of groups to balance classes.

Reference: Idrissi et al. 2022, "Simple data balancing achieves competitive worst-group-accuracy".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Sampler

from foveate.errors import DataError


def reweight(groups: ArrayLike, num_groups: int | None = None) -> Tensor:
    """*Loss* weight of every group: inverse to its size, summing to the number of groups; 0 for an empty
    group.

    Multiply each sample's loss by ``weights[group]``.

    Args:
        groups: group of every training sample, ``int [N]``.
        num_groups: G; default the largest group seen + 1.

    Returns: ``float32 [G]``.

    >>> reweight([0, 0, 0, 1])
    tensor([0.5000, 1.5000])
    """
    counts = _counts(groups, num_groups)
    inverse = np.divide(1.0, counts, out=np.zeros(len(counts)), where=counts > 0)
    return torch.as_tensor(inverse / inverse.sum() * len(counts), dtype=torch.float32)


def sampling_weights(groups: ArrayLike) -> NDArray[np.float64]:
    """*Drawing* weight of every sample, ``n / n_g``: drawing with these makes all non-empty groups equally
    likely.

    For torch's ``WeightedRandomSampler`` or anything alike; :class:`BalancedSampler` is ready made.

    >>> sampling_weights([0, 0, 0, 1])
    array([1.33333333, 1.33333333, 1.33333333, 4.        ])
    """
    g = np.asarray(groups, dtype=np.int64)
    return len(g) / _counts(groups, None)[g].astype(np.float64)


class BalancedSampler(Sampler[int]):
    """Draws positions with replacement so that every non-empty group is equally likely. For a ``DataLoader``.

    Each pass gives another draw; the draws depend on ``seed`` and the pass alone. :meth:`set_epoch` chooses
    the pass, as for torch's distributed sampler, so that resumed training sees what it would have seen.

    Args:
        groups: group of every sample, ``int [N]``.
        length: draws per pass; default N.
        seed: where the draws start.

    >>> sampler = BalancedSampler([0] * 990 + [1] * 10, seed=0)
    >>> share = sum(i >= 990 for i in sampler) / len(sampler)
    >>> 0.45 < share < 0.55
    True
    """

    def __init__(self, groups: ArrayLike, length: int | None = None, seed: int = 0):
        g = np.asarray(groups, dtype=np.int64)
        _counts(g, None)
        self.members = [np.flatnonzero(g == value) for value in np.unique(g)]
        self.length = len(g) if length is None else length
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The next pass is pass number ``epoch``."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng((self.seed, self.epoch))
        self.epoch += 1
        chosen = generator.integers(len(self.members), size=self.length)
        where = generator.random(self.length)
        return iter([int(self.members[g][int(u * len(self.members[g]))]) for g, u in zip(chosen, where, strict=True)])


def subsample(groups: ArrayLike, rng: np.random.Generator | int = 0, size: int | None = None) -> NDArray[np.int64]:
    """Positions of a balanced subset, sorted: the same number, without repetition, from every non-empty
    group.

    Args:
        groups: group of every sample, ``int [N]``.
        rng: a generator or a seed.
        size: samples per group; default the size of the smallest non-empty group, which is also the most.

    >>> np.bincount(np.array([0, 0, 0, 2, 2])[subsample([0, 0, 0, 2, 2])]).tolist()
    [2, 0, 2]
    """
    g = np.asarray(groups, dtype=np.int64)
    counts = _counts(g, None)
    smallest = int(counts[counts > 0].min())
    if size is not None and not 1 <= size <= smallest:
        raise DataError(f"subsample: {size} per group asked for, but the smallest group has {smallest} samples.")
    generator = np.random.default_rng(rng)
    kept = [generator.permutation(np.flatnonzero(g == value))[: size or smallest] for value in np.unique(g)]
    return np.sort(np.concatenate(kept))


def _counts(groups: ArrayLike, num_groups: int | None) -> NDArray[np.int64]:
    g = np.asarray(groups)
    if g.ndim != 1 or not len(g):
        raise DataError(f"expected the group of every sample, [N]; got shape {g.shape}.")
    g = g.astype(np.int64)
    if g.min() < 0 or (num_groups is not None and g.max() >= num_groups):
        raise DataError(
            f"groups run from {g.min()} to {g.max()}; expected 0 to {(num_groups or int(g.max()) + 1) - 1}."
        )
    return np.bincount(g, minlength=num_groups or 0)
