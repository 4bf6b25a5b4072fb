"""LOOK: where to look.

A look is a part that is called with images ``[B, 3, H, W]`` in ``[0, 1]`` and gives a :class:`Gaze`:

>>> import torch
>>> from foveate.extract import Models
>>> look = ClsAttention("micro-vit", heads="max")
>>> look.open(Models())                                    # have its network ready
>>> tuple(look(torch.rand(2, 3, 64, 64)).map.shape)        # one map per image, on the patch grid
(2, 8, 8)
>>> sorted(look.recipe())                                  # settings and the identity of its weights
['heads', 'layer', 'model', 'of', 'part', 'size']
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from foveate.look.adapter import (
    AttentionAdapter,
    bilevel_loss,
    candidate_grid,
    candidate_scores,
    minmax,
    mix_embeddings,
    unrolled_logistic,
)
from foveate.look.adapter_training import AdapterSettings, choose_crops, scaled_grids, train_adapter
from foveate.look.attention import aggregate_heads, cls_attention
from foveate.look.attentive import AdaptedAttention, ClsAttention, attended
from foveate.look.clusters import PatchClusters, cluster_patches
from foveate.look.everywhere import Centre, Everywhere, Truth
from foveate.look.gaze import Gaze
from foveate.look.gradcam import gradcam
from foveate.look.occlusion import occlusion
from foveate.look.parts import PartDiscovery, PartOutput
from foveate.look.saliency import background_seed, background_similarity, found_saliency, u2netp
from foveate.look.topk import perturbed_topk
from foveate.look.warp import AffineWarp


@runtime_checkable
class Look(Protocol):
    """What LOOK is."""

    def __call__(self, images: Tensor) -> Gaze:
        """Images ``[B, 3, H, W]`` in ``[0, 1]`` to maps ``[B, h, w]``, and masks or parts where it has some."""
        ...


__all__ = [
    "AdaptedAttention", "Centre", "ClsAttention", "Everywhere", "Look", "PatchClusters", "Truth", "attended",
    "scaled_grids",
    "AffineWarp", "AttentionAdapter", "Gaze", "PartDiscovery", "PartOutput",
    "aggregate_heads", "background_seed", "background_similarity", "bilevel_loss", "candidate_grid",
    "candidate_scores", "cls_attention", "found_saliency", "gradcam", "minmax", "mix_embeddings", "occlusion",
    "perturbed_topk", "u2netp", "unrolled_logistic",
    "AdapterSettings", "choose_crops", "cluster_patches", "train_adapter",
]  # fmt: skip
