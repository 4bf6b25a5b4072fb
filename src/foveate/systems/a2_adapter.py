"""A² with an adapter: attention learns to look where the label is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.decide import reweight
from foveate.errors import FoveateError
from foveate.extract import FeatureStore
from foveate.extract.features import Features
from foveate.look import AttentionAdapter, Gaze, candidate_grid, cls_attention
from foveate.look.adapter_training import (
    AdapterHistory,
    AdapterSettings,
    Batch,
    choose_crops,
    scaled_grids,
    train_adapter,
)
from foveate.restrict import extract_crops
from foveate.systems.a2 import A2
from foveate.systems.frozen_model import Model
from foveate.systems.system import Needs

if TYPE_CHECKING:
    from typing_extensions import Self


class A2Adapter(A2):
    """A² whose attention is corrected by a small MLP, for labels that sit where default attention does not look.

    1. *Look*: CLS attention plus a learned MLP on the patch tokens (3,089 parameters for a ViT-S).
    2. *Restrict*: the best of a fixed grid of candidate crops. In training the choice is perturbed top-k.
    3. *Extract*: the frozen ``embedder``; all candidates of the training images are embedded once, through the store.
    4. *Decide*: while the adapter learns, a logistic regression unrolled over a few steps, whose loss on held-out
       training images the adapter lowers; at the end the choice is hard and the head is fitted in full.

    Args:
        attention, embedder: as for :class:`~foveate.systems.A2`.
        crops: how many candidates are read; or sizes, to read greedy crops of the adapted map instead of
            candidates.
        grids: candidate crops as ``(side, how many per row)`` in pixels of the attention image; by default the
            paper's 49 + 9 at the scale of the attention image.
        hidden: hidden units of the MLP.
        weigh: what the held-out loss counts: ``"images"``, every image the same, as in the paper; ``"classes"`` or
            ``"groups"``, each of them the same. Groups are more supervision, and reported as such.
        adapter: any of :class:`~foveate.look.adapter_training.AdapterSettings`.
        options: ``heads``, ``layer``, ``attention_size``, ``embed_size``, ``head``, ``C``, ``store`` and whatever
            else A² takes.

    Reference: "Attending on Attention", arXiv 2606.03148, the adapter for CelebA. The paper leaves open the number
    and size of the inner steps, the outer optimiser, how candidates are scored (here: the mean of the map inside) and
    whether the MLP reads tokens (main text, and here) or attention (appendix).

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.cue_critters(train=40, target=0, val=0, test=16)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> a2 = fv.A2Adapter(vit, vit, grids=[(16, 2)], adapter={"steps": 2, "samples": 10}, store=tempfile.mkdtemp())
    >>> a2.fit(data.train).look([data.test[0].image]).boxes.shape
    torch.Size([1, 1, 3])
    >>> print(a2.supervision())
    train: labels
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(
        self,
        attention: Model = "vit-s-focus",
        embedder: Model = "vit-s-focus",
        *,
        crops: int | Sequence[int] = 1,
        grids: Sequence[tuple[int, int]] | None = None,
        hidden: int = 8,
        weigh: Literal["images", "classes", "groups"] = "images",
        adapter: dict[str, Any] | None = None,
        **options: Any,
    ):
        super().__init__(attention, embedder, crops=crops, **options)  # type: ignore[arg-type]
        self.grids, self.hidden, self.weigh, self.adapter = grids, hidden, weigh, adapter
        if weigh not in ("images", "classes", "groups"):
            raise FoveateError(f"unknown weigh '{weigh}'; the held-out loss counts 'images', 'classes' or 'groups'.")
        self._settings()

    def _settings(self) -> AdapterSettings:
        given = {"seed": self.seed, **(self.adapter or {})}
        known = list(asdict(AdapterSettings()))
        for name in given:
            if name not in known or name == "crops":
                raise FoveateError(
                    f"adapter has no setting '{name}'; it has {', '.join(k for k in known if k != 'crops')}."
                )
        count = self.crops if isinstance(self.crops, int) else len(self.crops)
        return replace(AdapterSettings(**given), crops=count)

    # -- RESTRICT -------------------------------------------------------------------------

    def _sizes(self) -> tuple[int, ...]:
        if not isinstance(self.crops, int):
            return super()._sizes()
        if self.crops < 1:
            raise FoveateError(f"crops says how many candidates to read, at least 1; found {self.crops}.")
        # candidates have no order of size; what matters to the frame is the largest
        return (max(size for size, _ in self._grids()),) * self.crops

    def _check(self) -> None:
        if self.crop_counts is not None:
            raise FoveateError("an adapter is trained for one number of crops; leave crop_counts out.")
        if isinstance(self.crops, int) and self.crops < 1:
            raise FoveateError(f"crops says how many candidates to read, at least 1; found {self.crops}.")

    def _grids(self) -> Sequence[tuple[int, int]]:
        return [(int(s), int(n)) for s, n in self.grids] if self.grids is not None else scaled_grids(self._frame())

    def _boxes_on_offer(self) -> Tensor:
        return candidate_grid(self._frame(), self._grids())

    def _crops_on(self, maps: Tensor, sizes: Sequence[int]) -> Tensor:
        if not isinstance(self.crops, int):
            return super()._crops_on(maps, sizes)
        return choose_crops(maps, self._boxes_on_offer(), len(sizes), self._frame())

    # -- LOOK -----------------------------------------------------------------------------

    def _tokens(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Patch tokens ``[B, h * w, D]`` and default attention ``[B, h, w]``."""
        model = self.attention_
        parts = [
            cls_attention(model.backbone.net, model.prepare(p), self.layer, self.heads, return_features=True)
            for p in images.split(self.batch_size)
        ]
        attention = torch.cat([p.map for p in parts])
        tokens = torch.cat([p.scores["features"] for p in parts])
        return tokens[:, -attention[0].numel() :], attention

    @torch.no_grad()
    def _attend(self, images: Tensor) -> Gaze:
        if not hasattr(self, "adapter_"):  # the attention model is tried before there is one
            return super()._attend(images)
        tokens, attention = self._tokens(images)
        adapted = self.adapter_.to(tokens.device)(tokens, attention)
        # a gaze is never negative; a shift of the whole map changes no choice
        shifted = adapted - adapted.amin((1, 2), keepdim=True).clamp(max=0)
        return Gaze(shifted, kind="adapted attention", scores={"default": attention})

    def _attention_recipe(self) -> dict[str, Any]:
        weights = {k: v.tolist() for k, v in self.adapter_.state_dict().items()}
        placed = self._grids() if isinstance(self.crops, int) else "greedy"
        return {**super()._attention_recipe(), "adapter": weights, "placed": placed}

    # -- training -------------------------------------------------------------------------

    def fit(
        self, train: GroupedDataset, target: GroupedDataset | None = None, val: GroupedDataset | None = None
    ) -> Self:
        """Train the adapter on ``train``, then the head as A² does."""
        if self.weigh == "groups":
            train.require_groups("A2Adapter with weigh='groups'")
        self.__dict__.pop("adapter_", None)
        self._adapt_on = train
        try:
            return super().fit(train, target, val)
        finally:
            del self._adapt_on

    def _decide(self, data: GroupedDataset, val: GroupedDataset | None) -> None:
        self.adapter_, self.history_ = self._adapt(self._adapt_on)
        super()._decide(data, val)

    def _adapt(self, train: GroupedDataset) -> tuple[AttentionAdapter, AdapterHistory]:
        settings, boxes = self._settings(), self._boxes_on_offer()
        if settings.crops > len(boxes):
            raise FoveateError(f"{settings.crops} crops cannot be chosen from {len(boxes)} candidates; add grids.")
        embedded = self._all("candidates", train, lambda images: self._embed_all(images, boxes))
        looked = self._all("tokens", train, lambda images: torch.cat(
            [(found := self._tokens(images))[0], found[1].flatten(1)[..., None]], dim=2))  # fmt: skip
        rows = np.flatnonzero(embedded.valid & looked.valid)
        side = self._attend(torch.zeros(1, 3, self.attention_.size, self.attention_.size)).map.shape[1:]

        def read(positions: Tensor) -> Batch:
            at = rows[positions.numpy()]
            found = looked.batch(at)
            return found[..., :-1], found[..., -1].unflatten(1, side), embedded.batch(at)

        labels = torch.from_numpy(train.labels[rows])
        weights = self._weights(train, rows)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            adapter = AttentionAdapter(looked.row_shape[-1] - 1, self.hidden)
        history = train_adapter(
            adapter, read, labels, boxes, image_size=self._frame(), weights=weights, settings=settings
        )
        return adapter.requires_grad_(False).eval(), history

    def _weights(self, train: GroupedDataset, rows: Any) -> Tensor | None:
        if self.weigh == "images":
            return None
        values = train.labels if self.weigh == "classes" else train.require_groups("A2Adapter with weigh='groups'")
        return reweight(values[rows])[torch.from_numpy(values[rows])]

    def _embed_all(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Embeddings of every candidate, ``[B, n, dim]``."""
        where = (boxes * self.zoom_).to(images.device)
        return torch.stack([
            self.embedder_.embed(extract_crops(image[None], where[None], self.embedder_.size)[0], self.batch_size)
            for image in images
        ])  # fmt: skip

    def _all(self, what: str, dataset: GroupedDataset, readout: Any) -> Features:
        """Something of every image of ``dataset`` that does not depend on the adapter, computed once."""
        self._to_device()
        recipe: dict[str, Any] = {"what": what, "frame": self._frame(), "zoom": self.zoom_}
        recipe |= (
            {"embedder": self.embedder_.to_dict(), "boxes": self._boxes_on_offer().tolist()}
            if what == "candidates"
            else A2._attention_recipe(self)
        )
        return FeatureStore(self.store).read(
            self.embedder_.backbone, dataset, self.preprocess_, readout=lambda _, images: readout(images),
            key=json.dumps(recipe, sort_keys=True), batch_size=self._at_once(), workers=self.workers,
            on_bad=self.on_bad, progress=None if self.progress else lambda done, total: None,
        )  # fmt: skip

    # -- what is said and saved -----------------------------------------------------------

    def _state_needs(self, fitted_on: str) -> None:
        super()._state_needs(fitted_on)
        if self.weigh == "groups" or fitted_on == "target":
            own = "labels, groups (adapter)" if self.weigh == "groups" else "labels (adapter)"
            train = own if fitted_on == "target" else f"{self.needs.train.replace(', groups', '')}, groups"
            self.needs = Needs(train=train, target=self.needs.target)  # type: ignore[misc]

    def _tensors(self) -> dict[str, Tensor]:
        learned = {f"adapter.{k}": v.detach().cpu().clone() for k, v in self.adapter_.state_dict().items()}
        return {**super()._tensors(), **learned}

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "history": asdict(self.history_)}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        weights = {k.removeprefix("adapter."): v for k, v in tensors.items() if k.startswith("adapter.")}
        hidden, dim = weights["mlp.0.weight"].shape
        super()._restore(config, tensors)
        self.adapter_ = AttentionAdapter(dim, hidden).requires_grad_(False).eval()
        self.adapter_.load_state_dict(weights)
        self.history_ = AdapterHistory(**config["history"])
