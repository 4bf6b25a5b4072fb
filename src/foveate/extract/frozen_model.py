"""A frozen network that says where to look or reads what is let through, and the opener that parts share."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.extract.backbone import (
    Backbone,
    BackboneSpec,
    create_backbone,
    default_preprocess,
    freeze,
    native_size,
    rebuilt,
)
from foveate.extract.clip import PREFIX, Clip, open_clip_model
from foveate.parameters import Part, as_json

Model = "str | BackboneSpec | Backbone | FrozenModel"
"""A model by name, by architecture (random weights), or ready made."""
LARGEST = 224
"""Models made for larger images see 224 px unless told otherwise, as in the A² paper."""


class FrozenModel:
    """A backbone that never changes, with the size and normalisation it wants.

    Every method takes images as float ``[B, 3, H, W]`` in ``[0, 1]``, of any size, on any device.

    >>> from foveate.extract import create_backbone
    >>> model = FrozenModel.open(create_backbone("micro_vit"))
    >>> tuple(model.embed(torch.rand(2, 3, 32, 32)).shape), tuple(model.maps(torch.rand(2, 3, 64, 64)).shape)
    ((2, 96), (2, 96, 8, 8))
    """

    at_once: int = 32
    """Images that go through it at a time."""

    def __init__(self, backbone: Backbone, view: Preprocess):
        freeze(backbone)
        self.backbone = backbone
        self.view = view

    @classmethod
    def open(cls, model: Any, size: int | None = None) -> FrozenModel:
        """The model that ``model`` stands for.

        Args:
            model: a name for :func:`~foveate.extract.open_backbone`, a :class:`~foveate.extract.BackboneSpec`, or a
                ready :class:`~foveate.extract.Backbone` (it is copied), or a fitted or wrapped system that ends in a
                network (its backbone is copied).
            size: side of the images it will see; by default the one it was built or made for; models of timm made
                for more than 224 px see 224.
        """
        if isinstance(model, FrozenModel):
            return model
        if size is not None and (not isinstance(size, int) or size < 1):
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
        elif isinstance(own := getattr(getattr(model, "network_", None), "backbone", None), Backbone):
            return cls._of_system(own, model.preprocess_, size)
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

    @classmethod
    def _of_system(cls, backbone: Backbone, view: Preprocess, size: int | None) -> FrozenModel:
        """The backbone of a fitted or wrapped system, with the images it is used to."""
        if view.size[0] != view.size[1] or size not in (None, view.size[0]):
            raise ModelError(
                f"'{backbone.spec.name}' reads images of {view.size[0]} x {view.size[1]} px; here it would read "
                f"{'a square' if size is None else f'{size} x {size}'}. Wrap it for that size with image_size=..."
            )
        return cls(copy.deepcopy(backbone).cpu(), Preprocess(view.size, mean=view.mean, std=view.std))

    def state_dict(self) -> dict[str, Tensor]:
        """Its weights: what marks it, for copies of settings, as a network that is shared and not copied."""
        return self.backbone.state_dict()

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
        images = resized(images.to(self.device), self.view.size)
        mean, std = (images.new_tensor(v).view(1, -1, 1, 1) for v in (self.view.mean, self.view.std))
        return ((images - mean) / std).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """The model's own pooled features (CLS after the final norm, or GAP), ``[B, dim]``."""
        return torch.cat([self.backbone(self.prepare(part)) for part in images.split(self.at_once)])

    @torch.no_grad()
    def maps(self, images: Tensor) -> Tensor:
        """What lies before the pooling, ``[B, map_dim, h, w]``."""
        return torch.cat([self.backbone.maps(self.prepare(part)) for part in images.split(self.at_once)])

    def identity(self) -> dict[str, Any]:
        """What its output depends on, for keys of the feature store."""
        return {"weights": self.backbone.weights_hash(), **self.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """How to build it again, without its weights."""
        return {"backbone": self.backbone.spec.to_dict(), "view": as_json(self.view.to_dict())}

    def tensors(self) -> dict[str, Tensor]:
        """Its weights, for saving."""
        return {k: v.detach().cpu().clone() for k, v in self.backbone.state_dict().items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], weights: dict[str, Tensor]) -> FrozenModel:
        """The model that :meth:`to_dict` described, with its ``weights``."""
        backbone = rebuilt(values["backbone"])
        backbone.load_state_dict(weights)
        return cls(backbone, Preprocess(**values["view"]))


class UsesModel(Part):
    """A part that holds one frozen model, ``model_``: how it is told apart, written down and had again."""

    model_: FrozenModel

    def identity(self) -> dict[str, Any]:
        return self.model_.identity()

    def learned(self) -> dict[str, Any]:
        return {"model": self.model_.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        return self.model_.tensors()

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.model_ = FrozenModel.from_dict(learned["model"], tensors)


class Models:
    """Opens each model once for all the parts of a pipeline that name it.

    >>> models = Models()
    >>> models.open("micro-vit") is models.open("micro-vit", 64)
    True
    """

    def __init__(self, at_once: int = 32) -> None:
        self.at_once = at_once
        self._opened: list[tuple[Any, FrozenModel]] = []
        self._clips: dict[tuple[str, int | None], Clip] = {}

    def open(self, model: Any, size: int | None = None) -> FrozenModel:
        """The model that ``model`` stands for, see :meth:`FrozenModel.open`; the one opened already, if it fits."""
        for asked, found in self._opened:
            same = asked is model or (isinstance(model, str) and asked == model)
            if same and size in (None, found.size):
                return found
        return self._keep(model, FrozenModel.open(model, size))

    def clip(self, name: Any, size: int | None = None) -> Clip:
        """A CLIP model with both its towers; its image tower is opened by its name from then on."""
        if not isinstance(name, str) or not name.startswith(PREFIX):
            raise ModelError(f"expected a CLIP model, '{PREFIX}ARCH/TAG'; found {name!r}: this needs a CLIP model.")
        if (name, size) not in self._clips:
            clip = self._clips[name, size] = open_clip_model(name, size)
            self._keep(name, FrozenModel(clip.visual, clip.preprocess))
        return self._clips[name, size]

    def _keep(self, model: Any, found: FrozenModel) -> FrozenModel:
        found.at_once = self.at_once
        self._opened.append((model, found))
        return found


def built_for(backbone: Backbone) -> tuple[int, int] | None:
    """``(height, width)`` of the only images a ViT takes; None for CNNs and ViTs that take any size."""
    stem = getattr(backbone.net, "patch_embed", None)
    built = getattr(stem, "img_size", None)
    if built is None or not getattr(stem, "strict_img_size", True) or getattr(backbone.net, "dynamic_img_size", False):
        return None
    return int(built[0]), int(built[1])


def resized(images: Tensor, size: int | tuple[int, int], mode: str = "bilinear", *, overshoot: bool = False) -> Tensor:
    """``[B, 3, H, W]`` floats at ``size`` px, antialiased where that shrinks; untouched when they have it already.

    Bicubic curves run past the values they go through; unless ``overshoot``, what leaves ``[0, 1]`` is cut off.

    >>> tuple(resized(torch.rand(1, 3, 8, 8), 4).shape)
    (1, 3, 4, 4)
    """
    sides = (size, size) if isinstance(size, int) else size
    if images.shape[-2:] == sides:
        return images
    # bicubic with antialiasing is another kernel, also where it enlarges
    shrinks = min(sides) < max(images.shape[-2:])
    large = F.interpolate(images, sides, mode=mode, align_corners=False, antialias=shrinks)
    return large if overshoot else large.clamp(0, 1)
