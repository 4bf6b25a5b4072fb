"""What surrounds the object: the whole background, and how the picture was taken.

Brightness, colour cast, sharpness and vignette are measured outside the objects: how light or how red an object is may
well be what makes its class, and a model that reads that must not be accused. They are given to the whole picture where
the objects share them, as with a camera or a lamp, and else to the surroundings alone (:meth:`Cue.outside`).
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.measure import fill_object
from foveate.report.discovery.cues.cue import Cue, Glances, blurred, fine_detail, finer_half, luminance

# -- exchanging -----------------------------------------------------------------------------------


def exchange_background(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The object of ``x``, cut with a soft edge, on the whole background of ``donor``.

    The place behind the donor's object is filled in from around it. Nothing else is evened out: brightness, colour,
    corners and frame come along, and :meth:`Cue.without` tells what of the pull is theirs.

    >>> x, d = torch.full((1, 3, 20, 20), 90.0), torch.full((1, 3, 20, 20), 30.0)
    >>> mask = torch.zeros(1, 20, 20)
    >>> mask[:, 5:15, 5:15] = 1.0
    >>> d[:, :, 8:12, 8:12] = 255.0                        # the donor's object
    >>> swapped = exchange_background(x, mask, d, mask)
    >>> swapped[0, 0, 10, 10].item(), swapped[0, 0, 0, 0].item(), round(float(swapped[0, 0, 5, 10]))
    (90.0, 30.0, 70)
    """
    plate = fill_object(donor, (donor_mask > 0.5).float())
    alpha = soft(mask)[:, None]
    return alpha * x + (1 - alpha) * plate


def soft(mask: Tensor) -> Tensor:
    """A mask ``[B, H, W]`` with a soft edge on its inner side: nothing from beyond it comes along."""
    on = (mask > 0.5).float()
    return on * blurred(on)


def exchange_brightness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` made as bright as the donor, both measured outside their objects."""
    gain = (_light(donor, donor_mask) / _light(x, mask)).clamp(0.2, 5.0)
    return (x * gain.view(-1, 1, 1, 1)).clamp(0, 255)


def exchange_colour(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with the colour cast of the donor's surroundings: their mean colour minus their brightness."""
    own = _mean_outside(x, mask) - _light(x, mask)[:, None]
    other = _mean_outside(donor, donor_mask) - _light(donor, donor_mask)[:, None]
    return (x + (other - own)[:, :, None, None]).clamp(0, 255)


PATCHES = 6
"""A picture is divided into so many patches a side, to tell detail that is everywhere from detail at a place."""
BLURS = (0.0, 0.5, 0.8, 1.2, 1.8, 2.7)
"""Widths of the blurs that are tried, in pixels."""


def exchange_sharpness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` blurred until its surroundings have as little fine detail as the donor's, or its detail raised."""
    wanted, own = _detail(donor, donor_mask), _detail(x, mask)
    out = x + ((wanted / own).clamp(1, 3).view(-1, 1, 1, 1) - 1) * fine_detail(x)
    best, nearest = x.clone(), (own.log() - wanted.log()).abs()
    open_ = torch.nonzero(wanted <= own).flatten()  # those that a wider blur may still bring nearer
    for width in BLURS[1:]:
        if not len(open_):
            break
        step = gaussian(x[open_], width)
        away = (_detail(step, mask[open_]).log() - wanted[open_].log()).abs()
        nearer = away < nearest[open_]
        best[open_[nearer]], nearest[open_[nearer]] = step[nearer], away[nearer]
        open_ = open_[nearer]
    return torch.where((wanted > own).view(-1, 1, 1, 1), out, best).clamp(0, 255)


def gaussian(images: Tensor, width: float) -> Tensor:
    """``[..., H, W]`` blurred by a Gaussian of ``width`` pixels, the border going on beyond the picture.

    As two products with a matrix: of pictures of a few hundred pixels that takes a fifth of a convolution's time.

    >>> gaussian(torch.tensor([[0.0, 0.0, 9.0, 0.0, 0.0]]), 0.5).round().tolist()
    [[0.0, 1.0, 7.0, 1.0, 0.0]]
    """
    down, across = (_spreading(side, width).to(images) for side in images.shape[-2:])
    return down @ images @ across.T


def _spreading(side: int, width: float) -> Tensor:
    """``[side, side]``: how much of every place goes to every other."""
    reach = int(np.ceil(2.5 * width))
    steps = torch.arange(-reach, reach + 1)
    line = torch.exp(-0.5 * (steps / width) ** 2)
    to = torch.arange(side)[:, None].expand(-1, len(steps))
    of = (to + steps).clamp(0, side - 1)
    found = torch.zeros(side, side)
    return found.index_put_((to, of), (line / line.sum()).expand(side, -1), accumulate=True)


def exchange_vignette(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with the donor's fall of light towards the corners; the middle stays as bright as it is."""
    change = falloff(donor, donor_mask) - falloff(x, mask)
    gain = torch.exp(change.clamp(-3, 3).view(-1, 1, 1) * _radius(*x.shape[-2:]).to(x))
    return (x * gain[:, None]).clamp(0, 255)


def falloff(images: Tensor, mask: Tensor) -> Tensor:
    """How fast light falls from the middle to the corners outside the objects, ``[B]``; 0 is even light.

    The slope of the logarithm of the light over the squared distance from the middle, which is 1 in the corners.

    >>> even = torch.full((1, 3, 40, 40), 120.0)
    >>> dark = even * torch.exp(-1.5 * _radius(40, 40))
    >>> round(float(falloff(dark, torch.zeros(1, 40, 40))), 2)
    -1.5
    """
    light = luminance(images).clamp(min=1.0).log()
    weight = (mask < 0.5).to(images)
    total = weight.sum((1, 2)).clamp(min=1.0)
    reach = _radius(*images.shape[-2:]).to(images)[None]
    centre = (weight * reach).sum((1, 2)) / total
    mean = (weight * light).sum((1, 2)) / total
    away = weight * (reach - centre.view(-1, 1, 1))
    spread = (away * (reach - centre.view(-1, 1, 1))).sum((1, 2))
    return (away * (light - mean.view(-1, 1, 1))).sum((1, 2)) / spread.clamp(min=1e-6)


def _radius(height: int, width: int) -> Tensor:
    """Squared distance from the middle, 1 in the corners, ``[H, W]``."""
    down, across = torch.linspace(-1, 1, height)[:, None], torch.linspace(-1, 1, width)[None]
    return (down**2 + across**2) / 2


def _mean_outside(images: Tensor, mask: Tensor) -> Tensor:
    """Mean colour where the mask is 0, ``[B, 3]``."""
    outside = (1 - mask)[:, None]
    return (images * outside).sum((2, 3)) / outside.sum((2, 3)).clamp(min=1.0)


def _light(images: Tensor, mask: Tensor) -> Tensor:
    return luminance(_mean_outside(images, mask)).clamp(min=1.0)


def _detail(images: Tensor, mask: Tensor) -> Tensor:
    """Fine detail outside the masks, ``[B]``: that of the middling patch, so that a line of letters somewhere, or a
    frame, does not make a picture sharp."""
    fine = fine_detail(images).abs().mean(1, keepdim=True)
    outside = (mask < 0.5).to(images)[:, None]
    free = F.adaptive_avg_pool2d(outside, PATCHES).flatten(1)
    patches = F.adaptive_avg_pool2d(fine * outside, PATCHES).flatten(1) / free.clamp(min=1e-6)
    enough = free >= free.amax(1, keepdim=True).clamp(max=0.5)
    return patches.masked_fill(~enough, float("nan")).nanmedian(1).values.nan_to_num(0.0).clamp(min=1e-2)


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


def measure_brightness(images: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of the light outside the masks, ``[B, 1]``."""
    return _light(images, mask).log()[:, None]


def measure_colour(images: Tensor, mask: Tensor) -> Tensor:
    """Red and blue over the light outside the masks, ``[B, 2]``."""
    mean, light = _mean_outside(images, mask), _light(images, mask)
    return torch.stack([mean[:, 0] - light, mean[:, 2] - light], 1)


def measure_sharpness(images: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of the fine detail outside the masks, ``[B, 1]``."""
    return _detail(images, mask).log()[:, None]


def _read_brightness(seen: Glances) -> NDArray[np.float64]:
    spread = seen.small.mean(1).std((1, 2))[:, None]
    return torch.cat([measure_brightness(seen.small, seen.masks), spread], 1).double().numpy()


def _read_colour(seen: Glances) -> NDArray[np.float64]:
    spread = _mean_outside((seen.small.amax(1) - seen.small.amin(1))[:, None], seen.masks)
    return torch.cat([measure_colour(seen.small, seen.masks), spread], 1).double().numpy()


def _read_sharpness(seen: Glances) -> NDArray[np.float64]:
    return measure_sharpness(seen.small, seen.masks).double().numpy()


def _read_vignette(seen: Glances) -> NDArray[np.float64]:
    rim = F.adaptive_avg_pool2d(seen.small.mean(1, keepdim=True), 6).flatten(1)
    corners = rim[:, [0, 5, 30, 35]].mean(1) / rim[:, [14, 15, 20, 21]].mean(1).clamp(min=1.0)
    return torch.stack([falloff(seen.small, seen.masks), corners], 1).double().numpy()


BACKGROUND = Cue(
    "background", "the background", read_background, exchange_background, needs_objects=True, cuts=True,
    trial="Put {object} on {theirs}",
)  # fmt: skip
BRIGHTNESS = Cue(
    "brightness", "the brightness", _read_brightness, exchange_brightness, part_of="background",
    aspect="its brightness", measure=measure_brightness, comparatives=("darker", "brighter"),
)  # fmt: skip
SHARPNESS = Cue(
    "sharpness", "the sharpness", _read_sharpness, exchange_sharpness, part_of="background", aspect="its sharpness",
    measure=measure_sharpness,
    receives=finer_half, comparatives=("blurrier", "sharper"),
)  # fmt: skip
COLOUR = Cue(
    "colour", "the colour cast", _read_colour, exchange_colour, part_of="background", aspect="its colour",
    measure=measure_colour,
)  # fmt: skip
VIGNETTE = Cue(
    "vignette", "the fall of light towards the corners", _read_vignette, exchange_vignette, part_of="background",
    aspect="its fall of light",
)  # fmt: skip
