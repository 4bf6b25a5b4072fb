"""Paired differences: hand-worked intervals, the bootstrap against every possible resample, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from foveate.errors import DataError
from foveate.measure import Difference, difference_over_images, difference_over_seeds
from foveate.measure.paired import figure_of_hits


def test_t_interval_by_hand() -> None:
    # differences 1, 2, 3: mean 2, sample deviation 1, t(2) = 4.302653; half = 4.302653 / sqrt(3) = 2.484138
    found = difference_over_seeds([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, -0.484138, 4.484138), abs=1e-5)
    assert found.sign == 0
    # five seeds, t(4) = 2.776445, sample variance 2 / 4
    five = difference_over_seeds([1.0, 2.0, 2.0, 2.0, 3.0], [0.0] * 5)
    assert five.high - 2.0 == pytest.approx(2.776445 * math.sqrt(0.5 / 5), abs=1e-5)
    assert five.sign == 1
    assert difference_over_seeds([0.0] * 5, [1.0, 2.0, 2.0, 2.0, 3.0]).sign == -1


def test_one_seed_has_no_interval() -> None:
    assert difference_over_seeds([0.9], [0.1]) == Difference(0.8, -math.inf, math.inf)


def test_t_interval_covers_what_it_says() -> None:
    rng = np.random.default_rng(0)
    held = [difference_over_seeds(rng.normal(0.3, 1, 5), np.zeros(5)) for _ in range(2000)]
    covered = np.mean([d.low <= 0.3 <= d.high for d in held])
    assert 0.93 < covered < 0.97


@pytest.mark.parametrize("metric", ["average", "worst_group", "minority"])
def test_bootstrap_equals_every_resample(metric: str) -> None:
    """Two groups of three and four images: all 27 * 256 ways to draw them again, each equally likely."""
    a = {"x": np.array([1, 1, 0], bool), "y": np.array([1, 0, 1, 1], bool)}
    b = {"x": np.array([0, 1, 0], bool), "y": np.array([1, 1, 0, 0], bool)}
    n, few = np.array([3, 4]), np.array([False, True])
    every = []
    for x in itertools.product(range(3), repeat=3):
        for y in itertools.product(range(4), repeat=4):
            right = [np.array([h["x"][list(x)].sum(), h["y"][list(y)].sum()]) for h in (a, b)]
            every.append(float(figure_of_hits(metric, right[0], n, few) - figure_of_hits(metric, right[1], n, few)))
    found = difference_over_images([a], [b], metric, ["y"], draws=40000, seed=1)
    low, high = np.quantile(every, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)  # a grid of few values: exactly these
    plain = [np.array([h["x"].sum(), h["y"].sum()]) for h in (a, b)]
    assert found.value == pytest.approx(
        float(figure_of_hits(metric, plain[0], n, few) - figure_of_hits(metric, plain[1], n, few))
    )


def test_pairing_makes_the_interval_narrow() -> None:
    """Two methods that agree on all but a few images differ by more than the chance of drawing images."""
    rng = np.random.default_rng(2)
    base = rng.random(400) < 0.5
    better = base.copy()
    better[np.flatnonzero(~base)[:20]] = True
    found = difference_over_images([{"g": better}], [{"g": base}], "average")
    assert found.value == pytest.approx(0.05)
    assert found.sign == 1
    apart = difference_over_images([{"g": better}], [{"g": rng.permutation(base)}], "average")
    assert apart.high - apart.low > 2 * (found.high - found.low)


def test_several_seeds_are_averaged() -> None:
    right, wrong = {"g": np.ones(6, bool)}, {"g": np.zeros(6, bool)}
    found = difference_over_images([right, wrong], [wrong, wrong], "average")
    assert found == Difference(0.5, 0.5, 0.5)


def test_refusals() -> None:
    one = {"g": np.ones(4, bool)}
    with pytest.raises(DataError, match="the same seeds"):
        difference_over_seeds([1.0, 2.0], [1.0])
    with pytest.raises(DataError, match="the same seeds"):
        difference_over_images([one], [])
    for other in ({"h": np.ones(4, bool)}, {"g": np.ones(5, bool)}):
        with pytest.raises(DataError, match="same test images"):
            difference_over_images([one], [other])
    with pytest.raises(DataError, match="known: average"):
        difference_over_images([one], [one], "cep_output")
    with pytest.raises(DataError, match="no minority accuracy"):
        difference_over_images([one], [one], "minority")
