"""A² with an adapter: attention learns to look where the label is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.data.dataset import GroupedDataset
from foveate.decide import reweight
from foveate.errors import FoveateError
from foveate.extract import Frozen
from foveate.extract.features import Features
from foveate.extract.views import Views
from foveate.look import AdaptedAttention, AdapterSettings, candidate_grid, scaled_grids, train_adapter
from foveate.look.adapter_training import AdapterHistory
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import CandidateCrops, GreedyCrops, extract_crops


@configured
class A2Adapter(Probe):
    """A² whose attention is corrected by a small MLP, for labels that sit where default attention does not look.

    1. *Look*: CLS attention plus a learned MLP on the patch tokens (3,089 parameters for a ViT-S).
    2. *Restrict*: the best of a fixed grid of candidate crops. In training the choice is perturbed top-k.
    3. *Extract*: the frozen ``embedder``; all candidates of the training images are embedded once, through the store.
    4. *Decide*: while the adapter learns, a logistic regression unrolled over a few steps, whose loss on held-out
       training images the adapter lowers; at the end the choice is hard and the head is fitted in full.

    Args:
        attention, embedder, heads, layer, attention_size, source: as for :class:`~foveate.systems.A2`.
        crops: how many candidates are read; or sizes, to read greedy crops of the adapted map instead of
            candidates.
        grids: candidate crops as ``(side, how many per row)`` in pixels of the attention image; by default the
            paper's 49 + 9 at the scale of the attention image.
        hidden: hidden units of the MLP.
        weigh: what the held-out loss counts: ``"images"``, every image the same, as in the paper; ``"classes"`` or
            ``"groups"``, each of them the same. Groups are more supervision, and reported as such.
        adapter: any of :class:`~foveate.look.adapter_training.AdapterSettings`.
        embed_size, head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

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
    attention: Any = field(default="vit-s-focus", kw_only=False)
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    crops: int | Sequence[int] = 1
    grids: Sequence[tuple[int, int]] | None = None
    hidden: int = 8
    weigh: Literal["images", "classes", "groups"] = "images"
    adapter: dict[str, Any] | None = None
    heads: str = "mean"
    layer: int = -1
    attention_size: int | None = None
    source: Literal["resized", "original"] = "resized"

    def parts(self) -> Parts:
        crops = (
            CandidateCrops(self.crops, grids=self.grids, source=self.source)
            if isinstance(self.crops, int)
            else GreedyCrops(self.crops, source=self.source)
        )
        return Parts(
            look=AdaptedAttention(
                self.attention, layer=self.layer, heads=self.heads, size=self.attention_size, hidden=self.hidden
            ),
            restrict=crops,
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )

    def check(self) -> None:
        if self.weigh not in ("images", "classes", "groups"):
            raise FoveateError(
                f"unknown weigh '{self.weigh}'; the held-out loss counts 'images', 'classes' or 'groups'."
            )
        if isinstance(self.crops, int) and self.crops < 1:
            raise FoveateError(f"crops says how many candidates to read, at least 1; found {self.crops}.")
        self._adapter_settings()
        self.reading().check()
        self.decision().check()

    def _adapter_settings(self) -> AdapterSettings:
        given = {"seed": self.seed, **(self.adapter or {})}
        known = list(asdict(AdapterSettings()))
        for name in given:
            if name not in known or name == "crops":
                raise FoveateError(
                    f"adapter has no setting '{name}'; it has {', '.join(k for k in known if k != 'crops')}."
                )
        count = self.crops if isinstance(self.crops, int) else len(self.crops)
        return replace(AdapterSettings(**given), crops=count)

    # -- the look learns ------------------------------------------------------------------

    def _learn_look(self, train: GroupedDataset) -> None:
        look, settings, boxes = self.parts_.look, self._adapter_settings(), self._offered()
        if settings.crops > len(boxes):
            raise FoveateError(f"{settings.crops} crops cannot be chosen from {len(boxes)} candidates; add grids.")
        values = train.require_groups("A2Adapter with weigh='groups'") if self.weigh == "groups" else train.labels
        reader = {"embedder": self.embedder_.to_dict(), "boxes": boxes.tolist()}
        embedded = self._all("candidates", train, lambda images: self._embed_all(images, boxes), reader)
        looked = self._all("tokens", train, lambda images: torch.cat(
            [(found := look.raw(images))[0], found[1].flatten(1)[..., None]], dim=2), look.recipe())  # fmt: skip
        rows = np.flatnonzero(embedded.valid & looked.valid)
        side = look(torch.zeros(1, 3, look.frame, look.frame)).map.shape[1:]

        def read(positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            at = rows[positions.numpy()]
            found = looked.batch(at)
            return found[..., :-1], found[..., -1].unflatten(1, side), embedded.batch(at)

        weights = None if self.weigh == "images" else reweight(values[rows])[torch.from_numpy(values[rows])]
        adapter = look.adapter(looked.row_shape[-1] - 1, settings.seed)
        self.adapter_history_ = train_adapter(
            adapter, read, torch.from_numpy(train.labels[rows]), boxes, image_size=look.frame, weights=weights,
            settings=settings,
        )  # fmt: skip
        look.adapter_ = adapter.requires_grad_(False).eval()

    def _offered(self) -> Tensor:
        """The candidates the adapter learns from, ``[n, 3]``."""
        frame = self.parts_.look.frame
        grids = scaled_grids(frame) if self.grids is None else [(int(s), int(n)) for s, n in self.grids]
        return candidate_grid(frame, grids)

    def _embed_all(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Embeddings of every candidate, ``[B, n, dim]``."""
        extract, where = self.parts_.extract, (boxes * self.parts_.restrict.zoom_).to(images.device)
        return torch.cat([
            extract(Views(image[None], crops=extract_crops(image[None], where[None], extract.shape.size)))
            for image in images
        ])  # fmt: skip

    def _all(
        self, what: str, dataset: GroupedDataset, readout: Callable[[Tensor], Tensor], recipe: dict[str, Any]
    ) -> Features:
        """Something of every image of ``dataset`` that does not depend on the adapter, computed once."""
        self._to_device()
        key = {"what": what, "frame": self.parts_.look.frame, "zoom": self.parts_.restrict.zoom_, **recipe}
        return self.reading().features(self.embedder_, dataset, self.preprocess_, readout=readout, key=key)

    # -- what is said and saved -----------------------------------------------------------

    def consumed(self) -> Needs:
        used = super().consumed()
        own = "labels, groups" if self.weigh == "groups" else "labels"
        if self.fitted_on_ == "target":
            return Needs(train=f"{own} (adapter)", target=used.target)
        return Needs(train=own if "groups" not in used.train else used.train)

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "history": asdict(self.adapter_history_)}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.adapter_history_ = AdapterHistory(**config["history"])
