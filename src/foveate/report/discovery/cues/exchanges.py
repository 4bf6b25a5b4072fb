"""Interventions: one image with one property of another image, everything else kept.

Each function takes recipients and donors, ``float [B, 3, H, W]`` in 0 … 255, with a mask ``[B, H, W]`` each that
covers the object (generously: what is under the mask stays with its image), and gives the recipients with the
donors' property. They are the experiments behind the verdict: a model that does not use a property does not care
whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.measure import fill_object

Intervention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Place = Callable[[int, int], Tensor]
CORNER = 0.2
"""Side of a corner patch as a share of the image's shorter side."""
FRAME = 0.06
"""Width of the border as a share of the shorter side."""
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Cue:
    """A property a model might lean on, and the experiment that exchanges it.

    Attributes:
        key: short name for programs.
        name: how a sentence calls it ("the background").
        exchange: gives recipients the donors' property; None where no experiment is possible.
        place: the region it lives in, ``(height, width) -> bool [H, W]``, for marks at a fixed place; images whose
            object lies there are left out.
    """

    key: str
    name: str
    exchange: Intervention | None = None
    place: Place | None = None


def luminance(images: Tensor) -> Tensor:
    """Mean brightness of every image ``[B, 3, H, W]``: ``[B]``."""
    return (images.mean((2, 3)) * images.new_tensor(_LUMA)).sum(1)


def exchange_background(
    x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor, keep: Sequence[Place] = ()
) -> Tensor:
    """The object of ``x`` in the surroundings of ``donor``, as bright as before.

    Brightness stays because it is a property of its own, tested apart; so do the places in ``keep`` (a corner with a
    mark in it). The place behind the donor's object is filled in from around it.

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
    for place in keep:
        kept = torch.maximum(kept, place(x.shape[-2], x.shape[-1]).to(x)[None])
    return kept[:, None] * x + (1 - kept[:, None]) * plate.clamp(0, 255)


def exchange_brightness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with surroundings as bright as the donor's.

    This and the next two are measured and applied outside the objects: how light or how red an object is may well be
    what makes its class, and a model that reads that must not be accused.
    """
    gain = _light(donor, donor_mask) / _light(x, mask)
    return _outside(x, mask, x * gain.view(-1, 1, 1, 1))


def exchange_colour(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with the colour cast of the donor's surroundings: their mean colour minus their brightness."""
    own = _mean_outside(x, mask) - _light(x, mask)[:, None]
    other = _mean_outside(donor, donor_mask) - _light(donor, donor_mask)[:, None]
    return _outside(x, mask, x + (other - own)[:, :, None, None])


def exchange_sharpness(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """``x`` with as much fine detail in its surroundings as the donor's have."""
    fine = [image - F.avg_pool2d(image, 3, 1, 1, count_include_pad=False) for image in (donor, x)]
    amount = [_mean_outside(f.abs(), m).mean(1) for f, m in zip(fine, (donor_mask, mask), strict=True)]
    gain = (amount[0] / amount[1].clamp(min=1e-3)).clamp(0, 4)
    return _outside(x, mask, x + (gain.view(-1, 1, 1, 1) - 1) * fine[1])


def _mean_outside(images: Tensor, mask: Tensor) -> Tensor:
    """Mean colour where the mask is 0, ``[B, 3]``."""
    outside = (1 - mask)[:, None]
    return (images * outside).sum((2, 3)) / outside.sum((2, 3)).clamp(min=1.0)


def _light(images: Tensor, mask: Tensor) -> Tensor:
    return (_mean_outside(images, mask) * images.new_tensor(_LUMA)).sum(1).clamp(min=1.0)


def _outside(x: Tensor, mask: Tensor, changed: Tensor) -> Tensor:
    return torch.where(mask[:, None] > 0.5, x, changed.clamp(0, 255))


def at_place(place: Place) -> Intervention:
    """The donor's pixels at a fixed place: a corner, the border."""

    def exchange(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return torch.where(place(x.shape[-2], x.shape[-1]).to(x.device), donor, x)

    return exchange


# -- places -----------------------------------------------------------------------------------------


def corner(which: str) -> Place:
    """The region of a corner: ``which`` is two letters, ``t`` or ``b`` and ``l`` or ``r``.

    >>> corner("tr")(5, 5).int().tolist()[0]
    [0, 0, 0, 0, 1]
    """

    def region(height: int, width: int) -> Tensor:
        side = max(1, round(CORNER * min(height, width)))
        out = torch.zeros(height, width, dtype=torch.bool)
        rows = slice(0, side) if which[0] == "t" else slice(height - side, height)
        out[rows, slice(0, side) if which[1] == "l" else slice(width - side, width)] = True
        return out

    return region


def any_corner(height: int, width: int) -> Tensor:
    """All four corners."""
    return torch.stack([corner(which)(height, width) for which in CORNERS]).any(0)


def border(height: int, width: int) -> Tensor:
    """The frame of the picture without its corners."""
    wide = max(1, round(FRAME * min(height, width)))
    out = torch.ones(height, width, dtype=torch.bool)
    out[wide : height - wide, wide : width - wide] = False
    return out & ~any_corner(height, width)


CORNERS = {"tl": "top left", "tr": "top right", "bl": "bottom left", "br": "bottom right"}

CUES: tuple[Cue, ...] = (
    *(Cue(f"corner-{k}", f"something in the {v} corner", at_place(corner(k)), corner(k)) for k, v in CORNERS.items()),
    Cue("border", "the border of the picture", at_place(border), border),
    Cue("brightness", "the brightness", exchange_brightness),
    Cue("sharpness", "the sharpness", exchange_sharpness),
    Cue("colour", "the colour cast", exchange_colour),
    Cue("background", "the background", exchange_background),
)
"""Every property that is tested by experiment, in the order of the tests: what the background holds comes before it."""


def sparing(cue: Cue, places: Sequence[Place]) -> Cue:
    """The background cue with some places left as they are; other cues come back unchanged.

    A place whose own exchange turns answers (a mark in a corner) must not count for the background as well.
    """
    if cue.exchange is not exchange_background or not places:
        return cue
    return replace(cue, exchange=partial(exchange_background, keep=tuple(places)))
