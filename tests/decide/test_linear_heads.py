"""L1 logistic regression, LinearHead, DFR."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from foveate.decide import AbsentGroupWarning, DFRHead, LinearHead, l1_logistic
from foveate.decide.dfr import halves, liblinear_l1
from foveate.decide.l1_logistic import l1_setting
from foveate.decide.reweight import subsample
from foveate.errors import DataError, FoveateError


def biased(n: int = 400, dim: int = 30, classes: int = 2, seed: int = 0, share: float = 0.8) -> tuple:
    """Features in which the label is written weakly and the attribute strongly; both agree with ``share``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    a = np.where(rng.random(n) < share, y, rng.integers(0, classes, n))
    x = rng.normal(size=(n, dim))
    x[np.arange(n), y] += 2.0
    x[np.arange(n), classes + a] += 4.0
    return x, y, y * classes + a, a


# -- the solver ----------------------------------------------------------------------------


def test_l1_one_feature_by_hand() -> None:
    # x = ±1 with the sign of y: |w| + 2C log(1 + e^-w) is least where 1 = 2C / (1 + e^w): w = ln(2C − 1)
    x, s = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    for C in (1.5, 3.0, 50.0):
        assert l1_logistic(x, s, C)[0] == pytest.approx(math.log(2 * C - 1), abs=1e-5)
    assert l1_logistic(x, s, 1.0)[0] == 0.0  # and 0 up to C = 1
    assert l1_logistic(x, s, 0.2)[0] == 0.0


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(5, 60), st.integers(1, 40), st.sampled_from([0.01, 0.1, 1.0, 10.0]))
def test_l1_meets_the_optimality_conditions(seed: int, n: int, d: int, C: float) -> None:
    rng = np.random.default_rng(seed)
    x, s = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    start = rng.normal(size=d) * rng.integers(0, 2)
    w = l1_logistic(np.asfortranarray(x), s, C, start)
    gradient = -C * x.T @ (s / (1 + np.exp(s * (x @ w))))
    assert np.abs(gradient[w == 0]).max(initial=0) <= 1 + 1e-3
    assert gradient[w != 0] == pytest.approx(-np.sign(w[w != 0]), abs=1e-3)


def test_l1_is_liblinears_answer() -> None:
    x, y, _, _ = biased(dim=60)
    for C in (0.02, 0.1, 1.0):
        ours = l1_logistic(np.c_[x, np.ones(len(x))], 2.0 * y - 1, C)
        theirs = liblinear_l1(x, 2.0 * y - 1, C, tol=1e-9)
        assert ours == pytest.approx(theirs, abs=2e-4)


def test_l1_huge_scores_do_not_overflow() -> None:
    x = np.array([[1e4], [-1e4], [2e4], [-3e4]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        w = l1_logistic(x, np.array([1.0, -1.0, 1.0, -1.0]), 10.0, np.array([5.0]))
    assert np.isfinite(w).all()


@pytest.mark.parametrize("seed", range(8))
def test_l1_badly_scaled_features_and_bad_starts(seed: int) -> None:
    """Where Newton's steps fail, liblinear takes over: never worse than it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 40)) * 10 ** rng.uniform(-2, 2, 40)
    x[:, 20:30] = x[:, :10]  # duplicates
    s = rng.choice([-1.0, 1.0], 60)

    def objective(w: np.ndarray) -> float:
        return float(np.abs(w).sum() + 5.0 * np.logaddexp(0, -s * (x @ w)).sum())

    ours = objective(l1_logistic(x, s, 5.0, rng.normal(size=40) * 10))
    model = LogisticRegression(
        C=5.0, solver="liblinear", fit_intercept=False, tol=1e-6, max_iter=10_000, **l1_setting()
    )
    assert ours <= objective(model.fit(x, s).coef_[0]) * (1 + 1e-4)


# -- LinearHead ----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
def test_linear_head_is_scikit_learns(classes: int) -> None:
    x, y, _, _ = biased(classes=classes)
    head = LinearHead(C=0.5, standardize=False).fit(x, y)
    reference = LogisticRegression(C=0.5, max_iter=1000).fit(x, y)
    assert (head.predict(x) == reference.predict(x)).all()
    assert head.predict_proba(x) == pytest.approx(reference.predict_proba(x), abs=1e-6)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("classes", [2, 3])
def test_standardised_head_does_not_feel_units(penalty: str, classes: int) -> None:
    x, y, _, _ = biased(classes=classes)
    other = x * np.where(np.arange(x.shape[1]) % 2, 10.0, 0.01) + 5.0
    one, two = LinearHead(0.1, penalty).fit(x, y), LinearHead(0.1, penalty).fit(other, y)
    assert one.predict_proba(x) == pytest.approx(two.predict_proba(other), abs=1e-4)


def test_head_exports_to_torch_and_state() -> None:
    x, y, _, _ = biased(classes=3)
    head = LinearHead().fit(x, y)
    with torch.no_grad():
        logits = head.to_linear()(torch.from_numpy(x).float())
    assert (logits.argmax(1).numpy() == head.predict(x)).all()
    assert logits.softmax(1).numpy() == pytest.approx(head.predict_proba(x), abs=1e-4)
    again = LinearHead().load_state(head.state())
    assert (again.decision_function(x) == head.decision_function(x)).all()


@pytest.mark.parametrize("penalty", ["l2", "l1", "none"])
def test_absent_class_is_never_predicted(penalty: str) -> None:
    x, y, _, _ = biased(classes=3, n=300)
    kept = y != 1
    head = LinearHead(0.5, penalty).fit(x[kept], y[kept], num_classes=4)
    assert set(head.predict(x)) == {0, 2}
    proba = head.predict_proba(x)
    assert proba.shape == (300, 4)
    assert proba.sum(1) == pytest.approx(1)
    assert proba[:, [1, 3]].max() < 1e-12


def test_constant_features_and_bad_input() -> None:
    x, y, _, _ = biased()
    x[:, 7] = 0.1
    assert np.isfinite(LinearHead().fit(x, y).weight_).all()
    for bad_x, bad_y, message in (
        (x, np.zeros(len(y)), "two classes"),
        (x[:5], y, "one label each"),
        (np.where(x > 2, np.nan, x), y, "not finite"),
    ):
        with pytest.raises(DataError, match=message):
            LinearHead().fit(bad_x, bad_y)
    with pytest.raises(FoveateError, match="not fitted"):
        LinearHead().predict(x)
    with pytest.raises(FoveateError, match="penalty"):
        LinearHead(penalty="l3").fit(x, y)
    with pytest.raises(DataError, match="expected features"):
        LinearHead().fit(x, y).predict(x[:, :3])


def test_sample_weight_counts_as_repetition() -> None:
    x, y, _, _ = biased(n=60, dim=5)
    weight = np.where(np.arange(60) < 20, 3, 1)
    one = LinearHead(standardize=False).fit(x, y, sample_weight=weight)
    two = LinearHead(standardize=False).fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    assert one.weight_ == pytest.approx(two.weight_, abs=1e-3)


# -- DFR -----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_dfr_fast_predicts_what_converged_scikit_learn_predicts(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DFRHead, "liblinear_tol", 1e-8)
    x, y, g, _ = biased(n=500, classes=classes)
    test = biased(n=2000, classes=classes, seed=1)[0]
    fast, plain = (DFRHead(solver=s, refits=5).fit(x, y, g) for s in ("fast", "sklearn"))
    assert fast.C_ == plain.C_
    assert fast.scores_ == plain.scores_
    assert (fast.predict(test) == plain.predict(test)).all()


def test_dfr_repairs_what_erm_gets_wrong() -> None:
    x, y, g, _ = biased(n=2000, share=0.95)
    tx, ty, _, ta = biased(n=4000, share=0.0, seed=1)
    erm, dfr = LinearHead().fit(x, y), DFRHead().fit(x, y, g)
    against = ty != ta
    assert (dfr.predict(tx) == ty)[against].mean() > (erm.predict(tx) == ty)[against].mean() + 0.1


def test_dfr_balanced_data_need_one_fit() -> None:
    """Identical balanced subsets: the averaged model is the single fit."""
    x, y, g, _ = biased(n=4000)
    kept = np.concatenate([np.flatnonzero(g == k)[:50] for k in range(4)])
    many, one = (DFRHead(C=0.1, refits=r).fit(x[kept], y[kept], g[kept]) for r in (20, 1))
    assert (many.weight_ == one.weight_).all()
    assert many.group_size_ == 50
    plain = DFRHead(C=0.1, refits=1, solver="sklearn").fit(x[kept], y[kept], g[kept])
    assert one.weight_ == pytest.approx(plain.weight_, abs=2e-3)


def test_dfr_with_infinite_penalty_is_constant() -> None:
    x, y, g, _ = biased()
    head = DFRHead(C=1e-6).fit(x, y, g)
    assert (head.weight_ == 0).all()
    assert len(set(head.predict(x))) == 1


def test_dfr_does_not_feel_units() -> None:
    x, y, g, _ = biased()
    other = x.copy()
    other[:, 3] *= 10
    assert (DFRHead().fit(x, y, g).predict(x) == DFRHead().fit(other, y, g).predict(other)).all()


def test_dfr_absent_groups_are_named_and_left_out() -> None:
    x, y, g, _ = biased(classes=3, n=600)
    kept = g != 5
    with pytest.warns(AbsentGroupWarning, match=r"1 of 9 groups have no samples \(5\)"):
        head = DFRHead(refits=2).fit(x[kept], y[kept], g[kept], num_groups=9)
    assert head.absent_groups_ == [5]
    assert head.group_size_ == np.bincount(g)[[0, 1, 2, 3, 4, 6, 7, 8]].min()
    assert set(head.predict(x)) == {0, 1, 2}


def test_dfr_groups_of_one_sample_do_not_crash() -> None:
    x, y, g, _ = biased(n=200)
    kept = np.concatenate([np.flatnonzero(g != 1), np.flatnonzero(g == 1)[:1]])
    head = DFRHead(refits=3).fit(x[kept], y[kept], g[kept])
    assert head.group_size_ == 1
    assert np.isfinite(head.weight_).all()


def test_dfr_tuned_and_scaled_on_other_splits() -> None:
    x, y, g, _ = biased(n=800)
    vx, vy, vg, _ = biased(n=400, share=0.5, seed=1)
    head = DFRHead(refits=10).fit(x, y, g, score_on=(vx, vy, vg), scale_on=vx * 2)
    assert set(head.scores_) == {1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01}
    assert head.scores_[head.C_] == max(head.scores_.values())
    assert (head.predict(vx) == vy).mean() > 0.85


@pytest.mark.parametrize("scaled", [False, True])
def test_dfr_tunes_as_the_reference_does(scaled: bool) -> None:
    """Against scikit-learn written out: the tuning's scaler knows the balanced part of the half and nothing else."""
    rng = np.random.default_rng(3)
    groups = rng.permutation(np.repeat([0, 1, 2, 3], [150, 14, 20, 150]))
    labels, attributes = groups // 2, groups % 2
    spread = np.array([1.0, 9.0, 3.0, 1.0])[groups]  # other groups, other means and spreads
    x = rng.normal(size=(len(groups), 6)) * spread[:, None]
    x[:, 0] += 1.5 * labels
    x[:, 1] += 6 * attributes
    everywhere = rng.normal(size=(50, 6)) * 40 if scaled else None  # only the refits are scaled by this
    head = DFRHead(solver="sklearn", refits=2).fit(x, labels, groups, scale_on=everywhere)

    rng = np.random.default_rng(0)
    fitting, scoring = halves(groups, rng)
    kept = fitting[subsample(groups[fitting], rng)]
    found: dict[str, list[float]] = {"balanced": [], "half": []}
    for name, rows in (("balanced", kept), ("half", fitting)):
        scaler = StandardScaler().fit(x[rows])
        for C in head.scores_:
            model = LogisticRegression(C=C, solver="liblinear", random_state=0, max_iter=1000, **l1_setting())
            right = model.fit(scaler.transform(x[kept]), labels[kept]).predict(scaler.transform(x[scoring]))
            found[name].append(min((right == labels[scoring])[groups[scoring] == g].mean() for g in range(4)))
    assert list(head.scores_.values()) == pytest.approx(found["balanced"])
    assert found["balanced"] != pytest.approx(found["half"])  # so that the test can tell


def test_dfr_is_repeatable_and_saves() -> None:
    x, y, g, _ = biased(classes=3, n=600)
    one, two, other = (DFRHead(seed=s).fit(x, y, g) for s in (0, 0, 1))
    assert (one.weight_ == two.weight_).all()
    assert (one.weight_ != other.weight_).any()
    again = DFRHead().load_state(one.state())
    assert (again.predict_proba(x) == one.predict_proba(x)).all()


def test_halves_share_every_group() -> None:
    g = np.repeat([0, 1, 4], [10, 3, 2])
    first, second = halves(g, np.random.default_rng(0))
    assert sorted([*first, *second]) == list(range(15))
    assert np.bincount(g[first]).tolist() == [5, 2, 0, 0, 1]
    assert np.bincount(g[second]).tolist() == [5, 1, 0, 0, 1]


def test_dfr_explains_bad_settings() -> None:
    x, y, g, _ = biased()
    with pytest.raises(FoveateError, match="solver"):
        DFRHead(solver="saga").fit(x, y, g)
    with pytest.raises(FoveateError, match="C > 0"):
        DFRHead(C=[0.0, 1.0]).fit(x, y, g)
    with pytest.raises(DataError, match="groups"):
        DFRHead().fit(x, y, g[:-1])
