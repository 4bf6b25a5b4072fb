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
from foveate.look.attention import aggregate_heads, cls_attention
from foveate.look.gaze import Gaze
from foveate.look.gradcam import gradcam
from foveate.look.part_losses import PartLossWeights, part_losses, weighted_sum
from foveate.look.parts import PartDiscovery, PartOutput
from foveate.look.topk import perturbed_topk
from foveate.look.warp import AffineWarp

__all__ = [
    "AffineWarp", "AttentionAdapter", "Gaze", "PartDiscovery", "PartLossWeights", "PartOutput",
    "aggregate_heads", "bilevel_loss", "candidate_grid", "candidate_scores", "cls_attention", "gradcam",
    "minmax", "mix_embeddings", "part_losses", "perturbed_topk", "unrolled_logistic", "weighted_sum",
]  # fmt: skip
