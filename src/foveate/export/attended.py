"""Systems of two graphs: one looks, one reads. What lies between them (crops, tokens) is done by the runner."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.export.graphs import Graph, GraphPlan, MaskedPath, exports
from foveate.extract import Backbone, FrozenModel, MaskedViT
from foveate.look.attention import _cls_row, aggregate_heads
from foveate.systems.a2 import A2
from foveate.systems.crops_reference import FullImage
from foveate.systems.glimpse import Glimpse


class AttentionPath(nn.Module):
    """CLS attention of a timm ViT without hooks: ``images -> maps [B, h, w]``, as ``fv.look.cls_attention`` gives it.

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


class CropReader(nn.Module):
    """Embeddings of crops side by side, and the head: ``(crops [B, V, 3, s, s], there [B, V]) -> logits``."""

    def __init__(self, backbone: Backbone, head: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, crops: Tensor, there: Tensor) -> Tensor:
        embedded = self.backbone(crops.flatten(0, 1)).unflatten(0, (-1, crops.shape[1]))
        return self.head((embedded * there[..., None]).flatten(1))  # a crop that found no place is a vector of zeros


class FullReader(nn.Module):
    """A backbone and a head on images in ``[0, 1]``; the normalisation is part of the graph."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: FrozenModel, head: nn.Module):
        super().__init__()
        self.backbone, self.head = model.backbone, head
        self.register_buffer("mean", torch.tensor(model.view.mean).view(1, -1, 1, 1), persistent=True)
        self.register_buffer("std", torch.tensor(model.view.std).view(1, -1, 1, 1), persistent=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone((images - self.mean) / self.std))


def _looks(system: A2 | Glimpse) -> Graph:
    model = system.attention_
    path = AttentionPath(model.backbone.cpu(), system.layer, system.heads, model.size).eval()
    return Graph("attention", path, {"images": (3, model.size, model.size)}, ("map",))


def _view(model: FrozenModel) -> dict[str, Any]:
    return {"size": model.size, "mean": list(model.view.mean), "std": list(model.view.std)}


@exports(lambda system: type(system) is A2)
def _a2(system: A2) -> GraphPlan:
    size, views = system.embedder_.size, len(system.views_)
    reader = CropReader(system.embedder_.backbone.cpu(), system.head_.to_linear()).eval()
    shapes: dict[str, tuple[int, ...]] = {"crops": (views, 3, size, size), "there": (views,)}
    steps = {
        "kind": "crops", "sizes": list(system._sizes()[:views]), "frame": system._frame(), "zoom": system.zoom_,
        "attention": _view(system.attention_), "reader": _view(system.embedder_),
    }  # fmt: skip
    return GraphPlan([_looks(system), Graph("reader", reader, shapes, ("logits",), frozenset({"there"}))], steps)


@exports(lambda system: type(system) is Glimpse)
def _glimpse(system: Glimpse) -> GraphPlan:
    size = system.embedder_.size
    masked = MaskedViT(system.embedder_.backbone.cpu(), system.head_.to_linear())
    grid = masked.grid(torch.empty(1, 3, size, size))
    shapes: dict[str, tuple[int, ...]] = {"images": (3, size, size), "token_mask": (grid[0] * grid[1],)}
    reader = Graph("reader", MaskedPath(masked).eval(), shapes, ("logits",), frozenset({"token_mask"}))
    steps = {
        "kind": "tokens", "grid": list(grid), "by": "keep" if system.mass is None else "mass",
        "share": system._shares()[system.views_[0]],
        "attention": _view(system.attention_), "reader": _view(system.embedder_),
    }  # fmt: skip
    return GraphPlan([_looks(system), reader], steps)


@exports(lambda system: type(system) is FullImage)
def _full(system: FullImage) -> GraphPlan:
    model = system.embedder_
    module = FullReader(model, system.head_.to_linear()).cpu().eval()
    return GraphPlan([Graph("model", module, {"images": (3, model.size, model.size)}, ("logits",))])
