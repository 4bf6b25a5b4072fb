"""Experiments of the discovery: each changes what it says and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery import nested
from foveate.report.discovery.cues import BY_KEY, EXCHANGED
from foveate.report.discovery.cues.cue import fine_detail
from foveate.report.discovery.cues.encoding import exchange_quality, jpeg, jpeg_quality
from foveate.report.discovery.cues.placement import exchange_position, exchange_size
from foveate.report.discovery.cues.places import FRAME_CUE, framed
from foveate.report.discovery.cues.surroundings import (
    exchange_background,
    exchange_brightness,
    exchange_colour,
    exchange_sharpness,
    exchange_vignette,
    falloff,
    gaussian,
    measure_sharpness,
)
from foveate.report.discovery.donors import donor_pools, draw_donors, spoken_for
from foveate.report.discovery.experiments import FIRST_LOOK, Pull, PullPlan, Sheet, measure_pull, planned_looks
from foveate.report.discovery.marks import PUT, box_masks, find_marks, mark_pairs, with_marks, without_marks
from foveate.report.discovery.nested import Nesting, disentangle, from_closer

SIDE = 32


def batch(seed: int, n: int = 3) -> Tensor:
    # mid-grey noise: nothing saturates, so that equalities hold exactly
    return torch.from_numpy(np.random.default_rng(seed).uniform(90, 150, (n, 3, SIDE, SIDE))).float()


def middle(n: int = 3) -> Tensor:
    mask = torch.zeros(n, SIDE, SIDE)
    mask[:, 10:22, 10:22] = 1
    return mask


def test_background_exchange_is_whole_and_leaves_the_donors_object_behind() -> None:
    x, d, mask = batch(0), batch(1) * 0.6, middle()
    out = exchange_background(x, mask, d, mask)
    inside, outside = middle()[0] > 0, middle()[0] == 0
    inside[10:22, [10, 21]] = inside[[10, 21], 10:22] = False  # the edge is soft, one pixel wide
    assert torch.equal(out[:, :, inside], x[:, :, inside])
    assert torch.equal(out[:, :, outside], d[:, :, outside])  # all of it, as dark as it is
    painted = d.clone()
    painted[:, :, 12:20, 12:20] = 255.0
    assert torch.equal(exchange_background(x, mask, painted, mask), out)


def test_the_whole_without_a_part_gives_the_part_back() -> None:
    x, d, mask = batch(0), batch(1) * 0.6, middle()
    scene = BY_KEY["background"]
    for key in ("corner-br", "frame"):
        part = BY_KEY[key]
        assert part.region is not None
        rest, region = scene.without(part).exchange, part.region(SIDE, SIDE)
        assert rest is not None
        out = rest(x, mask, d, mask)
        assert torch.equal(out[:, :, region], x[:, :, region])
        assert (out[:, :, ~region] - x[:, :, ~region]).abs().mean() > 5
    light = scene.without(BY_KEY["brightness"]).exchange
    assert light is not None
    away = mask[0] == 0
    moved = (light(x, mask, d, mask) - x)[:, :, away].mean((1, 2))
    assert moved.abs().max() < 2  # the donor is 40 % darker; with the brightness given back, the result is not


def test_a_mark_explains_the_backgrounds_pull_and_a_scene_its_corners() -> None:
    sheet = a_sheet(160)
    sheet.images[:, :, :6, :6] = torch.where(torch.arange(len(sheet)) % 2 == 0, 255, 0)[:, None, None, None].byte()

    def reads_mark(x: Tensor) -> np.ndarray:
        return (x[:, 0, :6, :6].float().mean((1, 2)) > 120).long().numpy()

    told = answered(sheet, reads_mark)
    pulls = [measure_pull(told, BY_KEY[key], reads_mark) for key in ("background", "frame", "corner-tl")]
    assert all(pull is not None and pull.value > 0.9 for pull in pulls)
    found = disentangle(told, reads_mark, [pull for pull in pulls if pull is not None])
    assert {key: cue.key for key, cue in found.explained.items()} == {"background": "corner-tl", "frame": "corner-tl"}
    assert found.holds["corner-tl"] == 1.0
    scene = a_sheet(160)
    scene.images[:, 1, 10:22, 10:22] = 100
    seen = answered(scene, reads_scene)
    both = [measure_pull(seen, BY_KEY["background"], reads_scene), measure_pull(seen, BY_KEY["colour"], reads_scene)]
    assert both[1] is not None
    found = disentangle(seen, reads_scene, [pull for pull in both if pull is not None])
    assert {key: cue.key for key, cue in found.explained.items()} == {"colour": "background"}, "objects do not share it"
    cast = replace(seen, images=seen.images.clone())
    cast.images[:, 1] = cast.images[:, 1, :1, :1]  # now they do
    found = disentangle(cast, reads_scene, [pull for pull in both if pull is not None])
    assert {key: cue.key for key, cue in found.explained.items()} == {"background": "colour"}


def test_a_frame_of_the_scene_is_not_taken_for_the_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that weighs the whole scene may lose most of its pull with the frame given back."""
    scene, frame = BY_KEY["background"], BY_KEY["frame"]
    monkeypatch.setattr(nested, "pull_of_pairs", lambda sheet, cue, predict, pairs: 0.9 if cue is scene else 0.2)
    for value, explained in ((0.46, {"frame": "background"}), (0.8, {"background": "frame"})):
        accused = [Pull(scene, 90, 0.9, 0.8, 1.0, 0.0, 0.9, 0.1), Pull(frame, 90, value, 0.3, 0.9, 0.0, 0.9, 0.1)]
        found = disentangle(a_sheet(8), lambda x: np.zeros(len(x), np.int64), accused)
        assert {key: cue.key for key, cue in found.explained.items()} == explained


def test_a_rim_is_a_frame_when_it_is_drawn_and_not_when_it_is_scenery() -> None:
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.uniform(40, 220, (20, 3, 8, 8))).float()
    scenes = torch.nn.functional.interpolate(coarse, (64, 64), mode="bicubic").clamp(0, 255)
    scenes += torch.from_numpy(rng.normal(0, 6, scenes.shape)).float()
    rim = FRAME_CUE.region(64, 64)
    brown = torch.where(rim, torch.tensor([70.0, 45.0, 30.0]).view(3, 1, 1), scenes)
    textured = torch.where(rim, 90 + (scenes - scenes.mean()) * 0.8, scenes * 0.3 + 150)
    assert framed(scenes).sum() == 0
    assert framed(brown).all()
    assert framed(textured).float().mean() > 0.8
    assert framed(torch.cat([scenes, brown])).float().mean() == 0.5


def test_a_rim_of_the_scene_is_the_scenes_whatever_it_pulls() -> None:
    """Without a drawn frame in any picture the exchange of the rim is not even compared."""
    sheet = a_sheet()
    pulls = [
        Pull(BY_KEY[key], 100, value, value - 0.1, value + 0.1, 1e-6, 1.0, 0.5, pairs=((0, 1, 2),) * 30)
        for key, value in (("background", 0.3), ("frame", 0.29))
    ]
    noisy = replace(sheet, images=torch.randint(0, 255, sheet.images.shape, dtype=torch.uint8))
    nesting = disentangle(noisy, lambda x: pytest.fail("the model was asked"), pulls)
    assert {key: cue.key for key, cue in nesting.explained.items()} == {"frame": "background"}


def test_sharpness_is_taken_and_the_fall_of_light_given() -> None:
    x, mask = batch(0), torch.zeros(3, SIDE, SIDE)
    flat = torch.full_like(x, 120.0) + 0.2 * (batch(1) - 120)
    blurred = exchange_sharpness(x, mask, flat, mask)
    assert float(fine_detail(blurred).abs().mean()) == pytest.approx(float(fine_detail(flat).abs().mean()), rel=0.5)
    reach = torch.linspace(-1, 1, SIDE) ** 2
    dark = x * torch.exp(-1.2 * (reach[:, None] + reach[None]) / 2)
    given = exchange_vignette(x, mask, dark, mask)
    assert torch.allclose(falloff(given, mask), falloff(dark, mask), atol=0.1)


@pytest.mark.parametrize("width", [0.5, 2.7])
def test_a_blur_by_products_is_the_convolution(width: float) -> None:
    x, reach = batch(3)[..., :20, :], int(np.ceil(2.5 * width))
    line = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    held = np.pad(x.numpy().astype(np.float64), ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    expected = np.zeros(x.shape)
    for (i, a), (j, b) in itertools.product(enumerate(line / line.sum()), repeat=2):
        expected += a * b * held[..., i : i + x.shape[-2], j : j + x.shape[-1]]
    assert np.allclose(gaussian(x, width).numpy(), expected, atol=1e-3)


def test_letters_at_a_place_do_not_make_a_picture_sharp() -> None:
    plain, mask = torch.full((1, 3, 48, 48), 120.0), torch.zeros(1, 48, 48)
    written = plain.clone()
    written[:, :, 40:46, 4:30:2] = 255.0
    assert torch.equal(measure_sharpness(written, mask), measure_sharpness(plain, mask))
    assert torch.equal(exchange_sharpness(plain, mask, written, mask), plain)
    assert float(measure_sharpness(batch(0), middle()).min()) > float(measure_sharpness(plain, mask))
    raised = exchange_sharpness(0.5 * batch(0), middle(), batch(0), middle())  # none of them is to be blurred
    assert float(measure_sharpness(raised, middle()).min()) > float(measure_sharpness(0.5 * batch(0), middle()).min())
    hidden = torch.ones(1, 48, 48)
    assert bool(torch.isfinite(measure_sharpness(written, hidden)).all()), "an object that covers everything"


def test_a_picture_is_enlarged_and_reduced_with_its_surroundings() -> None:
    x = torch.full((1, 3, 40, 40), 50.0)
    x[:, :, :, 30:] = 90.0  # surroundings with an edge of their own
    small, large = torch.zeros(1, 40, 40), torch.zeros(1, 40, 40)
    small[:, 15:25, 10:20], large[:, 10:30, 5:25] = 1, 1
    x[:, :, 15:25, 10:20] = 200.0
    close = exchange_size(x, small, x, large)[0, 0]
    assert 300 < int((close > 125).sum()) <= 420, "100 pixels before, 400 after"
    assert not bool(((close > 70) & (close < 125)).all(0).any()), "what stood further to the right is out of view"
    far = exchange_size(x, large, x, small)[0, 0]
    assert float(far.max()) <= 200
    same = exchange_size(x, small, x, small)
    assert torch.allclose(same[..., 28:], x[..., 28:], atol=1e-3), "an object of the same size moves nothing"


def test_what_comes_from_a_closer_view_is_explained_by_the_size() -> None:
    """A model that reads how wide the stripes behind the object are, which are twice as wide from half as far."""
    rng = np.random.default_rng(0)
    n, side, near = 120, 48, np.arange(120) % 2 == 0
    images, masks = torch.zeros(n, 3, side, side, dtype=torch.uint8), torch.zeros(n, side, side, dtype=torch.uint8)
    for i in range(n):
        width, half = (8, 10) if near[i] else (4, 5)
        y, x = rng.integers(20, 28, 2)
        images[i] = torch.where((torch.arange(side) + int(rng.integers(16))) // width % 2 == 0, 60, 120).byte()
        masks[i, y - half : y + half, x - half : x + half] = 1
        images[i][:, masks[i] == 1] = 200
    answers = near.astype(np.int64)
    told = Sheet(images, masks, rng.permutation(answers), answers, np.full(n, 0.9), np.arange(n), masks)

    def reads_stripes(batch: Tensor) -> NDArray[np.int64]:
        edges = (batch[:, 0, :6].float().diff(dim=-1).abs() > 20).float().sum((1, 2)) / 6
        return (edges < 8).long().numpy()

    pulls = [measure_pull(told, BY_KEY[key], reads_stripes) for key in ("size", "background")]
    accused = [pull for pull in pulls if pull is not None and pull.value > 0.3]
    assert [pull.cue.key for pull in accused] == ["size", "background"]
    found = Nesting()
    from_closer(told, reads_stripes, accused, found)
    assert {key: by.key for key, by in found.explained.items()} == {"background": "size"}


def test_an_object_is_moved_on_its_own_background() -> None:
    x = torch.full((1, 3, 40, 40), 50.0)
    small, large = torch.zeros(1, 40, 40), torch.zeros(1, 40, 40)
    small[:, 4:14, 4:14], large[:, 10:30, 10:30] = 1, 1
    x[:, :, 4:14, 4:14] = 200.0
    moved = exchange_position(x, small, x, large)[0, 0] > 125
    assert 80 < int(moved.sum()) < 125
    assert bool(moved[20, 20])
    assert not bool(moved[6, 6]), "its old place is filled in"


def test_jpeg_quality_is_read_and_given() -> None:
    rng = np.random.default_rng(0)
    plain = np.clip(rng.normal(0, 12, (64, 64, 3)).cumsum(0) + 120, 0, 255).astype(np.uint8)
    coarse = jpeg(np.ascontiguousarray(plain[::-1]), 20)
    assert jpeg_quality(plain) == 100
    assert jpeg_quality(coarse) == 20
    x, donor = (torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() for image in (plain, coarse))
    mask = torch.zeros(1, 64, 64)
    given = exchange_quality(x, mask, donor, mask)[0].permute(1, 2, 0).numpy().astype(np.uint8)
    assert np.array_equal(given, jpeg(plain, 20))
    assert torch.equal(exchange_quality(donor, mask, x, mask), donor), "what was lost stays lost"


def test_global_exchanges_reach_the_donors_value_outside_the_objects() -> None:
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
    # what an object of the donor looks like does not count
    painted = d.clone()
    painted[:, :, 12:20, 12:20] = 255.0
    assert torch.equal(exchange_brightness(x, mask, painted, mask), exchange_brightness(x, mask, d, mask))


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


def answered(sheet: Sheet, reads: Callable[[Tensor], np.ndarray]) -> Sheet:
    """The same images with the answers of a reader."""
    return replace(sheet, predictions=reads(sheet.images))


def reads_object(x: Tensor) -> np.ndarray:
    return (x[:, 0, 14:18, 14:18].float().mean((1, 2)) > 120).long().numpy()


def reads_scene(x: Tensor) -> np.ndarray:
    patch = x[:, :, 8:24, 2:8].float().mean((2, 3))
    return (patch[:, 1] > patch[:, 0]).long().numpy()


def test_pull_is_zero_for_an_object_reader_and_full_for_a_scene_reader() -> None:
    sheet = a_sheet()
    scene = BY_KEY["background"]
    none = measure_pull(sheet, scene, reads_object)
    assert none is not None
    assert none.value == 0.0
    assert (none.same, none.other) == (1.0, 1.0)
    told = answered(sheet, reads_scene)
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
    one = replace(sheet, predictions=np.zeros(60, dtype=np.int64))
    assert measure_pull(one, BY_KEY["background"], lambda x: np.zeros(len(x), dtype=np.int64)) is None


def test_images_whose_object_lies_in_a_corner_are_left_out_there() -> None:
    sheet = a_sheet(80)
    sheet.masks[:60, :8, :8] = 1.0
    taken = BY_KEY["corner-tl"]
    assert measure_pull(sheet, taken, reads_object) is None
    assert measure_pull(sheet, BY_KEY["corner-br"], reads_object) is not None


def test_donors_are_those_in_which_the_property_speaks() -> None:
    """Half of the answers follow the scene; the donors chosen by the scene's numbers all show the right one."""
    sheet = a_sheet(200, seed=1)
    scene = reads_scene(sheet.images)
    said = np.where(np.arange(200) % 4 == 0, sheet.labels, scene)
    told = replace(sheet, predictions=said, confidence=np.random.default_rng(0).random(200))
    everyone = np.ones(200, dtype=bool)
    clear = donor_pools(told, everyone, spoken_for(scene[:, None].astype(float), said))
    assert all((scene[rows] == k).all() for k, rows in clear.items())
    assert not all((scene[rows] == k).all() for k, rows in donor_pools(told, everyone).items())


def test_an_experiment_stops_as_soon_as_it_is_clear() -> None:
    sheet = a_sheet(400)
    asked: list[int] = []

    def counted(reads: Callable[[Tensor], np.ndarray]) -> Callable[[Tensor], np.ndarray]:
        def said(x: Tensor) -> np.ndarray:
            asked.append(len(x))
            return reads(x)

        return said

    plan = PullPlan(planned_looks(400), tests=14)
    free = measure_pull(sheet, BY_KEY["background"], counted(reads_object), plan=plan)
    assert free is not None
    assert free.n == FIRST_LOOK
    assert free.high < 0.1
    assert free.planned == 400
    assert sum(asked) == FIRST_LOOK, "where no answer turned, the own class's donor is not asked"
    asked.clear()
    found = measure_pull(answered(sheet, reads_scene), BY_KEY["background"], counted(reads_scene), plan=plan)
    assert found is not None
    assert found.n == 2 * FIRST_LOOK
    assert sum(asked) == 4 * FIRST_LOOK


def test_intervals_of_all_looks_together_hold_the_true_pull() -> None:
    """A reader that follows the scene in 15 of 100 images: of 120 experiments at most 5 % may miss that."""
    missed = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        sheet = a_sheet(200, seed=seed)
        scene = reads_scene(sheet.images)
        told = replace(sheet, predictions=scene)

        def reads(x: Tensor, rng: np.random.Generator = rng) -> np.ndarray:
            # who follows is drawn anew for every question; the others always say 0 or 1 by the object
            return np.where(rng.random(len(x)) < 0.15, reads_scene(x), reads_object(x))

        pull = measure_pull(told, BY_KEY["background"], reads, plan=PullPlan(planned_looks(200), tests=14), seed=seed)
        assert pull is not None
        missed += not pull.low <= 0.15 <= pull.high
    assert missed <= 10


def test_a_mark_anywhere_is_found_and_put_into_other_images() -> None:
    rng = np.random.default_rng(2)
    n, side = 160, 40
    labels, there = rng.integers(0, 2, n), rng.integers(0, 2, n)
    images = torch.full((n, 3, side, side), 90, dtype=torch.uint8) + torch.from_numpy(
        rng.integers(0, 12, (n, 3, side, side)).astype(np.uint8)
    )
    masks = torch.zeros(n, side, side)
    masks[:, 14:26, 14:26] = 1
    images[:, 0, 15:25, 15:25] = torch.from_numpy(np.where(labels, 200, 20).astype(np.uint8))[:, None, None]
    for i in np.flatnonzero(there):
        y, x = rng.choice([1, 30]), rng.integers(1, 30)
        images[i, :, y : y + 8, x : x + 8] = 255

    def scores(x: Tensor) -> np.ndarray:
        white = (x.float().amin(1) > 250).float().mean((1, 2)).numpy()
        return np.stack([np.full(len(x), 0.02), white], 1)

    def reads(x: Tensor) -> np.ndarray:
        return scores(x).argmax(1)

    sheet = Sheet(images, masks, labels, reads(images), scores(images).max(1), np.arange(n))
    found = find_marks(sheet, scores)
    marked = [i for i in found if there[i]]
    assert len(marked) == 10
    whites = [
        float((images[i, 0, b[0] : b[1], b[2] : b[3]] == 255).float().sum()) for i, b in found.items() if there[i]
    ]
    assert np.mean(whites) > 45, "most of the 64 white places lie in the window"
    drawn = mark_pairs(sheet, {**found, **{int(i): (0, 8, 0, 8) for i in np.flatnonzero(there == 0)[:10]}}, rng)
    assert not set(drawn[:, 0].tolist()) & set(found)
    pull = measure_pull(with_marks(sheet, box_masks(found, images)), PUT, reads, drawn=drawn)
    assert pull is not None
    assert pull.value > 0.3
    erased = without_marks(sheet, box_masks(found, images))
    assert (reads(erased.images[marked]) == 0).mean() > 0.8
