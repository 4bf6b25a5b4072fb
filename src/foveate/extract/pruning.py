"""How to batch images that keep different numbers of tokens: buckets with as little padding as possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def length_buckets(
    lengths: Sequence[int] | NDArray[np.int64],
    *,
    dim: int = 384,
    overhead: float = 24.0,
    max_buckets: int | None = None,
) -> list[NDArray[np.int64]]:
    """Split images into buckets so that padding each bucket to its longest image costs least.

    Exact, by dynamic programming over the sorted lengths. A bucket of n images padded to length L costs
    ``n * L * (1 + L / (6 * dim))`` (the linear layers of a transformer block, and its attention, in units of one
    token through the linear layers) plus ``overhead`` for being a pass of its own.

    Args:
        lengths: tokens each image keeps, ``[B]``, prefix tokens included.
        dim: the model's width; sets how much attention weighs against the linear layers.
        overhead: what one more pass costs, in tokens.
        max_buckets: at most so many; 1 pads everything to the longest image, as the released code does.

    Returns:
        Indices of the images of each bucket, shortest bucket first; together every image once.

    >>> [b.tolist() for b in length_buckets([3, 200, 5, 190])]
    [[0, 2], [3, 1]]
    >>> [b.tolist() for b in length_buckets([3, 200, 5, 190], max_buckets=1)]
    [[0, 2, 3, 1]]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) == 0:
        return []
    order = np.argsort(sizes, kind="stable")
    values, counts = np.unique(sizes, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])  # ends[j] images are of the j shortest lengths
    work = values * (1 + values / (6 * dim))
    # cost[i, j]: one bucket that holds the lengths i..j
    cost = (ends[None, 1:] - ends[:-1, None]) * work[None, :] + overhead
    cost[np.tril_indices(len(values), -1)] = np.inf

    best = cost[0]
    choices: list[NDArray[np.int64]] = []
    chosen, cheapest = 1, float(best[-1])
    for buckets in range(2, min(len(values), max_buckets or len(values)) + 1):
        # the last bucket starts at length i: what came before is the best split of the lengths below i
        before = np.concatenate([[np.inf], best[:-1]])[:, None] + cost
        choices.append(before.argmin(0))
        best = before.min(0)
        if best[-1] < cheapest:
            chosen, cheapest = buckets, float(best[-1])
        elif (buckets - 1) * overhead > cheapest:
            break  # the passes alone cost more than the best split: more of them cannot win
    plan: list[NDArray[np.int64]] = []
    last = len(values) - 1
    for step in range(chosen - 2, -2, -1):
        first = int(choices[step][last]) if step >= 0 else 0
        plan.append(order[ends[first] : ends[last + 1]])
        last = first - 1
    return plan[::-1]


def padded_tokens(lengths: Sequence[int] | NDArray[np.int64], buckets: Sequence[NDArray[np.int64]]) -> int:
    """How many tokens are computed when every bucket is padded to its longest image.

    >>> padded_tokens([3, 200, 5, 190], length_buckets([3, 200, 5, 190]))
    410
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    return int(sum(len(b) * sizes[b].max() for b in buckets))
