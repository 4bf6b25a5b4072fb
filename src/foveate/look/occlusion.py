"""Occlusion: where hiding a piece of the image takes away the answer. Needs outputs only, no gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from foveate.look.gaze import Gaze


@torch.no_grad()
def occlusion(
    logits: Callable[[Tensor], Tensor],
    inputs: Tensor,
    classes: Tensor | None = None,
    *,
    grid: int = 7,
    batch_size: int = 64,
) -> Gaze:
    """How much the probability of ``classes`` falls when each cell of a ``grid x grid`` raster is painted grey.

    For models that can only be asked, not looked into: an ONNX file, a service, a callable. It costs
    ``grid ** 2 + 1`` predictions an image.

    Args:
        logits: maps normalised images ``[B, 3, H, W]`` to logits ``[B, C]``.
        inputs: normalised images ``[B, 3, H, W]``; 0, the mean colour, is what hides a cell.
        classes: class index for every image, ``[B]``; by default the predicted ones.

    Returns:
        A gaze whose ``map`` ``[B, grid, grid]`` is the fall of the probability, 0 where it did not fall.

    Reference: Zeiler and Fergus 2014, "Visualizing and understanding convolutional networks", section 4.2.

    >>> def corner(x):                                       # reads the top left pixel and nothing else
    ...     return torch.stack([x[:, 0, 0, 0], -x[:, 0, 0, 0]], 1)
    >>> occlusion(corner, torch.ones(1, 3, 4, 4), grid=2).map[0].gt(0).tolist()
    [[True, False], [False, False]]
    """
    n, _, height, width = inputs.shape
    grid = max(1, min(grid, height, width))
    plain = torch.cat([logits(inputs[i : i + batch_size]).float().cpu() for i in range(0, n, batch_size)])
    chosen = plain.argmax(1) if classes is None else classes.cpu()
    before = plain.softmax(1)[torch.arange(n), chosen]
    heat = torch.zeros(n, grid, grid)
    rows = [round(i * height / grid) for i in range(grid + 1)]
    columns = [round(i * width / grid) for i in range(grid + 1)]
    for y in range(grid):
        for x in range(grid):
            hidden = inputs.clone()
            hidden[:, :, rows[y] : rows[y + 1], columns[x] : columns[x + 1]] = 0.0
            parts = [logits(hidden[i : i + batch_size]).float().cpu() for i in range(0, n, batch_size)]
            heat[:, y, x] = before - torch.cat(parts).softmax(1)[torch.arange(n), chosen]
    # no answer, no reason for it: an empty map
    return Gaze(heat.nan_to_num(0.0).clamp(min=0), kind="occlusion", scores={"class": chosen, "logits": plain})
