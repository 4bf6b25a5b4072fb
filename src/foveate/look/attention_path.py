"""CLS attention as a fixed graph, for export: no hooks, no branches on what an image holds."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.extract.backbone import Backbone
from foveate.look.attention import _cls_row, aggregate_heads


class AttentionPath(nn.Module):
    """CLS attention of a timm ViT without hooks: ``images -> maps [B, h, w]``, as ``fv.look.cls_attention`` gives it.

    >>> import torch
    >>> from foveate.extract import create_backbone
    >>> from foveate.look import cls_attention
    >>> vit, images = create_backbone("micro_vit", image_size=(32, 32)).eval(), torch.rand(2, 3, 32, 32)
    >>> torch.allclose(AttentionPath(vit, -1, "mean", 32)(images), cls_attention(vit.net, images).map, atol=1e-6)
    True
    """

    def __init__(self, backbone: Backbone, layer: int, heads: str, size: int):
        super().__init__()
        net: Any = backbone.net
        if not hasattr(net, "_pos_embed") or not hasattr(net, "blocks"):
            raise ModelError(f"'{backbone.spec.name}' is not a ViT of timm; only the attention of those is exported.")
        self.net, self.heads = net, heads
        self.layer = layer % len(net.blocks)
        self.prefix = int(net.num_prefix_tokens)
        patch_h, patch_w = net.patch_embed.patch_size
        self.grid = (size // patch_h, size // patch_w)

    def forward(self, images: Tensor) -> Tensor:
        embedded = self.net._pos_embed(self.net.patch_embed(images))
        x, rope = embedded if isinstance(embedded, tuple) else (embedded, None)
        x = self.net.norm_pre(x)
        for depth, block in enumerate(self.net.blocks):
            here = rope[depth] if rope is not None and bool(getattr(self.net, "rope_mixed", False)) else rope
            if depth == self.layer:
                row = _cls_row(block.attn, block.norm1(x), here)
                return aggregate_heads(row[..., self.prefix :].unflatten(-1, self.grid), self.heads)
            x = block(x) if here is None else block(x, rope=here)
        raise ModelError("the layer is not there.")
