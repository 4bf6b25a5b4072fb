"""Model selection on a named metric, with a record of whether it used group labels."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.engine.feed import Feed
from foveate.errors import FoveateError, warn_caller
from foveate.measure import SmallGroupWarning, answered, check_selectable, decided, group_report


class NoGroupsWarning(UserWarning):
    """A system that chooses by groups unless told otherwise got validation images without any."""


@dataclass
class Selection:
    """Keep the epoch with the best ``metric`` on ``feed``.

    Args:
        metric: ``loss``, ``average``, ``worst_class``, ``worst_group``, ``minority`` … any of
            ``foveate list metrics`` that is computed from answers; which way is better is known of each.
        feed: the validation images or features.
        train_counts: training images per group, for the metrics that need them.

    >>> import foveate as fv
    >>> from foveate.engine import TensorFeed
    >>> val = fv.data.critters(train=40, target=16, val=16, test=16, size=32).val
    >>> select = Selection("worst_group", TensorFeed(torch.zeros(len(val), 2), val))
    >>> select.uses_groups, select.better(0.8, 0.7)
    (True, True)
    """

    metric: str
    feed: Feed
    train_counts: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if self.uses_groups:
            self.feed.dataset.require_groups(f"selecting on '{self.metric}'")

    @property
    def uses_groups(self) -> bool:
        """Whether group labels of the validation set take part in the choice."""
        return check_selectable(self.metric).uses_groups

    def describe(self) -> dict[str, Any]:
        return {"metric": self.metric, "on": self.feed.dataset.name, "uses_groups": self.uses_groups}

    def better(self, new: float, old: float | None) -> bool:
        """Whether ``new`` beats ``old``."""
        if old is None or math.isnan(old):
            return True
        return check_selectable(self.metric).better(new, than=old)

    def score(self, model: nn.Module, device: torch.device, batch_size: int) -> dict[str, float]:
        """Every metric that can be had on the validation data; ``score[self.metric]`` decides."""
        logits, positions = predict_feed(model, self.feed, device, batch_size)
        ds = self.feed.dataset
        labels = ds.labels[positions]
        with warnings.catch_warnings():  # a warning every epoch helps nobody; the final report gives it
            warnings.simplefilter("ignore", SmallGroupWarning)
            report = group_report(
                decided(answered(logits)), labels, None if ds.attributes is None else ds.attributes[positions],
                self.train_counts, class_names=ds.class_names, attribute_names=ds.attribute_names, logits=logits,
            )  # fmt: skip
        scores = {"loss": report.value("loss")} | {n: v for n, v in report.figures.items() if v is not None}
        if self.metric not in scores:
            if not check_selectable(self.metric).uses_train_counts:
                raise FoveateError(f"cannot select on '{self.metric}': it cannot be computed on {ds.name}.")
            raise FoveateError(
                f"cannot select on '{self.metric}': it needs to know which training groups are majority and minority, "
                "and the training set has no attributes or is balanced. Select on 'worst_group' or 'average'."
            )
        return scores


def check_metric(metric: str | None) -> None:
    """Raise with a suggestion unless ``metric`` names a selection metric, or is None (the usual one)."""
    if metric is not None:
        check_selectable(metric)


def possible_metric(told: str | None, usual: str, val: GroupedDataset, who: str) -> str:
    """The metric that ``who`` selects by on ``val``: the one it was told, whatever that needs; else the usual one.

    Where the usual one needs groups and ``val`` has none it is the worst class, with a :class:`NoGroupsWarning`.

    >>> import foveate as fv
    >>> val = fv.data.critters(train=40, target=16, val=16, test=16, size=32).val
    >>> possible_metric(None, "worst_group", val, "DAR"), possible_metric("loss", "worst_group", val, "DAR")
    ('worst_group', 'loss')
    """
    if told is not None:
        return told
    if val.attributes is not None or not check_selectable(usual).uses_groups:
        return usual
    warn_caller(
        f"{who} chooses by {usual} where groups are known. {val.name} has no attributes, so it chooses by worst_class "
        "here; select (--select) takes another metric.",
        NoGroupsWarning,
    )
    return "worst_class"


@torch.no_grad()
def predict_feed(
    model: nn.Module, feed: Feed, device: torch.device | str, batch_size: int = 128
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits ``[n, C]`` of every readable item of ``feed`` in order, and their positions ``[n]``.

    The model's training flag is put back afterwards.
    """
    training = model.training
    model.eval()
    logits, positions = [], []
    for batch in feed.evaluate(batch_size):
        logits.append(model(batch.inputs.to(device)).float().cpu().numpy())
        positions.append(batch.indices.numpy())
    model.train(training)
    if not logits:
        raise FoveateError(f"{feed.dataset.name}: nothing to predict; none of its images can be read.")
    return np.concatenate(logits), np.concatenate(positions)
