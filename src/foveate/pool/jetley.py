"""Attention by agreement with the image's global vector.

Reference: Jetley et al. 2018, "Learn to pay attention", eqs. 1-3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError


class JetleyPool(nn.Module):
    """Weighs every location by how well it agrees with the global vector g, and sums.

    ``c_i = ⟨l_i, g⟩`` (``"dot"``) or ``⟨u, l_i + g⟩`` (``"parametric"``), ``a = softmax(c)``,
    ``g_a = Σ a_i l_i``. g is the average-pooled last map. Several maps (from several layers) give several
    g_a, side by side; a map whose width is not g's goes through a 1×1 convolution first.

    Args:
        dims: channels of the map, or of each map, last layer last.
        compatibility: ``"dot"`` or ``"parametric"``.

    >>> JetleyPool(16)(torch.randn(2, 16, 7, 7)).shape
    torch.Size([2, 16])
    >>> JetleyPool([8, 16])([torch.randn(2, 8, 14, 14), torch.randn(2, 16, 7, 7)]).shape
    torch.Size([2, 32])
    """

    def __init__(self, dims: int | Sequence[int], compatibility: str = "dot"):
        super().__init__()
        if compatibility not in ("dot", "parametric"):
            raise FoveateError(f"JetleyPool: compatibility is 'dot' or 'parametric'; got '{compatibility}'.")
        self.dims = [dims] if isinstance(dims, int) else list(dims)
        width = self.dims[-1]
        self.project = nn.ModuleList(
            nn.Identity() if dim == width else nn.Conv2d(dim, width, 1, bias=False) for dim in self.dims
        )
        self.direction = (
            nn.ParameterList(torch.randn(width) * width**-0.5 for _ in self.dims)
            if compatibility == "parametric"
            else None
        )

    @property
    def out_dim(self) -> int:
        """Width of the pooled vector."""
        return self.dims[-1] * len(self.dims)

    def forward(self, maps: Tensor | Sequence[Tensor]) -> Tensor:
        """A map ``[B, C, H, W]``, or one per layer -> ``[B, out_dim]``."""
        return torch.cat([pooled for pooled, _ in self._run(maps)], dim=1)

    def attention(self, maps: Tensor | Sequence[Tensor]) -> list[Tensor]:
        """The weights on each map, ``[B, H, W]``; each sums to 1."""
        return [weights for _, weights in self._run(maps)]

    def _run(self, maps: Tensor | Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        layers = [maps] if isinstance(maps, Tensor) else list(maps)
        if [m.shape[1] for m in layers] != self.dims:
            raise FoveateError(f"JetleyPool expects maps of {self.dims} channels; got {[m.shape[1] for m in layers]}.")
        g = layers[-1].mean((2, 3))
        results = []
        for i, layer in enumerate(layers):
            local = self.project[i](layer)
            if self.direction is None:
                scores = torch.einsum("bchw,bc->bhw", local, g)
            else:
                scores = torch.einsum("bchw,c->bhw", local + g[:, :, None, None], self.direction[i])
            weights = scores.flatten(1).softmax(1).view_as(scores)
            results.append((torch.einsum("bchw,bhw->bc", local, weights), weights))
        return results
