"""Linear heads on features that are computed already: logistic regression, exportable as plain weights.

Reference: scikit-learn's solvers; the interface follows its estimators.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from foveate.decide.l1_logistic import Floats, l1_logistic
from foveate.errors import DataError, FoveateError
from foveate.measure import answered, decided

NEVER = -1e6
"""The bias of a class that did not occur in fitting: it is never predicted."""


class LinearDecision:
    """A fitted linear decision ``features @ weight_.T + bias_`` on *raw* features (any scaling is folded in).

    Attributes:
        weight_: ``float64 [K, D]``.
        bias_: ``float64 [K]``.
        one_vs_rest_: whether the K scores are separate yes-or-no decisions (probabilities are then normalised
            sigmoids) or logits of one softmax.
    """

    weight_: Floats
    bias_: Floats
    one_vs_rest_: bool = False

    def decision_function(self, features: ArrayLike) -> Floats:
        """Scores ``[N, K]``, one column per class also when there are two."""
        if not hasattr(self, "weight_"):
            raise FoveateError(f"{type(self).__name__} is not fitted yet; call fit first.")
        x = np.asarray(features, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.weight_.shape[1]:
            raise DataError(f"expected features [N, {self.weight_.shape[1]}]; got {x.shape}.")
        return x @ self.weight_.T + self.bias_

    def predict(self, features: ArrayLike) -> NDArray[np.int64]:
        """The class with the highest score, ``[N]``; -2 where features that are not finite leave none."""
        return decided(answered(self.decision_function(features)))

    def predict_proba(self, features: ArrayLike) -> Floats:
        """Probabilities ``[N, K]``; rows sum to 1."""
        scores = self.decision_function(features)
        if self.one_vs_rest_:
            share = 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
        else:
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
        return share / share.sum(axis=1, keepdims=True)

    def to_linear(self) -> nn.Linear:
        """The same decision as a float32 torch layer, ``[N, D] -> [N, K]``."""
        layer = nn.Linear(self.weight_.shape[1], self.weight_.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.weight_))
            layer.bias.copy_(torch.from_numpy(self.bias_))
        return layer

    def state(self) -> dict[str, NDArray[Any]]:
        """What was learned, as arrays to save; :meth:`load_state` brings it back."""
        return {"weight": self.weight_, "bias": self.bias_, "one_vs_rest": np.array([self.one_vs_rest_])}

    def load_state(self, state: dict[str, NDArray[Any]]) -> LinearDecision:
        """Take over what :meth:`state` gave. Returns self."""
        self.weight_, self.bias_ = np.asarray(state["weight"]), np.asarray(state["bias"])
        self.one_vs_rest_ = bool(np.asarray(state["one_vs_rest"]).reshape(-1)[0])
        return self

    def _set(self, scaled: Floats, present: NDArray[np.int64], num_classes: int, scaler: Scaler) -> None:
        """Take over ``[R, D + 1]`` weights (intercept last) on scaled features: one row for two classes, with
        ``present[1]`` positive, else one row per entry of ``present``."""
        if len(scaled) == 1:
            scaled = np.concatenate([-scaled / 2, scaled / 2])  # softmax of ∓s/2 is the sigmoid of s
            self.one_vs_rest_ = False
        weight = scaled[:, :-1] / scaler.scale
        self.weight_ = np.zeros((num_classes, weight.shape[1]))
        self.bias_ = np.full(num_classes, NEVER)
        self.weight_[present] = weight
        self.bias_[present] = scaled[:, -1] - weight @ scaler.mean


class Scaler:
    """Mean and spread of features; constant features keep their spread of 1. ``Scaler.off`` changes
    nothing."""

    def __init__(self, features: Floats):
        self.mean = features.mean(axis=0)
        spread = features.std(axis=0)
        # A constant column's spread is rounding noise, not 0; dividing by it would blow the noise up.
        self.scale = np.where(spread > 1e-10 * (1 + np.abs(self.mean)), spread, 1.0)

    @staticmethod
    def off(width: int) -> Scaler:
        return Scaler(np.zeros((1, width)))

    def with_ones(self, features: Floats) -> Floats:
        """Scaled features with a last column of ones, column-major (what :func:`l1_logistic` likes)."""
        out = np.empty((len(features), features.shape[1] + 1), order="F")
        np.subtract(features, self.mean, out=out[:, :-1])
        out[:, :-1] /= self.scale
        out[:, -1] = 1.0
        return out


class LinearHead(LinearDecision):
    """Logistic regression on features.

    Args:
        C: inverse regularisation strength, scikit-learn's meaning (the loss is summed, not averaged).
        penalty: ``"l2"`` (one softmax over classes), ``"l1"`` (one-vs-rest; intercept penalised, as in
            liblinear) or ``"none"``.
        standardize: scale features to mean 0 and variance 1 before fitting.
        class_weight: None or ``"balanced"`` (l2 and none only).
        max_iter: iterations at most; running out of them warns.

    >>> head = LinearHead().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> head.predict([[0.5], [2.5]])
    array([0, 1])
    """

    def __init__(
        self,
        C: float = 1.0,
        penalty: str = "l2",
        standardize: bool = True,
        class_weight: str | None = None,
        max_iter: int = 1000,
    ):
        self.C, self.penalty, self.standardize = C, penalty, standardize
        self.class_weight, self.max_iter = class_weight, max_iter

    def fit(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        sample_weight: ArrayLike | None = None,
        num_classes: int | None = None,
    ) -> LinearHead:
        """Fit to ``features`` ``[N, D]`` and ``labels`` ``[N]``; classes up to ``num_classes`` may be
        absent."""
        if self.penalty not in ("l2", "l1", "none") or self.C <= 0:
            raise FoveateError(f"LinearHead: penalty is 'l2', 'l1' or 'none' and C > 0; got {self.penalty}, {self.C}.")
        x, y = check_features(features, labels)
        present = np.unique(y)
        scaler = Scaler(x) if self.standardize else Scaler.off(x.shape[1])
        z = scaler.with_ones(x)
        if self.penalty == "l1":
            if sample_weight is not None or self.class_weight is not None:
                raise FoveateError("LinearHead: weights are not supported with the l1 penalty.")
            signs = one_vs_rest_signs(y, present)
            rows = np.stack([l1_logistic(z, s, self.C, max_iter=self.max_iter) for s in signs])
            self.one_vs_rest_ = True
        else:
            rows = self._softmax(z[:, :-1], y, sample_weight)
            self.one_vs_rest_ = False
        self._set(rows, present, num_classes or int(y.max()) + 1, scaler)
        return self

    def _softmax(self, z: Floats, y: NDArray[np.int64], sample_weight: ArrayLike | None) -> Floats:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        C = np.inf if self.penalty == "none" else self.C
        model = LogisticRegression(C=C, class_weight=self.class_weight, max_iter=self.max_iter)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(z, y, sample_weight=None if sample_weight is None else np.asarray(sample_weight))
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            warnings.warn(
                f"LinearHead: not converged after {self.max_iter} iterations; raise max_iter or lower C.",
                RuntimeWarning,
                stacklevel=3,
            )
        return np.concatenate([model.coef_, model.intercept_[:, None]], axis=1)


def one_vs_rest_signs(labels: NDArray[np.int64], present: NDArray[np.int64]) -> list[Floats]:
    """Targets in {−1, 1}: one vector for two classes (the second is positive), else one per class."""
    positive = present[1:] if len(present) == 2 else present
    return [np.where(labels == label, 1.0, -1.0) for label in positive]


def check_features(features: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """``(float64 [N, D], int64 [N])``, or a :class:`DataError` that says what is wrong with them."""
    x, y = np.asarray(features, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if x.ndim != 2 or y.shape != (len(x),):
        raise DataError(f"expected features [N, D] and one label each; got {x.shape} and {y.shape}.")
    if not np.isfinite(x).all():
        raise DataError("some features are not finite (NaN or infinite); check the backbone and its input.")
    if len(np.unique(y)) < 2:
        raise DataError(f"a linear head needs at least two classes; found {np.unique(y).tolist()}.")
    return x, y
