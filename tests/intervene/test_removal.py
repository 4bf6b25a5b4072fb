"""Removing parts and tokens, and finding out what to remove."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate.errors import ModelError
from foveate.intervene import (
    TokenThresholds,
    calibrate_tokens,
    leave_one_out,
    remove_parts,
    remove_tokens,
)
from foveate.restrict import early_mask


def random_maps(parts: int, seed: int, batch: int = 3) -> Tensor:
    return (3 * torch.randn(batch, parts + 1, 5, 5, generator=torch.Generator().manual_seed(seed))).softmax(1)


@settings(max_examples=40, deadline=None)
@given(parts=st.integers(1, 5), seed=st.integers(0, 999), data=st.data())
def test_removed_places_become_background_and_others_stay(parts: int, seed: int, data: st.DataObject) -> None:
    maps = random_maps(parts, seed)
    gone = data.draw(st.sets(st.integers(0, parts - 1)))
    after = remove_parts(maps, gone)
    strongest = maps.argmax(1)
    hit = torch.zeros_like(strongest, dtype=torch.bool)
    for k in gone:
        hit |= strongest == k
    assert (after.argmax(1)[hit] == parts).all()  # not the runner-up
    assert torch.equal(after.movedim(1, -1)[~hit], maps.movedim(1, -1)[~hit])
    torch.testing.assert_close(after.sum(1), torch.ones_like(after.sum(1)))
    assert torch.equal(early_mask(after) > 0, (early_mask(maps) > 0) & ~hit.flatten(1))
    # in two steps it is the same
    stepwise = maps
    for k in sorted(gone):
        stepwise = remove_parts(stepwise, [k])
    assert torch.equal(stepwise, after)


def test_removing_all_none_or_an_unused_part() -> None:
    maps = random_maps(3, 0)
    assert float(early_mask(remove_parts(maps, range(3))).sum()) == 0
    assert remove_parts(maps, []) is maps
    unused = maps.clone()
    unused[:, 1] = 0
    assert torch.equal(remove_parts(unused, [1]), unused)


@pytest.mark.parametrize("wrong", [3, -1, 17])
def test_unknown_parts(wrong: int) -> None:
    with pytest.raises(ModelError, match=f"no part {wrong}: the model has 3 parts, numbered 0 to 2"):
        remove_parts(random_maps(3, 0), [0, wrong])


def tokens(parts: int = 3, count: int = 4000, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Distances ``[M, K + 1]``, maps of the same shape and their assignments."""
    distances = 5 * torch.rand(count, parts + 1, generator=torch.Generator().manual_seed(seed))
    maps = (-distances).softmax(1)
    return distances, maps, maps.argmax(1)


@pytest.mark.parametrize("q", [0.97, 0.99, 0.5])
def test_the_wanted_share_of_training_tokens_is_removed(q: float) -> None:
    distances, maps, assigned = tokens()
    thresholds = calibrate_tokens(distances, assigned, q)
    after = remove_tokens(maps, distances, thresholds).argmax(1)
    for k in range(3):
        own = assigned == k
        assert float((after[own] == 3).float().mean()) == pytest.approx(1 - q, abs=0.002)
        assert set(after[own].tolist()) <= {k, 3}
    assert (after[assigned == 3] == 3).all()


@settings(max_examples=25, deadline=None)
@given(parts=st.integers(1, 4), seed=st.integers(0, 999), count=st.integers(1, 60))
def test_q_one_changes_no_training_token(parts: int, seed: int, count: int) -> None:
    distances, maps, assigned = tokens(parts, count, seed)
    assert torch.equal(remove_tokens(maps, distances, calibrate_tokens(distances, assigned, 1.0)), maps)
    dots = -distances
    assert torch.equal(remove_tokens(maps, dots, calibrate_tokens(dots, assigned, 1.0, "dot")), maps)


def test_maps_and_token_lists_calibrate_alike() -> None:
    distances = torch.rand(4, 3, 5, 5)
    assigned = distances.argmin(1)
    flat = distances.movedim(1, -1).reshape(-1, 3)
    assert calibrate_tokens(distances, assigned, 0.9) == calibrate_tokens(flat, assigned.flatten(), 0.9)


def test_a_part_without_training_tokens_has_no_limit() -> None:
    distances, maps, assigned = tokens()
    thresholds = calibrate_tokens(distances, torch.where(assigned == 1, 3, assigned), 0.5)
    assert thresholds.values[1] == float("inf")
    after = remove_tokens(maps, distances * 100, thresholds).argmax(1)
    assert (after[assigned == 1] == 1).all()
    assert TokenThresholds.from_dict(json.loads(json.dumps(thresholds.to_dict()))) == thresholds


def test_released_dot_products_may_move_a_token_to_another_part() -> None:
    """One token, assigned to part 0, below its threshold: the paper makes it background, the released code part 1."""
    maps = torch.tensor([[0.6, 0.3, 0.1]])
    dots = torch.tensor([[4.0, 3.0, 1.0]])
    thresholds = TokenThresholds((5.0, 2.0), q=0.99, measure="dot")
    assert remove_tokens(maps, dots, thresholds).argmax(1).tolist() == [2]
    assert remove_tokens(maps, dots, thresholds, released=True).argmax(1).tolist() == [1]
    # and it changes assignments of tokens that pass, because -|p|² is gone
    untouched = torch.tensor([[6.0, 7.0, 1.0]])
    assert remove_tokens(maps, untouched, thresholds).argmax(1).tolist() == [0]
    assert remove_tokens(maps, untouched, thresholds, released=True).argmax(1).tolist() == [1]


def test_clear_errors_of_thresholds() -> None:
    distances, maps, assigned = tokens()
    thresholds = calibrate_tokens(distances, assigned, 0.99)
    with pytest.raises(ModelError, match="calibrated for 3 parts and the model has 2"):
        remove_tokens(maps[:, 1:], distances[:, 1:], thresholds)
    with pytest.raises(ModelError, match="shape of the maps"):
        remove_tokens(maps, distances[:7], thresholds)
    with pytest.raises(ModelError, match="measure='dot'"):
        remove_tokens(maps, distances, thresholds, released=True)
    for q in (0.0, 1.2):
        with pytest.raises(ModelError, match="above 0 and at most 1"):
            calibrate_tokens(distances, assigned, q)
    with pytest.raises(ModelError, match="same tokens"):
        calibrate_tokens(distances, assigned[:5], 0.9)


def test_leave_one_out_on_the_published_table() -> None:
    """MetaShift, K = 8, worst group without each part in turn (none removed: 78.8)."""
    table = [64.7, 75.8, 75.8, 78.8, 75.5, 81.7, 77.1, 69.9]
    found = leave_one_out(lambda gone: table[next(iter(gone))] if gone else 78.8, parts=8)
    assert found.removed == (5,)
    assert found.after == 81.7
    assert list(found.scores.values()) == table
    assert leave_one_out(lambda gone: table[next(iter(gone))] if gone else 78.8, 8, min_gain=3.0).removed == ()


def test_greedy_looks_again_after_every_removal() -> None:
    """Parts 0 and 1 stand in for each other: removing either helps, removing both hurts."""

    def score(gone: set[int]) -> float:
        return {0: 0.0, 1: 5.0, 2: -9.0}[len(gone & {0, 1})] + (2.0 if 2 in gone else 0.0) + (0.5 if 1 in gone else 0)

    at_once = leave_one_out(score, 4)
    assert at_once.removed == (0, 1, 2)
    assert at_once.after == -6.5
    greedy = leave_one_out(score, 4, greedy=True)
    assert greedy.removed == (1, 2)
    assert greedy.after == 7.5
    assert greedy.steps == ((1, 5.5), (2, 7.5))
    assert leave_one_out(lambda gone: float(len(gone)), 3, greedy=True).removed == (0, 1, 2)
    assert leave_one_out(lambda gone: -float(len(gone)), [4, 7]).scores == {4: -1.0, 7: -1.0}
    with pytest.raises(ModelError, match="at least one part"):
        leave_one_out(score, 0)
