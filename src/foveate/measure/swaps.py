"""Images with another image's core, and with another image's surroundings: the interventions behind CEP.

Reference: the DAR paper, arXiv 2605.20732 (counterfactual halves of dominoes); recomposition with masks is
our extension to images whose core is an object.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.errors import DataError


def donor_permutation(n: int, rng: np.random.Generator | int = 0) -> NDArray[np.int64]:
    """For each of ``n`` images the image to swap with: a uniform permutation in which none keeps its place.

    >>> donor_permutation(4, rng=0)
    array([3, 2, 1, 0])
    """
    if n < 2:
        raise DataError(f"swapping needs at least two images; got {n}.")
    generator = np.random.default_rng(rng)
    while True:  # a random permutation has no fixed point with probability 1/e, so this ends after a few rounds
        order = generator.permutation(n)
        if not (order == np.arange(n)).any():
            return order


def swap(
    images: Tensor,
    core_mask: Tensor,
    donors: Tensor,
    donor_mask: Tensor | None = None,
    *,
    plates: Tensor | None = None,
    donor_plates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``(core swapped, spurious swapped)``: the images with the donors' core, and with the donors'
    surroundings.

    With **one mask for all** (``[H, W]``, such as :func:`~foveate.measure.half_mask` for dominoes) the part
    under the mask trades places; this is exact.

    With **object masks** (``[B, H, W]``, and ``donor_mask`` likewise) the objects trade backgrounds. An image
    is read as ``mask * object + (1 - mask) * plate``, where the plate is the background without the object,
    so

    - core swapped: the donor's object, where it stood in its own image, on the image's plate;
    - spurious swapped: the image's object on the donor's plate.

    With the true plates (composites and drawn images have them) this is exact, soft mask edges included.
    Without them the place behind the object is filled from around it (:func:`fill_object`). Then a
    plate keeps a blur in the shape of the object that was there: shape is not removed completely, and both
    effects contain what the network makes of the blur. Such numbers rank models on the same images; do not
    compare them with exact ones.

    Args:
        images, donors: ``[B, C, H, W]``, uint8 or float, of one size.
        core_mask, donor_mask: 1 on the core, in ``[0, 1]``.
        plates, donor_plates: backgrounds without objects, ``[B, C, H, W]``.

    >>> x = torch.tensor([[[[1.0], [2.0]]], [[[3.0], [4.0]]]])            # two images of 2x1 pixels
    >>> core, spurious = swap(x, torch.tensor([[0.0], [1.0]]), x.flip(0))
    >>> core[0].flatten().tolist(), spurious[0].flatten().tolist()
    ([1.0, 4.0], [3.0, 2.0])
    """
    if images.shape != donors.shape or images.ndim != 4:
        raise DataError(
            f"images and donors must both be [B, C, H, W]; got {tuple(images.shape)}, {tuple(donors.shape)}."
        )
    if core_mask.shape[-2:] != images.shape[-2:]:
        raise DataError(f"the mask {tuple(core_mask.shape)} does not match images of {tuple(images.shape[-2:])}.")
    x, d = images.float(), donors.float()
    if core_mask.ndim == 2:
        m = core_mask.to(x)
        return _as(m * d + (1 - m) * x, images), _as(m * x + (1 - m) * d, images)
    if donor_mask is None or donor_mask.shape != core_mask.shape or len(core_mask) != len(images):
        raise DataError("with one mask per image, give masks and donor_mask of shape [B, H, W].")
    m, dm = core_mask.to(x)[:, None], donor_mask.to(x)[:, None]
    plate = fill_object(x, core_mask) if plates is None else plates.float()
    donor_plate = fill_object(d, donor_mask) if donor_plates is None else donor_plates.float()
    # mask * object is image - (1 - mask) * plate; adding (1 - mask) * other plate puts it on that one.
    return _as(d + (1 - dm) * (plate - donor_plate), images), _as(x + (1 - m) * (donor_plate - plate), images)


def fill_object(images: Tensor, mask: Tensor) -> Tensor:
    """The images with the masked object painted over by a smooth continuation of what surrounds it.

    Pull-push: averages of the known pixels at ever coarser scales, then the finest known value for each hole.
    Pixels with mask 0 stay as they are. An image that is all object becomes its own mean colour.

    Args: ``images`` ``float [B, C, H, W]``; ``mask`` ``[B, H, W]``, 1 on the object.

    >>> image = torch.full((1, 1, 4, 4), 5.0); image[..., 1:3, 1:3] = 9.0
    >>> fill_object(image, (image > 5)[:, 0].float()).unique().tolist()
    [5.0]
    """
    known = (mask == 0).to(images)[:, None]
    # Where nothing at all is known there is nothing to continue.
    known = torch.where(known.amax((2, 3), keepdim=True) > 0, known, 1.0)
    return torch.where(known > 0, images, _pull_push(images * known, known))


def _pull_push(weighted: Tensor, weight: Tensor) -> Tensor:
    """``weighted / weight`` where the weight is positive, a coarser level's value elsewhere."""
    here = weighted / weight.clamp(min=1e-12)
    height, width = weighted.shape[-2:]
    if height == 1 and width == 1:
        return here
    coarse = _pull_push(_halved(weighted), _halved(weight))
    above = F.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)
    return torch.where(weight > 0, here, above)


def _halved(values: Tensor) -> Tensor:
    """Means over 2 x 2 pixels; of two or one at the end of an odd side."""
    height, width = values.shape[-2:]
    if height % 2 or width % 2:
        return F.avg_pool2d(values, (min(2, height), min(2, width)), ceil_mode=True)
    rows = values[..., ::2, :] + values[..., 1::2, :]  # the same as pooling, in a fifth of the time
    return (rows[..., ::2] + rows[..., 1::2]) / 4


def _as(result: Tensor, like: Tensor) -> Tensor:
    """``result`` in the type of ``like``; whole numbers are rounded and kept in range, not wrapped."""
    if like.dtype == torch.uint8:
        return result.round().clamp(0, 255).to(torch.uint8)
    return result.to(like.dtype)
