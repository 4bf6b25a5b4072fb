"""CEP, CAP, CGP and the swaps: the known answers of the fact sheet, and analytic toy networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from foveate.errors import DataError, FoveateError
from foveate.measure import (
    CAPAccumulator,
    CEPAccumulator,
    core_activation_percentage,
    core_effect_percentage,
    core_gradcam_percentage,
    donor_permutation,
    fill_object,
    half_mask,
    mask_on_grid,
    swap,
)


def dominoes(n: int = 64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random images 1x8x4 with independent halves, with the core (bottom) and with the rest swapped."""
    x = torch.rand(n, 1, 8, 4, generator=torch.Generator().manual_seed(seed)) + 0.1
    donors = x[donor_permutation(n, seed)]
    return x, *swap(x, half_mask(8, 4), donors)


def core(x: Tensor) -> Tensor:
    return x[:, 0, 4:].flatten(1)


def rest(x: Tensor) -> Tensor:
    return x[:, 0, :4].flatten(1)


def test_readout_of_the_core_alone_is_one_and_of_the_rest_zero() -> None:
    images = dominoes()
    assert core_effect_percentage(*(core(x) for x in images)).value == 1.0
    assert core_effect_percentage(*(rest(x) for x in images)).value == 0.0


def test_sum_of_independent_halves_is_one_half_in_expectation() -> None:
    images = dominoes(n=20_000)
    f = [core(x).sum(1, keepdim=True) + rest(x).sum(1, keepdim=True) for x in images]
    # the ratio lies in [0, 1], so its standard error is below 0.5 / sqrt(n) = 0.0035
    assert core_effect_percentage(*f).value == pytest.approx(0.5, abs=0.014)


def test_by_hand() -> None:
    base, other_core, other_rest = torch.zeros(2, 2), torch.tensor([[1.0, 2], [0, 4]]), torch.tensor([[1.0, 0], [4, 0]])
    output = core_effect_percentage(base, other_core, other_rest)
    assert output.value == pytest.approx((3 / 4 + 4 / 8) / 2)
    ratio_of = core_effect_percentage(base, other_core, other_rest, expectation="ratio_of")
    assert ratio_of.value == pytest.approx(7 / 12)
    feature = core_effect_percentage(base, other_core, other_rest, level="feature")
    assert feature.values.tolist() == pytest.approx([(1 / 2 + 0) / 2, 1.0])


@settings(deadline=None, max_examples=30)
@given(st.floats(-100, 100).filter(lambda c: abs(c) > 1e-3), st.sampled_from(["output", "map", "pixel"]))
def test_scale_leaves_it_and_exchange_mirrors_it(scale: float, level: str) -> None:
    torch.manual_seed(0)
    x, c, s = torch.randn(3, 5, 2, 4, 4, dtype=torch.float64)
    plain = core_effect_percentage(x, c, s, level).values
    assert torch.allclose(core_effect_percentage(scale * x, scale * c, scale * s, level).values, plain)
    assert torch.allclose(core_effect_percentage(x, s, c, level).values, 1 - plain)


def test_pixels_with_a_receptive_field_in_one_half_are_zero_or_one() -> None:
    conv = nn.Conv2d(1, 3, 3, padding=1)
    with torch.no_grad():
        maps = [conv(x) for x in dominoes()]
    pixel = core_effect_percentage(*maps, level="pixel").values
    assert pixel.shape == (3, 8, 4)
    assert (pixel[:, :3] == 0).all()
    assert (pixel[:, 5:] == 1).all()
    middle = pixel[:, 3:5]
    assert ((middle > 0) & (middle < 1)).all()
    per_map = core_effect_percentage(*maps, level="map")
    assert per_map.values.shape == (3,)
    assert ((per_map.values > 0.2) & (per_map.values < 0.8)).all()


def test_dead_channels_are_dropped_and_counted() -> None:
    x, c, s = (torch.zeros(4, 3, 2, 2) for _ in range(3))
    c[:, 0] = 1.0  # channel 0: core alone
    s[:2, 1] = 1.0  # channel 1: rest alone, in two samples; undefined in the other two
    result = core_effect_percentage(x, c, s, level="map")  # channel 2 never moves
    assert result.values[:2].tolist() == [1.0, 0.0]
    assert torch.isnan(result.values[2])
    assert (result.dead, result.dropped, result.counted.tolist()) == (1, 2 + 4, [4, 2, 0])
    assert result.value == 0.5  # over the live channels, not pulled to 0 by the dead one
    assert np.isnan(core_effect_percentage(x, x, x).value)


def test_batches_give_what_one_batch_gives() -> None:
    x, c, s = torch.randn(3, 10, 4, 3, 3)
    for level in ("output", "map", "pixel"):
        for expectation in ("of_ratio", "ratio_of"):
            whole = core_effect_percentage(x, c, s, level, expectation)
            parts = CEPAccumulator(level, expectation)
            for i in (slice(0, 3), slice(3, 4), slice(4, 10)):
                parts.update(x[i], c[i], s[i])
            assert torch.allclose(parts.compute().values, whole.values)
            assert parts.compute().n == 10


def test_bad_readouts_are_explained() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(FoveateError, match="level"):
        core_effect_percentage(x, x, x, "channel")
    with pytest.raises(DataError, match="dimensions"):
        core_effect_percentage(x, x, x, "map")
    with pytest.raises(DataError, match="one shape"):
        core_effect_percentage(x, x, x[:1])
    with pytest.raises(DataError, match="not finite"):
        core_effect_percentage(x, x / 0, x)
    with pytest.raises(DataError, match="no batch"):
        CEPAccumulator().compute()


# -- CAP and CGP ---------------------------------------------------------------------------


def test_cap_known_answers() -> None:
    maps = torch.zeros(2, 4, 8, 4)
    maps[:, 0] = 1.0  # uniform: 0.5
    maps[:, 1, 4:] = 2.0  # lower half alone: 1
    maps[:, 2, :4] = 3.0  # upper half alone: 0
    result = core_activation_percentage(maps, half_mask(64, 32))  # channel 3 is dead
    assert result.values[:3].tolist() == [0.5, 1.0, 0.0]
    assert result.dead == 1
    assert result.value == pytest.approx(0.5)


def test_cap_with_one_mask_per_image() -> None:
    maps = torch.ones(2, 1, 4, 4)
    masks = torch.zeros(2, 8, 8)
    masks[0, :2, :2] = 1.0  # 4 of 64 pixels
    masks[1] = 1.0
    assert core_activation_percentage(maps, masks).value == pytest.approx((4 / 64 + 1) / 2)


def test_cgp_known_answers() -> None:
    heat = torch.zeros(3, 4, 4)
    heat[0] = 1.0
    heat[1, 2:] = 5.0  # the third is all zero: skipped and counted
    result = core_gradcam_percentage(heat, half_mask(4, 4))
    assert (result.value, result.dropped, result.n) == (0.75, 1, 3)
    fine = heat.repeat_interleave(3, 1).repeat_interleave(3, 2)  # nearest upsampling changes nothing
    assert core_gradcam_percentage(fine, half_mask(12, 12)).value == pytest.approx(0.75)


def test_negative_activations_need_absolute() -> None:
    maps = torch.tensor([[[[1.0], [-3.0]]]])
    with pytest.raises(DataError, match="absolute=True"):
        core_activation_percentage(maps, half_mask(2, 1 * 2)[:, :1])
    assert core_activation_percentage(maps, half_mask(2, 1)[:, :1], absolute=True).value == 0.75


def test_cap_batches() -> None:
    maps = torch.rand(6, 3, 4, 4)
    parts = CAPAccumulator()
    parts.update(maps[:2], half_mask(4, 4))
    parts.update(maps[2:], half_mask(4, 4))
    assert torch.allclose(parts.compute().values, core_activation_percentage(maps, half_mask(4, 4)).values)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_mask_on_grid_keeps_the_covered_share(h: int, w: int, H: int, W: int) -> None:
    mask = torch.rand(h, w, generator=torch.Generator().manual_seed(h * 100 + w))
    grid = mask_on_grid(mask, (H, W))
    assert grid.shape == (H, W)
    assert float(grid.mean()) == pytest.approx(float(mask.mean()), abs=1e-6)
    # brute force: nearest upsampling to a common size, then mean over blocks
    fine = mask.double().repeat_interleave(H, 0).repeat_interleave(W, 1)
    assert torch.allclose(grid, fine.view(H, h, W, w).mean((1, 3)), atol=1e-7)


def test_half_masks() -> None:
    assert half_mask(4, 2, "top").tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    assert half_mask(2, 4, "left").tolist() == [[1, 1, 0, 0]] * 2
    assert half_mask(2, 4, "right").tolist() == [[0, 0, 1, 1]] * 2
    with pytest.raises(DataError, match="even"):
        half_mask(5, 4)


# -- swaps ---------------------------------------------------------------------------------


@given(st.integers(2, 200), st.integers(0, 10))
def test_donors_are_a_permutation_without_fixed_points(n: int, seed: int) -> None:
    order = donor_permutation(n, seed)
    assert sorted(order) == list(range(n))
    assert (order != np.arange(n)).all()


def test_donors_are_uniform_over_derangements() -> None:
    rng = np.random.default_rng(0)
    seen = [tuple(donor_permutation(4, rng)) for _ in range(1800)]
    counts = np.array([seen.count(d) for d in set(seen)])
    assert len(counts) == 9  # there are nine of them for n = 4
    assert ((counts - 200) ** 2 / 200).sum() < 26  # chi-square with 8 degrees of freedom: 26.1 at p = 0.001
    with pytest.raises(DataError):
        donor_permutation(1)


def test_halves_are_swapped_exactly_and_keep_their_type() -> None:
    x = torch.randint(0, 256, (3, 3, 8, 4), dtype=torch.uint8)
    donors = x[[1, 2, 0]]
    c, s = swap(x, half_mask(8, 4), donors)
    assert c.dtype == torch.uint8
    assert torch.equal(c[:, :, :4], x[:, :, :4])
    assert torch.equal(c[:, :, 4:], donors[:, :, 4:])
    assert torch.equal(s[:, :, :4], donors[:, :, :4])
    assert torch.equal(s[:, :, 4:], x[:, :, 4:])


def composite(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(object, soft mask, plate, image) with image = mask * object + (1 - mask) * plate."""
    g = torch.Generator().manual_seed(seed)
    thing, plate = torch.rand(2, 3, 8, 8, generator=g), torch.rand(2, 3, 8, 8, generator=g)
    mask = torch.zeros(2, 8, 8)
    mask[0, 2:6, 2:5], mask[1, 1:4, 3:8] = 1.0, 1.0
    mask[0, 6, 2:5], mask[1, 4, 3:8] = 0.4, 0.7  # soft edges
    return thing, mask, plate, mask[:, None] * thing + (1 - mask[:, None]) * plate


def test_objects_trade_true_plates_exactly_soft_edges_included() -> None:
    thing, mask, plate, image = composite(0)
    thing2, mask2, plate2, image2 = composite(1)
    c, s = swap(image, mask, image2, mask2, plates=plate, donor_plates=plate2)
    assert torch.allclose(c, mask2[:, None] * thing2 + (1 - mask2[:, None]) * plate, atol=1e-6)
    assert torch.allclose(s, mask[:, None] * thing + (1 - mask[:, None]) * plate2, atol=1e-6)


def test_without_plates_the_old_object_is_painted_over() -> None:
    x = torch.zeros(2, 1, 8, 8)
    x[0] += 0.2
    x[1] += 0.8
    mask = torch.zeros(2, 8, 8)
    mask[:, 2:4, 2:4] = 1.0
    mask[1] = mask[1].roll(3, 0)
    x = torch.where(mask[:, None] > 0, torch.tensor([1.0, 0.0]).view(2, 1, 1, 1), x)
    c, s = swap(x, mask, x.flip(0), mask.flip(0))
    # plain backgrounds are restored exactly, so the result is what a painter would make
    wanted_core = torch.where(mask.flip(0)[:, None] > 0, x.flip(0), torch.tensor([0.2, 0.8]).view(2, 1, 1, 1))
    wanted_rest = torch.where(mask[:, None] > 0, x, torch.tensor([0.8, 0.2]).view(2, 1, 1, 1))
    assert torch.allclose(c, wanted_core, atol=1e-6)
    assert torch.allclose(s, wanted_rest, atol=1e-6)


def test_fill_stays_within_the_surroundings() -> None:
    torch.manual_seed(0)
    image = torch.rand(2, 3, 17, 11)
    mask = torch.zeros(2, 17, 11)
    mask[0, 3:15, 2:9] = 1.0
    mask[1] = 1.0
    filled = fill_object(image, mask)
    assert torch.equal(filled[0][:, mask[0] == 0], image[0][:, mask[0] == 0])
    assert filled[0].min() >= image[0].min() - 1e-6
    assert filled[0].max() <= image[0].max() + 1e-6
    assert torch.isfinite(filled).all()
    changed = image.clone()
    changed[0][:, mask[0] == 1] = 7.0  # what was there does not matter
    assert torch.equal(fill_object(changed, mask)[0], filled[0])


def test_swap_explains_bad_shapes() -> None:
    x = torch.zeros(2, 3, 8, 8)
    with pytest.raises(DataError, match="does not match"):
        swap(x, torch.zeros(4, 4), x)
    with pytest.raises(DataError, match="donor_mask"):
        swap(x, torch.zeros(2, 8, 8), x)
    with pytest.raises(DataError, match="images and donors"):
        swap(x, torch.zeros(8, 8), x[:1])
