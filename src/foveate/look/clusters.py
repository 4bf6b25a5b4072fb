"""Patches of one image in a few clusters, without training.

Reference: the patch clustering that TTR uses on CLIP patches: principal components, then k-means.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import FoveateError


def cluster_patches(tokens: Tensor, clusters: int = 3, components: int = 3, iterations: int = 20) -> Tensor:
    """Which cluster every patch of every image belongs to, each image by itself.

    Tokens are centred and brought to their leading principal components; k-means starts from the patch nearest the
    mean and then, one after the other, the patch farthest from those chosen, so the result is the same every time.

    Args:
        tokens: ``[B, N, D]``.
        clusters: how many, at most N.
        components: principal components kept.
        iterations: of k-means, at most.

    Returns:
        ``int64 [B, N]`` with values below ``clusters``.

    >>> cluster_patches(torch.tensor([[[0.0], [0.1], [5.0], [5.1]]]), clusters=2, components=1).tolist()
    [[0, 0, 1, 1]]
    """
    if tokens.ndim != 3 or not 1 <= clusters <= tokens.shape[1]:
        raise FoveateError(f"cannot put patches {tuple(tokens.shape)} into {clusters} clusters; [B, N, D] is expected.")
    points = principal_components(tokens, components)
    centres = _spread_out(points, clusters)
    labels = torch.cdist(points, centres).argmin(2)
    for _ in range(iterations):
        member = F.one_hot(labels, clusters).to(points)  # [B, N, K]
        count = member.sum(1)[..., None]
        # an empty cluster keeps its centre
        centres = torch.where(count > 0, member.transpose(1, 2) @ points / count.clamp(min=1), centres)
        moved = torch.cdist(points, centres).argmin(2)
        if torch.equal(moved, labels):
            break
        labels = moved
    return labels


def principal_components(tokens: Tensor, components: int) -> Tensor:
    """Coordinates ``[B, N, components]`` of tokens ``[B, N, D]`` along their leading directions, image by image.

    >>> line = torch.tensor([[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])
    >>> [round(float(v), 3) for v in principal_components(line, 1).abs().flatten()]
    [1.414, 0.0, 1.414]
    """
    centred = (tokens - tokens.mean(1, keepdim=True)).float()
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    kept = min(components, s.shape[1])
    return u[..., :kept] * s[:, None, :kept]


def _spread_out(points: Tensor, clusters: int) -> Tensor:
    rows = torch.arange(len(points), device=points.device)
    chosen = [points[rows, points.norm(dim=2).argmin(1)]]
    for _ in range(clusters - 1):
        nearest = torch.cdist(points, torch.stack(chosen, 1)).amin(2)
        chosen.append(points[rows, nearest.argmax(1)])
    return torch.stack(chosen, 1)
