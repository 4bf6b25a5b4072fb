"""Penalties on weights, to add to a loss.

Reference: Kirichenko et al. 2023, "Last layer re-training is sufficient for robustness to spurious
correlations" (DFR), in the gradient form of Yang et al. 2023, "Change is hard" (SubpopBench).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def l1_penalty(module: nn.Module) -> Tensor:
    """Sum of the absolute weights of ``module``; vectors (biases, norms) are not counted.

    >>> head = nn.Linear(2, 1); _ = head.weight.data.copy_(torch.tensor([[3.0, -4.0]]))
    >>> l1_penalty(head).item()
    7.0
    """
    total = torch.zeros(())
    for parameter in module.parameters():
        if parameter.ndim >= 2:
            total = total.to(parameter) + parameter.abs().sum()
    return total
