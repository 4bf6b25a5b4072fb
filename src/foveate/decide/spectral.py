"""Spectral decoupling: a penalty on the logits that keeps one easy feature from starving the others.

Reference: Pezeshki et al. 2021, "Gradient starvation", eq. 13.
"""

from __future__ import annotations

from torch import Tensor

from foveate.errors import FoveateError


def spectral_decoupling(logits: Tensor, weight: float, reduction: str = "sum", target: float | Tensor = 0.0) -> Tensor:
    """``weight`` times the mean over the batch of the squared logits; add it to the cross-entropy.

    The paper writes ``λ/2 * ‖ŷ‖²``: its λ is twice our ``weight``. For class-specific targets (the paper's
    CelebA setting) call it once per class, on that class's logits.

    Args:
        logits: ``[B]`` (binary) or ``[B, K]``.
        weight: strength of the penalty.
        reduction: over classes, ``"sum"`` or ``"mean"``; say which when you report a weight.
        target: what the logits are drawn to.

    >>> import torch
    >>> spectral_decoupling(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), weight=0.5)
    tensor(1.5000)
    """
    if reduction not in ("sum", "mean"):
        raise FoveateError(f"spectral_decoupling: reduction must be 'sum' or 'mean'; got '{reduction}'.")
    square = (logits - target).square()
    if square.ndim > 1:
        square = square.flatten(1).sum(1) if reduction == "sum" else square.flatten(1).mean(1)
    return weight * square.mean()
