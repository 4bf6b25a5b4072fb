"""AUROC on the whole test split and on the subset where the shortcut points the wrong way.

Reference: arXiv 2506.08915 (average AUC and worst-group AUC on SIIM-ACR). The curve itself is torchmetrics'.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import ArrayLike

from foveate.errors import DataError
from foveate.measure.counts import minority_groups


class NoAnswerWarning(UserWarning):
    """A model had no answer to some images: NaN or infinite scores, which count as wrong."""


def average_auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Area under the ROC curve of ``scores`` (larger = class 1) against binary ``labels``, both ``[N]``.

    Constant scores give 0.5. A score that is not finite is no answer, hence wrong: it loses against every image of
    the other class. Leave unreadable images out before.

    >>> average_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    # Imported here: torchmetrics takes seconds (it pulls in torchvision, hence compat) and few callers need
    # it.
    from foveate import compat  # noqa: F401

    # isort: split
    from torchmetrics.functional.classification import binary_auroc

    s = np.asarray(scores, dtype=np.float64)
    y = np.asarray(labels, dtype=np.int64)
    if s.shape != y.shape or s.ndim != 1:
        raise DataError(f"AUC: expected one score and one label per image, [N]; got {s.shape} and {y.shape}.")
    if set(np.unique(y)) != {0, 1}:
        raise DataError(f"AUC needs images of both classes 0 and 1; found the classes {np.unique(y).tolist()}.")
    known = np.isfinite(s)
    if not known.all():
        warnings.warn(
            f"{int((~known).sum())} of {len(s)} scores are not finite; each counts as wrong in every comparison.",
            NoAnswerWarning,
            stacklevel=2,
        )
        # beyond all others on the wrong side
        s = np.where(known, s, np.where(y == 1, -np.inf, np.inf))
    # torchmetrics squashes scores outside [0, 1] by a sigmoid, which can merge large ones: the area depends
    # on the order alone, so ranks (ties kept) are passed instead.
    ranks = np.unique(s, return_inverse=True)[1]
    return float(binary_auroc(torch.as_tensor(ranks / max(1, ranks.max())), torch.as_tensor(y)))


def worst_group_auc(
    scores: ArrayLike, labels: ArrayLike, attributes: ArrayLike, train_counts: ArrayLike | None = None
) -> float:
    """AUROC on the images whose attribute speaks against their label.

    For chest X-rays: pneumothorax without a tube, and no pneumothorax with a tube. Below 0.5 means that the
    model follows the attribute. With ``train_counts`` (``[2, num_attributes]``) the subset is the groups that
    are a minority in training; without, the attribute must be binary and the subset is
    ``label != attribute``.

    Args: ``scores``, ``labels``, ``attributes``: ``[N]`` each; a score is for instance the probability of
    class 1.

    >>> scores, labels, attributes = [0.9, 0.8, 0.2, 0.1], [1, 0, 1, 0], [1, 1, 0, 0]
    >>> average_auc(scores, labels), worst_group_auc(scores, labels, attributes)
    (0.75, 0.0)
    """
    y, a = np.asarray(labels, dtype=np.int64), np.asarray(attributes, dtype=np.int64)
    if y.shape != a.shape:
        raise DataError(f"worst_group_auc: {len(y)} labels but {len(a)} attributes; give one each per image.")
    if train_counts is not None:
        against = minority_groups(np.asarray(train_counts))[y, a]
    elif set(np.unique(a)) <= {0, 1}:
        against = y != a
    else:
        raise DataError("worst_group_auc: with more than two attribute values, give train_counts.")
    return average_auc(np.asarray(scores)[against], y[against])
