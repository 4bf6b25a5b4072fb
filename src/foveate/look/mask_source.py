"""Masks of what stands out, as a function of the images that is saved with a model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, ModelError
from foveate.extract import Backbone, BackboneSpec, create_backbone, freeze

MaskSource = Callable[[Tensor], Tensor]
"""``source(images uint8 [B, 3, h, w]) -> masks [B, h', w']`` in ``[0, 1]`` (or boolean), 1 on the object."""


class MasksMissing(DataError):
    """True masks are needed and not there."""


def as_bytes(masks: Tensor) -> Tensor:
    """Masks in ``[0, 1]`` (or boolean) as ``uint8``, 255 on the object."""
    return (masks.float().clamp(0, 1) * 255).round().to(torch.uint8)


def masks_from(source: MaskSource, images: Tensor) -> Tensor:
    """What ``source`` gives for ``images uint8 [B, 3, h, w]``, at their size: ``uint8 [B, h, w]``."""
    found = source(images)
    if not isinstance(found, Tensor) or found.ndim != 3 or len(found) != len(images):
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ModelError(f"the mask source must give one mask per image, [{len(images)}, h, w]; got {shape}.")
    found = found.detach().cpu().float()
    if not bool(torch.isfinite(found).all()) or bool(((found < 0) | (found > 1)).any()):
        raise ModelError("the mask source must give values in [0, 1], 1 on the object.")
    if found.shape[-2:] != images.shape[-2:]:
        found = F.interpolate(found[:, None], images.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
    return as_bytes(found)


class SaliencyMasks:
    """Masks of what stands out in an image: a :data:`MaskSource` that is saved with the model.

    Args:
        kind: ``"found"`` (:func:`foveate.look.saliency.found_saliency` on the features of ``backbone``) or
            ``"u2netp"`` (:func:`foveate.look.saliency.u2netp`, which reads its own asset).
        backbone: for ``"found"``: a frozen ViT with trained weights.
        view: how images must reach ``backbone``.
    """

    def __init__(self, kind: str, backbone: Backbone | None = None, view: Preprocess | None = None):
        self.kind = kind
        self.backbone = backbone
        self.view = view

    @classmethod
    def open(cls, kind: str, name: str | None, backbone: Backbone, view: Preprocess, trained: bool) -> SaliencyMasks:
        """For ``"found"``: the ViT called ``name``, or a copy of ``backbone`` when it starts from trained weights."""
        if kind != "found":
            return cls(kind)
        if name is not None:
            from foveate.extract.named import open_backbone

            own, its_view = open_backbone(name)
            freeze(own)
            return cls(kind, own, its_view)
        if not trained:
            raise ModelError(
                f"masks='found' reads the features of a trained ViT, and '{backbone.spec.name}' starts from scratch. "
                "Name one with saliency='vit-s-focus' (or 'micro-vit' for critters), or start from trained weights."
            )
        own = copy.deepcopy(backbone)
        freeze(own)
        return cls(kind, own, view)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """``uint8 [B, 3, h, w] -> [B, h', w']`` in ``[0, 1]``."""
        from foveate.look.saliency import found_saliency, u2netp

        if self.backbone is None or self.view is None:
            return u2netp(images).map
        prepared = torch.stack([self.view.prepare(image) for image in images])
        gaze = found_saliency(self.backbone.net, self.view.normalise(prepared))
        return gaze.map if gaze.mask is None else gaze.mask

    def to_dict(self) -> dict[str, Any]:
        if self.backbone is None or self.view is None:
            return {"kind": self.kind}
        return {"kind": self.kind, "backbone": self.backbone.spec.to_dict(), "view": self.view.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        """The ViT's weights, for saving."""
        return {} if self.backbone is None else {k: v.detach().cpu() for k, v in self.backbone.state_dict().items()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], tensors: dict[str, Tensor]) -> SaliencyMasks:
        if "backbone" not in saved:
            return cls(saved["kind"])
        backbone = create_backbone(BackboneSpec.from_dict(saved["backbone"]))
        backbone.load_state_dict(tensors)
        freeze(backbone)
        return cls(saved["kind"], backbone, Preprocess(**saved["view"]))
