"""CLIP image towers of open_clip: classes told in words (zero-shot), or a linear head on the embedding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveate.assemble.network import Network
from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.modules import HeldModule
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.data.preprocess import Preprocess
from foveate.decide.prompts import TEMPLATES, PromptHead, Prompts
from foveate.errors import ModelError
from foveate.extract.backbone import read_state
from foveate.extract.clip import import_open_clip, open_clip_model


def by_clip_name(
    name: str, class_names: Sequence[str] | None, size: tuple[int, int] | None, prompts: Prompts | None,
    head: str | Path | None,
) -> Brought:  # fmt: skip
    """A CLIP model by open_clip name: ``"open_clip:ARCH/TAG"`` or ``"open_clip:ARCH@FILE"``."""
    clip = open_clip_model(name, size)
    if head is not None:
        layer: nn.Module = linear_head(head, clip.visual.dim)
    else:
        layer = _zero_shot(class_names, prompts, clip.encode_text, clip.scale, name)
    return Brought(HeldNetwork(name, Network(clip.visual, layer)), preprocess=clip.preprocess)


def is_clip(model: object) -> bool:
    """Whether an object is a CLIP model of open_clip, with both its towers."""
    return type(model).__module__.startswith("open_clip.") and hasattr(model, "encode_text")


class ClipClassifier(nn.Module):
    """The image tower of a CLIP model and a head, from images to logits."""

    def __init__(self, visual: nn.Module, head: nn.Module):
        super().__init__()
        self.visual, self.head = visual, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.visual(x))


def from_clip(
    model: Any, class_names: Sequence[str] | None, prompts: Prompts | None, head: str | Path | None
) -> Brought:
    """A CLIP model object of open_clip; texts go through the usual tokeniser of that library."""
    library = import_open_clip()
    model.eval()
    side = model.visual.image_size
    size = (side, side) if isinstance(side, int) else (int(side[0]), int(side[1]))
    name = type(model).__name__
    if head is not None:
        with torch.no_grad():
            layer: nn.Module = linear_head(head, int(model.visual(torch.zeros(1, 3, *size)).shape[1]))
    else:
        tokenise = library.SimpleTokenizer(context_length=int(model.context_length))
        scale = float(model.logit_scale.detach().exp().clamp(max=100))
        layer = _zero_shot(class_names, prompts, lambda texts: model.encode_text(tokenise(list(texts))), scale, name)
    told = dict(getattr(model.visual, "preprocess_cfg", None) or {})
    view = Preprocess(
        size, mean=tuple(told.get("mean") or library.OPENAI_DATASET_MEAN),
        std=tuple(told.get("std") or library.OPENAI_DATASET_STD),
    )  # fmt: skip
    return Brought(HeldModule(name, ClipClassifier(model.visual, layer)), preprocess=view)


def _zero_shot(
    class_names: Sequence[str] | None, prompts: Prompts | None, encode: Any, scale: float, name: str
) -> PromptHead:
    if class_names is None:
        raise ModelError(f"{name} knows no classes of its own; name them, and each becomes a text ('{TEMPLATES[0]}').")
    return PromptHead(class_names, encode, prompts=prompts, scale=scale)


def linear_head(file: str | Path, dim: int) -> nn.Linear:
    """The linear layer ``weight [C, dim]`` and ``bias [C]`` in a state dict, whatever stands before these words."""
    state = {key.rpartition(".")[2]: value for key, value in read_state(file).items()}
    weight, bias = state.get("weight"), state.get("bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != dim or (bias is not None and len(bias) != len(weight)):
        found = ", ".join(f"{key} {list(value.shape)}" for key, value in state.items()) or "nothing"
        raise ModelError(f"{file} is no linear head on {dim} numbers (weight [classes, {dim}], bias); found {found}.")
    layer = nn.Linear(dim, len(weight), bias=bias is not None)
    layer.load_state_dict({"weight": weight.float()} | ({} if bias is None else {"bias": bias.float()}))
    return layer
