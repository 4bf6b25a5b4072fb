"""A decision trained by gradient, and with it the pool that gives it vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.loading import Batch
from foveate.decide.decision import Decision, On
from foveate.decide.dfr import warn_of_absent_groups
from foveate.decide.heads import build_head
from foveate.decide.penalties import l1_penalty
from foveate.decide.reweight import sampling_weights
from foveate.engine import Callback, Drawn, Feed, History, Selection, TrainSettings, possible_metric, train
from foveate.parameters import configured, usual_training


class PooledHead(nn.Module):
    """What is trained on features: a pool (or none) and a head."""

    def __init__(self, pool: Callable[[Tensor], Tensor] | None, module: nn.Module | None, head: nn.Module):
        super().__init__()
        self.pool, self.head = module, head
        self._pooled = pool

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features.flatten(1) if self._pooled is None else self._pooled(features))


@configured
class CrossEntropy(Decision):
    """A head trained on the mean cross-entropy; a pool with weights learns with it.

    Args:
        head: ``"linear"``, ``"bias-free"`` or ``"two-layer"``.
        l1: weight of an L1 penalty on the head.
        balanced: draw every group equally often.
        copies: augmented copies of every image to train on beside the plain one.
        select: metric on ``val`` that chooses the epoch; by default ``worst_group``, or ``worst_class`` where no groups
            are known.
        on: what it is trained on.
        training: a :class:`~foveate.engine.TrainSettings`, or any of its settings by name.
    """

    head: Literal["linear", "bias-free", "two-layer"] = "linear"
    l1: float = 0.0
    balanced: bool = False
    copies: int = 0
    select: str | None = None
    on: On = "target"
    training: Any = usual_training()
    usual_select = "worst_group"
    learns_maps = True

    def usual_training(self) -> TrainSettings:
        return TrainSettings.of(epochs=60, lr=1e-3, weight_decay=1e-2, optimizer="adamw")

    @property
    def uses(self) -> str:  # type: ignore[override]
        if self.balanced:
            return "labels, groups"
        return "labels, attribute-balanced" if self.on == "target" else "labels"

    def build(self, features: int, classes: int) -> None:
        """Make the head."""
        self.features_, self.classes_ = features, classes
        self.head_ = build_head(self.head, features, classes)

    def fit(
        self,
        feed: Feed,
        held: Feed | None = None,
        *,
        model: nn.Module,
        counts: NDArray[np.int64] | None = None,
        callbacks: Sequence[Callback] = (),
        title: str = "training",
        record: Mapping[str, Any] | None = None,
    ) -> CrossEntropy:
        """Train ``model``, of which the head is a part, on ``feed``; ``held`` chooses the epoch.

        Args:
            counts: training images per group, for metrics that need to know majority and minority.
        """
        plan = None
        if self.balanced:
            groups = feed.dataset.require_groups("DFR")
            warn_of_absent_groups(groups, feed.dataset.num_groups)
            plan = Drawn(sampling_weights(groups), seed=self.training.seed)  # every group equally likely
        select = None
        if held is not None:
            metric = possible_metric(self.select, self.usual_select, held.dataset, title)
            select = Selection(metric, held, counts)
        self.history_: History = train(
            model, feed, self.training, objective=self.objective, plan=plan, select=select, callbacks=callbacks,
            title=title, record=record,
        )  # fmt: skip
        return self

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean cross-entropy of a batch, and the penalty."""
        loss = F.cross_entropy(model(batch.inputs), batch.labels)
        return loss + self.l1 * l1_penalty(self.head_) if self.l1 else loss

    def __call__(self, vectors: Tensor) -> Tensor:
        return self.head_(vectors)

    def as_layer(self) -> nn.Module:
        return self.head_

    def plain(self) -> dict[str, Any]:
        """The settings as JSON values; those of the training by their short words, where they are not the usual."""
        return {**super().plain(), "training": None, **self.training.beside(self.usual_training())}

    def learned(self) -> dict[str, Any]:
        return {"features": self.features_, "classes": self.classes_, "history": self.history_.to_dict()}

    def tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self.head_.state_dict().items()}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.build(int(learned["features"]), int(learned["classes"]))
        self.head_.load_state_dict(tensors)
        self.head_.requires_grad_(False).eval()
        self.history_ = History(**learned["history"])
