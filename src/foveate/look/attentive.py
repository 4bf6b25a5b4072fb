"""LOOK for A² and Glimpse: the CLS attention of a frozen ViT, as it is or corrected by what labels teach."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from foveate.extract.frozen_model import FrozenModel, Models, UsesModel
from foveate.look.adapter import AttentionAdapter
from foveate.look.attention import cls_attention
from foveate.look.attention_path import AttentionPath
from foveate.look.gaze import Gaze
from foveate.parameters import configured


def attended(model: FrozenModel, images: Tensor, layer: int = -1, heads: str = "mean") -> Gaze:
    """Where the CLS token of a frozen ViT looks, for images ``[B, 3, H, W]`` in ``[0, 1]``.

    ``map`` is ``[B, h, w]``, with the shares of attention as ``scores``.
    """
    net = model.backbone.net
    parts = [cls_attention(net, model.prepare(p), layer, heads) for p in images.split(model.at_once)]
    scores = {name: torch.cat([p.scores[name] for p in parts]) for name in parts[0].scores}
    return Gaze(torch.cat([p.map for p in parts]), kind="attention", scores=scores)


@configured
class ClsAttention(UsesModel):
    """Where the CLS token of a frozen ViT looks.

    Args:
        model: a ViT with a class token, by name, or a ready backbone.
        layer: block whose attention is read, -1 is the last.
        heads: how heads are put together: ``"mean"``, ``"max"``, ``"entropy"``, ``"lowest-entropy-k"``.
        size: side of the image the model sees; by default its own, at most 224.

    >>> look = ClsAttention("micro-vit")
    >>> look.open(Models())
    >>> look(torch.rand(2, 3, 64, 64)).map.shape, look.frame
    (torch.Size([2, 8, 8]), 64)
    """

    model: Any = field(default="vit-s-focus", kw_only=False)
    layer: int = -1
    heads: str = "mean"
    size: int | None = None

    def open(self, models: Models) -> None:
        self.model_ = models.open(self.model, self.size)
        # a CNN, a layer that is not there or an unknown aggregation is refused here, before any image is read
        attended(self.model_, torch.zeros(1, 3, self.frame, self.frame), self.layer, self.heads)

    @property
    def frame(self) -> int:
        """Side of the image as it is looked at: the pixels in which crops are counted."""
        return self.model_.size

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Gaze:
        return attended(self.model_, images, self.layer, self.heads)

    def path(self) -> AttentionPath:
        """The same as a fixed graph, from normalised images to maps."""
        return AttentionPath(self.model_.backbone.cpu(), self.layer, self.heads, self.frame)


@configured
class AdaptedAttention(ClsAttention):
    """CLS attention plus a small MLP on the patch tokens, for labels that sit where attention does not look.

    It looks like :class:`ClsAttention` until ``adapter_`` was learned (:func:`~foveate.look.train_adapter`).

    Args:
        model, layer, heads, size: as for :class:`ClsAttention`.
        hidden: hidden units of the MLP.
    """

    hidden: int = 8
    adapter_ = None

    def raw(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Patch tokens ``[B, h * w, D]`` and plain attention ``[B, h, w]``."""
        model = self.model_
        parts = [
            cls_attention(model.backbone.net, model.prepare(p), self.layer, self.heads, return_features=True)
            for p in images.split(model.at_once)
        ]
        attention = torch.cat([p.map for p in parts])
        tokens = torch.cat([p.scores["features"] for p in parts])
        return tokens[:, -attention[0].numel() :], attention

    def adapter(self, dim: int, seed: int) -> AttentionAdapter:
        """A new adapter for tokens of width ``dim``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return AttentionAdapter(dim, self.hidden)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Gaze:
        if self.adapter_ is None:
            return super().__call__(images)
        tokens, attention = self.raw(images)
        adapted = self.adapter_.to(tokens.device)(tokens, attention)
        # a gaze is never negative; a shift of the whole map changes no choice
        shifted = adapted - adapted.amin((1, 2), keepdim=True).clamp(max=0)
        return Gaze(shifted, kind="adapted attention", scores={"default": attention})

    def identity(self) -> dict[str, Any]:
        weights = {} if self.adapter_ is None else {k: v.tolist() for k, v in self.adapter_.state_dict().items()}
        return {**super().identity(), "adapter": weights}

    def tensors(self) -> dict[str, Tensor]:
        assert self.adapter_ is not None
        learned = {f"adapter.{k}": v.detach().cpu().clone() for k, v in self.adapter_.state_dict().items()}
        return {**super().tensors(), **learned}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        weights = {k.removeprefix("adapter."): v for k, v in tensors.items() if k.startswith("adapter.")}
        super().restore(learned, {k: v for k, v in tensors.items() if not k.startswith("adapter.")})
        hidden, dim = weights["mlp.0.weight"].shape
        self.adapter_ = AttentionAdapter(dim, hidden).requires_grad_(False).eval()
        self.adapter_.load_state_dict(weights)
