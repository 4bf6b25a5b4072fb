"""The fixed graphs inside a fitted system: what can leave Python, and what must stay outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from foveate.extract import MaskedViT


@dataclass
class Graph:
    """One graph of a system: a module whose work does not depend on what it is given.

    Attributes:
        name: of the file.
        module: in evaluation mode, on the CPU.
        inputs: name of every input and the shape of one example, without the batch axis.
        outputs: name of every output.
        bools: the inputs that are boolean (token masks); all others are float32.
    """

    name: str
    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    bools: frozenset[str] = field(default_factory=frozenset)

    def example(self, batch: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
        """Random inputs ``[batch, ...]``, in order."""
        generator = torch.Generator().manual_seed(seed)
        made = []
        for name, shape in self.inputs.items():
            values = torch.randn(batch, *shape, generator=generator)
            made.append(values > 0 if name in self.bools else values)
        return tuple(made)


@dataclass
class GraphPlan:
    """The graphs of a system in the order they run, and what the runner does between them (JSON values)."""

    graphs: list[Graph]
    steps: dict[str, Any] = field(default_factory=dict)


class MaskedPath(nn.Module):
    """A :class:`~foveate.extract.MaskedViT` without branches on what the mask holds: ``(images, mask) -> logits``.

    The boolean path, dense: hidden patches are zero before the first block and unreadable in every block.

    >>> from timm.models.vision_transformer import VisionTransformer
    >>> vit = VisionTransformer(img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=3, num_classes=5)
    >>> masked, images = MaskedViT(vit.eval()), torch.rand(2, 3, 8, 8)
    >>> mask = torch.tensor([[True, False, False, True], [False, False, False, True]])
    >>> torch.allclose(MaskedPath(masked)(images, mask), masked(images, mask), atol=1e-6)
    True
    """

    def __init__(self, masked: MaskedViT):
        super().__init__()
        self.masked = masked

    def forward(self, images: Tensor, token_mask: Tensor) -> Tensor:
        masked = self.masked
        tokens = masked._dense(images, token_mask)
        visible = tokens.keep[:, None, None, :]  # always given: a graph cannot ask whether anything is hidden
        x = tokens.x
        for depth, block in enumerate(masked.vit.blocks):
            rope = {}
            if tokens.rope is not None:
                rope = {"rope": tokens.rope[depth] if masked._mixed_rope else tokens.rope}
            x = block(x, attn_mask=visible, **rope)
        pooled = masked._pool(masked.vit.norm(x), tokens.keep)
        head = masked.vit.head if masked.head is None else masked.head
        return head(pooled)
