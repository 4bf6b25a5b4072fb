"""The metrics of a group report, each a function of :class:`~foveate.measure.Answers`.

References: Sagawa et al. 2020, "Distributionally robust neural networks for group shifts" (worst group,
adjusted average); the DAR paper, arXiv 2605.20732 (pooled majority and minority accuracy);
arXiv 2506.08915 (the narrower worst-group accuracy of iFAM).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from foveate.measure.counts import GroupTable
from foveate.measure.metric import Answers, Metric


def average(answers: Answers) -> float:
    """Plain accuracy."""
    counts = answers.counts
    return float(counts.class_correct.sum() / counts.class_n.sum())


def adjusted_average(answers: Answers) -> float | None:
    """Group accuracies weighted by the training counts (Waterbirds' habit), over the groups that have images."""
    counts = answers.counts
    if counts.n is None or counts.train is None:
        return None
    weights = np.where(counts.n > 0, counts.train, 0)
    return float((weights * counts.accuracy).sum() / weights.sum()) if weights.sum() > 0 else None


def worst_group(answers: Answers) -> float | None:
    """The minimum over all non-empty groups."""
    n = answers.counts.n
    return None if n is None else float(answers.counts.accuracy[n > 0].min())


def worst_class(answers: Answers) -> float:
    """The minimum over the classes that occur."""
    n, correct = answers.counts.class_n, answers.counts.class_correct
    return float((correct[n > 0] / n[n > 0]).min())


def majority(answers: Answers) -> float | None:
    """Pooled accuracy (every image counts the same) of the groups that training has in plenty."""
    return pooled(answers.counts, "majority")


def minority(answers: Answers) -> float | None:
    """Pooled accuracy of the groups that training has too few of; None when training is balanced."""
    return pooled(answers.counts, "minority")


def pooled(counts: GroupTable, kind: str) -> float | None:
    """Accuracy over all images of the groups of one ``kind``, or None when there are none."""
    where = counts.kinds.get(kind)
    if where is None or counts.n is None or counts.correct is None or not counts.n[where].sum():
        return None
    return float(counts.correct[where].sum() / counts.n[where].sum())


def ifam(answers: Answers) -> float | None:
    """The minimum over classes of the accuracy on the images of training-minority groups alone."""
    counts = answers.counts
    where = counts.kinds.get("minority")
    if where is None or counts.n is None or counts.correct is None:
        return None
    n, correct = (counts.n * where).sum(axis=1), (counts.correct * where).sum(axis=1)
    return float((correct[n > 0] / n[n > 0]).min()) if n.any() else None


def mean_loss(answers: Answers) -> float | None:
    """Mean cross-entropy."""
    if answers.logits is None:
        return None
    return float(F.cross_entropy(torch.from_numpy(answers.logits), torch.from_numpy(answers.labels)))


_by_training = partial(Metric, uses_groups=True, uses_train_counts=True)

AVERAGE = Metric("average", function=average, note="all images")
ADJUSTED = _by_training("adjusted_average", function=adjusted_average, tables=("evaluate",))
MAJORITY = _by_training("majority", function=majority, note="as in training")
MINORITY = _by_training("minority", function=minority, note="unlike training")
WORST_GROUP = Metric("worst_group", function=worst_group, uses_groups=True, note="the lowest of all groups")
WORST_CLASS = Metric(
    "worst_class", function=worst_class, note="the lowest of all classes", tables=("evaluate", "audit")
)
IFAM_WORST = _by_training("ifam_worst_group", function=ifam, tables=())
UNANSWERED = Metric("unanswered", title="no answer", higher_is_better=False, tables=("bench",))
LOSS = Metric(
    "loss", function=mean_loss, higher_is_better=False, uses_logits=True, tables=(), unit="", scale=1.0, digits=4
)
