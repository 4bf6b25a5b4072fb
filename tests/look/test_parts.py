"""Part discovery against hand-worked answers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.errors import ModelError
from foveate.look import PartDiscovery
from foveate.look.parts import assign_parts, part_vectors, prototype_distances


def make(parts: int = 4, dim: int = 8, **settings: object) -> PartDiscovery:
    torch.manual_seed(0)
    return PartDiscovery(dim, parts, classes=3, **settings)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(parts=st.integers(1, 6), side=st.integers(3, 6), seed=st.integers(0, 1000), train=st.booleans())
def test_maps_are_a_soft_assignment(parts: int, side: int, seed: int, train: bool) -> None:
    discovery = make(parts).train(train)
    out = discovery(torch.randn(3, 8, side, side, generator=torch.Generator().manual_seed(seed)))
    assert out.maps.shape == (3, parts + 1, side, side)
    torch.testing.assert_close(out.maps.sum(1), torch.ones(3, side, side))
    assert out.vectors.shape == out.modulated.shape == (3, parts + 1, 8)
    assert out.part_logits.shape == (3, parts, 3)
    torch.testing.assert_close(out.logits, out.part_logits.mean(1))


def test_distances_are_squared_distances() -> None:
    x, p = torch.randn(2, 8, 3, 4), torch.randn(5, 8)
    direct = (x[:, None] - p[None, :, :, None, None]).square().sum(2)
    torch.testing.assert_close(prototype_distances(x, p), direct, atol=1e-4, rtol=1e-4)
    x[0, :, 1, 2] = p[3]  # a token on a prototype: logit 0, the largest there can be
    distances = prototype_distances(x, p)
    assert float(distances[0, 3, 1, 2]) == pytest.approx(0, abs=1e-5)
    assert float(distances.min()) >= 0


@pytest.mark.bf16
def test_distances_stay_in_float32_under_autocast() -> None:
    torch.manual_seed(0)
    x = torch.full((1, 256, 2, 2), 10.0) + torch.randn(1, 256, 2, 2) * 0.01
    p = torch.full((2, 256), 10.0)
    p[1] += 0.02
    wanted = prototype_distances(x.double(), p.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = prototype_distances(x, p)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-3)


def test_noise_is_off_at_evaluation_and_on_in_training() -> None:
    x = torch.randn(2, 8, 4, 4)
    discovery = make()
    assert torch.equal(discovery.eval()(x).maps, discovery(x).maps)
    assert not torch.equal(discovery.train()(x).maps, discovery(x).maps)
    loud = make(noise_at_eval=True).eval()
    assert not torch.equal(loud(x).maps, loud(x).maps)
    quiet = make(gumbel=False, dropout=0.0).train()
    assert torch.equal(quiet(x).logits, quiet(x).logits)


def test_gumbel_noise_samples_the_softmax() -> None:
    """The arg-max of logits plus Gumbel noise is distributed like the softmax of the logits."""
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, -1.0]).view(1, 3, 1, 1).expand(1, 3, 200, 200)
    share = assign_parts(logits, noise=True).argmax(1).flatten().bincount(minlength=3) / 40_000
    torch.testing.assert_close(share, torch.tensor([0.0, 1.0, -1.0]).softmax(0), atol=0.01, rtol=0)


def test_part_vectors_average_over_all_places() -> None:
    features = torch.arange(4.0).view(1, 1, 2, 2)  # 0 1 2 3
    maps = torch.zeros(1, 2, 2, 2)
    maps[0, 0, 1, 1], maps[0, 1] = 1.0, 0.5
    assert part_vectors(features, maps)[0, :, 0].tolist() == [0.75, 0.75]


def test_modulation_normalises_parts_together() -> None:
    out = make()(torch.randn(2, 8, 4, 4))
    torch.testing.assert_close(out.modulated.mean((1, 2)), torch.zeros(2), atol=1e-5, rtol=0)
    assert not torch.allclose(out.modulated.mean(2), torch.zeros(2, 5), atol=1e-3)


def test_background_does_not_vote_and_dropped_parts_are_zero() -> None:
    discovery = make(dropout=0.5).train()
    out = discovery(torch.randn(200, 8, 4, 4))
    gone = (out.part_logits == 0).all(2)
    assert 0.4 < float(gone.float().mean()) < 0.6
    kept = discovery.classifier(out.modulated[:, :4]) * 2  # survivors are scaled by 1 / (1 - p)
    torch.testing.assert_close(out.part_logits[~gone], kept[~gone])


def test_centres_are_the_mean_tokens_of_parts() -> None:
    """One channel; prototypes at 0, 10 and (background) 20: tokens 1, 2 are part 0's and 18, 22 the background's."""
    discovery = make(2, 1)
    with torch.no_grad():
        discovery.prototypes.copy_(torch.tensor([[0.0], [10.0], [20.0]]))
    discovery.centre_on([torch.tensor([[[[1.0, 18.0]]]]), torch.tensor([[[[2.0, 22.0]]]])])
    assert discovery.centres.flatten().tolist() == [1.5, 10.0, 20.0]  # part 1 has no token and keeps its prototype
    with pytest.raises(ModelError, match="there were no images"):
        discovery.centre_on([])


def test_clear_errors() -> None:
    with pytest.raises(ModelError, match="at least one part"):
        make(0)
    with pytest.raises(ModelError, match=r"10 parts cannot be told apart on a map of 3x3"):
        make(10)(torch.randn(1, 8, 3, 3))
    with pytest.raises(ModelError, match=r"\[B, 8, h, w\]"):
        make()(torch.randn(1, 16, 8))
    with pytest.raises(ModelError, match="temperature"):
        make(temperature=0.0)
    with pytest.raises(ModelError, match="dropout"):
        make(dropout=1.0)
