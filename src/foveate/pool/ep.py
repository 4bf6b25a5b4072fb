"""Efficient probing: many queries on the raw tokens, each pooling its own slice of the values.

Reference: Psomas et al. 2025, "Attention, please! Revisiting attentive probing for masked image modeling".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.pool.attention import tokens_of


class EPPool(nn.Module):
    """Query m attends to the tokens as they are (no key projection) and pools chunk m of the projected
    values.

    Args:
        dim: D.
        queries: M, must divide ``dim``; 32 in the paper.
        norm: LayerNorm on the result, before the linear head.

    >>> EPPool(64)(torch.randn(2, 64, 7, 7)).shape
    torch.Size([2, 64])
    """

    def __init__(self, dim: int, queries: int = 32, norm: bool = True):
        super().__init__()
        if dim % queries:
            raise FoveateError(f"EPPool: {queries} queries do not divide {dim} channels; choose another number.")
        self.queries = nn.Parameter(torch.randn(queries, dim) * 0.02)
        self.value = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """A map ``[B, D, H, W]`` or patch tokens ``[B, N, D]`` (no class or register tokens) ->
        ``[B, D]``."""
        tokens, weights = self._run(features)
        # Pooling first, then each query's own rows of the value projection: same result, M instead of D
        # products.
        seen = weights @ tokens  # [B, M, D]
        chunks = self.value.weight.unflatten(0, (len(self.queries), -1))  # [M, D/M, D]
        return self.norm(torch.einsum("bmd,mkd->bmk", seen, chunks).flatten(1))

    def attention(self, features: Tensor) -> Tensor:
        """Where each query looks, ``[B, M, H, W]`` (``N`` for tokens)."""
        weights = self._run(features)[1]
        return weights.unflatten(-1, tuple(features.shape[2:])) if features.ndim == 4 else weights

    def _run(self, features: Tensor) -> tuple[Tensor, Tensor]:
        tokens = tokens_of(features, "EPPool")[0]
        return tokens, (self.queries @ tokens.transpose(1, 2) * tokens.shape[2] ** -0.5).softmax(-1)
