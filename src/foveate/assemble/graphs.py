"""The fixed graphs inside a fitted system: what can leave Python, and what must stay outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from foveate.assemble.parts import Parts
from foveate.errors import ModelError
from foveate.extract import FrozenModel, MaskedViT
from foveate.look import AdaptedAttention, ClsAttention
from foveate.pool import OwnPool
from foveate.restrict import GreedyCrops, TopTokens

NO_GRAPH = (
    "this system has no fixed graph to export: what it computes depends on the image in a way a graph cannot hold. "
    "Save it with save(folder) and run it with foveate predict."
)


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


class CropReader(nn.Module):
    """Embeddings of crops side by side, and the head: ``(crops [B, V, 3, s, s], there [B, V]) -> logits``."""

    def __init__(self, backbone: nn.Module, head: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, crops: Tensor, there: Tensor) -> Tensor:
        embedded = self.backbone(crops.flatten(0, 1)).unflatten(0, (-1, crops.shape[1]))
        return self.head((embedded * there[..., None]).flatten(1))  # a crop that found no place is a vector of zeros


def pipeline_graphs(parts: Parts, views: tuple[int, ...]) -> GraphPlan:
    """The graphs of a pipeline that looks with a ViT's attention and lets crops or tokens through.

    One graph looks, one reads; what lies between them is done by the runner.
    """
    look, restrict, reader = parts.look, parts.restrict, parts.extract.model_
    path = look.path() if isinstance(look, ClsAttention) and not isinstance(look, AdaptedAttention) else None
    if path is None or not isinstance(parts.pool, OwnPool):
        raise ModelError(NO_GRAPH)
    first = Graph("attention", path.eval(), {"images": (3, look.frame, look.frame)}, ("map",))
    steps: dict[str, Any] = {"attention": _view(look.model_), "reader": _view(reader)}
    shapes: dict[str, tuple[int, ...]]
    if isinstance(restrict, GreedyCrops):
        module: nn.Module = CropReader(reader.backbone.cpu(), parts.decide.as_layer()).eval()
        shapes = {"crops": (len(views), 3, reader.size, reader.size), "there": (len(views),)}
        steps |= {
            "kind": "crops", "sizes": list(restrict.all_sizes()[: len(views)]), "frame": restrict.frame_,
            "zoom": restrict.zoom_,
        }  # fmt: skip
        return GraphPlan([first, Graph("reader", module, shapes, ("logits",), frozenset({"there"}))], steps)
    if isinstance(restrict, TopTokens) and restrict.way == "early":
        masked, grid = MaskedViT(reader.backbone.cpu(), parts.decide.as_layer()), parts.extract.shape.grid
        shapes = {"images": (3, reader.size, reader.size), "token_mask": (grid[0] * grid[1],)}
        steps |= {"kind": "tokens", "grid": list(grid), "by": restrict.by, "share": restrict.shares()[views[0]]}
        tokens = Graph("reader", MaskedPath(masked).eval(), shapes, ("logits",), frozenset({"token_mask"}))
        return GraphPlan([first, tokens], steps)
    raise ModelError(NO_GRAPH)


def _view(model: FrozenModel) -> dict[str, Any]:
    return {"size": model.size, "mean": list(model.view.mean), "std": list(model.view.std)}
