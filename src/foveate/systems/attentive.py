"""LOOK for A² and Glimpse: the CLS attention of a small frozen ViT."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foveate.look import Gaze
from foveate.systems.frozen_model import FrozenModel, Model


class Attentive:
    """The attention model of a probe: its settings are ``attention``, ``attention_size``, ``heads`` and ``layer``."""

    attention: Model
    attention_size: int | None
    heads: str
    layer: int
    embedder: Model
    batch_size: int
    embedder_: FrozenModel
    attention_: FrozenModel

    def _open_attention(self) -> None:
        """Open the attention model (the embedder itself when it is the same at the same size) and try it."""
        same = self.attention is self.embedder or (isinstance(self.attention, str) and self.attention == self.embedder)
        if same and self.attention_size in (None, self.embedder_.size):
            self.attention_ = self.embedder_
        else:
            self.attention_ = FrozenModel.open(self.attention, self.attention_size)
        # a CNN, a layer that is not there or an unknown aggregation is refused here, before any image is read
        self._attend(torch.zeros(1, 3, self.attention_.size, self.attention_.size))

    def _attend(self, images: Tensor) -> Gaze:
        return self.attention_.attend(images, self.layer, self.heads, self.batch_size)

    def _attention_recipe(self) -> dict[str, Any]:
        return {"attention": self.attention_.identity(), "heads": self.heads, "layer": self.layer}
