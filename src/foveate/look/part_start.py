"""Where the prototypes of parts start: on patches that are surely foreground, found without labels."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import ModelError


def split_tokens(
    maps: Tensor, parts: int, seed: int = 0, *, share: float = 0.15, margin: float = 0.15, scores: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Where prototypes may start: ``[parts, D]`` of the foreground and one ``[D]`` of the background, without labels.

    One prototype must stand for all backgrounds, which differ from each other more than from an object, so that
    k-means would tell backgrounds apart. Instead the patches of each image that are most like its border are taken
    as background, those least like it as foreground; or, with ``scores``, the patches with the highest. The foreground
    is clustered in K, and each part's prototype is put where its boundary with the background is Fisher's linear
    discriminant between the two.

    Args:
        maps: patch tokens on their grid, ``[B, D, h, w]``.
        parts: number of foreground parts K.
        seed: of k-means.
        share: how much of an image surely is foreground: the patches least like its border. With ``scores``: the
            fewest patches that hold this share of them.
        margin: how far from the middle, towards the foreground, the boundary of a single part lies (0.5 is on its
            mean). K parts lie as far as it takes to select as many tokens as one part would.
        scores: how much each patch is foreground, ``[B, h, w]``, for instance the attention of the CLS token.
    """
    from sklearn.cluster import KMeans

    tokens = maps.flatten(2).transpose(1, 2).double()  # [B, N, D]
    if scores is None:
        border = torch.ones(maps.shape[-2:], dtype=torch.bool)
        border[1:-1, 1:-1] = False
        around = maps[:, :, border].transpose(1, 2)  # [B, border patches, D]
        ranks = torch.cdist(tokens, around.double()).median(2).values
        surely = torch.arange(tokens.shape[1]).expand(len(maps), -1) < max(round(tokens.shape[1] * share), 1)
    else:
        ranks = scores.flatten(1).double()
        held = ranks.sort(dim=1, descending=True).values.cumsum(1) / ranks.sum(1, keepdim=True).clamp(min=1e-12)
        surely = torch.cat([torch.ones(len(maps), 1, dtype=torch.bool), held[:, :-1] < share], 1)
    order = ranks.argsort(dim=1, descending=True)
    ordered = tokens.gather(1, order[..., None].expand_as(tokens))
    front, back = ordered[surely], ordered[:, -max(tokens.shape[1] // 2, 1) :].flatten(0, 1)
    share = surely.double().mean().item()
    flat, behind = tokens.flatten(0, 1), back.mean(0)

    # one token alone has no spread, and must not make it undefined
    spread = [torch.cov(group.T, correction=0) for group in (front, back)]
    within = spread[0] * share + spread[1] * (1 - share)
    within += 0.01 * within.diagonal().mean().clamp(min=1e-12) * torch.eye(len(within), dtype=within.dtype)

    def astride(centres: Tensor, margin: float) -> Tensor:
        """Prototypes ``[n, D]`` whose boundary with the background separates ``centres`` from it."""
        across = F.normalize(torch.linalg.solve(within, (centres - behind).T).T, dim=1)
        return behind + (1 + 2 * margin) * ((centres - behind) * across).sum(1, keepdim=True) * across

    def selected(starts: Tensor) -> Tensor:
        return torch.cdist(flat, torch.cat([starts, behind[None]])).argmin(1) < len(starts)

    own = flat[selected(astride(front.mean(0, keepdim=True), margin))]
    different = len(np.unique(own.numpy(), axis=0))
    if different < parts:
        raise ModelError(
            f"{parts} parts cannot start on {different} different patches; give more or more varied images, or "
            "fewer parts."
        )
    clusters = torch.from_numpy(KMeans(parts, n_init=4, random_state=seed).fit(own.numpy()).cluster_centers_)
    low, high = margin, 2.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if selected(astride(clusters, middle)).sum() > len(own) else (low, middle)
    return astride(clusters, high).to(maps.dtype), behind.to(maps.dtype)
