"""The attention pool of Deep Attention Reweighting, in place of global average pooling.

Reference: the DAR paper, arXiv 2605.20732, eqs. 8-13.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.pool.attention import CrossAttention, sincos_positions, tokens_of


class AttentionPool(nn.Module):
    """Learned queries attend to the feature map, twice; the mean over queries is the pooled vector.

    ``Q₁ = MH₁(Q₀, F, F)`` makes the queries depend on the image, ``Z = MH₂(Q₁, F, F)`` looks again with them,
    and ``z = mean_i Z_i`` (eqs. 11-13). By default these bare equations and nothing else: no positional
    encoding, no residual, no norm, no bias. Weights start by Xavier's rule and queries from a unit normal, so
    that they differ in where they look from the first step on.

    Args:
        dim: C, channels of the map.
        queries: n_q.
        heads: attention heads per layer.
        depth: layers, 1 or 2 (the paper has 2).
        head_dim: d_h; default ``dim // heads``.
        positional: add a fixed 2-D sine-cosine encoding to the tokens (an ablation: the paper finds it
            harmful).
        residual: add each layer's input queries to its output.
        norm: LayerNorm on the tokens and on the queries between the layers. Helps when training stalls, since
            ReLU maps give all keys a large common part.
        bias: biases in the projections.

    >>> AttentionPool(dim=64, queries=8, heads=8)(torch.randn(2, 64, 7, 7)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        dim: int,
        queries: int = 8,
        heads: int = 8,
        depth: int = 2,
        head_dim: int | None = None,
        positional: bool = False,
        residual: bool = False,
        norm: bool = False,
        bias: bool = False,
    ):
        super().__init__()
        if depth not in (1, 2) or queries < 1:
            raise FoveateError(f"AttentionPool: depth is 1 or 2 and queries at least 1; got {depth} and {queries}.")
        self.dim, self.positional, self.residual = dim, positional, residual
        self.queries = nn.Parameter(torch.randn(queries, dim))
        self.layers = nn.ModuleList(CrossAttention(dim, heads, head_dim, bias) for _ in range(depth))
        self.token_norm = nn.LayerNorm(dim) if norm else nn.Identity()
        self.query_norms = nn.ModuleList(nn.LayerNorm(dim) if norm else nn.Identity() for _ in range(depth - 1))

    def forward(self, features: Tensor) -> Tensor:
        """A map ``[B, C, H, W]`` (or tokens ``[B, N, C]``) -> ``[B, C]``."""
        tokens = self._tokens(features)
        if self.residual:  # the mean over queries then contains the queries too
            return self._run(tokens)[0].mean(1)
        queries = self.queries[None]
        for layer, norm in zip(self.layers[:-1], self.query_norms, strict=True):
            queries = norm(layer(queries, tokens)[0])
        last = self.layers[-1]
        assert isinstance(last, CrossAttention)
        return last.mean(queries, tokens)

    def vectors(self, features: Tensor) -> Tensor:
        """What each query pooled, Z: ``[B, n_q, C]``."""
        return self._run(self._tokens(features))[0]

    def attention(self, features: Tensor) -> list[Tensor]:
        """Where each query of each head looks, one tensor ``[B, h, n_q, H, W]`` per layer (``N`` for
        tokens)."""
        grid = tuple(features.shape[2:]) if features.ndim == 4 else None
        weights = self._run(self._tokens(features))[1]
        return weights if grid is None else [w.unflatten(-1, grid) for w in weights]

    def _tokens(self, features: Tensor) -> Tensor:
        tokens, grid = tokens_of(features, "AttentionPool")
        if tokens.shape[2] != self.dim:
            raise FoveateError(f"AttentionPool was made for {self.dim} channels; got {tuple(features.shape)}.")
        tokens = self.token_norm(tokens)
        if self.positional:
            if grid is None:
                raise FoveateError("AttentionPool: a positional encoding needs a map [B, C, H, W], not tokens.")
            tokens = tokens + sincos_positions(*grid, self.dim).to(tokens)
        return tokens

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Z ``[B, n_q, C]`` and the weights of every layer."""
        queries, weights = self.queries[None], []
        for depth, layer in enumerate(self.layers):
            if depth:
                queries = self.query_norms[depth - 1](queries)
            pooled, attention = layer(queries, tokens)
            queries = queries + pooled if self.residual else pooled
            weights.append(attention)
        return queries, weights
