"""LOOK: where to look."""

from foveate.look.adapter import (
    AttentionAdapter,
    bilevel_loss,
    candidate_grid,
    candidate_scores,
    minmax,
    mix_embeddings,
    unrolled_logistic,
)
from foveate.look.adapter_training import AdapterSettings, choose_crops, train_adapter
from foveate.look.attention import aggregate_heads, cls_attention
from foveate.look.clusters import cluster_patches
from foveate.look.gaze import Gaze
from foveate.look.gradcam import gradcam
from foveate.look.occlusion import occlusion
from foveate.look.parts import PartDiscovery, PartOutput
from foveate.look.saliency import background_seed, background_similarity, found_saliency, u2netp
from foveate.look.topk import perturbed_topk
from foveate.look.warp import AffineWarp

__all__ = [
    "AffineWarp", "AttentionAdapter", "Gaze", "PartDiscovery", "PartOutput",
    "aggregate_heads", "background_seed", "background_similarity", "bilevel_loss", "candidate_grid",
    "candidate_scores", "cls_attention", "found_saliency", "gradcam", "minmax", "mix_embeddings", "occlusion",
    "perturbed_topk", "u2netp", "unrolled_logistic",
    "AdapterSettings", "choose_crops", "cluster_patches", "train_adapter",
]  # fmt: skip
