"""Patches of one image in a few clusters, without training.

Reference: the patch clustering that TTR uses on CLIP patches: principal components, then k-means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import FoveateError
from foveate.extract.clip import class_embeddings
from foveate.extract.extractor import joint_tokens
from foveate.extract.frozen_model import Models, UsesModel
from foveate.look.gaze import Gaze
from foveate.parameters import configured


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


@configured
class PatchClusters(UsesModel):
    """The one cluster of a CLIP model's patches that a general prompt fits best: the look of TTR.

    Args:
        model: a CLIP model by open_clip name, with a plain ViT image tower.
        general: what every image shows, in words; one text or several.
        clusters, components: of the clustering.
        size: side of the image the tower sees; by default its own.
    """

    model: Any = field(default="open_clip:ViT-B-32/openai", kw_only=False)
    general: str | Sequence[str] = "a photo of an animal."
    clusters: int = 3
    components: int = 3
    size: int | None = None

    def texts(self) -> list[str]:
        """What every image shows, as a list."""
        return [self.general] if isinstance(self.general, str) else list(self.general)

    def check(self) -> None:
        """Raise when the settings do not fit together."""
        if not self.texts() or not all(text.strip() for text in self.texts()):
            raise FoveateError("general is empty; say in words what every image shows, such as 'a photo of a bird.'")

    def open(self, models: Models) -> None:
        clip, texts = models.clip(self.model, self.size), self.texts()
        self.model_ = models.open(self.model, self.size)
        self.general_ = class_embeddings(clip.encode_text(texts), [len(texts)])[0]

    def __call__(self, images: Tensor) -> Gaze:
        """The chosen cluster, as ``map`` and ``mask`` ``[B, h, w]``."""
        kept = torch.cat([self._chosen(part) for part in images.split(self.model_.at_once)])
        grid = kept.unflatten(1, (self.model_.size // self.model_.backbone.patch, -1))
        return Gaze(grid, kind="cluster", mask=grid > 0)

    def _chosen(self, images: Tensor) -> Tensor:
        tokens = joint_tokens(self.model_, images)
        member = F.one_hot(cluster_patches(tokens, self.clusters, self.components), self.clusters).to(tokens)
        means = member.transpose(1, 2) @ F.normalize(tokens, dim=-1)  # sums: only the direction counts
        fit = F.cosine_similarity(means, self.general_.to(means), dim=-1)  # [B, K]
        fit = fit.masked_fill(member.sum(1) == 0, -2.0)
        return member[torch.arange(len(member)), :, fit.argmax(1)]

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "general": self.general_.tolist()}

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "general": self.general_}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.general_ = tensors["general"]
        super().restore(learned, {k: v for k, v in tensors.items() if k != "general"})
