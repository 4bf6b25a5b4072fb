"""Glimpse: a small model looks, a large ViT computes only the tokens it looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError
from foveate.extract import MaskedViT
from foveate.look import Gaze
from foveate.systems.attentive import Attentive
from foveate.systems.frozen_model import Model
from foveate.systems.probe import Probe, Views
from foveate.systems.system import Images, Needs


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


class Glimpse(Attentive, Probe):
    """Keeps the most attended tokens only and runs a frozen ViT on those alone, then a linear head.

    Like A², with tokens in the place of crops: nothing is enlarged, the rest of the image is never computed, and
    positions stay true. With a tenth of the tokens the embedding costs about a tenth.

    Args:
        attention: the model that looks: a ViT with a class token, by name, or a ready backbone.
        embedder: the model that reads: a plain ViT; its patches may be of another size.
        keep: share of the embedder's tokens to keep.
        mass: instead, keep the fewest tokens that hold this share of the attention.
        choose: values to choose from on ``val`` in place of ``keep`` (or of ``mass`` when that is given).
        heads, layer, attention_size: as for :class:`~foveate.systems.a2.A2`.
        options: ``embed_size``, ``head``, ``C``, ``select``, ``store`` and whatever else a
            :class:`~foveate.systems.probe.Probe` takes.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> glimpse = fv.Glimpse(vit, vit, keep=0.25, store=tempfile.mkdtemp()).fit(data.train)
    >>> gaze = glimpse.look([data.test[0].image])
    >>> tuple(gaze.map.shape), int(gaze.mask.sum())
    ((1, 8, 8), 16)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    MODELS: ClassVar[tuple[str, ...]] = ("embedder", "attention")

    def __init__(
        self,
        attention: Model = "vit-s-focus",
        embedder: Model = "vit-s-focus",
        *,
        keep: float = 0.1,
        mass: float | None = None,
        choose: Sequence[float] | None = None,
        heads: str = "mean",
        layer: int = -1,
        attention_size: int | None = None,
        **options: Any,
    ):
        super().__init__(embedder, **options)
        self.attention = attention
        self.keep, self.mass, self.choose = keep, mass, choose
        self.heads, self.layer, self.attention_size = heads, layer, attention_size

    def _shares(self) -> tuple[float, ...]:
        if self.choose is not None:
            return tuple(float(s) for s in self.choose)
        return (float(self.keep if self.mass is None else self.mass),)

    def _check(self) -> None:
        shares = self._shares()
        if not shares or not all(0 < s <= 1 for s in shares):
            what = "tokens" if self.mass is None else "the attention"
            raise FoveateError(f"the share of {what} to keep lies above 0 and up to 1; found {list(shares)}.")

    def _open(self, data: GroupedDataset) -> int:
        MaskedViT(self.embedder_.backbone)  # refuses an embedder whose tokens cannot be left out
        self._open_attention()
        return max(self.embedder_.size, self.attention_.size)

    def _choices(self) -> dict[Any, Views]:
        return {share: (i,) for i, share in enumerate(self._shares())}

    def _recipe(self) -> dict[str, Any]:
        by = "keep" if self.mass is None else "mass"
        return {"restrict": "tokens", "by": by, "shares": self._shares(), **self._attention_recipe()}

    def _gaze(self, images: Tensor) -> Gaze:
        """Attention on the embedder's grid."""
        gaze = self._attend(images)
        grid = MaskedViT(self.embedder_.backbone).grid(torch.empty(1, 3, self.embedder_.size, self.embedder_.size))
        if tuple(gaze.map.shape[1:]) != grid:
            maps = F.interpolate(gaze.map[:, None].float(), grid, mode="bilinear", align_corners=False, antialias=True)
            gaze.map = maps[:, 0].clamp(min=0)
        return gaze

    def _mask(self, maps: Tensor, share: float) -> Tensor:
        return attended_tokens(maps, **{"keep" if self.mass is None else "mass": share})

    @torch.no_grad()
    def _features(self, images: Tensor, views: Views) -> Tensor:
        masked, shares = MaskedViT(self.embedder_.backbone), self._shares()
        maps, inputs = self._gaze(images).map, self.embedder_.prepare(images)
        return torch.stack([masked.features(inputs, self._mask(maps, shares[v]), prune=True) for v in views], dim=1)

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """Attention and the tokens kept by it, both ``[B, h, w]`` on the embedder's grid.

        ``scores["kept"]`` ``[B]`` is the share of the attention on patches that the kept tokens hold.
        """
        gaze = self._gaze(self.inputs(images))
        mask = self._mask(gaze.map, self._shares()[self.views_[0]])
        kept = (gaze.map * mask).sum((1, 2)) / gaze.map.sum((1, 2)).clamp(min=1e-12)
        scores = {name: value.cpu() for name, value in gaze.scores.items()}
        return Gaze(gaze.map.cpu(), kind="attention", mask=mask.cpu(), scores={**scores, "kept": kept.cpu()})
