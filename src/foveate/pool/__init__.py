"""POOL: many places to one vector. Each pool is an ``nn.Module`` from ``[B, C, H, W]`` to ``[B, C]``.

In a pipeline a pool is a part: the network's own (:class:`OwnPool`), a mean, or a module that learns.

>>> import torch
>>> pool = LearnedPool("attention", args={"queries": 4})
>>> pool.build(16)                                         # for maps of 16 channels; vectors of length 16
16
>>> tuple(pool(torch.rand(2, 16, 3, 3)).shape)
(2, 16)
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from foveate.pool.aim import AIMPool
from foveate.pool.attention import CrossAttention
from foveate.pool.dar import AttentionPool
from foveate.pool.ep import EPPool
from foveate.pool.gap import GAP, CLSPool
from foveate.pool.jetley import JetleyPool
from foveate.pool.pooling import LearnedPool, MeanPool, OwnPool


@runtime_checkable
class Pool(Protocol):
    """What POOL is."""

    def __call__(self, maps: Tensor) -> Tensor:
        """Maps ``[B, C, h, w]`` to vectors ``[B, D]``."""
        ...


__all__ = [
    "LearnedPool",
    "MeanPool",
    "OwnPool",
    "Pool",
    "GAP",
    "AIMPool",
    "AttentionPool",
    "CLSPool",
    "CrossAttention",
    "EPPool",
    "JetleyPool",
]
