"""EXTRACT: backbones and their features."""

from foveate.extract.backbone import (
    Backbone,
    BackboneSpec,
    create_backbone,
    freeze,
    list_backbones,
    load_weights,
)
from foveate.extract.masked_vit import MaskedViT
from foveate.extract.named import list_named, open_backbone
from foveate.extract.store import FeatureStore

__all__ = [
    "Backbone",
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
