"""The seven losses of PDiscoFormer, which make unsupervised part maps look like parts.

Maps A are ``[B, K + 1, h, w]``, the background last. All weights are 1 except background presence, 2.

Reference: Aniraj et al. 2024, "PDiscoFormer", section 3; the same terms train stage 1 of iFAM (arXiv 2506.08915).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import ModelError
from foveate.look.parts import PartOutput


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the mean part scores ``[B, classes]`` (PDiscoFormer, L_c)."""
    return F.cross_entropy(logits, labels)


def orthogonality_loss(vectors: Tensor, *, transposed: bool = False) -> Tensor:
    """Mean of ``(V V^T - I)²`` for the modulated part vectors V of unit length (PDiscoFormer, L_⊥).

    Args:
        vectors: modulated part vectors, ``[B, K + 1, D]``.
        transposed: what the released iFAM trainer does: decorrelate the D channels over the parts, not the parts.

    >>> orthogonality_loss(torch.eye(3)[None]), orthogonality_loss(torch.ones(1, 5, 8))
    (tensor(0.), tensor(0.8000))
    """
    if transposed:
        vectors = vectors.transpose(1, 2)
    unit = F.normalize(vectors, dim=2)
    similarity = unit @ unit.transpose(1, 2)
    return (similarity - torch.eye(similarity.shape[1], device=vectors.device, dtype=vectors.dtype)).square().mean()


def equivariance_loss(maps: Tensor, unwarped: Tensor) -> Tensor:
    """``1 - mean cos(A_k(x), T⁻¹ A_k(T x))`` over images and foreground parts (PDiscoFormer, L_eq).

    Args:
        maps: maps of the images, ``[B, K + 1, h, w]``.
        unwarped: maps of the warped images, warped back (:meth:`foveate.look.AffineWarp.inverse`, by nearest values as
            the authors do), the same shape.

    >>> maps = torch.rand(2, 4, 6, 6)
    >>> bool(equivariance_loss(maps, maps).abs() < 1e-6)
    True
    """
    cosine = F.cosine_similarity(maps[:, :-1].flatten(2), unwarped[:, :-1].flatten(2), dim=2)
    return 1 - cosine.mean()


def total_variation_loss(maps: Tensor) -> Tensor:
    """``1/(B h w) sum |dA/dy| + |dA/dx|`` over all K + 1 maps (PDiscoFormer, L_tv); maps do not divide it.

    >>> top = torch.tensor([1.0, 1.0, 0.0, 0.0])[:, None].expand(4, 4)
    >>> total_variation_loss(torch.stack([top, 1 - top])[None])
    tensor(0.5000)
    """
    batch, _, height, width = maps.shape
    return (maps.diff(dim=2).abs().sum() + maps.diff(dim=3).abs().sum()) / (batch * height * width)


def entropy_loss(maps: Tensor) -> Tensor:
    """Mean over places of ``-sum_k A_k log A_k`` in nats (PDiscoFormer, L_ent).

    >>> entropy_loss(torch.full((1, 5, 4, 4), 0.2))
    tensor(1.6094)
    """
    # the floor keeps the gradient finite where a map is exactly 0
    return -(maps * maps.clamp(min=torch.finfo(maps.dtype).tiny).log()).sum(1).mean()


def _local_means(maps: Tensor) -> Tensor:
    if min(maps.shape[-2:]) < 3:
        raise ModelError(
            f"the presence losses average over 3x3 places, and the part maps are only {maps.shape[-2]}x"
            f"{maps.shape[-1]}. Use larger images or smaller patches."
        )
    return F.avg_pool2d(maps, 3, stride=1)


def foreground_presence_loss(maps: Tensor) -> Tensor:
    """``1 - mean_k max over the batch and places of avgpool3x3(A_k)`` (PDiscoFormer, L_p, foreground).

    A part need be present in one image of the batch only, so the value depends on the batch size (and, on several
    devices, on the batch of each).

    >>> foreground_presence_loss(torch.full((2, 5, 6, 6), 0.2))
    tensor(0.8000)
    """
    return 1 - _local_means(maps[:, :-1]).amax((0, 2, 3)).mean()


def border_weights(height: int, width: int) -> Tensor:
    """``(u² + v²) / max`` with u, v from -1 to 1: 1 in the corners, 0 in the middle, ``[height, width]``.

    >>> border_weights(3, 3)
    tensor([[1.0000, 0.5000, 1.0000],
            [0.5000, 0.0000, 0.5000],
            [1.0000, 0.5000, 1.0000]])
    """
    weights = torch.linspace(-1, 1, height)[:, None].square() + torch.linspace(-1, 1, width)[None].square()
    # a single pooled place has no border: it counts in full
    return weights / weights.max() if height > 1 or width > 1 else torch.ones(1, 1)


def background_presence_loss(maps: Tensor) -> Tensor:
    """``-mean_b log max over places of avgpool3x3(A_bg) * border`` (PDiscoFormer, L_p, background).

    Background must show in every image, near the border. Kept in float32 whatever the precision of the maps; the
    logarithm is cut at 1e-12.

    >>> background_presence_loss(torch.full((2, 5, 6, 6), 0.2))
    tensor(1.6094)
    """
    with torch.autocast(maps.device.type, enabled=False):
        means = _local_means(maps[:, -1:].float())[:, 0]
        strongest = (means * border_weights(*means.shape[1:]).to(means)).amax((1, 2))
        return -strongest.clamp(min=1e-12).log().mean()


@dataclass(frozen=True)
class PartLossWeights:
    """How much each loss counts; the defaults are the papers'."""

    classification: float = 1.0
    orthogonality: float = 1.0
    equivariance: float = 1.0
    total_variation: float = 1.0
    entropy: float = 1.0
    foreground_presence: float = 1.0
    background_presence: float = 2.0


def part_losses(
    output: PartOutput, labels: Tensor, unwarped: Tensor | None = None, *, transposed_orthogonality: bool = False
) -> dict[str, Tensor]:
    """All losses by name, unweighted. Without ``unwarped`` maps there is no equivariance term.

    >>> from foveate.look.parts import PartDiscovery
    >>> out = PartDiscovery(8, parts=2, classes=3)(torch.randn(4, 8, 5, 5))
    >>> losses = part_losses(out, torch.tensor([0, 1, 2, 0]), unwarped=out.maps)
    >>> sorted(losses) == sorted(asdict(PartLossWeights()))
    True
    """
    losses = {
        "classification": classification_loss(output.logits, labels),
        "orthogonality": orthogonality_loss(output.modulated, transposed=transposed_orthogonality),
        "total_variation": total_variation_loss(output.maps),
        "entropy": entropy_loss(output.maps),
        "foreground_presence": foreground_presence_loss(output.maps),
        "background_presence": background_presence_loss(output.maps),
    }
    if unwarped is not None:
        losses["equivariance"] = equivariance_loss(output.maps, unwarped)
    return losses


def weighted_sum(losses: dict[str, Tensor], weights: PartLossWeights | None = None) -> Tensor:
    """The losses of :func:`part_losses` in one number. A loss of weight 0 is left out altogether.

    >>> weighted_sum({"entropy": torch.tensor(1.0), "background_presence": torch.tensor(2.0)})
    tensor(5.)
    """
    by_name = asdict(weights or PartLossWeights())
    counted = [by_name[name] * loss for name, loss in losses.items() if by_name[name] != 0]
    return torch.stack(counted).sum() if counted else torch.zeros(())
