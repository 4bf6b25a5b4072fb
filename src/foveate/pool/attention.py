"""Multi-head attention of a few queries over many tokens, without projecting every token.

Reference: Vaswani et al. 2017, "Attention is all you need", section 3.2; eqs. 8-10 of the DAR paper.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError


class CrossAttention(nn.Module):
    """``MH(Q, F, F)``: every query looks at the tokens F and takes their weighted mean, head by head.

    ``head_i = softmax(Q W_i^Q (F W_i^K)ᵀ / √d_h) F W_i^V``; the heads side by side times ``W^O`` give the
    result.

    The projections of keys and values are moved to the side of the queries: ``q·(F W^K) = (q W^Kᵀ)·F``, and
    the weighted mean of ``F W^V`` is the weighted mean of F, times ``W^V``. The result is the same and the
    work is ``heads * queries`` products per token in place of ``dim``, several times less for a pool. For the
    same reason a bias on the keys would cancel in the softmax, so there is none.

    Args:
        dim: C, width of queries, tokens and result.
        heads: number of heads.
        head_dim: d_h; default ``dim // heads``.
        bias: biases on the query, value and output projections (the equations have none).

    >>> layer = CrossAttention(8, heads=2)
    >>> layer(torch.randn(3, 4, 8), torch.randn(3, 49, 8))[0].shape
    torch.Size([3, 4, 8])
    """

    def __init__(self, dim: int, heads: int = 8, head_dim: int | None = None, bias: bool = False):
        super().__init__()
        if head_dim is None and dim % heads:
            raise FoveateError(f"{heads} heads do not divide {dim} channels; choose other heads or give head_dim.")
        self.heads, self.head_dim = heads, head_dim or dim // heads
        inner = self.heads * self.head_dim
        self.query = nn.Linear(dim, inner, bias=bias)
        self.key = nn.Linear(dim, inner, bias=False)
        self.value = nn.Linear(dim, inner, bias=bias)
        self.out = nn.Linear(inner, dim, bias=bias)
        for linear in (self.query, self.key, self.value, self.out):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, queries: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """``queries`` ``[B, n_q, C]`` (B may be 1), ``tokens`` ``[B, L, C]`` -> result ``[B, n_q, C]``,
        weights ``[B, h, n_q, L]``."""
        weights = self.weights(queries, tokens)
        return self._take(weights, tokens), weights

    def mean(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """The result's mean over queries, ``[B, C]``, for a fraction of the work: everything after the weights
        is linear, so the weights can be averaged first."""
        return self._take(self.weights(queries, tokens).mean(2, keepdim=True), tokens)[:, 0]

    def weights(self, queries: Tensor, tokens: Tensor) -> Tensor:
        """Where each query of each head looks, ``[B, h, n_q, L]``; rows sum to 1."""
        h, d = self.heads, self.head_dim
        key = self.key.weight.unflatten(0, (h, d))  # [h, d, C]
        q = self.query(queries).unflatten(-1, (h, d)).flatten(0, 1).transpose(0, 1)  # [h, B*n_q, d]
        looking = (q @ key).unflatten(1, (len(queries), -1)).transpose(0, 1)  # [B, h, n_q, C]
        looking = looking.expand(len(tokens), -1, -1, -1).flatten(1, 2)
        scores = looking @ tokens.transpose(1, 2) * d**-0.5
        return scores.softmax(-1).unflatten(1, (h, -1))

    def _take(self, weights: Tensor, tokens: Tensor) -> Tensor:
        """What the weights ``[B, h, n, L]`` pick up: ``[B, n, C]``."""
        h, d = self.heads, self.head_dim
        seen = (weights.flatten(1, 2) @ tokens).unflatten(1, (h, -1))  # [B, h, n, C]
        each = seen.transpose(0, 1).flatten(1, 2) @ self.value.weight.unflatten(0, (h, d)).transpose(1, 2)
        values = each.unflatten(1, (len(tokens), -1)).permute(1, 2, 0, 3).flatten(2)  # [B, n, h*d]
        if self.value.bias is not None:
            values = values + self.value.bias  # the weights sum to 1
        return self.out(values)


def tokens_of(features: Tensor, who: str) -> tuple[Tensor, tuple[int, int] | None]:
    """Tokens ``[B, L, C]`` of a map ``[B, C, H, W]`` (with its grid) or of tokens as they are (grid None)."""
    if features.ndim == 4:
        return features.flatten(2).transpose(1, 2), (features.shape[2], features.shape[3])
    if features.ndim == 3:
        return features, None
    raise FoveateError(f"{who} expects a map [B, C, H, W] or tokens [B, N, C]; got {tuple(features.shape)}.")


def sincos_positions(height: int, width: int, dim: int) -> Tensor:
    """Fixed sine-cosine encoding of a grid, ``[height * width, dim]``: half the channels tell the row, half
    the column.

    >>> sincos_positions(2, 3, 8).shape
    torch.Size([6, 8])
    """
    each = dim // 4
    if not each:
        raise FoveateError(f"a 2-D positional encoding needs at least 4 channels; got {dim}.")
    rate = 10000.0 ** -(torch.arange(each) / each)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    angles = [place.flatten()[:, None] * rate for place in (rows, columns)]
    encoded = torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=1)
    return nn.functional.pad(encoded, (0, dim - encoded.shape[1]))
