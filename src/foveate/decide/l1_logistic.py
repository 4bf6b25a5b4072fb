"""L1-regularised logistic regression, made for solving many problems that differ little.

The objective is liblinear's, intercept penalised like a weight:
``‖(w, b)‖₁ + C Σ_i log(1 + exp(−y_i (w·x_i + b)))`` with ``y`` in {−1, 1}.

Reference: Friedman et al. 2010, "Regularization paths for generalized linear models via coordinate descent"
(the quadratic model and the working set); Yuan et al. 2012, "An improved GLMNET for L1-regularized logistic
regression" (the line search).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.errors import FoveateError

Floats = NDArray[np.float64]


def l1_logistic(
    features: Floats, signs: Floats, C: float, start: Floats | None = None, tol: float = 1e-6, max_iter: int = 100
) -> Floats:
    """The minimiser of ``‖w‖₁ + C Σ log(1 + exp(−signs * (features @ w)))``.

    Newton's method on the smooth part; each step is a small lasso over the features that are, or may become,
    non-zero, which scikit-learn's coordinate descent solves from its Gram matrix. Starting from the solution
    of a neighbouring problem (the next C, another subset) takes few steps.

    Args:
        features: ``float64 [n, d]``; append a column of ones for an intercept. Column-major order is fastest.
        signs: −1 or 1, ``[n]``.
        C: inverse regularisation strength.
        start: where to start, ``[d]``; default zero.
        tol: stop when the violations of the optimality conditions add up to less than ``tol`` times those at
            zero. This is liblinear's rule; with its usual 1e-4 the objective is still visibly above the
            minimum.
        max_iter: Newton steps at most. Badly scaled features can need more; then liblinear solves the problem.

    Returns: ``float64 [d]``.

    >>> x = np.array([[1.0, 1.0], [-1.0, 1.0]])
    >>> w = l1_logistic(x, np.array([1.0, -1.0]), C=2.0)        # at the minimum 2C = 1 + e^w, so w = ln 3
    >>> [round(float(v), 4) for v in w]
    [1.0986, 0.0]
    """
    from sklearn.linear_model import enet_path

    n, d = features.shape
    if C <= 0 or len(signs) != n:
        raise FoveateError(f"l1_logistic: C must be positive and signs one per row; got {C}, {len(signs)}, {n}.")
    at_zero = np.maximum(np.abs(features.T @ signs) * (C / 2) - 1, 0).sum()
    if at_zero == 0:
        return np.zeros(d)  # the penalty outweighs every feature
    w = np.zeros(d) if start is None else start.astype(np.float64, copy=True)
    scores = features @ w
    value = _objective(w, scores, signs, C)
    if not value < C * n * np.log(2):  # a start worse than zero is no help
        w, scores, value = np.zeros(d), np.zeros(n), C * n * np.log(2)
    inner, before = 1e-4, np.inf
    for _ in range(max_iter):
        p = 1 / (1 + np.exp(np.clip(signs * scores, -500, 500)))  # probability of the wrong sign
        pull = C * signs * p
        gradient = -(features.T @ pull)
        violation = np.where(w != 0, np.abs(gradient + np.sign(w)), np.maximum(np.abs(gradient) - 1, 0))
        relative = violation.sum() / max(at_zero, 1e-3)
        if relative <= tol:
            return w
        # The inner problem is solved no better than needed, but better when that was not enough to move on.
        inner = max(1e-16, min(inner * (0.01 if relative > before / 2 else 1.0), 0.01 * relative**2))
        before = relative
        active = _working_set(w, violation)
        x = features[:, active]
        curvature = C * np.maximum(p * (1 - p), 1e-12)
        half = x * np.sqrt(curvature)[:, None]
        # Minimise gradient·(v − w) + (v − w)ᵀ H (v − w) / 2 + ‖v‖₁ over v. This is a weighted lasso; passed
        # with its Gram matrix as "one sample", so that scikit-learn does not rescale the penalty.
        gram = half.T @ half
        target = np.sqrt(curvature) * scores + pull / np.sqrt(curvature)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unfinished inner problem is fine: the outer test decides
            _, path, _ = enet_path(
                np.zeros((1, len(active)), order="F"), np.array([np.linalg.norm(target)]), l1_ratio=1.0,
                alphas=[1.0], precompute=gram, Xy=half.T @ target, coef_init=w[active], check_input=False,
                tol=inner, max_iter=40,
            )  # fmt: skip
        found = path[:, 0]
        step = found - w[active]
        moved = x @ step
        slope = gradient[active] @ step + np.abs(found).sum() - np.abs(w[active]).sum()
        size, new = 1.0, w.copy()
        new[active] = found
        while (new_value := _objective(new, scores + size * moved, signs, C)) > value + 0.01 * size * slope:
            if size < 1e-8:
                return _by_liblinear(features, signs, C, tol)
            size /= 2
            new[active] = w[active] + size * step
        w, scores, value = new, scores + size * moved, new_value
    return _by_liblinear(features, signs, C, tol)


def _working_set(w: Floats, violation: Floats) -> NDArray[np.int64]:
    """The features to move: all non-zero ones, and the zero ones that most want to leave zero."""
    used = np.flatnonzero(w)
    wanting = np.flatnonzero((w == 0) & (violation > 0))
    room = max(50, len(used) // 4)  # more would mostly be dropped again, at the price of a larger Gram matrix
    if len(wanting) > room:
        wanting = wanting[np.argpartition(-violation[wanting], room)[:room]]
    return np.concatenate([used, wanting])


def _by_liblinear(features: Floats, signs: Floats, C: float, tol: float) -> Floats:
    """The slow and steady way, for problems too badly conditioned for ours; warns when it gives up too."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=C, solver="liblinear", tol=tol, max_iter=10_000, fit_intercept=False, random_state=0, **l1_setting()
    )
    return np.asarray(model.fit(features, signs).coef_[0])


def l1_setting() -> dict[str, Any]:
    """How this scikit-learn wants to be told "L1": `penalty` was replaced by `l1_ratio` in 1.8."""
    import sklearn

    new = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 8)
    return {"l1_ratio": 1.0} if new else {"penalty": "l1"}


def _objective(w: Floats, scores: Floats, signs: Floats, C: float) -> float:
    return float(np.abs(w).sum() + C * np.logaddexp(0, -signs * scores).sum())
