"""Taking parts and unusual tokens out of part maps: they become background, and an early mask then hides them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from foveate.errors import ModelError

Measure = Literal["centre", "distance", "dot"]
MEASURES: tuple[Measure, ...] = ("centre", "distance", "dot")


def to_background(maps: Tensor, where: Tensor) -> Tensor:
    """``maps [B, K + 1, ...]`` with every place of ``where [B, ...]`` given to the background (the last map)."""
    background = torch.zeros_like(maps)
    background[:, -1] = 1
    return torch.where(where[:, None], background, maps)


def remove_parts(maps: Tensor, parts: Iterable[int]) -> Tensor:
    """Places whose strongest map is one of ``parts`` become background, not the runner-up part.

    All other places keep their values, so removing a part that is nowhere the strongest changes nothing. Removing
    every part is allowed and leaves an empty mask: the prediction is then the same for every image.

    Args:
        maps: part maps ``[B, K + 1, h, w]``, background last.
        parts: numbers from 0 to K - 1.

    Reference: arXiv 2506.08915, test-time intervention by part removal.

    >>> maps = torch.tensor([[0.5, 0.2], [0.4, 0.7], [0.1, 0.1]])[None, :, None]  # part 0, then part 1
    >>> remove_parts(maps, [0]).argmax(1)
    tensor([[[2, 1]]])
    """
    chosen = check_parts(parts, maps.shape[1] - 1)
    if not chosen:
        return maps
    removed = torch.zeros(maps.shape[1], dtype=torch.bool, device=maps.device)
    removed[list(chosen)] = True
    return to_background(maps, removed[maps.argmax(1)])


def check_parts(parts: Iterable[int], count: int) -> tuple[int, ...]:
    """``parts`` without repeats and in order; an error when one of them is not among ``count`` parts."""
    chosen = tuple(sorted({int(p) for p in parts}))
    unknown = [p for p in chosen if not 0 <= p < count]
    if unknown:
        raise ModelError(
            f"there is no part {unknown[0]}: the model has {count} parts, numbered 0 to {count - 1} "
            "(the background is not a part)."
        )
    return chosen


@dataclass(frozen=True)
class TokenThresholds:
    """How unlike its part a token may be, for each part; saved with the model.

    Attributes:
        values: one number for each of the K parts; infinite (no limit) for parts without training tokens.
        q: the share of training tokens that lie within.
        measure: of what: ``"distance"`` to the prototype (the paper) or ``"centre"``, to the mean of the part's
            training tokens, where larger is less alike; or ``"dot"`` product with the prototype (the released code),
            where smaller is.
    """

    values: tuple[float, ...]
    q: float
    measure: Measure = "distance"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a part without a limit is None."""
        values = [v if math.isfinite(v) else None for v in self.values]
        return {"values": values, "q": self.q, "measure": self.measure}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> TokenThresholds:
        free = -math.inf if saved["measure"] == "dot" else math.inf
        return cls(tuple(free if v is None else float(v) for v in saved["values"]), saved["q"], saved["measure"])


def calibrate_tokens(scores: Tensor, assignments: Tensor, q: float, measure: Measure = "distance") -> TokenThresholds:
    """Thresholds for :func:`remove_tokens` from the training tokens: for each part the q-quantile of their distances.

    Args:
        scores: what each token scores with each part, ``[B, K + 1, ...]`` or ``[M, K + 1]``: distances to the
            prototypes (``PartOutput.distances``, squared or not) or centres, or dot products with ``measure="dot"``.
        assignments: the part of each token, ``[B, ...]`` or ``[M]``; K is the background.
        q: 0.97 and 0.99 in the paper; 1 keeps every training token.

    >>> distances = torch.tensor([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0], [9.0, 0.0]])
    >>> calibrate_tokens(distances, torch.tensor([0, 0, 0, 1]), q=0.5).values
    (2.0,)
    """
    if not 0 < q <= 1:
        raise ModelError(f"q is the share of training tokens to keep, above 0 and at most 1; got {q}.")
    if scores.shape[0] != assignments.shape[0] or scores.shape[2:] != assignments.shape[1:]:
        raise ModelError(
            f"expected scores [B, K + 1, ...] and assignments [B, ...] of the same tokens; got {list(scores.shape)} "
            f"and {list(assignments.shape)}."
        )
    flat = scores.detach().movedim(1, -1).flatten(0, -2).double()
    part = assignments.flatten()
    values = []
    for k in range(flat.shape[1] - 1):
        own = flat[part == k, k].cpu()
        if measure == "dot":
            values.append(_quantile(own, 1 - q) if len(own) else -math.inf)
        else:
            values.append(_quantile(own, q) if len(own) else math.inf)
    return TokenThresholds(tuple(values), q, measure)


def _quantile(values: Tensor, q: float) -> float:
    import numpy as np  # torch.quantile refuses more than 16 million values

    return float(np.quantile(values.numpy(), q))


def remove_tokens(maps: Tensor, scores: Tensor, thresholds: TokenThresholds, *, released: bool = False) -> Tensor:
    """Tokens too unlike the part they are assigned to become background.

    Args:
        maps: part maps ``[B, K + 1, h, w]``, background last.
        scores: distances or dot products of the same shape, whichever ``thresholds`` were calibrated on.
        thresholds: from :func:`calibrate_tokens`.
        released: do as the released code: the maps are made anew from the dot products, and a token that fails one
            part's threshold may fall to another part whose threshold it passes. Needs ``measure="dot"``.

    Reference: arXiv 2506.08915, test-time intervention by token removal.

    >>> maps = torch.tensor([[0.9, 0.8], [0.1, 0.2]])[None, :, None]
    >>> far = torch.tensor([[1.0, 7.0], [9.0, 9.0]])[None, :, None]
    >>> remove_tokens(maps, far, TokenThresholds((5.0,), q=0.99)).argmax(1)
    tensor([[[0, 1]]])
    """
    count = maps.shape[1] - 1
    if len(thresholds.values) != count:
        raise ModelError(
            f"these thresholds were calibrated for {len(thresholds.values)} parts and the model has {count}. "
            "Calibrate them on this model's training images."
        )
    if scores.shape != maps.shape:
        raise ModelError(f"expected scores of the shape of the maps, {list(maps.shape)}; got {list(scores.shape)}.")
    dot = thresholds.measure == "dot"
    free = -math.inf if dot else math.inf
    limits = torch.tensor([*thresholds.values, free], dtype=torch.float64, device=maps.device)
    limits = limits.view(1, -1, *[1] * (maps.ndim - 2))
    wide = scores.double()  # the thresholds are: q = 1 must keep the farthest training token
    fails = wide < limits if dot else wide > limits
    if released:
        if not dot:
            raise ModelError("the released token removal works on dot products: calibrate with measure='dot'.")
        return scores.masked_fill(fails, -torch.inf).softmax(1)
    assigned = maps.argmax(1, keepdim=True)
    return to_background(maps, fails.gather(1, assigned)[:, 0])
