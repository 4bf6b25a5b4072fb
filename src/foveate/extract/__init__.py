"""EXTRACT: backbones and their features.

An extractor is a part that is called with :class:`Views` and gives a vector of each, or the maps before pooling. It
computes what is let through and nothing else.

>>> import torch
>>> reader = Frozen("micro-vit")
>>> reader.open(Models())
>>> images = torch.rand(2, 3, 64, 64)
>>> tuple(reader(Views(images)).shape), tuple(reader(Views(images), "maps").shape)
((2, 1, 96), (2, 1, 96, 8, 8))
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from foveate.extract.backbone import (
    Backbone,
    BackboneSpec,
    create_backbone,
    freeze,
    list_backbones,
    load_weights,
)
from foveate.extract.extractor import ClipTower, Frozen, Wanted, joint_tokens
from foveate.extract.frozen_model import FrozenModel, Models, resized
from foveate.extract.masked_vit import MaskedViT
from foveate.extract.named import list_named, open_backbone
from foveate.extract.store import FeatureStore
from foveate.extract.views import ReaderShape, Views


@runtime_checkable
class Extract(Protocol):
    """What EXTRACT is."""

    def __call__(self, views: Views, wanted: Wanted = "vectors") -> Tensor:
        """Vectors ``[B, V, D]``, or maps ``[B, V, C, h, w]``, of V views of B images."""
        ...


__all__ = [
    "Backbone",
    "ClipTower",
    "Extract",
    "Frozen",
    "FrozenModel",
    "Models",
    "ReaderShape",
    "Views",
    "joint_tokens",
    "resized",
    "BackboneSpec",
    "FeatureStore",
    "MaskedViT",
    "create_backbone",
    "freeze",
    "list_backbones",
    "list_named",
    "load_weights",
    "open_backbone",
]
