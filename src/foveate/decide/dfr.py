"""Deep Feature Reweighting: refit the last layer on group-balanced data.

Reference: Kirichenko et al. 2023, "Last layer re-training is sufficient for robustness to spurious
correlations".
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.decide.l1_logistic import l1_logistic, l1_setting
from foveate.decide.linear import Floats, LinearDecision, Scaler, check_features, one_vs_rest_signs
from foveate.decide.reweight import subsample
from foveate.errors import DataError, FoveateError

C_GRID = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
SOLVERS = ("fast", "sklearn")


class AbsentGroupWarning(UserWarning):
    """A group has no samples, so balancing leaves it out."""


class DFRHead(LinearDecision):
    """L1 logistic regression on balanced subsets, averaged: the original DFR.

    1. *Tune C*: half of every group for fitting (cut to the size of the smallest), half for scoring; the C
    with
       the best worst-group accuracy wins, the first in the grid when several tie. Features are scaled by the balanced
       part that is fitted to, as in the reference (github.com/PolinaKirichenko/deep_feature_reweighting,
       dfr_evaluate_spurious.py). The reference shuffles the whole split; splitting within groups keeps small groups in
       both halves.
    2. *Refit*: ``refits`` independent balanced subsets of everything given; coefficients and intercepts are
       averaged. All fits share one scaler, without which averaging would be meaningless. When the data are
       balanced already all subsets are the same, and one fit is enough.

    More than two classes are fitted one-vs-rest. Groups without samples are left out of the balance: the rest
    is balanced over the groups observed, and :class:`AbsentGroupWarning` names how many are missing.

    Args:
        C: inverse regularisation strengths to try; a single number skips the tuning.
        refits: 20 for DFR on validation data, 10 for DFR on training data.
        standardize: scale features first.
        seed: chooses the halves and subsets.
        solver: ``"fast"`` (:func:`~foveate.decide.l1_logistic.l1_logistic`, each fit starting from the one
            before) or ``"sklearn"`` (liblinear, one fit after the other).

    Attributes: ``C_``; ``scores_`` (C -> worst-group accuracy in tuning); ``group_size_`` (samples per group
    in a subset); ``absent_groups_``; and those of :class:`~foveate.decide.linear.LinearDecision`.

    >>> rng = np.random.default_rng(0)
    >>> labels, attributes = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    >>> features = rng.normal(size=(200, 5)) + np.outer(labels, [4, 0, 0, 0, 0]) + np.outer(attributes, [0, 4, 0, 0, 0])
    >>> head = DFRHead().fit(features, labels, labels * 2 + attributes)
    >>> bool((head.predict(features) == labels).mean() > 0.95)
    True
    """

    liblinear_tol = 1e-4
    """scikit-learn's default; only read by ``solver="sklearn"``."""

    def __init__(
        self,
        C: float | Sequence[float] = C_GRID,
        refits: int = 20,
        standardize: bool = True,
        seed: int = 0,
        solver: str = "fast",
    ):
        self.C, self.refits, self.standardize, self.seed, self.solver = C, refits, standardize, seed, solver

    def fit(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        *,
        num_classes: int | None = None,
        num_groups: int | None = None,
        scale_on: ArrayLike | None = None,
        score_on: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    ) -> DFRHead:
        """Fit to ``features`` ``[N, D]``, ``labels`` and ``groups`` ``[N]``.

        Args:
            num_classes, num_groups: when some may be absent here.
            scale_on: features ``[M, D]`` that the refits take mean and spread from (the original uses the training
                split's for DFR on validation data); default the features given.
            score_on: ``(features, labels, groups)`` to score the tuning on, which then fits on one balanced
                subset of everything given, scaled like the refits: DFR on training data, tuned on validation data.
        """
        grid = [float(self.C)] if isinstance(self.C, (int, float)) else [float(c) for c in self.C]
        if not grid or min(grid) <= 0 or self.refits < 1 or self.solver not in SOLVERS:
            raise FoveateError(
                f"DFRHead: expected C > 0, refits >= 1 and a solver of {SOLVERS}; "
                f"got {grid}, {self.refits}, '{self.solver}'."
            )
        x, y = check_features(features, labels)
        g = np.asarray(groups, dtype=np.int64)
        if g.shape != y.shape:
            raise DataError(f"DFRHead: {g.shape} groups for {y.shape} labels; give one each.")
        self.absent_groups_ = warn_of_absent_groups(g, num_groups)
        rng = np.random.default_rng(self.seed)
        present = np.unique(y)
        classes = num_classes or int(y.max()) + 1
        fixed = None if scale_on is None else Scaler(np.asarray(scale_on, dtype=np.float64))

        start: list[Floats] | None = None
        self.scores_: dict[float, float] = {}
        self.C_ = grid[0]
        if len(grid) > 1:
            self.C_, start = self._tune(x, y, g, grid, fixed, score_on, present, classes, rng)

        scaler = self._scaler(x, fixed)
        z = scaler.with_ones(x)
        fits: list[Floats] = []
        for _ in range(self.refits):
            kept = subsample(g, rng)
            self.group_size_ = len(kept) // len(np.unique(g))
            start = self._solve(np.asfortranarray(z[kept]), y[kept], present, self.C_, start)
            fits.append(np.stack(start))
            if len(kept) == len(g):
                break  # balanced already: every further subset is this one
        self.one_vs_rest_ = True
        self._set(np.mean(fits, axis=0), present, classes, scaler)
        return self

    def _tune(
        self,
        x: Floats,
        y: NDArray[np.int64],
        g: NDArray[np.int64],
        grid: list[float],
        fixed: Scaler | None,
        score_on: tuple[ArrayLike, ArrayLike, ArrayLike] | None,
        present: NDArray[np.int64],
        classes: int,
        rng: np.random.Generator,
    ) -> tuple[float, list[Floats]]:
        """The best C, and its solution on the tuning data (a good start for the refits)."""
        if score_on is None:
            fitting, scoring = halves(g, rng)
            tx, ty, tg = x[scoring], y[scoring], g[scoring]
        else:
            fitting = np.arange(len(g))
            tx = np.asarray(score_on[0], dtype=np.float64)
            ty, tg = (np.asarray(v, dtype=np.int64) for v in score_on[1:])
        kept = fitting[subsample(g[fitting], rng)]
        scaler = self._scaler(x[kept], None) if score_on is None else self._scaler(x, fixed)
        z = scaler.with_ones(x[kept])
        probe = LinearDecision()
        solution: list[Floats] | None = None
        solutions: dict[float, list[Floats]] = {}
        scores: dict[float, float] = {}
        for C in sorted(set(grid)):  # from few features to many: each solution is close to the next
            solution = self._solve(z, y[kept], present, C, solution)
            probe._set(np.stack(solution), present, classes, scaler)
            solutions[C], scores[C] = solution, worst_group(probe.predict(tx) == ty, tg)
        self.scores_ = {C: scores[C] for C in grid}
        best = max(grid, key=lambda C: scores[C])  # max keeps the first of equals
        return best, solutions[best]

    def _scaler(self, x: Floats, fixed: Scaler | None) -> Scaler:
        if not self.standardize:
            return Scaler.off(x.shape[1])
        return fixed if fixed is not None else Scaler(x)

    def _solve(
        self, z: Floats, y: NDArray[np.int64], present: NDArray[np.int64], C: float, start: list[Floats] | None
    ) -> list[Floats]:
        signs = one_vs_rest_signs(y, present)
        if self.solver == "fast":
            return [l1_logistic(z, s, C, None if start is None else start[k]) for k, s in enumerate(signs)]
        return [liblinear_l1(z[:, :-1], s, C, self.liblinear_tol) for s in signs]


def warn_of_absent_groups(groups: NDArray[np.int64], num_groups: int | None = None) -> list[int]:
    """Groups below ``num_groups`` without a sample; warns with :class:`AbsentGroupWarning` when there are any."""
    known = num_groups or int(groups.max()) + 1
    absent = sorted(set(range(known)) - set(groups.tolist()))
    if absent:
        few = ", ".join(map(str, absent[:8])) + (", …" if len(absent) > 8 else "")
        warnings.warn(
            f"DFR: {len(absent)} of {known} groups have no samples ({few}); balancing over the groups observed.",
            AbsentGroupWarning,
            stacklevel=3,
        )
    return absent


def liblinear_l1(features: Floats, signs: Floats, C: float, tol: float = 1e-4) -> Floats:
    """scikit-learn's answer to the same problem as :func:`l1_logistic`: ``[D + 1]``, intercept last."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=C, solver="liblinear", tol=tol, max_iter=1000, random_state=0, **l1_setting())
    model.fit(features, signs)
    return np.append(model.coef_[0], model.intercept_[0])


def halves(groups: NDArray[np.int64], rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two random halves, group by group; the odd sample of a group goes to the first.

    >>> a, b = halves(np.array([0, 0, 0, 1, 1]), np.random.default_rng(0))
    >>> len(a), len(b)
    (3, 2)
    """
    first, second = [], []
    for value in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == value))
        cut = (len(members) + 1) // 2
        first.append(members[:cut])
        second.append(members[cut:])
    return np.concatenate(first), np.concatenate(second)


def worst_group(right: NDArray[np.bool_], groups: NDArray[np.int64]) -> float:
    """Minimum accuracy over the groups there are; 0 when there is nothing to score.

    >>> worst_group(np.array([True, True, False]), np.array([0, 3, 3]))
    0.5
    """
    if not len(groups):
        return 0.0
    counts = np.bincount(groups)
    return float((np.bincount(groups, weights=right)[counts > 0] / counts[counts > 0]).min())
