"""CVaR, GroupDRO, spectral decoupling, the CnC loss: known answers and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from foveate.decide import (
    GroupDROLoss,
    automatic_adjustment,
    cnc_batches,
    cnc_loss,
    cnc_two_sided_loss,
    cvar,
    group_means,
    l1_penalty,
    spectral_decoupling,
)
from foveate.errors import DataError, FoveateError

losses = arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 50)).map(torch.from_numpy)


# -- CVaR ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "answer"), [(0.4, 4.5), (0.5, 4.2), (1.0, 3.0), (0.1, 5.0)])
def test_cvar_known_answers(alpha: float, answer: float) -> None:
    assert float(cvar(torch.tensor([3.0, 1.0, 5.0, 2.0, 4.0]), alpha)) == pytest.approx(answer)


@settings(deadline=None)
@given(losses, st.floats(0.01, 1.0))
def test_cvar_is_the_minimum_over_eta(v: torch.Tensor, alpha: float) -> None:
    # the minimum of this convex, piecewise linear function is at one of its kinks
    dual = min(float(eta + (v - eta).clamp(min=0).mean() / alpha) for eta in v)
    assert float(cvar(v, alpha)) == pytest.approx(dual, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(losses, st.floats(0.01, 1.0), st.floats(-5, 5))
def test_cvar_lies_between_mean_and_maximum_and_moves_with_a_shift(v: torch.Tensor, alpha: float, c: float) -> None:
    value = float(cvar(v, alpha))
    assert float(v.mean()) - 1e-9 <= value <= float(v.max()) + 1e-9
    assert float(cvar(v + c, alpha)) == pytest.approx(value + c, abs=1e-9)


def test_cvar_gradient_reaches_only_what_counts() -> None:
    v = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    cvar(v, 0.5).backward()
    assert v.grad is not None
    assert v.grad.tolist() == pytest.approx([0, 0, 0.2, 0.4, 0.4])


def test_cvar_explains_bad_settings() -> None:
    for alpha in (0.0, 1.1, -1.0):
        with pytest.raises(FoveateError, match="alpha"):
            cvar(torch.ones(3), alpha)
    with pytest.raises(FoveateError, match=r"\[B\]"):
        cvar(torch.ones(()), 0.5)


# -- GroupDRO ------------------------------------------------------------------------------


def test_group_dro_known_answer() -> None:
    dro = GroupDROLoss(2, step_size=math.log(2))
    assert float(dro(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))) == pytest.approx(2 / 3)
    assert dro.q.tolist() == pytest.approx([2 / 3, 1 / 3])
    # once more: q = (4/5, 1/5)
    assert float(dro(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))) == pytest.approx(4 / 5)


def test_group_dro_without_steps_is_the_mean_of_group_losses() -> None:
    dro = GroupDROLoss(2, step_size=0.0)
    value = dro(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1]))
    assert float(value) == pytest.approx((2.0 + 8.0) / 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), min_size=1, max_size=20), st.floats(-5, 5))
def test_group_dro_weights_do_not_feel_a_constant(batch: list[tuple[float, int]], c: float) -> None:
    """Also with absent groups: they keep their weight exactly."""
    v, g = torch.tensor([b[0] for b in batch]), torch.tensor([b[1] for b in batch])
    plain, shifted = GroupDROLoss(4, step_size=0.3), GroupDROLoss(4, step_size=0.3)
    for _ in range(3):
        plain(v, g)
        shifted(v + c, g)
    assert torch.allclose(plain.q, shifted.q, atol=1e-5)
    assert float(plain.q.sum()) == pytest.approx(1.0, abs=1e-5)
    absent = sorted(set(range(4)) - set(g.tolist()))
    assert plain.q[absent].tolist() == pytest.approx([0.25] * len(absent), abs=1e-5)


def test_group_dro_reference_treatment_of_absent_groups() -> None:
    dro = GroupDROLoss(3, step_size=math.log(2), absent="reference")
    dro(torch.tensor([1.0, 1.0]), torch.tensor([0, 1]))
    assert dro.q.tolist() == pytest.approx([0.4, 0.4, 0.2])  # 2 : 2 : 1


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 2)), min_size=1, max_size=8), min_size=1, max_size=6),
    st.sampled_from([None, [30, 10, 5, 0]]),
)
def test_group_dro_as_the_reference_code_has_it(
    batches: list[list[tuple[float, int]]], counts: list[int] | None
) -> None:
    """Against the reference written out: four groups, the last of which never appears in training."""
    dro = GroupDROLoss(4, step_size=0.3, counts=counts, absent="reference")
    q = torch.full((4,), 0.25, dtype=torch.float64)
    assert dro.q.tolist() == pytest.approx(q.tolist())
    for batch in batches:
        v, g = torch.tensor([b[0] for b in batch]), torch.tensor([b[1] for b in batch])
        means = torch.stack([v[g == k].mean() if (g == k).any() else torch.zeros(()) for k in range(4)]).double()
        q = q * torch.exp(0.3 * means)
        q = q / q.sum()
        assert float(dro(v, g)) == pytest.approx(float(means @ q), rel=1e-4, abs=1e-5)
        assert dro.q.tolist() == pytest.approx(q.tolist(), rel=1e-4)


def test_group_dro_gradient_is_the_weighted_one() -> None:
    v = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    dro = GroupDROLoss(2, step_size=0.1)
    dro(v, torch.tensor([0, 0, 1])).backward()
    assert v.grad is not None
    q = dro.q.tolist()
    assert v.grad.tolist() == pytest.approx([q[0] / 2, q[0] / 2, q[1]])


def test_group_dro_adjustment_by_hand() -> None:
    # c / sqrt(n) = 2/2 = 1 and 2/1 = 2 on top of equal losses: q1/q0 = exp(step * 1)
    dro = GroupDROLoss(2, step_size=math.log(3), adjustment=2.0, counts=[4, 1])
    value = dro(torch.tensor([5.0, 5.0]), torch.tensor([0, 1]))
    assert dro.q.tolist() == pytest.approx([1 / 4, 3 / 4])
    assert float(value) == pytest.approx(5.0)  # the loss itself does not contain it
    with pytest.raises(FoveateError, match="counts"):
        GroupDROLoss(2, adjustment=1.0)


def test_automatic_adjustment_judges_by_validation_loss() -> None:
    train, val, n = torch.tensor([0.1, 0.1]), torch.tensor([0.3, 1.5]), torch.tensor([400, 25])
    c = automatic_adjustment(val, train, n)
    assert c.tolist() == pytest.approx([0.2 * 20, 1.4 * 5])
    adjusted, direct = GroupDROLoss(2, 0.5, c, n), GroupDROLoss(2, 0.5)
    adjusted(train, torch.tensor([0, 1]))
    direct(val, torch.tensor([0, 1]))
    assert torch.allclose(adjusted.q, direct.q)


def test_group_dro_missing_group_state_and_eval() -> None:
    dro = GroupDROLoss(3, step_size=1.0, counts=[10, 0, 5])
    assert dro.q.tolist() == pytest.approx([0.5, 0, 0.5])
    dro(torch.tensor([1.0, 2.0]), torch.tensor([0, 2]))
    assert float(dro.q[1]) == 0.0
    again = GroupDROLoss(3, step_size=1.0, counts=[10, 0, 5])
    again.load_state_dict(dro.state_dict())
    assert torch.equal(again.q, dro.q)
    before = dro.q.clone()
    dro.eval()
    dro(torch.tensor([9.0]), torch.tensor([0]))
    assert torch.equal(dro.q, before)


def test_group_dro_comes_back_from_very_small_weights() -> None:
    dro = GroupDROLoss(2, step_size=100.0)
    dro(torch.tensor([2.0, 0.0]), torch.tensor([0, 1]))  # q1 = e^-200, below float32
    dro(torch.tensor([0.0, 2.0]), torch.tensor([0, 1]))
    assert dro.q.tolist() == pytest.approx([0.5, 0.5])
    dro(torch.tensor([1e6, 0.0]), torch.tensor([0, 1]))
    assert torch.isfinite(dro.q).all()


def test_group_dro_explains_bad_input() -> None:
    with pytest.raises(FoveateError, match="there are 2 groups"):
        GroupDROLoss(2)(torch.ones(1), torch.tensor([2]))
    with pytest.raises(FoveateError, match="absent"):
        GroupDROLoss(2, absent="drop")
    means, present = group_means(torch.tensor([1.0, 3.0]), torch.tensor([1, 1]), 3)
    assert means.tolist() == [0, 2, 0]
    assert present.tolist() == [False, True, False]


def test_group_dro_helps_the_worst_group() -> None:
    """One weight for two groups that want 0 and 1; the mean loss is least near the large group, DRO's in
    between."""

    def solve(robust: bool) -> float:
        w = nn.Parameter(torch.zeros(()))
        dro, optimiser = GroupDROLoss(2, step_size=0.1), torch.optim.SGD([w], lr=0.1)
        groups, wanted = torch.tensor([0] * 9 + [1]), torch.tensor([0.0] * 9 + [1.0])
        for _ in range(300):
            v = (w - wanted).square()
            optimiser.zero_grad()
            (dro(v, groups) if robust else v.mean()).backward()
            optimiser.step()
        return w.item()

    assert solve(robust=False) == pytest.approx(0.1, abs=0.01)
    assert solve(robust=True) == pytest.approx(0.5, abs=0.03)


# -- spectral decoupling, L1 ---------------------------------------------------------------


def test_spectral_decoupling_by_hand() -> None:
    assert float(spectral_decoupling(torch.zeros(3, 2), 5.0)) == 0.0
    logits = torch.tensor([[1.0, -2.0], [3.0, 0.0]], requires_grad=True)
    value = spectral_decoupling(logits, 0.1)
    assert value.item() == pytest.approx(0.1 * (5 + 9) / 2)
    value.backward()
    assert logits.grad is not None
    assert torch.allclose(logits.grad, 2 * 0.1 * logits.detach() / 2)
    assert spectral_decoupling(logits, 0.1, "mean").item() == pytest.approx(0.1 * 7 / 2)
    assert float(spectral_decoupling(torch.tensor([2.5, 2.5]), 0.1, target=2.5)) == 0.0
    with pytest.raises(FoveateError, match="reduction"):
        spectral_decoupling(logits, 0.1, "max")


def test_l1_penalty_counts_weights_not_biases() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(-1.0)
    value = l1_penalty(net)
    assert float(value) == 6.0
    value.backward()
    assert net[0].weight.grad is not None
    assert (net[0].weight.grad == -1).all()


# -- CnC -----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 6))
def test_cnc_all_alike_is_log_of_how_many(a: int, p: int, m: int) -> None:
    one = torch.ones(1, 5)
    value = cnc_loss(one.repeat(a, 1), one.repeat(p, 1), one.repeat(m, 1), 0.05)
    assert float(value) == pytest.approx(math.log(p + m), abs=1e-5)


def test_cnc_by_hand() -> None:
    a, p, n = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    # cosines 1 and 0, temperature 0.5: -log(e^2 / (e^2 + 1))
    assert float(cnc_loss(a, p, n, 0.5)) == pytest.approx(math.log(1 + math.exp(-2)))
    # back: the positive against the easy negative (cosine -1): log(1 + e^-4)
    both = cnc_two_sided_loss(a, p, n, torch.tensor([[-1.0, 0.0]]), 0.5)
    assert float(both) == pytest.approx(math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-4)))


def test_cnc_two_sided_has_the_gradient_of_two_backward_passes() -> None:
    """As the authors train: each direction is weighted in full and goes back by itself."""
    torch.manual_seed(0)
    a, p, n, e = (torch.randn(k, 4, requires_grad=True) for k in (3, 2, 5, 4))
    (0.75 * cnc_two_sided_loss(a, p, n, e, 0.1)).backward()
    together = [v.grad.clone() for v in (a, p, n, e) if v.grad is not None]
    for v in (a, p, n, e):
        v.grad = None
    (0.75 * cnc_loss(a, p, n, 0.1)).backward()
    (0.75 * cnc_loss(p, a, e, 0.1)).backward()
    for whole, v in zip(together, (a, p, n, e), strict=True):
        assert v.grad is not None
        torch.testing.assert_close(whole, v.grad)


def test_cnc_against_the_formula_written_out() -> None:
    torch.manual_seed(0)
    a, p, n = torch.randn(3, 4), torch.randn(2, 4), torch.randn(5, 4)

    def s(u: torch.Tensor, v: torch.Tensor) -> float:
        return math.exp(float(torch.cosine_similarity(u, v, dim=0)) / 0.1)

    wanted = np.mean([
        -np.mean([math.log(s(x, y) / (sum(s(x, z) for z in n) + sum(s(x, z) for z in p))) for y in p]) for x in a
    ])  # fmt: skip
    assert float(cnc_loss(a, p, n, 0.1)) == pytest.approx(wanted, rel=1e-4)
    assert float(cnc_loss(7 * a, p, 0.1 * n, 0.1)) == pytest.approx(wanted, rel=1e-4)  # cosines: no scale


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=40), st.integers(0, 5))
def test_cnc_batches_obey_the_rules_or_say_so(rows: list[tuple[int, int]], seed: int) -> None:
    guess, y = (np.array(v) for v in zip(*rows, strict=True))
    if len(set(y)) < 2:
        with pytest.raises(DataError, match="two classes"):
            cnc_batches(guess, y)
        return
    epoch = cnc_batches(guess, y, 3, 4, 5, rng=seed)
    notes = " | ".join(epoch.notes)
    used: dict[int, list[int]] = {}
    for batch in epoch.batches:
        c = batch.label
        used.setdefault(c, []).extend(batch.anchors.tolist())
        assert len(batch.anchors) <= 3
        assert (len(batch.positives), len(batch.negatives), len(batch.easy_negatives)) == (4, 5, 5)
        assert (y[batch.anchors] == c).all()
        assert (y[batch.positives] == c).all()
        assert (y[batch.negatives] != c).all()
        assert (y[batch.easy_negatives] != c).all()
        assert len(batch.indices) == len(batch.anchors) + 14
        if f"class {c}: no correct" not in notes:
            assert (guess[batch.anchors] == c).all()
        if f"class {c}: no errors" not in notes:
            assert (guess[batch.positives] != c).all()
        if f"class {c}: no other class" not in notes:
            assert (guess[batch.negatives] == c).all()
    for c in set(y.tolist()):  # every anchor exactly once
        correct = np.flatnonzero((y == c) & (guess == c))
        wanted = correct if len(correct) else np.flatnonzero(y == c)
        assert sorted(used[c]) == wanted.tolist()


def test_cnc_batches_fall_back_when_nothing_is_wrong() -> None:
    epoch = cnc_batches([0, 0, 1, 1], [0, 0, 1, 1], 2, 2, 2)
    assert len(epoch.notes) == 4  # no positives and no negatives, for both classes
    assert {b.label for b in epoch.batches} == {0, 1}


def test_cnc_batches_are_repeatable_and_can_use_a_share() -> None:
    rng = np.random.default_rng(0)
    guess, y = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    one, two = (cnc_batches(guess, y, rng=3).batches for _ in range(2))
    assert all((a.indices == b.indices).all() for a, b in zip(one, two, strict=True))
    few = cnc_batches(guess, y, anchor_share=0.1)
    correct = [int(((y == c) & (guess == c)).sum()) for c in (0, 1)]
    assert sum(len(b.anchors) for b in few.batches) == sum(round(0.1 * n) for n in correct)
