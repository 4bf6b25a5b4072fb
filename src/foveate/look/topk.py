"""The k best of n, with a gradient: top-k smoothed by noise on the scores.

Reference: Cordonnier et al. 2021, "Differentiable patch selection for image recognition", on Berthet et al. 2020,
"Learning with differentiable perturbed optimizers". The gradient is the *outer* product of indicators and noise
(Berthet et al., proposition 3.1); code in circulation takes a diagonal product instead, which is wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foveate.errors import FoveateError


def perturbed_topk(
    scores: Tensor, k: int, sigma: float = 0.05, samples: int = 500, generator: torch.Generator | None = None
) -> Tensor:
    """Indicators of the ``k`` largest scores, averaged over Gaussian noise: ``Y = E[onehot(sort(topk(s + σZ)))]``.

    ``∂Y[i, d] / ∂s[e] = E[onehot[i, d] · Z[e]] / σ``. Two facts about the expectation are made exact for every
    sample drawn, which leaves the estimate unbiased and makes it less noisy: a shift of all scores changes
    nothing (noise is centred over the scores, so rows of the Jacobian sum to 0), and ``Y`` sums to 1 over ``d``
    (indicators are centred over the samples).

    Args:
        scores: ``[B, n]``. ``sigma`` is relative to their spread: bring them to a common scale first
            (:func:`foveate.look.minmax`), or raw attention (about 1/256) drowns in the noise. Too little
            noise has no gradient: where the choice never changes, nothing is learned.
        k: how many to choose.
        sigma: standard deviation of the noise; 0 gives the hard choice, without gradient, for evaluation.
        samples: noise draws. Memory is ``B × samples × n``.
        generator: draws the noise; the same state gives the same result.

    Returns:
        ``[B, k, n]``; row ``i`` is the distribution of the chosen position that comes ``i``-th *by position*, and
        sums to 1. One-hot when ``sigma`` is 0 (equal scores: the first).

    >>> perturbed_topk(torch.tensor([[0.1, 0.9, 0.5]]), k=2, sigma=0)
    tensor([[[0., 1., 0.],
             [0., 0., 1.]]])
    """
    if scores.ndim != 2 or not scores.is_floating_point():
        raise FoveateError(f"expected float scores [B, n]; found {scores.dtype} {tuple(scores.shape)}.")
    n = scores.shape[1]
    if not 1 <= k <= n:
        raise FoveateError(f"cannot choose {k} of {n} candidates.")
    if sigma < 0 or samples < 1:
        raise FoveateError(f"sigma must not be negative and samples at least 1; got {sigma} and {samples}.")
    if sigma == 0:
        return torch.nn.functional.one_hot(_topk(scores.detach(), k), n).to(scores)
    device = scores.device if generator is None else generator.device
    shape = (len(scores), samples, n)
    noise = torch.randn(shape, generator=generator, dtype=scores.dtype, device=device).to(scores.device)
    return _PerturbedTopK.apply(scores, noise, k, sigma)  # type: ignore[no-any-return,no-untyped-call]


def _topk(scores: Tensor, k: int) -> Tensor:
    """Positions of the ``k`` largest along the last axis, in order of position; equal scores: the first."""
    if k == 1:
        return scores.argmax(-1, keepdim=True)
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :k].sort(-1).values


class _PerturbedTopK(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, noise: Tensor, k: int, sigma: float) -> Tensor:
        chosen = _topk(scores[:, None] + sigma * noise, k)  # [B, S, k]
        ctx.save_for_backward(chosen, noise)
        ctx.sigma = sigma
        batch, samples, n = noise.shape
        counts = scores.new_zeros(batch, k, n)
        counts.scatter_add_(2, chosen.transpose(1, 2), scores.new_ones(()).expand(batch, k, samples))
        return counts / samples

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        chosen, noise = ctx.saved_tensors
        # The Jacobian [k, n, n] is never formed: sum over (i, d) of gradient · onehot is one number a sample.
        value = gradients[0].gather(2, chosen.transpose(1, 2)).sum(1)  # [B, S]
        noise = noise - noise.mean(2, keepdim=True)
        samples = noise.shape[1]
        if samples > 1:  # a covariance over the samples, unbiased
            value = (value - value.mean(1, keepdim=True)) * (samples / (samples - 1))
        return (value[:, None] @ noise)[:, 0] / (samples * ctx.sigma), None, None, None
