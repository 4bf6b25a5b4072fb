"""Every choice on validation images, in one place: which views are read, and how strongly the decision is held back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.decide.decision import Decision, LinearFit
from foveate.engine import Selection, TensorFeed, possible_metric
from foveate.errors import FoveateError
from foveate.restrict.restriction import Chosen


@dataclass
class Choice:
    """What was chosen, on what, and what every candidate scored."""

    views: Any
    C: float
    selection: dict[str, Any] | None = None
    scores: list[dict[str, Any]] = field(default_factory=list)


def has_choice(who: str, views: dict[Any, Chosen], decide: Decision, val: GroupedDataset | None) -> bool:
    """Whether anything is to be chosen on ``val``; an error when there is none."""
    strengths = decide.strengths()
    alone = decide.tunes_itself() and len(views) == 1 and val is None
    if len(views) * (1 if alone else len(strengths)) == 1:
        return False
    if val is None:
        among = ", ".join(map(str, views if len(views) > 1 else strengths))
        raise FoveateError(
            f"{who} is to choose among {among} on validation images, and there are none: give fit a val, or a single "
            "value."
        )
    return True


def choose(
    who: str,
    views: dict[Any, Chosen],
    decide: LinearFit,
    found: TensorFeed,
    held: TensorFeed,
    counts: NDArray[np.int64] | None,
) -> Choice:
    """The best pair of views and strength on ``held``, the first of equals.

    Args:
        who: the system that chooses, for messages.
        views: sets of views by name.
        decide: says the strengths, how a candidate is fitted and which metric counts.
        found: features ``[N, V, D]`` of all views, to fit on.
        held: those of the validation images.
        counts: training images per group, for metrics that need them.
    """
    metric = possible_metric(decide.select, decide.usual_select, held.dataset, who)
    choice, best = Choice(next(iter(views)), decide.strengths()[0]), None
    for name, columns in views.items():
        select = Selection(metric, viewed(held, columns), counts)
        feed = viewed(found, columns)
        for strength in decide.strengths():
            layer = decide.candidate(strength).fit(feed).as_layer()
            score = select.score(layer, torch.device("cpu"), 1024)[metric]
            choice.scores.append({"views": name, "C": strength, metric: score})
            if select.better(score, best):
                choice.views, choice.C, best = name, strength, score
        choice.selection = select.describe()
    return choice


def viewed(feed: TensorFeed, views: Chosen) -> TensorFeed:
    """The features of some views, concatenated: ``[N, V, D]`` to ``[N, len(views) * D]``."""
    features = feed.plain()
    if features.ndim == 3:
        chosen = features if views == tuple(range(features.shape[1])) else features[:, list(views)]
        features = chosen.reshape(len(features), -1)
    return TensorFeed(features, feed.dataset)


def figures_of_logits(logits: NDArray[np.float32], data: GroupedDataset) -> dict[str, float]:
    """Every metric of logits ``[n, C]`` on ``data``, by name; rows of NaN (unreadable images) are left out."""
    rows = np.flatnonzero(~np.isnan(logits).all(1))
    feed = TensorFeed(logits[rows], data.subset(rows))
    return Selection("average", feed).score(nn.Identity(), torch.device("cpu"), 4096)
