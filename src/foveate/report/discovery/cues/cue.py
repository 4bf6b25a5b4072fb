"""What a cue is: a property of a picture that a model might lean on, with the ways to read it and to exchange it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.gaps import FOUND_GAP, FOUND_LOW

SIDE = 96
"""Images are read with this side (squashed): properties then mean the same for images of all sizes."""
_LUMA = (0.299, 0.587, 0.114)

Exchange = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(recipients, masks, donors, donor masks)`` to the recipients with the donors' property: ``float [B, 3, H, W]`` in
0 … 255, with a mask ``[B, H, W]`` each. The recipients' mask says what is cut out (tightly or generously, as the
experiment asks); the donors' always covers their object generously, so that none of it comes along."""
Region = Callable[[int, int], Tensor]
"""``(height, width)`` to the places a cue lives in, ``bool [H, W]``."""


@dataclass(frozen=True)
class Glances:
    """A few images as cues are read off them.

    Attributes:
        images: ``uint8 [3, H, W]`` each.
        small: the same squashed, ``float [B, 3, SIDE, SIDE]``.
        masks: where the objects are, ``[B, SIDE, SIDE]``, all 0 where nobody knows.
        stored: bytes of each image's file, None for images that are not files.
        surroundings: what a network sees with the objects painted over, ``[B, D]``, where one finds the objects.
    """

    images: Sequence[Tensor]
    small: Tensor
    masks: Tensor
    stored: Sequence[int | None]
    surroundings: Tensor | None = None

    @staticmethod
    def of(
        images: Sequence[Tensor],
        masks: Sequence[Tensor | None] | None = None,
        stored: Sequence[int | None] | None = None,
        surroundings: Tensor | None = None,
    ) -> Glances:
        """Squash the images, and their masks with them."""
        small = [F.interpolate(i[None].float(), (SIDE, SIDE), mode="bilinear", antialias=True) for i in images]
        masks = masks or [None] * len(images)
        covered = [
            torch.zeros(SIDE, SIDE) if m is None else F.interpolate(m[None, None], (SIDE, SIDE), mode="nearest")[0, 0]
            for m in masks
        ]
        return Glances(images, torch.cat(small), torch.stack(covered), stored or [None] * len(images), surroundings)


Read = Callable[[Glances], NDArray[np.float64] | None]
"""Numbers that describe the property in each image, ``[B, d]``; None where it cannot be read."""


@dataclass(frozen=True)
class Cue:
    """A property a model might lean on: what it is called, how it is read, and the experiment that exchanges it.

    A new one is one value of this class in a file of this folder, and its name in the folder's list ``CUES``.

    Attributes:
        key: short name for programs, and in the JSON.
        name: how a sentence calls it ("the background").
        read: describes it in numbers, for the probes; None for a column of the dataset, which is numbers already.
        exchange: gives recipients the donors' property; None where no experiment is possible.
        region: the places it lives in, for marks at a fixed place; images whose object lies there are left out.
        part_of: key of a larger cue that holds this one. Which of the two explains a pull is found out by exchanging
            the part alone and the whole without it (:meth:`without`).
        aspect: what it is of that larger cue ("its colour"), for a sentence. Such a property of the whole picture
            explains a background only if the objects show it as well, by ``measure``: a green meadow is no colour cast.
        measure: ``(images, masks)`` to the property outside the masks ``[B, d]``; None for one that no scene can have.
        family: what a list calls it together with its like ("the corners").
        needs_objects: whether its exchange is worth no more than the masks: guessed ones give a hint at most.
        comparatives: how images with less of it and with more of it are called ("darker", "brighter").
        cuts: whether its exchange cuts the object out, so that a tight and a generous cut may give two answers.
        outlined: whether its exchange measures the objects of both pictures, so that it needs their outlines.
        full_size: whether it is exchanged at the size of the files, before the model's own resizing: a property of the
            encoding does not outlive that.
        within_class: whether it may rightly make the class, so that it is exchanged between images of one class only:
            donors that the model names rightly, and those that it takes for another class.
        searched: whether it was looked for among many looks, so that it has to be surer than what was not.
        receives: which images can be given it, by its numbers ``[n, d]``: a blurred picture cannot be made sharp.
        drawn: which pictures ``[B, 3, H, W]`` show it as a thing of its own, ``bool [B]``; where hardly any does, it is
            a bit of the scene.
        given: whether it is the attribute that the user gave, which the groups test.
        trial: what the exchange does, as the start of a sentence: ``{object}`` gets the cue, ``{theirs}`` is the cue.
        theirs: the cue of another picture in words, ``{donor}``; by default its name "of" that picture.

    >>> Cue("camera", "the camera").exchange is None
    True
    """

    key: str
    name: str
    read: Read | None = field(default=None, compare=False)
    exchange: Exchange | None = field(default=None, compare=False)
    region: Region | None = field(default=None, compare=False)
    part_of: str | None = None
    aspect: str | None = None
    measure: Callable[[Tensor, Tensor], Tensor] | None = field(default=None, compare=False)
    family: str | None = None
    needs_objects: bool = False
    comparatives: tuple[str, str] | None = None
    cuts: bool = False
    outlined: bool = False
    full_size: bool = False
    within_class: bool = False
    searched: bool = False
    receives: Callable[[NDArray[np.float64]], NDArray[np.bool_]] | None = field(default=None, compare=False)
    drawn: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    given: bool = False
    trial: str = "Give {object} picture {theirs}"
    theirs: str = ""

    @property
    def least(self) -> float:
        """What the low end of its pull must reach before it is found: more where many looks were tried."""
        return FOUND_GAP if self.searched else FOUND_LOW

    @property
    def noun(self) -> str:
        """The name without its article, for the name of a group.

        >>> Cue("camera", "the camera").noun
        'camera'
        """
        return self.name.removeprefix("the ")

    def outside(self) -> Cue:
        """The same exchange with the objects left as they are."""
        whole = self.exchange
        if whole is None:
            raise ValueError(f"'{self.key}' cannot be exchanged")
        return replace(self, exchange=_around(whole))

    def without(self, part: Cue) -> Cue:
        """The same exchange with ``part`` given back afterwards: what is left of this cue's pull is not the part's.

        >>> from foveate.report.discovery.cues import BY_KEY
        >>> x, donor, mask = torch.zeros(1, 3, 10, 10), torch.full((1, 3, 10, 10), 200.0), torch.zeros(1, 10, 10)
        >>> rest = BY_KEY["background"].without(BY_KEY["corner-tl"]).exchange(x, mask, donor, mask)
        >>> rest[0, 0, 0, 0].item(), rest[0, 0, 9, 9].item()
        (0.0, 200.0)
        """
        whole, back = self.exchange, part.exchange
        if whole is None or back is None:
            raise ValueError(f"'{self.key}' without '{part.key}': both need an exchange")
        return replace(self, exchange=_without(whole, back))

    def levelled(self, in_: Cue) -> Cue:
        """The same exchange with donors that are first given the recipients' ``in_``: what is left of this cue's pull
        does not come from that.

        >>> from foveate.report.discovery.cues import BY_KEY
        >>> x, donor, mask = torch.full((1, 3, 10, 10), 90.0), torch.full((1, 3, 10, 10), 30.0), torch.zeros(1, 10, 10)
        >>> as_bright = BY_KEY["corner-tl"].levelled(BY_KEY["brightness"]).exchange(x, mask, donor, mask)
        >>> round(as_bright[0, 0, 0, 0].item())
        90
        """
        own, level = self.exchange, in_.exchange
        if own is None or level is None:
            raise ValueError(f"'{self.key}' levelled in '{in_.key}': both need an exchange")
        return replace(self, exchange=_levelled(own, level))


@lru_cache(maxsize=64)  # the same function for every model: pictures are kept by what made them
def _around(whole: Exchange) -> Exchange:
    def around(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return torch.where(mask[:, None] > 0.5, x, whole(x, mask, donor, donor_mask))

    return around


@lru_cache(maxsize=64)
def _without(whole: Exchange, back: Exchange) -> Exchange:
    def rest(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return back(whole(x, mask, donor, donor_mask), mask, x, mask)

    return rest


@lru_cache(maxsize=64)
def _levelled(own: Exchange, level: Exchange) -> Exchange:
    def alike(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
        return own(x, mask, level(donor, donor_mask, x, mask), donor_mask)

    return alike


def by_image(read: Callable[[Tensor], list[float]]) -> Read:
    """A reader of one small image ``float [1, 3, SIDE, SIDE]`` as a reader of many.

    >>> red = by_image(lambda small: [float(small[0, 0].mean())])
    >>> red(Glances.of([torch.full((3, 8, 8), 7, dtype=torch.uint8)])).tolist()
    [[7.0]]
    """

    def of_each(seen: Glances) -> NDArray[np.float64]:
        return np.asarray([read(seen.small[i : i + 1]) for i in range(len(seen.small))], dtype=np.float64)

    return of_each


def finer_half(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of features ``[n, d]`` the images whose first is at the median or above: those that still have detail to lose.

    >>> finer_half(np.array([[1.0], [2.0], [3.0]])).tolist()
    [False, True, True]
    """
    return np.asarray(values[:, 0] >= np.median(values[:, 0]))


def as_pixels(images: Tensor) -> Tensor:
    """``float [B, 3, H, W]`` in 0 … 255 as ``uint8``."""
    return images.round().clamp(0, 255).to(torch.uint8)


def luminance(colours: Tensor) -> Tensor:
    """Brightness of colours ``[B, 3, ...]``: ``[B, ...]``."""
    return (colours * colours.new_tensor(_LUMA).view(3, *[1] * (colours.ndim - 2))).sum(1)


def fine_detail(images: Tensor) -> Tensor:
    """What a small blur takes away, ``[B, 3, H, W]``."""
    return images - blurred(images)


def blurred(images: Tensor) -> Tensor:
    """Means over 3 x 3 pixels ``[..., H, W]``, of those that there are at the border; PyTorch's pooling takes thrice
    the time.

    >>> blurred(torch.tensor([[0.0, 3.0, 6.0]])).tolist()
    [[1.5, 3.0, 4.5]]
    """
    return _of_three(images) / _of_three(images.new_ones(images.shape[-2:]))


def _of_three(values: Tensor) -> Tensor:
    held = F.pad(values, (1, 1, 1, 1))
    rows = held[..., :-2, :] + held[..., 1:-1, :] + held[..., 2:, :]
    return rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
