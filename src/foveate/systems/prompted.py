"""DECIDE by text prompts: what the zero-shot systems share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.decide.linear import LinearDecision
from foveate.decide.prompts import PromptHead, Prompts, class_texts
from foveate.errors import ModelError
from foveate.extract.clip import PREFIX, Clip, open_clip_model
from foveate.systems.frozen_model import FrozenModel
from foveate.systems.probe import Probe
from foveate.systems.system import Needs

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_CLIP = "open_clip:ViT-B-32/openai"
NO_LABELS = Needs(train="none (class names only)")


class PromptDecision(LinearDecision):
    """A :class:`~foveate.decide.PromptHead` in the form in which a probe keeps its head.

    >>> head = PromptDecision(np.eye(2) * 100)
    >>> head.decision_function([[3.0, 0.0]]).tolist()
    [[100.0, 0.0]]
    """

    def __init__(self, weight: NDArray[np.float64]):
        self.weight_, self.bias_ = weight, np.zeros(len(weight))

    def decision_function(self, features: ArrayLike) -> NDArray[np.float64]:
        x = np.asarray(features, dtype=np.float64)
        return super().decision_function(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


class Prompted(Probe):
    """A probe whose head is text: ``fit`` reads class names, no label and no pixel.

    A subclass sets ``model``, ``prompts`` and ``templates`` beside what its way of looking needs.
    """

    model: str
    prompts: Prompts | None
    templates: Sequence[str]

    def fit(
        self, train: GroupedDataset, target: GroupedDataset | None = None, val: GroupedDataset | None = None
    ) -> Self:
        """Take the class names of ``train`` and embed their prompts; nothing is learned from images or labels."""
        self._check()
        class_texts(train.class_names, self.templates, self.prompts)  # a mismatch is told before models are opened
        if not isinstance(self.model, str) or not self.model.startswith(PREFIX):
            raise ModelError(f"{type(self).__name__} needs a CLIP model, '{PREFIX}ARCH/TAG'; found {self.model!r}.")
        clip = open_clip_model(self.model, self.embed_size)
        self.embedder_ = FrozenModel(clip.visual, clip.preprocess)
        side = self._open(train)
        self.preprocess_ = Preprocess((side, side), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
        self._remember(train)
        self._state_needs("train")
        self._write_prompts(clip)
        self.views_, self.selection_, self.scores_ = (0,), None, []
        self.chosen_ = {"views": "all", "texts": class_texts(train.class_names, self.templates, self.prompts)}
        return self

    def _write_prompts(self, clip: Clip) -> None:
        head = PromptHead(
            self.class_names_, clip.encode_text, templates=self.templates, prompts=self.prompts, scale=clip.scale
        )
        self.head_ = PromptDecision(head.scale * head.weight.double().numpy())

    def _state_needs(self, fitted_on: str) -> None:
        self._fitted_on = fitted_on
        self.needs = NO_LABELS  # type: ignore[misc]

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.head_ = PromptDecision(self.head_.weight_)


def joint_tokens(model: FrozenModel, images: Tensor) -> Tensor:
    """Patch tokens of a CLIP tower in the space of its texts, ``[B, N, D]``, for images in ``[0, 1]``."""
    net: Any = model.backbone.net
    if not hasattr(net, "project"):
        raise ModelError(f"'{model.name}' is no CLIP image tower, so its patches have no place among texts.")
    with torch.no_grad():
        return net.project(net.tokens(model.prepare(images))[:, net.num_prefix_tokens :])
