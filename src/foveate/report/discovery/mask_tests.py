"""Object and background taken apart: what a model still says about each, and what moves its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import CEPAccumulator, donor_permutation, fill_object, swap
from foveate.report.discovery.cues.cue import as_pixels
from foveate.report.discovery.experiments import Sheet

TESTED = 96
"""Most images that are taken apart: the shares are then known to about 10 of 100."""
EDITED_TOGETHER = 32
"""Images edited at a time."""


@dataclass(frozen=True)
class MaskTests:
    """Shares of the images named rightly, as they are and edited.

    Attributes:
        source: where the masks come from, a key of :data:`foveate.report.discovery.objects.SOURCES`.
        images: how many.
        plain: as they are.
        object_only: the background replaced by its own mean colour.
        background_only: the object painted over.
        random_background, same_background: on backgrounds of any image, and of other images of the class.
        bg_gap: the difference of these two (BG-GAP, Xiao et al. 2021).
        cep: share of the change of the logits that the object causes when objects and backgrounds are exchanged (DAR
            paper, equations 1 to 3, by recomposition); None when the model had no answer to any.
        area: share of the picture that the masks cover.
    """

    source: str
    images: int
    plain: float
    object_only: float
    background_only: float
    random_background: float
    same_background: float
    bg_gap: float
    cep: float | None
    area: float


def mask_tests(
    sheet: Sheet,
    logits: Callable[[Tensor], NDArray[np.float32]],
    named: Callable[[NDArray[np.float32]], NDArray[np.int64]],
    *,
    source: str,
    seed: int = 0,
) -> MaskTests | None:
    """Edit every image by its mask and ask the model again; None with fewer than two images.

    Args:
        logits: ``uint8 [B, 3, H, W]`` to the model's scores ``[B, K]``.
        named: scores to the classes they name ``[B]``, negative for none.
        source: where the masks come from.
    """
    sheet = sheet.first(TESTED)
    n = len(sheet)
    if n < 2:
        return None
    rng = np.random.default_rng([seed, 3])
    order = torch.from_numpy(donor_permutation(n, rng))
    mates = _mates(sheet.labels, rng)
    cep = CEPAccumulator("output")
    right: dict[str, list[NDArray[np.bool_]]] = {}
    for start in range(0, n, EDITED_TOGETHER):
        at = slice(start, start + EDITED_TOGETHER)
        x, mask, truth = sheet.images[at].float(), sheet.masks[at].float(), sheet.labels[at]
        outside = (1 - mask)[:, None]
        mean = (x * outside).sum((2, 3), keepdim=True) / outside.sum((2, 3), keepdim=True).clamp(min=1.0)
        donors, donor_masks = sheet.images[order[at]].float(), sheet.masks[order[at]].float()
        core, scene = swap(x, mask, donors, donor_masks)
        mate = mates[at]
        same = swap(x, mask, sheet.images[mate].float(), sheet.masks[mate].float())[1]
        edited = {
            "object_only": mask[:, None] * x + outside * mean,
            "background_only": fill_object(x, mask), "random_background": scene, "same_background": same,
        }  # fmt: skip
        own, moved = logits(as_pixels(x)), {key: logits(as_pixels(value)) for key, value in edited.items()}
        states = (own, logits(as_pixels(core)), moved["random_background"])
        told = np.logical_and.reduce([np.isfinite(state).all(1) for state in states])  # no answer cannot change
        if told.any():
            cep.update(*(torch.from_numpy(state[told]) for state in states))
        for key, scores in {"plain": own, **moved}.items():
            right.setdefault(key, []).append(named(scores) == truth)
    found = {key: float(np.concatenate(values).mean()) for key, values in right.items()}
    return MaskTests(
        source, n, **found, bg_gap=found["same_background"] - found["random_background"],
        cep=float(cep.compute().value) if cep.n else None, area=float(sheet.masks.float().mean()),
    )  # fmt: skip


def _mates(labels: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
    """For every image another one of its class (itself, where it is alone)."""
    out = np.arange(len(labels))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        if len(mine) > 1:
            out[mine] = mine[donor_permutation(len(mine), rng)]
    return torch.from_numpy(out)
