"""Masks over patches: early (the ViT never sees what is hidden) and late (its features are masked at the end)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import ModelError


def early_mask(
    source: Tensor,
    grid: tuple[int, int] | None = None,
    *,
    threshold: float = 0.5,
    dropout: float = 0.0,
    soft: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Which patches a masked ViT may see, ``[B, N]``, for :class:`foveate.extract.MaskedViT`.

    From soft part maps ``[B, K + 1, h, w]`` (background last) a patch is kept when its best single part beats the
    background: ``s = 1[max_k y_k > y_bg]``. The value is hard, the gradient that of ``sum_k y_k`` (straight
    through), parts that were dropped excluded (arXiv 2506.08915, stage 2). From a mask ``[B, H, W]`` (truth or
    saliency) a patch is kept when the nearest pixel to its centre exceeds ``threshold``.

    Args:
        source: part maps or masks.
        grid: ``(h, w)`` of the ViT's patches; part maps and masks of another size are resized to it
            (nearest-exact). None keeps the size of ``source``.
        threshold: for masks.
        dropout: chance that a part is hidden in an image, drawn for each image and part; the others keep their
            values. For training with part maps.
        soft: give ``max_k y_k`` itself (or the mask's own values), for ``MaskedViT(..., soft=True)``: the maximum over
            parts, as in the authors' code (github.com/ananthu-aniraj/ifam, utils/misc_utils.py), though the gradient of
            the hard mask is that of the sum.
        generator: for the dropout.

    Returns:
        Part maps give floats that carry the gradient; masks give booleans (floats with ``soft``).

    >>> maps = torch.tensor([0.3, 0.3, 0.4]).view(1, 3, 1, 1)  # two parts together beat the background, neither alone
    >>> early_mask(maps)
    tensor([[0.]])
    >>> early_mask(torch.eye(4)[None], grid=(2, 2))
    tensor([[ True, False, False,  True]])
    """
    if source.ndim == 3:
        values = source.float()[:, None]
        values = F.interpolate(values, grid, mode="nearest-exact") if grid is not None else values
        return values.flatten(1) if soft else values.flatten(1) > threshold
    if source.ndim != 4 or source.shape[1] < 2:
        raise ModelError(
            f"expected part maps [B, K + 1, h, w] with the background last, or masks [B, H, W]; got "
            f"{list(source.shape)}."
        )
    if grid is not None and grid != tuple(source.shape[-2:]):
        source = F.interpolate(source, grid, mode="nearest-exact")
    parts, background = source[:, :-1].flatten(2), source[:, -1].flatten(1)
    if dropout:
        parts = parts * keep_parts(len(parts), parts.shape[1], dropout, generator).to(parts)[..., None]
    strongest = parts.amax(1)
    if soft:
        return strongest.clamp(0, 1)
    return straight_through((strongest > background).to(source.dtype), parts.sum(1))


def keep_parts(batch: int, parts: int, dropout: float, generator: torch.Generator | None = None) -> Tensor:
    """Which parts stay, ``[batch, parts]`` of booleans: each is dropped with probability ``dropout``."""
    if not 0 <= dropout <= 1:
        raise ModelError(f"part dropout is a probability; got {dropout}.")
    return torch.rand(batch, parts, generator=generator) >= dropout


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The values of ``hard``, exactly, with the gradient of ``soft``.

    >>> x = torch.tensor([0.2, 0.7], requires_grad=True)
    >>> y = straight_through((x > 0.5).float(), x * 3)
    >>> y.sum().backward(); (y.tolist(), x.grad.tolist())
    ([0.0, 1.0], [3.0, 3.0])
    """
    # soft - soft is exactly 0, where hard + soft - soft would round
    return hard.detach() + (soft - soft.detach())


def late_mask(features: Tensor, mask: Tensor) -> Tensor:
    """Mean of the masked features over all N patches, ``[B, D]``: the divisor is N, not the size of the mask.

    What is masked has already been read by every other token, so this hides nothing; it is the baseline that early
    masks are measured against.

    Args:
        features: patch tokens at the end of a full ViT (no prefix tokens), ``[B, N, D]``.
        mask: ``[B, N]``, boolean or float.

    >>> late_mask(torch.tensor([[[2.0], [4.0], [6.0], [8.0]]]), torch.tensor([[True, False, False, True]]))
    tensor([[2.5000]])
    """
    if mask.shape != features.shape[:2]:
        raise ModelError(
            f"expected one mask value per patch, {list(features.shape[:2])}; got {list(mask.shape)}. "
            "Leave prefix tokens out and resize masks with early_mask(mask, grid=...)."
        )
    return (features * mask[..., None].to(features.dtype)).mean(1)
