"""Experiments of the discovery: each changes what it says and nothing else."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foveate.report.discovery.cues import BY_KEY, EXCHANGED
from foveate.report.discovery.cues.places import border, corner
from foveate.report.discovery.cues.surroundings import (
    exchange_background,
    exchange_brightness,
    exchange_colour,
    exchange_sharpness,
)
from foveate.report.discovery.experiments import Sheet, draw_donors, measure_pull

SIDE = 32


def batch(seed: int, n: int = 3) -> Tensor:
    # mid-grey noise: nothing saturates, so that equalities hold exactly
    return torch.from_numpy(np.random.default_rng(seed).uniform(90, 150, (n, 3, SIDE, SIDE))).float()


def middle(n: int = 3) -> Tensor:
    mask = torch.zeros(n, SIDE, SIDE)
    mask[:, 10:22, 10:22] = 1
    return mask


def test_background_exchange_keeps_object_brightness_and_what_it_is_told_to() -> None:
    x, d, mask = batch(0), batch(1) * 0.6, middle()
    out = exchange_background(x, mask, d, mask, keep=[border, corner("br")])
    kept = (mask[0] > 0) | border(SIDE, SIDE) | corner("br")(SIDE, SIDE)
    assert torch.equal(out[:, :, kept], x[:, :, kept])
    assert (out[:, :, ~kept] - x[:, :, ~kept]).abs().mean() > 5
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    plain = exchange_background(x, mask, d, mask)
    moved = ((plain - x) * luma).sum(1)[:, mask[0] == 0].mean(1)
    assert moved.abs().max() < 0.5  # the donor is 40 % darker; the result is not
    # nothing of the donor's object comes along
    painted = d.clone()
    painted[:, :, 12:20, 12:20] = 255.0
    assert torch.equal(exchange_background(x, mask, painted, mask), plain)


def test_a_mark_does_not_count_for_the_background_as_well() -> None:
    sheet = a_sheet()
    sheet.images[:, :, :6, :6] = torch.where(torch.arange(len(sheet)) % 2 == 0, 255, 0)[:, None, None, None].byte()
    reads = lambda x: (x[:, 0, :6, :6].float().mean((1, 2)) > 120).long().numpy()  # noqa: E731
    told = Sheet(sheet.images, sheet.masks, sheet.labels, reads(sheet.images), sheet.confidence, sheet.positions)
    scene = BY_KEY["background"]
    whole = measure_pull(told, scene, reads)
    spared = measure_pull(told, scene.without([corner("tl")]), reads)
    assert whole is not None
    assert spared is not None
    assert whole.value > 0.9
    assert spared.value == 0.0


def test_global_exchanges_reach_the_donors_value_and_spare_the_object() -> None:
    x, d, mask = batch(0), batch(1) * torch.tensor([1.2, 0.9, 0.8]).view(1, 3, 1, 1), middle()
    outside = mask[0] == 0

    def around(images: Tensor) -> Tensor:
        return images[:, :, outside].mean(2)

    def light(images: Tensor) -> Tensor:
        return around(images) @ torch.tensor([0.299, 0.587, 0.114])

    assert torch.allclose(light(exchange_brightness(x, mask, d, mask)), light(d), atol=0.5)
    coloured = exchange_colour(x, mask, d, mask)
    assert torch.allclose(around(coloured) - light(coloured)[:, None], around(d) - light(d)[:, None], atol=0.5)
    assert torch.allclose(light(coloured), light(x), atol=0.5)
    flat = torch.full_like(d, 120.0)
    assert exchange_sharpness(x, mask, flat, mask)[:, :, outside].std() < 0.5 * x.std()
    for exchange in (exchange_brightness, exchange_colour, exchange_sharpness):
        assert torch.equal(exchange(x, mask, d, mask)[:, :, ~outside], x[:, :, ~outside])


def test_place_exchanges_touch_their_place_only() -> None:
    x, d, mask = batch(0), batch(1), middle()
    for cue in EXCHANGED:
        if cue.region is None or cue.exchange is None:
            continue
        region, out = cue.region(SIDE, SIDE), cue.exchange(x, mask, d, mask)
        assert torch.equal(out[:, :, region], d[:, :, region])
        assert torch.equal(out[:, :, ~region], x[:, :, ~region])


def a_sheet(n: int = 120, seed: int = 0) -> Sheet:
    """Class = colour of the middle square; background bright or dark green by a coin; predictions are right."""
    rng = np.random.default_rng(seed)
    labels, scene = rng.integers(0, 2, n), rng.integers(0, 2, n)
    images = torch.full((n, 3, SIDE, SIDE), 100, dtype=torch.uint8)
    images[:, 1] = torch.from_numpy(np.where(scene, 160, 60).astype(np.uint8))[:, None, None]
    images[:, 0, 12:20, 12:20] = torch.from_numpy(np.where(labels, 220, 20).astype(np.uint8))[:, None, None]
    return Sheet(images, middle(n), labels, labels.copy(), np.ones(n), np.arange(n))


def reads_object(x: Tensor) -> np.ndarray:
    return (x[:, 0, 14:18, 14:18].float().mean((1, 2)) > 120).long().numpy()


def reads_scene(x: Tensor) -> np.ndarray:
    # chroma, since brightness is held fixed by the exchange
    patch = x[:, :, 8:24, 2:8].float().mean((2, 3))
    return (patch[:, 1] > patch[:, 0]).long().numpy()


def test_pull_is_zero_for_an_object_reader_and_full_for_a_scene_reader() -> None:
    sheet = a_sheet()
    scene = BY_KEY["background"]
    none = measure_pull(sheet, scene, reads_object)
    assert none is not None
    assert none.value == 0.0
    assert (none.same, none.other) == (1.0, 1.0)
    told = Sheet(sheet.images, sheet.masks, sheet.labels, reads_scene(sheet.images), sheet.confidence, sheet.positions)
    full = measure_pull(told, scene, reads_scene)
    assert full is not None
    assert full.value == 1.0
    assert full.low > 0.9
    assert full.p < 1e-6
    assert len(full.examples) == full.n
    # the images are balanced: scene and label are independent, and the test works all the same
    assert abs(np.corrcoef(told.predictions, told.labels)[0, 1]) < 0.3


def test_donors_are_taken_for_the_right_class_and_never_the_image_itself() -> None:
    sheet = a_sheet(60)
    i, same, other = draw_donors(sheet, np.ones(60, dtype=bool), np.random.default_rng(0))
    assert (sheet.predictions[same] == sheet.labels[i]).all()
    assert (sheet.predictions[other] != sheet.labels[i]).all()
    assert not (same == i).any()
    one = Sheet(
        sheet.images, sheet.masks, sheet.labels, np.zeros(60, dtype=np.int64), sheet.confidence, sheet.positions
    )
    assert measure_pull(one, BY_KEY["background"], lambda x: np.zeros(len(x), dtype=np.int64)) is None


def test_images_whose_object_lies_in_a_corner_are_left_out_there() -> None:
    sheet = a_sheet(80)
    sheet.masks[:60, :8, :8] = 1.0
    taken = BY_KEY["corner-tl"]
    assert measure_pull(sheet, taken, reads_object) is None
    assert measure_pull(sheet, BY_KEY["corner-br"], reads_object) is not None
