from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.errors import DataError
from foveate.measure import (
    attention_concentration,
    attention_hit,
    attention_mass,
    attention_shares,
    bilinear_weights,
    by_centre_distance,
    centre_distance,
    localisation_curve,
)

NONE = [float("nan")] * 4


@settings(max_examples=60, deadline=None)
@given(h=st.integers(1, 9), w=st.integers(1, 9), height=st.integers(1, 40), width=st.integers(1, 40))
def test_bilinear_weights_are_interpolate(h: int, w: int, height: int, width: int) -> None:
    maps = torch.rand(h, w, dtype=torch.float64)
    ours = bilinear_weights(h, height) @ maps @ bilinear_weights(w, width).T
    truth = F.interpolate(maps[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0]
    torch.testing.assert_close(ours, truth, atol=1e-12, rtol=0)


def test_uniform_attention_has_the_area_share() -> None:
    boxes = torch.tensor([[0.0, 0, 56, 112], [10, 20, 20, 25]])
    mass = attention_mass(torch.ones(2, 16, 16), boxes, image_size=224)
    assert mass.tolist() == pytest.approx([1 / 8, 50 / 224**2], abs=1e-12)


def test_the_whole_image_has_all_of_it() -> None:
    maps = torch.rand(3, 7, 5)
    boxes = torch.tensor([[0.0, 0, 40, 30]]).expand(3, 4)
    assert attention_mass(maps, boxes, image_size=(30, 40)).tolist() == pytest.approx([1.0] * 3)
    assert attention_hit(maps, boxes, image_size=(30, 40)).tolist() == [1.0] * 3


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), soft=st.booleans())
def test_mass_and_hit_equal_the_plain_definition(seed: int, soft: bool) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.random((2, 4, 6))
    masks = rng.random((2, 20, 33)) if soft else (rng.random((2, 20, 33)) > 0.5).astype(float)
    large = F.interpolate(torch.from_numpy(maps)[:, None], (20, 33), mode="bilinear", align_corners=False)[:, 0].numpy()
    expected = (large * masks).sum((1, 2)) / large.sum((1, 2))
    assert attention_mass(maps, masks).tolist() == pytest.approx(expected.tolist(), rel=1e-10)
    flat = large.reshape(2, -1)
    peak = (flat >= flat.max(1, keepdims=True) - 1e-12).argmax(1)  # equal strips at the border: the first pixel
    expected = (masks.reshape(2, -1)[[0, 1], peak] >= 0.5).astype(float)
    assert attention_hit(maps, masks).tolist() == expected.tolist()


def test_the_union_of_boxes_counts_once() -> None:
    maps = torch.ones(2, 4, 4)
    boxes = torch.tensor([[[0.0, 0, 8, 16], [4, 0, 12, 16]], [[0.0, 0, 8, 16], NONE]])
    assert attention_mass(maps, boxes, image_size=16).tolist() == pytest.approx([0.75, 0.5])
    peak = torch.zeros(1, 4, 4)
    peak[0, 3, 3] = 1.0
    two = torch.tensor([[[0.0, 0, 4, 4], [12, 12, 16, 16]]])
    assert attention_hit(peak, two, image_size=16).item() == 1.0
    assert attention_hit(peak, two[:, :1], image_size=16).item() == 0.0


def test_boxes_between_pixels_and_beyond_the_image() -> None:
    maps = torch.ones(2, 2, 2)
    boxes = torch.tensor([[0.5, 0, 2.0, 4], [-3, -3, 2, 9]])
    assert attention_mass(maps, boxes, image_size=4).tolist() == pytest.approx([1.5 / 4, 0.5])


def test_what_is_not_known_is_nan() -> None:
    maps = torch.stack([torch.ones(2, 2), torch.zeros(2, 2), torch.ones(2, 2)])
    boxes = torch.tensor([NONE, [0.0, 0, 4, 4], [0.0, 0, 4, 2]])
    mass, hit = (f(maps, boxes, image_size=4) for f in (attention_mass, attention_hit))
    assert mass[:2].isnan().all()
    assert hit[:2].isnan().all()
    assert mass[2] == pytest.approx(0.5)
    assert localisation_curve([maps], boxes, image_size=4)["mass"].item() == pytest.approx(0.5)


def test_concentration_known_answers() -> None:
    uniform, delta = torch.ones(1, 16, 16), torch.zeros(1, 16, 16)
    delta[0, 3, 5] = 0.3
    half = torch.zeros(1, 4, 4)
    half[0, :2] = 1.0
    found = attention_concentration(uniform)
    assert found["entropy"].item() == pytest.approx(1.0)
    assert found["top-10%"].item() == pytest.approx(26 / 256)  # ceil(25.6)
    assert found["top-25%"].item() == pytest.approx(0.25)
    found = attention_concentration(delta)
    assert [found[k].item() for k in ("entropy", "top-10%", "top-25%")] == [0.0, 1.0, 1.0]
    found = attention_concentration(half)
    assert found["entropy"].item() == pytest.approx(math.log(8) / math.log(16))
    assert found["top-10%"].item() == pytest.approx(2 / 8)
    # 10 % of 260 is 26, not 27, whatever floating point says
    assert attention_concentration(torch.ones(1, 260))["top-10%"].item() == pytest.approx(0.1)


def test_shares_sum_to_one() -> None:
    rows = torch.rand(2, 3, 1 + 4 + 9).softmax(-1)
    shares = attention_shares(rows, registers=4)
    assert shares["registers"].shape == (2, 3)
    torch.testing.assert_close(shares["cls"] + shares["registers"] + shares["patches"], torch.ones(2, 3))
    torch.testing.assert_close(shares["registers"], rows[..., 1:5].sum(-1))
    with pytest.raises(DataError):
        attention_shares(rows, registers=13)


def test_layer_curve_finds_the_best_layer() -> None:
    mask = torch.zeros(2, 8, 8)
    mask[:, :4, :4] = 1.0
    on = torch.zeros(2, 2, 2)
    on[:, 0, 0] = 1.0
    curve = localisation_curve([torch.ones(2, 2, 2), on, on.flip(1)], mask)
    assert curve["mass"].argmax() == 1
    assert curve["hit"].tolist() == [1.0, 1.0, 0.0]  # a flat map peaks at its first pixel


def test_distance_from_the_centre() -> None:
    boxes = torch.tensor([[40.0, 20, 60, 30], [0, 0, 100, 50], [90, 20, 100, 30], NONE])
    expected = [0.0, 0.0, 45 / math.hypot(50, 25)]
    found = centre_distance(boxes, image_size=(50, 100))
    assert found[:3].tolist() == pytest.approx(expected, abs=1e-12)
    assert found[3].isnan()
    mask = torch.zeros(1, 50, 100)
    mask[0, 20:30, 90:] = 1.0
    assert centre_distance(mask).item() == pytest.approx(expected[2])


def test_strata_are_the_right_images() -> None:
    distances = [0.3, 0.1, 0.9, 0.8, float("nan"), 0.2]
    correct = [1, 1, 0, 1, 0, 0]
    groups = [0, 0, 1, 0, 1, 1]
    rows = {r.name: r for r in by_centre_distance(distances, correct, groups, shares=(0.4, 0.01))}
    assert rows["all"].count == 5
    assert rows["all"].average == pytest.approx(3 / 5)
    assert rows["all"].worst_group == 0.0
    assert rows["furthest 40%"].distance == pytest.approx(0.85)
    assert rows["furthest 40%"].average == 0.5
    assert rows["nearest 40%"].distance == pytest.approx(0.15)
    assert rows["furthest 1%"].count == 1
    assert rows["furthest 1%"].average == 0.0
    assert rows["nearest 1%"].worst_group == 1.0


def test_bad_input_is_named() -> None:
    maps = torch.ones(1, 2, 2)
    with pytest.raises(DataError, match="image_size"):
        attention_mass(maps, torch.zeros(1, 4))
    with pytest.raises(DataError, match="divide 8-bit masks by 255"):
        attention_mass(maps, torch.full((1, 4, 4), 255.0))
    with pytest.raises(DataError, match="x0, y0, x1, y1"):
        attention_mass(maps, torch.zeros(1, 3), image_size=4)
    with pytest.raises(DataError, match="objects for 2"):
        attention_mass(maps, torch.zeros(2, 4, 4))
    with pytest.raises(DataError, match="not negative"):
        attention_mass(-maps, torch.zeros(1, 4, 4))
    with pytest.raises(DataError, match="one length"):
        by_centre_distance([0.1], [1, 2])
