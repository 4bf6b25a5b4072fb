"""A frozen network in one of two roles: it says where to look, or it reads what is let through."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.extract import Backbone, BackboneSpec, create_backbone, freeze
from foveate.extract.backbone import default_preprocess, native_size
from foveate.look import Gaze, cls_attention

Model = str | BackboneSpec | Backbone
"""A model by name, by architecture (random weights), or ready made."""
LARGEST = 224
"""Models made for larger images see 224 px unless told otherwise, as in the A² paper."""


class FrozenModel:
    """A backbone that never changes, with the size and normalisation it wants.

    Every method takes images as float ``[B, 3, H, W]`` in ``[0, 1]``, of any size, on any device.

    >>> from foveate.extract import create_backbone
    >>> model = FrozenModel.open(create_backbone("micro_vit"))
    >>> tuple(model.embed(torch.rand(2, 3, 32, 32)).shape), tuple(model.attend(torch.rand(2, 3, 64, 64)).map.shape)
    ((2, 96), (2, 8, 8))
    """

    def __init__(self, backbone: Backbone, view: Preprocess):
        freeze(backbone)
        self.backbone = backbone
        self.view = view

    @classmethod
    def open(cls, model: Model, size: int | None = None) -> FrozenModel:
        """The model that ``model`` stands for.

        Args:
            model: a name for :func:`~foveate.extract.open_backbone`, a :class:`~foveate.extract.BackboneSpec`, or a
                ready :class:`~foveate.extract.Backbone` (it is copied).
            size: side of the images it will see; by default the one it was built or made for; models of timm made
                for more than 224 px see 224.
        """
        if size is not None and size < 1:
            raise ModelError(f"a model cannot see images of {size} px; give a positive size, or None for its own.")
        if isinstance(model, str):
            from foveate.extract.named import list_named, open_backbone

            if size is None and model not in list_named() and not model.startswith("open_clip:"):
                size = LARGEST if max(native_size(model.partition("@")[0])) > LARGEST else None
            return cls(*open_backbone(model, size))
        if isinstance(model, BackboneSpec):
            side = model.image_size if size is None else (size, size)
            backbone = create_backbone(BackboneSpec(model.name, side, model.small_stem, model.args))
        elif isinstance(model, Backbone):
            backbone = copy.deepcopy(model).cpu()
        else:
            raise ModelError(
                f"expected a model name, a BackboneSpec or a Backbone; found {type(model).__name__}. "
                "For instance 'vit-s-focus', or fv.extract.create_backbone('micro_vit')."
            )
        built = built_for(backbone)
        if size is not None and built is not None and built != (size, size):
            raise ModelError(
                f"'{backbone.spec.name}' was built for images of {built[0]} x {built[1]} px, not for {size}. "
                f"Build it with image_size=({size}, {size}), or leave the size out."
            )
        side = built or ((size, size) if size is not None else backbone.spec.image_size or (LARGEST, LARGEST))
        if side[0] != side[1]:
            raise ModelError(f"'{backbone.spec.name}' was built for {side[0]} x {side[1]} px; build it for a square.")
        return cls(backbone, default_preprocess(backbone, side))

    @property
    def name(self) -> str:
        return self.backbone.spec.name

    @property
    def size(self) -> int:
        """Side of the images it sees."""
        return self.view.size[0]

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.backbone.parameters()), torch.device("cpu"))

    def prepare(self, images: Tensor) -> Tensor:
        """Resized to its size (antialiased where that shrinks) and normalised."""
        images = resized(images.to(self.device), self.size)
        mean, std = (images.new_tensor(v).view(1, -1, 1, 1) for v in (self.view.mean, self.view.std))
        return ((images - mean) / std).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def embed(self, images: Tensor, batch_size: int = 32) -> Tensor:
        """The model's own pooled features (CLS after the final norm, or GAP), ``[B, dim]``."""
        return torch.cat([self.backbone(self.prepare(part)) for part in images.split(batch_size)])

    def attend(self, images: Tensor, layer: int = -1, heads: str = "mean", batch_size: int = 32) -> Gaze:
        """Where its CLS token looks: ``map`` ``[B, h, w]``, with the shares of attention as ``scores``."""
        net = self.backbone.net
        parts = [cls_attention(net, self.prepare(p), layer, heads) for p in images.split(batch_size)]
        scores = {name: torch.cat([p.scores[name] for p in parts]) for name in parts[0].scores}
        return Gaze(torch.cat([p.map for p in parts]), kind="attention", scores=scores)

    def identity(self) -> dict[str, Any]:
        """What its output depends on, for keys of the feature store."""
        return {"weights": self.backbone.weights_hash(), **self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """How to build it again, without its weights."""
        view = {"size": list(self.view.size), "mean": list(self.view.mean), "std": list(self.view.std)}
        return {"backbone": self.backbone.spec.to_dict(), "view": view}

    @classmethod
    def from_dict(cls, values: dict[str, Any], weights: dict[str, Tensor]) -> FrozenModel:
        """The model that :meth:`to_dict` described, with its ``weights``."""
        backbone = create_backbone(BackboneSpec.from_dict(values["backbone"]))
        backbone.load_state_dict(weights)
        return cls(backbone, Preprocess(**values["view"]))


def built_for(backbone: Backbone) -> tuple[int, int] | None:
    """``(height, width)`` of the only images a ViT takes; None for CNNs and ViTs that take any size."""
    stem = getattr(backbone.net, "patch_embed", None)
    built = getattr(stem, "img_size", None)
    if built is None or not getattr(stem, "strict_img_size", True) or getattr(backbone.net, "dynamic_img_size", False):
        return None
    return int(built[0]), int(built[1])


def resized(images: Tensor, size: int, mode: str = "bilinear") -> Tensor:
    """``[B, 3, H, W]`` floats at ``size`` px, antialiased where that shrinks; untouched when they have it already.

    >>> tuple(resized(torch.rand(1, 3, 8, 8), 4).shape)
    (1, 3, 4, 4)
    """
    if images.shape[-2:] == (size, size):
        return images
    shrinks = size < max(images.shape[-2:])  # bicubic with antialiasing is another kernel, also where it enlarges
    return F.interpolate(images, (size, size), mode=mode, align_corners=False, antialias=shrinks).clamp(0, 1)
