"""The logits in whatever a model gives: a tensor, an array, a mapping, a tuple, an object with ``.logits``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveate.errors import ModelError

KEYS = ("logits", "out", "scores", "output")
"""Names under which classifiers that give a mapping keep their logits."""


def logits_in(found: Any, name: str = "the model") -> Tensor:
    """The one tensor ``[B, C]`` in what a model gave; ``[B]`` (one logit per image) becomes ``[B, 1]``.

    >>> logits_in({"logits": torch.zeros(2, 3), "features": torch.zeros(2, 8)}).shape
    torch.Size([2, 3])
    >>> logits_in((torch.zeros(2, 3), torch.zeros(2, 4, 4, 4))).shape
    torch.Size([2, 3])
    >>> logits_in({"a": torch.zeros(2, 3), "b": torch.zeros(2, 8)})
    Traceback (most recent call last):
    foveate.errors.ModelError: the model gives several tensors that could be logits...
    """
    if isinstance(found, (Tensor, np.ndarray)):
        return _columns(found, name)
    if isinstance(getattr(found, "logits", None), Tensor):
        return _columns(found.logits, name)
    if isinstance(found, Mapping):
        for key in KEYS:
            if isinstance(found.get(key), (Tensor, np.ndarray)):
                return _columns(found[key], name)
        several = {str(k): v for k, v in found.items()}
    elif isinstance(found, (list, tuple)):
        if found and all(isinstance(row, (list, tuple, float, int)) for row in found):
            return _columns(np.asarray(found), name)
        several = {str(i): v for i, v in enumerate(found)}
    else:
        raise ModelError(
            f"{name} gives {type(found).__name__}, in which there are no logits to be found. Give a function around it "
            "that returns logits [batch, classes]."
        )
    flat = {k: v for k, v in several.items() if isinstance(v, (Tensor, np.ndarray)) and v.ndim == 2}
    if len(flat) != 1:
        shapes = ", ".join(f"{k}: {list(v.shape) if hasattr(v, 'shape') else type(v).__name__}" for k, v in
                           several.items())  # fmt: skip
        which = "several tensors that could be logits" if flat else "no tensor that could be logits"
        raise ModelError(
            f"{name} gives {which} ({shapes}). Give a function around it that returns logits [batch, classes]."
        )
    return _columns(next(iter(flat.values())), name)


def _columns(found: Any, name: str) -> Tensor:
    scores = found if isinstance(found, Tensor) else torch.as_tensor(found)
    if scores.ndim == 4 and scores.shape[2:] == (1, 1):
        scores = scores.flatten(1)
    if scores.ndim == 1:
        scores = scores[:, None]
    if scores.ndim != 2 or scores.dtype == torch.bool or scores.is_complex():
        raise ModelError(
            f"{name} gives {list(scores.shape)} of {str(scores.dtype).removeprefix('torch.')}; expected logits "
            "[batch, classes]."
        )
    return scores


def two_classes(scores: Tensor) -> Tensor:
    """One logit an image ``[B, 1]`` for the second of two classes as two ``[B, 2]``: the softmax is its sigmoid.

    >>> two_classes(torch.tensor([[3.0]])).softmax(1)[0, 1] == torch.tensor(3.0).sigmoid()
    tensor(True)
    """
    return torch.cat([torch.zeros_like(scores), scores], dim=1)


def checked(scores: Tensor, images: int, class_names: list[str], name: str) -> Tensor:
    """Logits ``[images, classes]`` as float; one column for two classes is understood as that of the second."""
    if len(class_names) == 2 and tuple(scores.shape) == (images, 1):
        scores = two_classes(scores)
    expected = (images, len(class_names))
    if tuple(scores.shape) != expected:
        raise ModelError(
            f"{name} gave {tuple(scores.shape)} for {images} images; expected logits {expected}, one "
            f"column for each of the classes {', '.join(class_names[:6])}. Give the class names in the "
            "order of its outputs."
        )
    return scores.float()
