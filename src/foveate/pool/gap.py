"""The two pools without parameters: the mean over places, and the class token.

Reference: eq. 4 of the DAR paper, arXiv 2605.20732 (GAP); Dosovitskiy et al. 2021 (class token).
"""

from __future__ import annotations

from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.pool.attention import tokens_of


class GAP(nn.Module):
    """Global average pooling: a map ``[B, C, H, W]`` or tokens ``[B, N, C]`` -> ``[B, C]``.

    >>> import torch
    >>> GAP()(torch.arange(4.0).view(1, 1, 2, 2))
    tensor([[1.5000]])
    """

    def forward(self, features: Tensor) -> Tensor:
        return tokens_of(features, "GAP")[0].mean(1)


class CLSPool(nn.Module):
    """The class token, first of ``[B, N, C]`` -> ``[B, C]``.

    >>> import torch
    >>> CLSPool()(torch.arange(6.0).view(1, 3, 2))
    tensor([[0., 1.]])
    """

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 3:
            raise FoveateError(f"CLSPool expects tokens [B, N, C], class token first; got {tuple(tokens.shape)}.")
        return tokens[:, 0]
