"""EXTRACT as an object: a frozen network that computes what is let through, and nothing else."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import ModelError
from foveate.extract.frozen_model import FrozenModel, Models, UsesModel
from foveate.extract.masked_vit import MaskedViT
from foveate.extract.views import ReaderShape, Views
from foveate.parameters import configured

Wanted = Literal["vectors", "maps"]


@configured
class Frozen(UsesModel):
    """A network that never changes: of every view a vector by its own pooling, or its maps before that.

    Args:
        model: a name (see :func:`~foveate.extract.open_backbone`), a :class:`~foveate.extract.BackboneSpec` or a
            ready :class:`~foveate.extract.Backbone`.
        size: side in pixels of what it sees; by default its own.

    >>> reader = Frozen("micro-vit")
    >>> reader.open(Models())
    >>> tuple(reader(Views(torch.rand(2, 3, 64, 64))).shape)  # two images, one view, 96 features
    (2, 1, 96)
    """

    model: Any = field(default="vit-s-focus", kw_only=False)
    size: int | None = None

    def open(self, models: Models) -> None:
        self.model_ = models.open(self.model, self.size)

    @property
    def shape(self) -> ReaderShape:
        """What a restriction must know of it."""
        net, side = self.model_.backbone, self.model_.size
        try:
            return ReaderShape(side, MaskedViT(net).grid(torch.empty(1, 3, side, side)))
        except ModelError as error:
            reason = str(error)
        if net.is_vit:
            return ReaderShape(side, (side // net.patch, side // net.patch), reason)
        with torch.no_grad():
            height, width = self.model_.maps(torch.zeros(1, 3, side, side)).shape[-2:]
        return ReaderShape(side, (height, width), reason)

    def __call__(self, views: Views, wanted: Wanted = "vectors") -> Tensor:
        """``[B, V, dim]``, or maps ``[B, V, map_dim, h, w]``, zero where hidden."""
        if views.crops is not None:
            return self._crops(views, views.crops, wanted)
        if views.mask is None:
            return self._read(views.images, wanted)[:, None]
        found = [self._masked(views, mask, wanted) for mask in views.mask.unbind(1)]
        return torch.stack(found, dim=1)

    def ready(self, inputs: Tensor, wanted: Wanted = "vectors") -> Tensor:
        """As a call, for whole images that are prepared and normalised for this network: ``[B, ...]``."""
        net = self.model_.backbone
        return net(inputs) if wanted == "vectors" else net.maps(inputs)

    def _read(self, images: Tensor, wanted: Wanted) -> Tensor:
        return self.model_.embed(images) if wanted == "vectors" else self.model_.maps(images)

    def _crops(self, views: Views, crops: Tensor, wanted: Wanted) -> Tensor:
        there = torch.ones(crops.shape[:2], dtype=torch.bool) if views.there is None else views.there
        read = self._read(crops[there] if bool(there.any()) else crops[:1, 0], wanted)
        found = read.new_zeros(*there.shape, *read.shape[1:])
        if bool(there.any()):  # a crop that found no place stays a vector of zeros
            found[there] = read
        if views.of is None:
            return found
        groups = [[i for i, view in enumerate(views.of) if view == v] for v in sorted(set(views.of))]
        return torch.stack([found[:, own].mean(1) for own in groups], dim=1)

    @torch.no_grad()
    def _masked(self, views: Views, mask: Tensor, wanted: Wanted) -> Tensor:
        net, inputs = self.model_.backbone, self.model_.prepare(views.images)
        if views.way == "early":
            masked = MaskedViT(net)
            if wanted == "vectors":
                return masked.features(inputs, mask, prune=True)
            return net.as_grid(masked.tokens(inputs, mask, prune=True), inputs.shape[-2:])
        if views.way == "grey":  # 0 is the mean colour once normalised
            greyed = inputs * F.interpolate(mask[:, None].to(inputs), inputs.shape[-2:])
            return net(greyed) if wanted == "vectors" else net.maps(greyed)
        if wanted == "vectors":
            raise ModelError("a late mask acts on maps, and the network's own pool reads past it; give another pool.")
        maps = self._read(views.images, "maps")
        return maps * mask[:, None].to(maps)


@configured
class ClipTower(Frozen):
    """The image tower of a CLIP model: vectors, and normalised patches, in the space of its texts.

    Args:
        model: an open_clip name, ``"open_clip:ARCH/TAG"``.
        size: side in pixels of what it sees; by default its own.
    """

    model: Any = field(default="open_clip:ViT-B-32/openai", kw_only=False)

    def open(self, models: Models) -> None:
        models.clip(self.model, self.size)
        super().open(models)

    def _read(self, images: Tensor, wanted: Wanted) -> Tensor:
        if wanted == "vectors":
            return super()._read(images, wanted)
        found = []
        for part in images.split(self.model_.at_once):
            tokens = F.normalize(joint_tokens(self.model_, part), dim=-1)
            side = self.model_.size // self.model_.backbone.patch
            found.append(tokens.transpose(1, 2).unflatten(2, (side, -1)))
        return torch.cat(found)


def joint_tokens(model: FrozenModel, images: Tensor) -> Tensor:
    """Patch tokens of a CLIP tower in the space of its texts, ``[B, N, D]``, for images in ``[0, 1]``."""
    net: Any = model.backbone.net
    if not hasattr(net, "project"):
        raise ModelError(f"'{model.name}' is no CLIP image tower, so its patches have no place among texts.")
    with torch.no_grad():
        return net.project(net.tokens(model.prepare(images))[:, net.num_prefix_tokens :])
