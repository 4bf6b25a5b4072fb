"""Patches as a restriction: the most attended ones, or a cluster; and the image at several scales as tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError, ModelError
from foveate.extract.frozen_model import resized
from foveate.extract.views import ReaderShape, Views, Way
from foveate.look.gaze import Gaze
from foveate.parameters import configured
from foveate.restrict.restriction import Chosen, Restriction, on_grid


def attended_tokens(maps: Tensor, keep: float | None = None, mass: float | None = None) -> Tensor:
    """The most attended tokens: a share of all tokens, or the fewest that hold a share of the attention.

    Args:
        maps: ``[B, h, w]``, non-negative.
        keep: share of the tokens, in ``(0, 1]``: the ``ceil(keep * h * w)`` largest.
        mass: instead of ``keep``, share of the attention, in ``(0, 1]``; at least one token.

    Returns:
        ``bool [B, h, w]``; among equal values the first in raster order.

    >>> maps = torch.tensor([[[0.1, 0.4], [0.2, 0.3]]])
    >>> attended_tokens(maps, keep=0.5).int().tolist()
    [[[0, 1], [0, 1]]]
    >>> attended_tokens(maps, mass=0.75).int().tolist()
    [[[0, 1], [1, 1]]]
    """
    share = keep if mass is None else mass
    if (keep is None) == (mass is None) or share is None or not 0 < share <= 1:
        raise FoveateError(
            f"tokens are kept by a share of their number or of the attention, one of the two, above 0 and up to 1; "
            f"found keep={keep}, mass={mass}."
        )
    flat = maps.flatten(1).double()
    ordered, order = flat.sort(dim=1, descending=True, stable=True)
    if mass is None:
        # 0.1 * 260 is 26.000000000000004 in floating point; the ceiling must not see that
        wanted = torch.full((len(flat), 1), math.ceil(round(share * flat.shape[1], 9)), device=flat.device)
    else:
        reached = ordered.cumsum(1) >= (share - 1e-9) * ordered.sum(1, keepdim=True)
        wanted = reached.long().argmax(1, keepdim=True) + 1
    chosen = torch.arange(flat.shape[1], device=flat.device) < wanted
    return torch.zeros_like(chosen).scatter(1, order, chosen).reshape(maps.shape)


@configured
class TopTokens(Restriction):
    """The most attended patches: the rest is never computed (``"early"``), or hidden at the end (``"late"``).

    Args:
        keep: share of the reader's tokens to keep.
        mass: instead, keep the fewest tokens that hold this share of the attention.
        choose: values to choose from on ``val`` in place of ``keep`` (or of ``mass`` when that is given).
        way: ``"early"`` (a plain ViT reads the kept tokens alone) or ``"late"`` (maps are zero where hidden).

    >>> gaze = Gaze(torch.tensor([[[0.1, 0.4], [0.2, 0.3]]]))
    >>> views = TopTokens(keep=0.25)(torch.rand(1, 3, 8, 8), gaze, ReaderShape(8, (2, 2)), (0,))
    >>> views.mask.int().tolist()
    [[[[0, 1], [0, 0]]]]
    """

    keep: float = field(default=0.1, kw_only=False)
    mass: float | None = None
    choose: Sequence[float] | None = None
    way: Way = "early"

    @property
    def by(self) -> str:
        """What the share is of: the tokens' number (``"keep"``) or their attention (``"mass"``)."""
        return "keep" if self.mass is None else "mass"

    def shares(self) -> tuple[float, ...]:
        """The shares to choose from."""
        given = self.choose if self.choose is not None else (self.keep if self.mass is None else self.mass,)
        return tuple(float(share) for share in given)

    def check(self) -> None:
        """Raise when the settings do not fit together."""
        shares = self.shares()
        if not shares or not all(0 < s <= 1 for s in shares):
            what = "tokens" if self.mass is None else "the attention"
            raise FoveateError(f"the share of {what} to keep lies above 0 and up to 1; found {list(shares)}.")

    def fit(self, data: GroupedDataset, frame: int | None, reader: ReaderShape) -> int:
        self.check()
        if self.way == "early" and reader.no_tokens:
            raise ModelError(reader.no_tokens)
        return super().fit(data, frame, reader)

    def choices(self) -> dict[Any, Chosen]:
        return {share: (i,) for i, share in enumerate(self.shares())}

    def recipe(self) -> dict[str, Any]:
        return {"part": type(self).__name__, "by": self.by, "shares": self.shares(), "way": self.way}

    def kept(self, maps: Tensor, view: int) -> Tensor:
        """The tokens of one view, ``bool [B, h, w]``, by maps on the reader's grid."""
        return attended_tokens(maps, **{self.by: self.shares()[view]})

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        maps = on_grid(gaze.map, reader.grid)
        return Views(images[:, :3], mask=torch.stack([self.kept(maps, v) for v in views], dim=1), way=self.way)

    def shown(self, gaze: Gaze, images: Tensor, reader: ReaderShape, views: Chosen) -> Gaze:
        """Map and ``mask`` ``[B, h, w]`` on the reader's grid; ``scores["kept"]`` ``[B]`` is the share of the map on
        the kept tokens."""
        maps = on_grid(gaze.map, reader.grid)
        mask = self.kept(maps, views[0])
        held = (maps * mask).sum((1, 2)) / maps.sum((1, 2)).clamp(min=1e-12)
        scores = {name: value.cpu() for name, value in gaze.scores.items()}
        return Gaze(maps.cpu(), kind=gaze.kind, mask=mask.cpu(), scores={**scores, "kept": held.cpu()})


@configured
class MaskedTokens(Restriction):
    """The patches of the gaze's own mask: a cluster, a saliency mask, parts.

    Args:
        way: ``"early"``, ``"late"`` or ``"grey"``; see :class:`~foveate.extract.Views`.
    """

    way: Way = field(default="early", kw_only=False)

    def fit(self, data: GroupedDataset, frame: int | None, reader: ReaderShape) -> int:
        if self.way == "early" and reader.no_tokens:
            raise ModelError(reader.no_tokens)
        return super().fit(data, frame, reader)

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        if gaze.mask is None:
            raise FoveateError(f"the look ({gaze.kind}) gives no mask; restrict by its map, with TopTokens.")
        mask = gaze.mask
        if self.way != "grey" and tuple(mask.shape[1:]) != reader.grid:
            mask = on_grid(mask.float(), reader.grid) > 0.5
        return Views(images[:, :3], mask=mask[:, None], way=self.way)


@configured
class Tiles(Restriction):
    """The image at several scales, each cut into tiles of the reader's size; those of one scale are averaged (S²).

    Args:
        scales: whole numbers; scale k is the image enlarged k times (bicubic, overshoot kept) and cut into k x k tiles.
    """

    scales: Sequence[int] = field(default=(1, 2), kw_only=False)

    def check(self) -> None:
        """Raise when the settings do not fit together."""
        if not len(self.scales) or any(int(k) != k or k < 1 for k in self.scales):
            raise FoveateError(f"scales are whole numbers from 1 up, for instance (1, 2); found {list(self.scales)}.")

    def fit(self, data: GroupedDataset, frame: int | None, reader: ReaderShape) -> int:
        self.check()
        return super().fit(data, frame, reader)

    def identity(self) -> dict[str, Any]:
        return {"overshoot": "kept"}  # features made when it was cut off are others

    def choices(self) -> dict[Any, Chosen]:
        return {"all": tuple(range(len(self.scales)))}

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        cut, of = [], []
        for view in views:
            k = int(self.scales[view])
            large = resized(images[:, :3], k * reader.size, mode="bicubic", overshoot=True)
            cut.append(tiles(large, k))
            of += [view] * k * k
        return Views(images, crops=torch.cat(cut, dim=1), of=tuple(of))


def tiles(images: Tensor, k: int) -> Tensor:
    """``[B, C, k * h, k * w]`` cut into k x k tiles in raster order: ``[B, k * k, C, h, w]``.

    >>> tiles(torch.arange(16).reshape(1, 1, 4, 4), 2)[0, :, 0, 0, 0].tolist()
    [0, 2, 8, 10]
    """
    b, c, height, width = images.shape
    cut = images.reshape(b, c, k, height // k, k, width // k)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(b, k * k, c, height // k, width // k)
