from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.errors import FoveateError
from foveate.look import (
    AttentionAdapter,
    bilevel_loss,
    candidate_grid,
    candidate_scores,
    minmax,
    mix_embeddings,
    perturbed_topk,
    unrolled_logistic,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def jacobian(scores: Tensor, k: int, sigma: float, samples: int, seed: int = 0) -> Tensor:
    """``[k, n, n]`` of one row of scores, by one backward pass for every output."""
    s = scores[None].clone().requires_grad_(True)
    y = perturbed_topk(s, k, sigma, samples, seeded(seed))
    rows = [torch.autograd.grad(v, s, retain_graph=True)[0][0] for v in y.flatten()]
    return torch.stack(rows).view(k, scores.numel(), scores.numel())


# -- top-k ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.05, 1.0])
def test_known_gradient_of_two_equal_scores(sigma: float) -> None:
    found = jacobian(torch.zeros(2, dtype=torch.float64), 1, sigma, 200_000)[0] * sigma
    slope = 1 / (2 * math.sqrt(math.pi))  # 0.2821
    expected = torch.tensor([[slope, -slope], [-slope, slope]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=0.003, rtol=0)


def exact_minimum(scores: Tensor, sigma: float) -> Tensor:
    """P(score i is the smallest) under the noise, by quadrature; differentiable."""
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    normal = torch.distributions.Normal(0.0, 1.0)
    return torch.stack([
        (density * math.prod(
            (1 - normal.cdf((scores[i] - scores[j]) / sigma + z) for j in range(len(scores)) if j != i), start=1.0
        )).sum()
        for i in range(len(scores))
    ])  # fmt: skip


def test_two_of_three_against_quadrature() -> None:
    """Two of three are all but the smallest, so every entry of Y is a sum of P(i is smallest)."""
    scores, sigma = torch.tensor([0.2, 0.5, 0.35], dtype=torch.float64), 0.3

    def exact(s: Tensor) -> Tensor:
        low = exact_minimum(s, sigma)
        zero = low.new_zeros(())
        return torch.stack([
            torch.stack([low[1] + low[2], low[0], zero]),  # the earlier of the two
            torch.stack([zero, low[2], low[0] + low[1]]),  # the later one
        ])  # fmt: skip

    y = perturbed_topk(scores[None], 2, sigma, 200_000, seeded())[0]
    torch.testing.assert_close(y, exact(scores), atol=0.004, rtol=0)
    truth = torch.autograd.functional.jacobian(exact, scores)
    assert truth.abs().max() > 0.8
    torch.testing.assert_close(jacobian(scores, 2, sigma, 200_000), truth, atol=0.02, rtol=0)  # type: ignore[arg-type]


def test_sums_that_are_exact_for_any_noise() -> None:
    scores = torch.randn(5, dtype=torch.float64, generator=seeded(1))
    found = jacobian(scores, 2, 0.5, 20)
    assert found.abs().max() > 0.05
    torch.testing.assert_close(found.sum(2), torch.zeros(2, 5, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.sum(1), torch.zeros(2, 5, dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_gradient_is_unbiased_with_few_samples() -> None:
    scores = torch.tensor([0.0, 0.3], dtype=torch.float64)
    s = scores.expand(40_000, 2).clone().requires_grad_(True)  # many images, three samples each
    perturbed_topk(s, 1, 0.5, 3, seeded())[:, 0, 0].sum().backward()
    assert s.grad is not None
    # Y0 = Phi((s0 - s1) / (sqrt(2) sigma))
    u = -0.3 / (math.sqrt(2) * 0.5)
    slope = math.exp(-u * u / 2) / math.sqrt(2 * math.pi) / (math.sqrt(2) * 0.5)
    assert s.grad.mean(0).tolist() == pytest.approx([slope, -slope], abs=0.012)


def test_indicator_sums_and_order_of_position() -> None:
    scores = torch.randn(4, 9, generator=seeded())
    y = perturbed_topk(scores, 3, 0.3, 200, seeded())
    torch.testing.assert_close(y.sum(2), torch.ones(4, 3))
    assert (y.sum(1) <= 1 + 1e-6).all(), "a candidate is chosen at most once"
    hard = perturbed_topk(scores, 3, sigma=0)
    positions = hard.argmax(2)
    assert (positions.diff(dim=1) > 0).all()
    assert torch.equal(positions, scores.topk(3).indices.sort(1).values)
    assert torch.equal(perturbed_topk(scores, 3, 1e-7, 20, seeded()), hard)


def test_the_same_generator_gives_the_same_choice() -> None:
    scores = torch.rand(2, 6)
    a, b = (perturbed_topk(scores, 2, 0.2, 50, seeded(3)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(perturbed_topk(torch.zeros(1, 4), 2, 0)[0], torch.eye(4)[:2])


def test_topk_refuses_what_it_cannot_do() -> None:
    for scores, k, sigma in ((torch.rand(2, 3), 4, 0.1), (torch.rand(3), 1, 0.1), (torch.rand(2, 3), 1, -1.0)):
        with pytest.raises(FoveateError):
            perturbed_topk(scores, k, sigma)


# -- adapter and candidates ----------------------------------------------------------------------------------


def test_the_adapter_is_small_and_starts_as_no_change() -> None:
    adapter = AttentionAdapter(384)
    assert sum(p.numel() for p in adapter.parameters()) == 3089
    attention = torch.rand(2, 4, 6)
    tokens = torch.randn(2, 24, 384)
    assert torch.equal(adapter(tokens, attention), attention)
    adapter(tokens, attention).sum().backward()
    assert adapter.mlp[2].weight.grad.abs().sum() > 0, "it must be able to leave its start"  # type: ignore[union-attr]
    with pytest.raises(FoveateError, match="class token"):
        adapter(torch.randn(2, 25, 384), attention)


def test_tokens_and_map_keep_their_places() -> None:
    adapter = AttentionAdapter(3)
    torch.nn.init.normal_(adapter.mlp[2].weight)  # type: ignore[arg-type]
    tokens = torch.zeros(1, 6, 3)
    tokens[0, 4] = 1.0  # row 1, column 1 of a 2 x 3 grid
    change = adapter(tokens, torch.zeros(1, 2, 3))[0]
    different = (change - change[0, 0]).abs() > 1e-4
    assert different.sum() == 1
    assert different[1, 1]


def test_candidates_are_the_papers_58() -> None:
    boxes = candidate_grid()
    assert boxes.shape == (58, 3)
    assert sorted(boxes[:, 2].tolist()) == [32] * 49 + [64] * 9
    small = boxes[boxes[:, 2] == 32]
    assert set(small[:, 0].tolist()) == set(range(0, 224, 32)), "49 squares of 32 px tile the image"
    assert (boxes[:, :2] + boxes[:, 2:]).max() == 224
    with pytest.raises(FoveateError):
        candidate_grid(32, [(64, 1)])


def test_candidate_scores_are_means_of_the_upsampled_map() -> None:
    maps = torch.rand(2, 5, 5, dtype=torch.float64, generator=seeded())
    boxes = candidate_grid(40, [(8, 3), (20, 2)])
    large = F.interpolate(maps[:, None], (40, 40), mode="bilinear", align_corners=False)[:, 0]
    truth = torch.stack([large[:, y : y + s, x : x + s].mean((1, 2)) for x, y, s in boxes.tolist()], 1)
    torch.testing.assert_close(candidate_scores(maps, boxes, 40), truth)


# -- bilevel -------------------------------------------------------------------------------------------------


def problem() -> tuple[Tensor, ...]:
    g = seeded()
    z = torch.randn(14, 3, dtype=torch.float64, generator=g)
    y = torch.arange(14) % 3
    return z[:8], y[:8], z[8:], y[8:]


def test_unrolled_steps_are_gradient_steps() -> None:
    z, y, _, _ = problem()
    w = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w, b], lr=0.3)
    for _ in range(4):
        optimiser.zero_grad()
        (F.cross_entropy(z @ w + b, y) + 0.1 * w.square().sum() / 2).backward()
        optimiser.step()
    ours = unrolled_logistic(z, y, steps=4, lr=0.3, classes=3, l2=0.1)
    torch.testing.assert_close(ours[0], w.detach())
    torch.testing.assert_close(ours[1], b.detach())


def test_many_steps_find_the_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    z, y, _, _ = problem()
    w, b = unrolled_logistic(z, y, steps=1000, lr=0.5, classes=3, l2=0.1)
    truth = LogisticRegression(C=1 / (0.1 * len(z)), tol=1e-10, max_iter=10_000).fit(z.numpy(), y.numpy())
    ours = (z @ w + b).softmax(1).numpy()
    np.testing.assert_allclose(ours, truth.predict_proba(z.numpy()), atol=1e-4)


def test_bilevel_gradient_by_finite_differences() -> None:
    z_fit, y_fit, z_held, y_held = problem()
    z_fit.requires_grad_(True)
    z_held.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda a, c: bilevel_loss(a, y_fit, c, y_held, 2, 0.7, 3)[0], (z_fit, z_held))


def test_weights_are_shares_of_the_held_out_images() -> None:
    """A weight of two is the image twice, and a weight of zero is no image."""
    z_fit, y_fit, z_held, y_held = problem()
    weights = torch.ones(len(y_held), dtype=torch.float64)
    weights[0], weights[1] = 2.0, 0.0
    rows = [0, 0, *range(2, len(y_held))]
    loss, logits = bilevel_loss(z_fit, y_fit, z_held, y_held, 3, 0.7, 3, weights=weights)
    repeated, _ = bilevel_loss(z_fit, y_fit, z_held[rows], y_held[rows], 3, 0.7, 3)
    torch.testing.assert_close(loss, repeated)
    assert logits.shape == (len(y_held), 3)


def test_training_lowers_the_tested_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every outer step of the training is one value of :func:`bilevel_loss`."""
    import foveate.look.adapter_training as training

    seen: list[float] = []

    def spy(*args: object, **options: object) -> tuple[Tensor, Tensor]:
        loss, logits = bilevel_loss(*args, **options)  # type: ignore[arg-type]
        seen.append(float(loss.detach()))
        return loss, logits

    monkeypatch.setattr(training, "bilevel_loss", spy)
    tokens, attention, embeddings = torch.rand(12, 4, 3), torch.rand(12, 2, 2), torch.randn(12, 4, 2)
    history = training.train_adapter(
        AttentionAdapter(3), lambda i: (tokens[i], attention[i], embeddings[i]), torch.arange(12) % 2,
        candidate_grid(4, [(2, 2)]), image_size=4, settings=training.AdapterSettings(steps=3, batch=4, samples=5),
    )  # fmt: skip
    assert history.loss == seen
    assert len(seen) == 3


def test_gradient_of_the_adapter_through_two_inner_steps() -> None:
    """Adapter, scores, mixing and both levels: everything but the noise, exact in float64."""
    g = seeded(4)
    adapter = AttentionAdapter(4, hidden=3).double()
    torch.nn.init.normal_(adapter.mlp[2].weight, generator=g)  # type: ignore[arg-type]
    tokens, attention = torch.randn(10, 9, 4, dtype=torch.float64, generator=g), torch.rand(10, 3, 3).double()
    boxes = candidate_grid(24, [(8, 3)])
    embeddings = torch.randn(10, 9, 5, dtype=torch.float64, generator=g)
    y = torch.arange(10) % 2

    def outer(weight: Tensor) -> Tensor:
        scores = minmax(candidate_scores(torch.func.functional_call(
            adapter, {"mlp.2.weight": weight}, (tokens, attention)), boxes, 24))  # fmt: skip
        z = mix_embeddings((4 * scores).softmax(1)[:, None], embeddings)
        return bilevel_loss(z[:6], y[:6], z[6:], y[6:], steps=2, lr=0.5)[0]

    assert torch.autograd.gradcheck(outer, adapter.mlp[2].weight.detach().clone().requires_grad_(True))  # type: ignore[operator]


def test_gradient_with_the_noisy_choice_inside() -> None:
    """The whole chain with common random numbers: the step is wide enough to move choices, narrow for the rest."""
    g = seeded(5)
    base = torch.rand(8, 4, dtype=torch.float64, generator=g)
    direction = torch.randn(8, 4, dtype=torch.float64, generator=g)
    embeddings = torch.randn(8, 4, 3, dtype=torch.float64, generator=g)
    y = torch.arange(8) % 2

    def outer(t: Tensor) -> Tensor:
        z = mix_embeddings(perturbed_topk(base + t * direction, 2, 0.4, 40_000, seeded(7)), embeddings)
        return bilevel_loss(z[:4], y[:4], z[4:], y[4:], steps=2, lr=0.5)[0]

    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(outer(t), t)
    step = torch.tensor(0.02, dtype=torch.float64)
    difference = (outer(step) - outer(-step)) / (2 * step)
    assert abs(difference) > 0.01
    torch.testing.assert_close(slope, difference, rtol=0.05, atol=0)


def test_training_moves_the_crop_to_the_label() -> None:
    """Attention points at cell 0; the label can only be read in cells whose token says so."""
    torch.manual_seed(0)
    n, cells = 200, 16
    y = torch.arange(n) % 2
    place = torch.randint(1, cells, (n,))
    tokens = 0.1 * torch.randn(n, cells, 4)
    tokens[torch.arange(n), place, 2] += 1.0
    embeddings = torch.randn(n, cells, 3)
    embeddings[torch.arange(n), place, 0] = 3.0 * (2 * y - 1)
    attention = torch.zeros(n, 4, 4)
    attention[:, 0, 0] = 0.05
    boxes = candidate_grid(16, [(4, 4)])
    adapter = AttentionAdapter(4)
    optimiser = torch.optim.Adam(adapter.parameters(), lr=0.02)

    def chosen(sigma: float) -> Tensor:
        return perturbed_topk(minmax(candidate_scores(adapter(tokens, attention), boxes, 16)), 1, sigma, 100)

    assert (chosen(0)[:, 0].argmax(1) == 0).all()
    for _ in range(40):
        z = mix_embeddings(chosen(0.5), embeddings)
        loss, _ = bilevel_loss(z[:100], y[:100], z[100:], y[100:], steps=5, lr=1.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (chosen(0)[:, 0].argmax(1) == place).float().mean() > 0.9
