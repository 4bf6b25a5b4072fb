"""Conditional value at risk: train on the worst share of each batch.

Reference: Levy et al. 2020, "Large-scale methods for distributionally robust optimization".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foveate.errors import FoveateError


def cvar(losses: Tensor, alpha: float) -> Tensor:
    """Mean of the worst ``alpha`` share of ``losses`` (conditional value at risk).

    The share is exact: when ``alpha * len(losses)`` is not whole, the next-worst loss counts with the
    remaining fraction. Gradients reach only the losses that count. Keep ``alpha * batch size`` at 1 or more:
    below, this is the single largest loss.

    Args:
        losses: one loss per example, shape ``[B]``.
        alpha: share of the batch to average over, in ``(0, 1]``.

    Reference: Levy et al. 2020, "Large-scale methods for DRO", section 2. Equals the minimum over ``eta`` of
    ``eta + mean(max(losses - eta, 0)) / alpha``.

    >>> cvar(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), alpha=0.5)
    tensor(4.2000)
    """
    if not 0 < alpha <= 1:
        raise FoveateError(f"cvar: alpha is the share of the batch that counts, in (0, 1]; got {alpha}.")
    if losses.ndim != 1 or not len(losses):
        raise FoveateError(f"cvar: expected one loss per example, shape [B]; got {tuple(losses.shape)}.")
    share = alpha * len(losses)
    whole = min(math.floor(share), len(losses))
    worst = torch.topk(losses, min(whole + 1, len(losses))).values
    weights = torch.full_like(worst, 1 / share)
    if len(worst) > whole:
        weights[whole] = 1 - whole / share
    return (weights * worst).sum()
