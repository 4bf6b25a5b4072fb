"""Correct-n-Contrast: pull together samples of one class that a biased model treats differently.

The biased model's prediction stands for the unknown attribute. An anchor is a correctly predicted sample; its
positives have its class but another prediction, its negatives another class but its prediction.

Reference: Zhang et al. 2022, "Correct-n-Contrast: a contrastive approach for improving robustness to spurious
correlations".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from foveate.errors import DataError, FoveateError


def cnc_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, temperature: float = 0.1) -> Tensor:
    """The supervised contrastive loss, averaged over anchors and positives.

    For anchor a: ``−mean_p log[ e^{s(a,p)/τ} / (Σ_n e^{s(a,n)/τ} + Σ_{p'} e^{s(a,p')/τ}) ]``, s the cosine.

    Args:
        anchors: ``[A, D]`` encoder outputs (no projection head).
        positives: ``[P, D]``, shared by all anchors.
        negatives: ``[M, D]``, shared by all anchors; M may be 0.
        temperature: τ.

    >>> same = torch.ones(1, 4)
    >>> cnc_loss(same, same.repeat(2, 1), same.repeat(6, 1)).exp()        # all alike: log(P + M)
    tensor(8.0000)
    """
    if temperature <= 0:
        raise FoveateError(f"cnc_loss: the temperature must be positive; got {temperature}.")
    if not len(anchors) or not len(positives):
        raise FoveateError(f"cnc_loss: needs anchors and positives; got {len(anchors)} and {len(positives)}.")
    with torch.autocast(anchors.device.type, enabled=False):  # cosines over a small temperature need all their digits
        kind = torch.promote_types(anchors.dtype, torch.float32)
        a, p, n = (F.normalize(x.to(kind), dim=1) for x in (anchors, positives, negatives))
        to_positives = a @ p.T / temperature  # [A, P]
        to_negatives = a @ n.T / temperature  # [A, M]
    everything = torch.cat([to_positives, to_negatives], dim=1).logsumexp(1)
    return (everything[:, None] - to_positives).mean()


def cnc_two_sided_loss(
    anchors: Tensor, positives: Tensor, negatives: Tensor, easy_negatives: Tensor, temperature: float = 0.1
) -> Tensor:
    """The sum of both directions: anchors against ``negatives``, and positives, in the anchors' role,
    against ``easy_negatives`` (another class, from the positives' slice). Shapes as in :func:`cnc_loss`.

    A sum as in the authors' code (github.com/HazyResearch/correct-n-contrast, train_supervised_contrast.py), where each
    direction has the full contrastive weight and its own backward pass; so a weight means here what it means there.
    They take the first anchor and the first positive of a batch, here all are averaged: the same in expectation.

    >>> same = torch.ones(2, 4)
    >>> cnc_two_sided_loss(same, same, same, same).exp()                  # log 4 forth and log 4 back
    tensor(16.)
    """
    forth = cnc_loss(anchors, positives, negatives, temperature)
    back = cnc_loss(positives, anchors, easy_negatives, temperature)
    return forth + back


@dataclass(frozen=True)
class CnCBatch:
    """Sample positions of one contrastive step; ``label`` is the class of anchors and positives."""

    label: int
    anchors: NDArray[np.int64]
    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]
    easy_negatives: NDArray[np.int64]

    @property
    def indices(self) -> NDArray[np.int64]:
        """All four one after the other: what to load, and what the cross-entropy term is computed on."""
        return np.concatenate([self.anchors, self.positives, self.negatives, self.easy_negatives])


@dataclass(frozen=True)
class CnCBatches:
    """One epoch of batches in random order, and in ``notes`` which fall-backs were needed."""

    batches: list[CnCBatch]
    notes: list[str] = field(default_factory=list)


def cnc_batches(
    predictions: ArrayLike,
    labels: ArrayLike,
    num_anchors: int = 17,
    num_positives: int = 17,
    num_negatives: int = 17,
    *,
    anchor_share: float = 1.0,
    rng: np.random.Generator | int = 0,
) -> CnCBatches:
    """The contrastive batches of one epoch from a biased model's predictions.

    Per class y: anchors are its samples predicted y, each used once (or a random ``anchor_share`` of them);
    positives its samples predicted otherwise; negatives the samples of other classes predicted y; easy
    negatives the samples of other classes from the slices (predictions) of the positives drawn. Fewer
    candidates than asked for are drawn with repetition.

    When there is nobody to draw from:

    - no sample of y was predicted wrongly: all samples of y serve as positives;
    - no sample of y was predicted correctly: all samples of y serve as anchors;
    - nobody else was predicted y (or lies in the positives' slices): all samples of other classes are
      negatives.

    Each of these is written in ``notes``. One single class is an error: there are no negatives at all.

    Args: ``predictions``, ``labels``: ``int [N]``. The defaults are the paper's for Waterbirds.

    >>> epoch = cnc_batches([0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1], 2, 1, 1)
    >>> sorted((b.label, sorted(b.anchors.tolist()), b.positives.tolist(), b.negatives.tolist())
    ...        for b in epoch.batches)
    [(0, [0, 1], [2], [5]), (1, [3, 4], [5], [2])]
    """
    guess, y = np.asarray(predictions, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    if guess.shape != y.shape or y.ndim != 1:
        raise DataError(f"CnC: expected one prediction per label, [N]; got {guess.shape} and {y.shape}.")
    if min(num_anchors, num_positives, num_negatives) < 1 or not 0 < anchor_share <= 1:
        raise FoveateError("CnC: ask for at least one anchor, positive and negative, and an anchor_share in (0, 1].")
    classes = np.unique(y)
    if len(classes) < 2:
        raise DataError(f"CnC needs samples of at least two classes; found {len(classes)}.")
    generator = np.random.default_rng(rng)
    batches: list[CnCBatch] = []
    notes: list[str] = []

    def draw(pool: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        return generator.choice(pool, count, replace=len(pool) < count)

    for label in classes:
        own, others = np.flatnonzero(y == label), np.flatnonzero(y != label)
        anchors, positives = own[guess[own] == label], own[guess[own] != label]
        negatives = others[guess[others] == label]
        if not len(positives):
            notes.append(f"class {label}: no errors, so all its samples serve as positives")
            positives = own
        if not len(anchors):
            notes.append(f"class {label}: no correct predictions, so all its samples serve as anchors")
            anchors = own
        if not len(negatives):
            notes.append(f"class {label}: no other class is taken for it, so all others serve as negatives")
            negatives = others
        anchors = generator.permutation(anchors)[: max(1, round(anchor_share * len(anchors)))]
        for start in range(0, len(anchors), num_anchors):
            drawn = draw(positives, num_positives)
            easy = others[np.isin(guess[others], guess[drawn])]
            batches.append(
                CnCBatch(
                    int(label),
                    anchors[start : start + num_anchors],
                    drawn,
                    draw(negatives, num_negatives),
                    draw(easy if len(easy) else others, num_negatives),
                )
            )
    order = generator.permutation(len(batches))
    return CnCBatches([batches[i] for i in order], notes)
