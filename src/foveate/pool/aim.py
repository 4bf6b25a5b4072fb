"""The attentive probe of AIM: one learned query per head over normalised patch tokens.

Reference: El-Nouby et al. 2024, "Scalable pre-training of large autoregressive image models", section 4.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.pool.attention import tokens_of


class AIMPool(nn.Module):
    """Attention with learned queries and no query or output projection; the mean over queries is the vector.

    Tokens pass a BatchNorm without scale and shift (eps 1e-6), then bias-free key and value projections.

    Args:
        dim: C.
        heads: must divide ``dim``; 12 for ViT-B.
        queries: 1 in the paper.

    >>> AIMPool(24, heads=12)(torch.randn(2, 24, 7, 7)).shape
    torch.Size([2, 24])
    """

    def __init__(self, dim: int, heads: int = 12, queries: int = 1):
        super().__init__()
        if dim % heads:
            raise FoveateError(f"AIMPool: {heads} heads do not divide {dim} channels; choose another number.")
        self.heads = heads
        self.norm = nn.BatchNorm1d(dim, affine=False, eps=1e-6)
        self.queries = nn.Parameter(torch.randn(queries, dim) * 0.02)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """A map ``[B, C, H, W]`` or patch tokens ``[B, N, C]`` (no class or register tokens) ->
        ``[B, C]``."""
        tokens, weights = self._run(features)
        values = self.value(tokens).unflatten(-1, (self.heads, -1))  # [B, N, h, d]
        return torch.einsum("bhqn,bnhd->bqhd", weights, values).flatten(2).mean(1)

    def attention(self, features: Tensor) -> Tensor:
        """Where each query of each head looks, ``[B, h, n_q, H, W]`` (``N`` for tokens)."""
        weights = self._run(features)[1]
        return weights.unflatten(-1, tuple(features.shape[2:])) if features.ndim == 4 else weights

    def _run(self, features: Tensor) -> tuple[Tensor, Tensor]:
        tokens = tokens_of(features, "AIMPool")[0]
        tokens = self.norm(tokens.transpose(1, 2)).transpose(1, 2)
        q = self.queries.unflatten(-1, (self.heads, -1))  # [n_q, h, d]
        keys = self.key(tokens).unflatten(-1, (self.heads, -1))
        return tokens, (torch.einsum("qhd,bnhd->bhqn", q, keys) * q.shape[-1] ** -0.5).softmax(-1)
