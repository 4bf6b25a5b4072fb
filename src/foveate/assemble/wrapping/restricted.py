"""A black box that is shown only what a small model looks at: A²'s restriction around any classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from foveate.assemble.capabilities import Exports, network_of, sees_images_alone
from foveate.assemble.graphs import NO_GRAPH, CropReader, Graph, GraphPlan
from foveate.assemble.needs import Needs
from foveate.assemble.saving import described, restored
from foveate.assemble.system import Callbacks, Images, System, aligned
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.data.preprocess import Preprocess
from foveate.engine import Selection, TensorFeed, check_metric, possible_metric
from foveate.errors import FoveateError, ModelError
from foveate.extract import Models
from foveate.extract.views import ReaderShape
from foveate.look import ClsAttention, Gaze
from foveate.parameters import configured
from foveate.restrict import GreedyCrops

if TYPE_CHECKING:
    from typing_extensions import Self

AS_IS = "as is"


@configured
class Restricted(System):
    """Shows a classifier the crop that a small ViT looks at, in place of the whole image; nothing is retrained.

    The classifier stays what it is and may be a black box: an ONNX file, a TorchScript program, a function. How large
    the crop is, or whether the image is better left as it is, is chosen on ``val``.

    Args:
        base: any fitted or wrapped system that sees images alone.
        attention: the model that looks: a ViT with a class token, by name, or a ready backbone.
        shares: sides of the crop to choose from, as shares of the image's side. Leaving the image as it is always
            takes part.
        select: metric on ``val`` (or, without one, on what ``fit`` gets) that chooses; by default
            ``worst_group`` or, with a warning, ``worst_class`` where these have no attributes.
        heads: how attention heads are put together, see :class:`~foveate.look.ClsAttention`.
        attention_size: side of the image as it is looked at; by default the model's own, at most 224.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        batch_size: images looked at together.

    Afterwards ``share_`` is the chosen side of the crop as a share of the image's (None: the image as it is), and
    ``scores_`` what every candidate reached.

    Reference: "Attending on Attention", arXiv 2606.03148 (A²); there the reader gets a new head, here it is left alone.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> view = fv.data.Preprocess((64, 64))
    >>> box = fv.wrap(lambda x: x.mean((2, 3))[:, :2], data.train.class_names, preprocess=view)
    >>> restricted = fv.Restricted(box, "micro-vit", shares=(0.5,)).fit(data.target, val=data.val)
    >>> restricted.share_ in (0.5, None), restricted.predict(data.test).shape
    (True, (16,))
    """

    needs: ClassVar[Needs] = Needs(train="labels (base)")
    post_hoc: ClassVar[bool] = True
    base: System | None = field(default=None, kw_only=False)
    attention: Any = field(default="vit-s-focus", kw_only=False)
    shares: Sequence[float] = (0.75, 0.5, 0.35)
    select: str | None = None
    heads: str = "mean"
    attention_size: int | None = None
    on_bad: OnBad = "raise"
    workers: int = 0
    batch_size: int = 32

    # -- fitting --------------------------------------------------------------------------

    def check(self) -> None:
        check_metric(self.select)
        if self.on_bad not in ("raise", "skip"):
            raise FoveateError(f"on_bad is 'raise' or 'skip'; found '{self.on_bad}'.")
        shares = self.shares if isinstance(self.shares, (list, tuple)) else [self.shares]
        if not shares or not all(isinstance(s, (int, float)) and 0.05 <= s < 1 for s in shares):
            raise FoveateError(f"shares are sides of crops, each from 0.05 to below 1; found {self.shares!r}.")

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> Self:
        """Choose the crop on ``val`` (else on the other images given); nothing learns."""
        self.check()
        self.base_: System = self._checked_base()
        self.class_names_ = list(self.base_.class_names_)
        self.attribute_names_, self.train_counts_ = self.base_.attribute_names_, self.base_.train_counts_
        data = aligned(self, val if val is not None else target if target is not None else train)
        self.look_ = ClsAttention(self.attention, heads=self.heads, size=self.attention_size)
        self.look_.open(Models(self.batch_size))
        crops = {share: self._crops(share, data) for share in self.shares}
        self._choose(crops, data)
        return self

    def _checked_base(self) -> System:
        base = self.base
        if base is None:
            raise FoveateError("Restricted goes around a fitted or wrapped model: Restricted(model).")
        base._require_fit()
        if isinstance(base, Restricted) or not sees_images_alone(base):
            raise ModelError(f"{type(base).__name__} already sees less than the image; restrict the model inside it.")
        if base.preprocess_.size[0] != base.preprocess_.size[1]:
            raise ModelError(f"crops are square, and {type(base).__name__} reads {base.preprocess_.size} px.")
        return base

    def _crops(self, share: float, data: GroupedDataset) -> GreedyCrops:
        crops = GreedyCrops(max(1, round(share * self.look_.frame)), source="original")
        crops.fit(data, self.look_.frame, self._reader)
        return crops

    @property
    def _reader(self) -> ReaderShape:
        side = self.base_.preprocess_.size[0]
        return ReaderShape(side, (1, 1))

    def _choose(self, crops: dict[float, GreedyCrops], data: GroupedDataset) -> None:
        """Try every candidate on ``data``; of equals the first, and the image as it is comes before all."""
        candidates: list[tuple[float | None, Preprocess]] = [(None, self.base_.preprocess_)]
        candidates += [(share, _frame(part)) for share, part in crops.items()]
        best: tuple[float, float | None, Preprocess] | None = None
        self.scores_: dict[str, float] = {}
        metric = possible_metric(self.select, "worst_group", data, type(self).__name__)
        for share, view in candidates:
            self.share_: float | None = share
            self.preprocess_ = view
            if share is not None:
                self.crops_ = crops[share]
            logits = self.predict_logits(data, batch_size=self.batch_size, workers=self.workers, on_bad=self.on_bad)
            rows = np.flatnonzero(~np.isnan(logits).all(1))  # unreadable images are left out
            select = Selection(metric, TensorFeed(logits[rows], data.subset(rows)), self.train_counts_)
            score = select.score(nn.Identity(), torch.device("cpu"), 4096)[metric]
            self.scores_[AS_IS if share is None else str(share)], self.selection_ = score, select.describe()
            if best is None or (score != best[0] and select.better(score, best[0])):
                best = (score, share, view)
        assert best is not None
        _, self.share_, self.preprocess_ = best
        if self.share_ is not None:
            self.crops_ = crops[self.share_]

    def consumed(self) -> Needs:
        return Needs(f"base ({self.base_.supervision().replace('train: ', '')})")

    # -- prediction -----------------------------------------------------------------------

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        if self.share_ is None:
            return self.base_._logits(inputs)
        views = self.crops_(inputs, self.look_(inputs), self._reader, (0,))
        assert views.crops is not None
        view, crops = self.base_.preprocess_, views.crops[:, 0]
        mean, std = (crops.new_tensor(v).view(1, -1, 1, 1) for v in (view.mean, view.std))
        return self.base_._logits(((crops - mean) / std).contiguous(memory_format=torch.channels_last))

    def look(self, images: Images) -> Gaze:
        """Where the small model looks, and the crop that is shown; the model's own look where nothing is cut."""
        if self.share_ is None:
            return self.base_.look(images)
        inputs = self.inputs(images)
        return self.crops_.shown(self.look_(inputs), inputs, self._reader, (0,))

    def graphs(self) -> GraphPlan:
        """One graph that looks and one that reads, where the model inside could be opened."""
        self._require_fit()
        if self.share_ is None and isinstance(self.base_, Exports):
            return self.base_.graphs()
        network = network_of(self.base_)
        if network is None:
            raise ModelError(f"the model inside is a black box, so it cannot be exported. {NO_GRAPH}")
        side, view = self._reader.size, self.base_.preprocess_
        frame, looker = self.look_.frame, self.look_.model_.view
        steps = {
            "kind": "crops", "sizes": list(self.crops_.all_sizes()), "frame": frame, "zoom": self.crops_.zoom_,
            "attention": {"size": frame, "mean": list(looker.mean), "std": list(looker.std)},
            "reader": {"size": side, "mean": list(view.mean), "std": list(view.std)},
        }  # fmt: skip
        first = Graph("attention", self.look_.path().eval(), {"images": (3, frame, frame)}, ("map",))
        reads = CropReader(network.cpu(), nn.Identity()).eval()
        shapes: dict[str, tuple[int, ...]] = {"crops": (1, 3, side, side), "there": (1,)}
        return GraphPlan([first, Graph("reader", reads, shapes, ("logits",), frozenset({"there"}))], steps)

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        told = {"base": described(self.base_), "share": self.share_, "scores": self.scores_}
        if self.share_ is None:
            return told
        return {**told, "look": self.look_.learned(), "crops": {**self.crops_.plain(), **self.crops_.learned()}}

    def _tensors(self) -> dict[str, Tensor]:
        inside = {f"base.{k}": v for k, v in self.base_._tensors().items()}
        seen = {} if self.share_ is None else {f"look.{k}": v for k, v in self.look_.tensors().items()}
        return inside | seen

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        base = restored(config["base"], _under(tensors, "base."))
        if isinstance(base, Restricted):
            raise ModelError("a saved restriction goes around a model, not around another restriction.")
        self.base = self.base_ = base
        form = _Form.model_validate({k: v for k, v in config.items() if k not in ("base", "look")})
        self.share_, self.scores_ = form.share, form.scores
        if form.share is None:
            return
        if form.crops is None:
            raise ModelError("a saved restriction says which crops it shows; this one does not.")
        self.crops_ = GreedyCrops(form.crops.sizes, source=form.crops.source)
        self.crops_.restore({"frame": form.crops.frame, "zoom": form.crops.zoom}, {})
        self.look_ = ClsAttention(heads=self.heads)
        self.look_.restore(config["look"], _under(tensors, "look."))


class _Crops(BaseModel):
    """The crops of a saved restriction."""

    sizes: int = Field(ge=1, le=8192)
    source: Literal["resized", "original"]
    frame: int = Field(ge=1, le=8192)
    zoom: int = Field(ge=1, le=64)


class _Form(BaseModel):
    """What a saved restriction says beside its models."""

    model_config = ConfigDict(extra="forbid")

    share: float | None = Field(gt=0, lt=1)
    scores: dict[str, float]
    crops: _Crops | None = None


def _frame(crops: GreedyCrops) -> Preprocess:
    """How images are read before they are cut: values in [0, 1], each network normalises for itself."""
    side = crops.frame_ * crops.zoom_
    return Preprocess((side, side), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
