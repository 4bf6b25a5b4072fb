"""A²: a small model looks, a large model reads what it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError
from foveate.look import Gaze
from foveate.restrict import greedy_crops
from foveate.systems.attentive import Attentive
from foveate.systems.crop_probe import CropProbe
from foveate.systems.frozen_model import Model
from foveate.systems.probe import Views
from foveate.systems.system import Images, Needs


class A2(Attentive, CropProbe):
    """Attending on Attention: crops where a small ViT looks, read by a frozen embedder and a linear head.

    1. *Look*: CLS attention of ``attention`` on the image at ``attention_size``.
    2. *Restrict*: the crops that hold most attention, one after the other, without overlap.
    3. *Extract*: each crop, enlarged, through the frozen ``embedder``; the embeddings are concatenated.
    4. *Decide*: logistic regression on ``train``, or with ``head="dfr"`` a group-balanced refit ("DFR + A²").

    No group labels and no training of a network. The pixels outside of the crops can still move the attention.

    Args:
        attention: the model that looks: a ViT with a class token, by name, or a ready backbone.
        embedder: the model that reads: any backbone; independent of ``attention``.
        crops: side of each crop in pixels of the attention image, from large to small. The paper uses
            ``(64,)`` or ``(64, 32)`` of 224.
        heads: how attention heads are put together: ``"mean"``, ``"max"``, ``"entropy"``, ``"lowest-entropy-k"``.
        layer: block whose attention is read, -1 is the last.
        attention_size: side of the image the attention model sees; by default its own, at most 224.
        crop_counts: numbers of crops (the first so many of ``crops``) to choose from on ``val``.
        options: ``source``, ``embed_size``, ``head``, ``C``, ``select``, ``store`` and whatever else a
            :class:`~foveate.systems.probe.Probe` takes.

    Reference: "Attending on Attention", arXiv 2606.03148 (A²_LR). Standardised features and C = 1 are our choice:
    the paper does not give them.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> a2 = fv.A2(vit, vit, crops=(24, 16), store=tempfile.mkdtemp()).fit(data.train)
    >>> a2.predict(data.test).shape, tuple(a2.look([data.test[0].image]).boxes.shape)
    ((16,), (1, 2, 3))
    >>> print(a2.supervision())
    train: labels
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    MODELS: ClassVar[tuple[str, ...]] = ("embedder", "attention")

    def __init__(
        self,
        attention: Model = "vit-s-focus",
        embedder: Model = "vit-s-focus",
        *,
        crops: int | Sequence[int] = (64,),
        heads: str = "mean",
        layer: int = -1,
        attention_size: int | None = None,
        crop_counts: Sequence[int] | None = None,
        **options: Any,
    ):
        super().__init__(embedder, crops=crops, **options)
        self.attention = attention
        self.heads, self.layer, self.attention_size = heads, layer, attention_size
        self.crop_counts = crop_counts

    def _check(self) -> None:
        most = len(self._sizes())
        if self.crop_counts is not None and not (
            len(self.crop_counts) and all(1 <= n <= most and int(n) == n for n in self.crop_counts)
        ):
            raise FoveateError(
                f"crop_counts says how many of the {most} crops to try, each from 1 to {most}; "
                f"found {list(self.crop_counts)}. Name more crops, or smaller counts."
            )

    def _open(self, data: GroupedDataset) -> int:
        self._open_attention()
        return super()._open(data)

    def _frame(self) -> int:
        return self.attention_.size

    def _choices(self) -> dict[Any, Views]:
        if self.crop_counts is None:
            return super()._choices()
        return {int(n): tuple(range(int(n))) for n in self.crop_counts}

    def _recipe(self) -> dict[str, Any]:
        return {**super()._recipe(), **self._attention_recipe()}

    def _place(self, images: Tensor, sizes: Sequence[int]) -> Tensor:
        return self._crops_on(self._attend(images).map, sizes)

    def _crops_on(self, maps: Tensor, sizes: Sequence[int]) -> Tensor:
        """Boxes ``[B, n, 3]`` in pixels of the frame, chosen from maps ``[B, h, w]``."""
        return greedy_crops(maps, sizes, self._frame())

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """Attention, the crops chosen by it, and how much of it they hold.

        ``map`` is ``[B, h, w]``; ``boxes`` ``[B, n, 3]`` in pixels of the image as it is read (``preprocess_``);
        ``scores["crops"]`` ``[B, n]`` the share of the attention on patches in each crop.
        """
        inputs = self.inputs(images)
        gaze = self._attend(inputs)
        placed = self._crops_on(gaze.map, self._sizes()[: len(self.views_)]).cpu()
        gaze.map = gaze.map.cpu()
        pixels = gaze.upsampled((self._frame(), self._frame()))
        pixels = pixels / pixels.sum((1, 2), keepdim=True).clamp(min=1e-12)
        held = [
            [float(p[y : y + s, x : x + s].sum()) if s > 0 else 0.0 for x, y, s in row]
            for p, row in zip(pixels, placed.tolist(), strict=True)
        ]
        gaze.scores = {**{k: v.cpu() for k, v in gaze.scores.items()}, "crops": torch.tensor(held)}
        gaze.boxes = torch.where(placed >= 0, placed * self.zoom_, -1)
        return gaze
