import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.engine import Drawn, Shuffled, TrainSettings, rate_factor
from foveate.errors import FoveateError


def test_cosine_known_answers() -> None:
    assert rate_factor("cosine", 0, 10) == 1.0
    assert rate_factor("cosine", 5, 10) == pytest.approx(0.5)
    assert rate_factor("cosine", 10, 10) == pytest.approx(0.0)


def test_warmup_rises_linearly_to_one() -> None:
    assert [rate_factor("cosine", s, 10, warmup=0.4) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert rate_factor("cosine", 4, 10, warmup=0.4) == 1.0


def test_onecycle_starts_low_peaks_and_ends_near_zero() -> None:
    factors = [rate_factor("onecycle", s, 100) for s in range(100)]
    assert factors[0] == pytest.approx(1 / 25)
    assert max(factors) == pytest.approx(1.0)
    assert np.argmax(factors) == 30
    assert factors[-1] == pytest.approx(1e-5)


@given(st.integers(1, 60), st.integers(1, 17), st.integers(0, 5), st.integers(0, 1000))
def test_shuffled_visits_everything_once(n: int, size: int, epoch: int, seed: int) -> None:
    batches = Shuffled(n, seed).batches(epoch, size)
    assert sorted(np.concatenate(batches)) == list(range(n))
    assert all(len(b) == size for b in batches[:-1])
    again = Shuffled(n, seed).batches(epoch, size)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))


def test_epochs_differ() -> None:
    plan = Shuffled(50)
    assert (plan.batches(0, 50)[0] != plan.batches(1, 50)[0]).any()


def test_drawn_follows_its_weights() -> None:
    drawn = np.concatenate(Drawn([1, 3, 0], count=20_000).batches(0, 64))
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    assert shares == pytest.approx([0.25, 0.75, 0.0], abs=0.02)


def test_settings_explain_themselves() -> None:
    with pytest.raises(FoveateError, match=r"unknown training setting 'epoch'. Did you mean 'epochs'"):
        TrainSettings.of(epoch=3)
    with pytest.raises(FoveateError, match="lr=-1"):
        TrainSettings.of(lr=-1)
