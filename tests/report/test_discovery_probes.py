"""Probes and slices of the discovery: sure of a planted cue, and rarely of noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.report.discovery.probes import balanced_score, holm, out_of_fold, probe_all, shuffled
from foveate.report.discovery.slices import find_slices


def test_holm_known_answer() -> None:
    assert holm([0.01, 0.02, 0.03, 0.5]).tolist() == pytest.approx([0.04, 0.06, 0.06, 0.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_holm_lies_between_plain_and_bonferroni_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert (adjusted >= np.asarray(p) - 1e-12).all()
    assert (adjusted <= np.minimum(np.asarray(p) * len(p), 1) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= -1e-12).all()


def test_probes_of_noise_are_rarely_sure_and_of_a_cue_always() -> None:
    rng = np.random.default_rng(0)
    sure = 0
    for seed in range(20):
        y = rng.integers(0, 3, 150)
        x = {"noise": rng.normal(size=(150, 20)), "cue": np.eye(3)[y] + rng.normal(0, 0.4, (150, 3))}
        found = {p.key: p for p in probe_all(x, y, "label", shuffles=99, seed=seed)}
        sure += found["noise"].p < 0.05
        assert found["cue"].tells
        assert found["cue"].chance == pytest.approx(1 / 3)
    assert sure <= 4


def test_a_cue_is_sure_among_many_properties() -> None:
    """The smallest p-value 199 shuffles can give, times 25 properties, is 0.125: more are needed, and made."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 200)
    x = {f"noise {i}": rng.normal(size=(200, 2)) for i in range(24)} | {
        "cue": y[:, None] + rng.normal(0, 0.3, (200, 1))
    }
    found = {p.key: p for p in probe_all(x, y, "label")}
    assert found["cue"].tells
    assert found["cue"].adjusted < 0.05
    assert not any(p.tells for key, p in found.items() if key != "cue")


def test_all_labelings_at_once_equal_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(90, 4)), rng.integers(0, 3, (90, 5))
    together = out_of_fold(x, y, 3)
    for t in range(5):
        assert (out_of_fold(x, y[:, [t]], 3)[:, 0] == together[:, t]).all()
    score = balanced_score(together, y, 3)
    by_hand = np.mean([(together[y[:, 0] == k, 0] == k).mean() for k in range(3)])
    assert score[0] == pytest.approx(by_hand)


def test_answers_that_only_follow_the_label_do_not_count() -> None:
    """A property that tells the label tells a good model's answers too; beyond the label it tells nothing."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 300)
    cue = y[:, None] + rng.normal(0, 0.3, (300, 1))
    answers = np.where(rng.random(300) < 0.9, y, 1 - y)
    assert probe_all({"cue": cue}, answers, "answers")[0].tells
    assert not probe_all({"cue": cue}, answers, "answers", within=y)[0].tells
    scene = rng.integers(0, 2, 300)
    follows = np.where(rng.random(300) < 0.6, y, scene)
    assert probe_all({"scene": scene[:, None].astype(float)}, follows, "answers", within=y)[0].tells
    mixed = shuffled(y, y, 3, rng)
    assert (mixed == y[:, None]).all()


def test_slices_find_the_planted_bunch_and_nothing_in_noise() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 6))
    x[:60] += 8
    y = np.zeros(400, dtype=np.int64)
    y[200:] = 1
    said = np.where(rng.random(400) < 0.95, y, 1 - y)
    said[:60] = np.where(rng.random(60) < 0.7, 1, 0)
    found = find_slices(x, y, said)
    assert {i for s in found for i in s.members} >= set(range(50))
    assert all(s.adjusted < 0.05 and s.label == 0 for s in found)
    luck = [len(find_slices(rng.normal(size=(400, 6)), y, np.where(rng.random(400) < 0.8, y, 1 - y))) for _ in range(5)]
    assert sum(luck) <= 1
    assert find_slices(x, y, y) == []
