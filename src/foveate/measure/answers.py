"""From scores to answers: which class a row names, and the two ways of naming none.

An image that could not be *read* says nothing about a model and is left out of every figure. A model that was shown
an image and said NaN has answered, wrongly. The two must never be taken for each other, so they look different all
the way:

===============  ==================  =====================  ===================
                 logits              probabilities          class index
===============  ==================  =====================  ===================
not read         a row of NaN        a row of NaN           :data:`UNREADABLE`
no answer        a row of ``-inf``   a row of 0             :data:`NO_ANSWER`
===============  ==================  =====================  ===================

Whoever runs a model passes its scores through :func:`answered`; after that NaN means one thing only.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

UNREADABLE = -1
"""The prediction that stands for "this image could not be read": it is left out."""
NO_ANSWER = -2
"""The prediction that stands for "the model named no class" (NaN or infinite logits): it is wrong."""

Scores = TypeVar("Scores", bound=np.floating[Any])


def answered(scores: NDArray[Scores]) -> NDArray[Scores]:
    """What a model said about images it was shown, ``[n, C]``; rows that name no class become ``-inf`` throughout.

    A row names a class when its largest logit is a finite number and none is NaN: a class may be ruled out by
    ``-inf``, but nothing can be concluded from ``inf`` (it has no probabilities either).

    >>> answered(np.array([[0.5, 2.0], [np.nan, 2.0], [np.inf, 0.0], [-np.inf, 1.0]])).tolist()
    [[0.5, 2.0], [-inf, -inf], [-inf, -inf], [-inf, 1.0]]
    """
    names_one = np.isfinite(scores.max(axis=1))  # the maximum of a row with a NaN is NaN
    return scores if names_one.all() else np.where(names_one[:, None], scores, -np.inf).astype(scores.dtype)


def decided(logits: NDArray[Any]) -> NDArray[np.int64]:
    """Class indices ``[n]`` of logits ``[n, C]`` as ``predict_logits`` gives them (see :func:`answered`).

    >>> nan, inf = float("nan"), float("inf")
    >>> decided(np.array([[0.1, 0.2], [nan, nan], [-inf, -inf]])).tolist()
    [1, -1, -2]
    """
    best = logits.max(axis=1)
    named = np.where(np.isnan(best), 0, logits.argmax(axis=1))
    return np.where(np.isnan(best), UNREADABLE, np.where(np.isfinite(best), named, NO_ANSWER)).astype(np.int64)


def shares_of(logits: NDArray[Scores]) -> NDArray[Scores]:
    """Probabilities ``[n, C]`` of logits (softmax): NaN where an image was not read, 0 where there is no answer.

    >>> nan, inf = float("nan"), float("inf")
    >>> shares_of(np.array([[0.0, 0.0], [nan, nan], [-inf, -inf]])).tolist()
    [[0.5, 0.5], [nan, nan], [0.0, 0.0]]
    """
    best = logits.max(axis=1, keepdims=True)
    shifted = np.exp(logits - np.where(np.isneginf(best), 0, best))
    total = shifted.sum(axis=1, keepdims=True)
    return (shifted / np.where(total == 0, 1, total)).astype(logits.dtype)


def decided_by_shares(shares: NDArray[Any]) -> NDArray[np.int64]:
    """Class indices ``[n]`` of probabilities ``[n, C]`` as ``predict_proba`` gives them.

    >>> decided_by_shares(np.array([[0.1, 0.9], [float("nan")] * 2, [0.0, 0.0]])).tolist()
    [1, -1, -2]
    """
    with np.errstate(divide="ignore"):
        return decided(np.log(shares))


def name_of(prediction: int, class_names: list[str]) -> str:
    """What a prediction is called: its class, or why there is none.

    >>> [name_of(p, ["cat", "dog"]) for p in (1, UNREADABLE, NO_ANSWER)]
    ['dog', 'unreadable', 'no answer']
    """
    if prediction < 0:
        return "unreadable" if prediction == UNREADABLE else "no answer"
    return class_names[prediction]
