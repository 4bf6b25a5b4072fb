"""Loss weights, samplers, subsets and JTT's copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.decide import (
    BalancedSampler,
    error_set,
    reweight,
    sampling_weights,
    subsample,
    upsample_errors,
)
from foveate.errors import DataError

groups = st.lists(st.integers(0, 5), min_size=1, max_size=80)


def test_loss_weights_by_hand() -> None:
    # sizes 4, 1, 0, 2: inverse 0.25, 1, 0, 0.5; sum 1.75; times 4 / 1.75
    weights = reweight([0, 0, 0, 0, 1, 3, 3])
    assert weights.tolist() == pytest.approx([0.25 * 4 / 1.75, 4 / 1.75, 0, 0.5 * 4 / 1.75])
    assert reweight([0, 1], num_groups=3).tolist() == pytest.approx([1.5, 1.5, 0])


@settings(deadline=None)
@given(groups)
def test_loss_weights_balance_the_groups(g: list[int]) -> None:
    weights = reweight(g)
    assert float(weights.sum()) == pytest.approx(max(g) + 1, rel=1e-5)
    total = np.bincount(g, weights=weights.numpy()[g])
    assert total[total > 0] == pytest.approx(total.max(), rel=1e-5)


@given(groups)
def test_sampling_weights_make_groups_equally_likely(g: list[int]) -> None:
    share = np.bincount(g, weights=sampling_weights(g))
    assert share[share > 0] == pytest.approx(len(g))


def test_balanced_sampler() -> None:
    g = np.array([0] * 900 + [2] * 90 + [5] * 10)
    sampler = BalancedSampler(g, length=6000, seed=1)
    first, second = list(sampler), list(sampler)
    counts = np.bincount(g[first], minlength=6)
    assert counts[[1, 3, 4]].tolist() == [0, 0, 0]
    assert np.abs(counts[[0, 2, 5]] - 2000).max() < 150  # four standard deviations are 146
    assert len(set(first)) > 800  # members of a group are drawn evenly
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert len(sampler) == 6000
    loader = torch.utils.data.DataLoader(list(range(1000)), batch_size=100, sampler=BalancedSampler(g))
    assert sum(len(b) for b in loader) == 1000


@given(groups, st.integers(0, 3))
def test_subsample_takes_the_same_from_every_group(g: list[int], seed: int) -> None:
    kept = subsample(g, seed)
    counts = np.bincount(g)
    smallest = counts[counts > 0].min()
    assert (np.bincount(np.array(g)[kept], minlength=len(counts)) == np.where(counts > 0, smallest, 0)).all()
    assert len(set(kept)) == len(kept)
    assert (kept == subsample(g, seed)).all()


def test_subsample_of_dominoes() -> None:
    g = np.repeat(np.arange(100), [4180 if k % 11 == 0 else 24 for k in range(100)])
    assert len(subsample(g)) == 2400
    assert len(subsample(g, size=3)) == 300
    with pytest.raises(DataError, match="smallest group has 24"):
        subsample(g, size=25)


def test_subsample_draws_another_subset_each_time() -> None:
    rng = np.random.default_rng(0)
    g = [0] * 100 + [1] * 10
    assert set(subsample(g, rng)) != set(subsample(g, rng))


@pytest.mark.parametrize("bad", [[], [[0, 1]], [-1, 0]])
def test_bad_groups_are_explained(bad: list) -> None:
    for function in (reweight, subsample, sampling_weights):
        with pytest.raises(DataError, match="group"):
            function(bad)
    with pytest.raises(DataError, match="expected 0 to 1"):
        reweight([0, 2], num_groups=2)


@given(st.integers(1, 50).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))), st.integers(0, 5))
def test_jtt_copies(case: tuple[int, set[int]], factor: int) -> None:
    n, errors = case
    chosen = upsample_errors(n, sorted(errors), factor)
    assert len(chosen) == n + factor * len(errors)
    times = np.bincount(chosen, minlength=n)
    assert all(times[i] == (1 + factor if i in errors else 1) for i in range(n))
    mask = np.isin(np.arange(n), sorted(errors))
    assert (upsample_errors(n, mask, factor) == chosen).all()


def test_jtt_without_errors_is_erm() -> None:
    assert error_set([0, 1, 2], [0, 1, 2]).tolist() == []
    assert upsample_errors(3, error_set([0, 1, 2], [0, 1, 2]), 100).tolist() == [0, 1, 2]
    with pytest.raises(DataError):
        upsample_errors(3, [3], 2)
    with pytest.raises(DataError):
        error_set([0, 1], [0])
