"""DAR: keep the feature maps, learn where to look on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import l1_penalty
from foveate.engine import Callback, seed_everything
from foveate.engine import train as run_training
from foveate.errors import DataError, FoveateError
from foveate.look import Gaze
from foveate.systems.network import Network
from foveate.systems.posthoc import PostHoc
from foveate.systems.system import Images, Needs, System

if TYPE_CHECKING:
    from typing_extensions import Self


class _Tail(nn.Module):
    """The trained part of a network: maps to logits."""

    def __init__(self, network: Network):
        super().__init__()
        self.pool, self.head = network.pool, network.head

    def forward(self, maps: Tensor) -> Tensor:
        assert self.pool is not None
        return self.head(self.pool(maps))


class DAR(PostHoc):
    """Deep Attention Reweighting: a frozen CNN, a learned attention pool, a new head.

    Global average pooling mixes object and background in one vector; DAR replaces it by a two-layer
    multi-query attention and trains only that and the head, on a small set in which the attribute does not
    tell the label.

    Args:
        base: a fitted system that ends in a network.
        queries, heads, depth, positional, residual, norm: of
            :class:`~foveate.pool.AttentionPool`; the defaults are the paper's bare equations.
        pool: ``"attention"``, or ``"jetley"`` for the simpler attention DAR is compared with.
        l1: weight of an L1 penalty on the head.
        learn: ``"label"``, or ``"attribute"`` to learn the shortcut instead: the paper's check that the maps
            hold both.
        options: ``select``, ``copies``, ``store``, ``on_bad``, and any of
            :class:`~foveate.engine.TrainSettings`.

    Reference: "Deep Attention Reweighting", arXiv 2605.20732, section 4, equations 8 to 13.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> dar = fv.DAR(base, epochs=1, store=tempfile.mkdtemp(), progress=False).fit(data.target)
    >>> print(dar.supervision())
    train: base (labels); target: labels, attribute-balanced
    >>> gaze = dar.attend([data.test[0].image])
    >>> tuple(gaze.scores["queries"].shape)  # one map a query
    (1, 8, 4, 4)
    """

    needs: ClassVar[Needs] = Needs(train="labels (base)", target="labels, attribute-balanced")
    DEFAULTS: ClassVar[dict[str, Any]] = {"epochs": 60, "lr": 1e-3, "weight_decay": 1e-2, "optimizer": "adamw"}

    def __init__(
        self,
        base: System | None = None,
        *,
        queries: int = 8,
        heads: int = 8,
        depth: int = 2,
        positional: bool = False,
        residual: bool = False,
        norm: bool = False,
        pool: Literal["attention", "jetley"] = "attention",
        l1: float = 0.0,
        learn: Literal["label", "attribute"] = "label",
        **options: Any,
    ):
        super().__init__(base, **options)
        if learn not in ("label", "attribute") or pool not in ("attention", "jetley"):
            raise FoveateError(
                f"learn is 'label' or 'attribute', pool 'attention' or 'jetley'; got '{learn}', '{pool}'."
            )
        self.queries = queries
        self.heads = heads
        self.depth = depth
        self.positional = positional
        self.residual = residual
        self.norm = norm
        self.pool = pool
        self.l1 = l1
        self.learn = learn

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Adapt on ``target`` (or on the first argument when it is the only one)."""
        data = train if target is None else target
        backbone = self._frozen()  # step 1: the biased model, frozen
        data, val = self._aligned(data), None if val is None else self._aligned(val)
        if self.learn == "attribute":
            data, val = _by_attribute(data), None if val is None else _by_attribute(val)
            self._remember(data)
        seed_everything(self.training.seed)
        self.network_ = self._with_attention(backbone, data.num_classes)  # step 2: GAP out, attention in
        feed = self._feed(backbone, data, "maps", self.copies)
        metric = "average" if self.learn == "attribute" else self.select
        select = None if val is None else self._selection(metric, self._feed(backbone, val, "maps"))
        self.history_ = run_training(  # step 3: train pool and head on the balanced set
            _Tail(self.network_),
            feed,
            self.training,
            objective=self._loss,
            select=select,
            title="DAR",
            record=self._run_record(backbone),
            callbacks=callbacks,
        )
        self.selection_ = self.history_.selection
        return self

    def _with_attention(self, backbone: Any, classes: int) -> Network:
        if self.pool == "jetley":
            return Network.build(backbone, classes, pool="jetley")
        return Network.build(
            backbone, classes, pool="attention", queries=self.queries, heads=self.heads, depth=self.depth,
            positional=self.positional, residual=self.residual, norm=self.norm,
        )  # fmt: skip

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        loss = F.cross_entropy(model(batch.inputs), batch.labels)
        return loss + self.l1 * l1_penalty(model.head) if self.l1 else loss  # type: ignore[arg-type]

    @torch.no_grad()
    def attend(self, images: Images) -> Gaze:
        """Where the pool's queries look (last layer): the map is the mean over queries and heads;
        ``scores["queries"]`` holds each query's own map ``[B, n_q, h, w]``."""
        self._require_fit()
        maps = self.network_.cpu().eval().maps(self.inputs(images))
        weights = self.network_.pool.attention(maps)[-1]  # type: ignore[union-attr,operator]
        if weights.ndim == 3:  # Jetley: one map
            return Gaze(weights, kind="attention")
        return Gaze(weights.mean((1, 2)), kind="attention", scores={"queries": weights.mean(1)})


def _by_attribute(dataset: GroupedDataset) -> GroupedDataset:
    if dataset.attributes is None or dataset.attribute_names is None:
        raise DataError(f"learn='attribute' needs attributes, but {dataset.name} has none.")
    return dataset.with_labels(dataset.attributes, dataset.attribute_names, name=f"{dataset.name} by attribute")
