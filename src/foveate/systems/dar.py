"""DAR: keep the feature maps, learn where to look on them."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

import torch

from foveate.assemble.adapting import Adapting, FrozenBase
from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.system import Images, System
from foveate.data.dataset import GroupedDataset
from foveate.decide import CrossEntropy
from foveate.engine import TrainSettings
from foveate.errors import DataError, FoveateError
from foveate.look import Everywhere, Gaze
from foveate.parameters import configured
from foveate.pool import LearnedPool
from foveate.restrict import Nothing


@configured
class DAR(Adapting):
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
        select, copies, store, on_bad, workers, training: see :class:`~foveate.assemble.adapting.Adapting`.

    Reference: "Deep Attention Reweighting", arXiv 2605.20732, section 4, equations 8 to 13.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> dar = fv.DAR(base, epochs=1, store=tempfile.mkdtemp(), progress=False).fit(data.target)
    >>> print(dar.supervision())
    train: base (labels); target: labels, attribute-balanced
    >>> gaze = dar.attend([data.test[0].image])
    >>> tuple(gaze.scores["queries"].shape)  # one map per query
    (1, 8, 4, 4)
    """

    needs: ClassVar[Needs] = Needs(train="labels (base)", target="labels, attribute-balanced")
    post_hoc: ClassVar[bool] = True
    base: System | None = field(default=None, kw_only=False)
    queries: int = 8
    heads: int = 8
    depth: int = 2
    positional: bool = False
    residual: bool = False
    norm: bool = False
    pool: Literal["attention", "jetley"] = "attention"
    l1: float = 0.0
    learn: Literal["label", "attribute"] = "label"

    def usual_training(self) -> TrainSettings:
        return TrainSettings.of(epochs=60, lr=1e-3, weight_decay=1e-2, optimizer="adamw")

    def parts(self) -> Parts:
        shape = {
            "queries": self.queries, "heads": self.heads, "depth": self.depth, "positional": self.positional,
            "residual": self.residual, "norm": self.norm,
        }  # fmt: skip
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=FrozenBase(self.base, who="DAR"),  # step 1: the biased model, frozen
            # step 2: GAP out, attention in
            pool=LearnedPool(self.pool, args=shape if self.pool == "attention" else {}),
            decide=CrossEntropy(  # step 3: train pool and head on the balanced set
                l1=self.l1, copies=self.copies, training=self.training,
                select="average" if self.learn == "attribute" else self.select,
            ),
        )  # fmt: skip

    def check(self) -> None:
        if self.learn not in ("label", "attribute") or self.pool not in ("attention", "jetley"):
            raise FoveateError(
                f"learn is 'label' or 'attribute', pool 'attention' or 'jetley'; got '{self.learn}', '{self.pool}'."
            )
        super().check()

    def _seen(self, data: GroupedDataset) -> GroupedDataset:
        if self.learn == "label":
            return data
        if data.attributes is None or data.attribute_names is None:
            raise DataError(f"learn='attribute' needs attributes, but {data.name} has none.")
        by_attribute = data.with_labels(data.attributes, data.attribute_names, name=f"{data.name} by attribute")
        System._remember(self, by_attribute)
        return by_attribute

    @torch.no_grad()
    def attend(self, images: Images) -> Gaze:
        """Where the pool's queries look (last layer): the map is the mean over queries and heads;
        ``scores["queries"]`` holds each query's own map ``[B, n_q, h, w]``."""
        self._require_fit()
        network = self.network_.cpu().eval()
        pool: Any = network.pool
        weights = pool.attention(network.maps(self.inputs(images)))[-1]
        if weights.ndim == 3:  # Jetley: one map
            return Gaze(weights, kind="attention")
        return Gaze(weights.mean((1, 2)), kind="attention", scores={"queries": weights.mean(1)})
