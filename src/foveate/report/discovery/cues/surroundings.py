"""What surrounds the object: the whole background, and its brightness, sharpness and colour.

The last three are measured and exchanged outside the objects: how light or how red an object is may well be what makes
its class, and a model that reads that must not be accused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import fill_object
from foveate.report.discovery.cues.cue import (
    Cue,
    Exchange,
    Glances,
    Region,
    by_image,
    fine_detail,
    luminance,
)

# -- exchanging -----------------------------------------------------------------------------------


def exchange_background(
    x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor, keep: Sequence[Region] = ()
) -> Tensor:
    """The object of ``x`` in the surroundings of ``donor``, as bright as before.

    Brightness stays because it is a property of its own, tested apart; so do the places in ``keep`` (a corner with a
    mark in it). The place behind the donor's object is filled in from around it.

    >>> from foveate.report.discovery.cues.places import corner
    >>> x, d = torch.full((1, 3, 20, 20), 90.0), torch.full((1, 3, 20, 20), 100.0)
    >>> mask = torch.zeros(1, 20, 20)
    >>> mask[:, 5:15, 5:15] = 1.0
    >>> d[:, 0] = 250.0                                    # a red scene; the recipient is grey
    >>> swapped = exchange_background(x, mask, d, mask, keep=[corner("tl")])
    >>> [round(float(swapped[0, c, 3, 8])) for c in range(3)], swapped[0, :, 10, 10].tolist()
    ([155, 62, 62], [90.0, 90.0, 90.0])
    >>> swapped[0, :, 0, 0].tolist()
    [90.0, 90.0, 90.0]
    """
    plate = fill_object(donor, (donor_mask > 0.5).float())
    plate = plate * (_light(x, mask) / _light(plate, mask)).clamp(0.2, 5.0).view(-1, 1, 1, 1)
    kept = mask
    for region in keep:
        kept = torch.maximum(kept, region(x.shape[-2], x.shape[-1]).to(x)[None])
    return kept[:, None] * x + (1 - kept[:, None]) * plate.clamp(0, 255)


def background_sparing(regions: Sequence[Region]) -> Exchange:
    """The exchange of backgrounds that leaves ``regions`` as they are."""
    return partial(exchange_background, keep=tuple(regions))


def exchange_brightness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with surroundings as bright as the donor's."""
    gain = _light(donor, donor_mask) / _light(x, mask)
    return _outside(x, mask, x * gain.view(-1, 1, 1, 1))


def exchange_colour(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with the colour cast of the donor's surroundings: their mean colour minus their brightness."""
    own = _mean_outside(x, mask) - _light(x, mask)[:, None]
    other = _mean_outside(donor, donor_mask) - _light(donor, donor_mask)[:, None]
    return _outside(x, mask, x + (other - own)[:, :, None, None])


def exchange_sharpness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with as much fine detail in its surroundings as the donor's have."""
    fine = [fine_detail(image) for image in (donor, x)]
    amount = [_mean_outside(f.abs(), m).mean(1) for f, m in zip(fine, (donor_mask, mask), strict=True)]
    gain = (amount[0] / amount[1].clamp(min=1e-3)).clamp(0, 4)
    return _outside(x, mask, x + (gain.view(-1, 1, 1, 1) - 1) * fine[1])


def _mean_outside(images: Tensor, mask: Tensor) -> Tensor:
    """Mean colour where the mask is 0, ``[B, 3]``."""
    outside = (1 - mask)[:, None]
    return (images * outside).sum((2, 3)) / outside.sum((2, 3)).clamp(min=1.0)


def _light(images: Tensor, mask: Tensor) -> Tensor:
    return luminance(_mean_outside(images, mask)).clamp(min=1.0)


def _outside(x: Tensor, mask: Tensor, changed: Tensor) -> Tensor:
    return torch.where(mask[:, None] > 0.5, x, changed.clamp(0, 255))


# -- reading --------------------------------------------------------------------------------------


def read_background(seen: Glances) -> NDArray[np.float64]:
    """Plates (the object painted over) by coarse colours and amounts of detail, and as the network sees them."""
    plates = fill_object(seen.small, (seen.masks > 0.5).float())
    fine = fine_detail(plates).abs().mean(1, keepdim=True)
    coarse = F.adaptive_avg_pool2d(plates, 5).flatten(1)
    detail = F.adaptive_avg_pool2d((fine + 1e-3).log() * 10, 5).flatten(1)
    described = [
        coarse, detail, plates.std((2, 3)), plates.mean((2, 3)),
        plates.amax(1).std((1, 2))[:, None], plates.amin(1).std((1, 2))[:, None],
    ]  # fmt: skip
    if seen.surroundings is not None:
        described.append(seen.surroundings)
    return torch.cat([part.double() for part in described], 1).numpy()


def _read_brightness(small: Tensor) -> list[float]:
    return [float(luminance(small.mean((2, 3)))[0]), float(small.mean(1).std())]


def _read_colour(small: Tensor) -> list[float]:
    mean = small.mean((2, 3))
    light = float(luminance(mean)[0])
    spread = small.amax(1) - small.amin(1)
    return [float(mean[0, 0] - light), float(mean[0, 2] - light), float(spread.mean())]


def _read_sharpness(small: Tensor) -> list[float]:
    return [float(fine_detail(small).abs().mean().clamp(min=1e-3).log())]


BACKGROUND = Cue(
    "background", "the background", read_background, exchange_background, needs_objects=True,
    sparing=background_sparing, trial="Put {object} on {theirs}",
)  # fmt: skip
BRIGHTNESS = Cue(
    "brightness", "the brightness", by_image(_read_brightness), exchange_brightness, comparatives=("darker", "brighter")
)
SHARPNESS = Cue(
    "sharpness", "the sharpness", by_image(_read_sharpness), exchange_sharpness, comparatives=("blurrier", "sharper")
)
COLOUR = Cue(
    "colour", "the colour cast", by_image(_read_colour), exchange_colour, part_of="background", aspect="its colour"
)
