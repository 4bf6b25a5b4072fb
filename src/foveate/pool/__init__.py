"""Pools: many places to one vector. Each is an ``nn.Module`` from ``[B, C, H, W]`` to ``[B, C]``."""

from foveate.pool.aim import AIMPool
from foveate.pool.attention import CrossAttention
from foveate.pool.dar import AttentionPool
from foveate.pool.ep import EPPool
from foveate.pool.gap import GAP, CLSPool
from foveate.pool.jetley import JetleyPool

__all__ = ["GAP", "AIMPool", "AttentionPool", "CLSPool", "CrossAttention", "EPPool", "JetleyPool"]
