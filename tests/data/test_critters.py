"""Critters: the promise that a seed gives the same bits everywhere, exact counts, and truthful annotations."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.data.critters import CritterImages, allocate, critters, plan_split, species_names
from foveate.data.drawing.animals import COATS, KEYPOINTS
from foveate.data.drawing.exact import Dice, cos_sin, raw_bits, uniforms
from foveate.data.drawing.raster import Canvas, Limb, Polygon, circle, coverage, ellipse, rgb
from foveate.data.drawing.scene import Scene, outline, render
from foveate.errors import DataError


def _digest(*arrays: np.ndarray) -> str:
    hasher = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hasher.update(array.tobytes())
    return hasher.hexdigest()


# -- the same bits everywhere -------------------------------------------------------------

# These digests ARE the promise that a seed gives the same images on every machine and in every release.
# If a change to the drawing is intended, say so in the changelog and renew them; otherwise mend the change.
KNOWN = {
    Scene(0, 0, 0, 64, species=0, habitat=0): "2a8ad04dc15df72f",
    Scene(0, 0, 1, 64, species=1, habitat=1): "8a3ebe135ec18e36",
    Scene(1, 3, 7, 97, species=5, habitat=6, second=2, clutter=2): "5135c86d625690f1",
    Scene(123456789, 2, 40, 128, species=7, habitat=3, colour=4, centre_bias=1.0): "5eae181f8f3c8fcb",
}


@pytest.mark.parametrize(("scene", "known"), KNOWN.items())
def test_bits_are_as_promised(scene: Scene, known: str) -> None:
    assert _digest(*render(scene)) == known


def test_every_species_and_habitat_is_as_promised() -> None:
    pairs = [render(Scene(9, 0, k, 48, species=k, habitat=7 - k, second=k)) for k in range(8)]
    assert _digest(*(array for pair in pairs for array in pair)) == "6d7dc3b07dbffb11"


def test_plan_is_as_promised() -> None:
    plan = plan_split(0, 0, 20, 2, {"habitat": 0.9, "second": 0.8}, first="habitat")
    assert _digest(*(plan[k].astype("<i8") for k in ("species", "habitat", "second"))) == "b31619aa9ebe2573"


def test_bit_stream_is_numpys_pcg64() -> None:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(5, spawn_key=(1, 2))))
    assert uniforms(raw_bits(5, 1, 2), 4).tolist() == generator.random(4).tolist()


def test_images_do_not_depend_on_the_order_they_are_asked_for() -> None:
    first, second = (critters(4, train=6, target=0, val=0, test=4) for _ in range(2))
    forward = [first.train.images.read(i).copy() for i in range(6)]
    second.test.images.read(3)
    for i in (5, 0, 3, 1, 4, 2):
        np.testing.assert_array_equal(second.train.masks.read(i), first.train.masks.read(i))
        np.testing.assert_array_equal(second.train.images.read(i), forward[i])
    assert (
        first.train.fingerprint
        == second.train.fingerprint
        != critters(5, train=6, target=0, val=0, test=0).train.fingerprint
    )


def test_images_of_one_seed_differ_between_splits_and_positions() -> None:
    bench = critters(0, train=4, target=4, val=4, test=4)
    digests = {ds.images.digest(i) for ds in bench.splits.values() for i in range(4)}
    assert len(digests) == 16


def test_a_large_split_is_redrawn_instead_of_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = critters(0, train=4, target=0, val=0, test=0).train
    monkeypatch.setattr(sys.modules["foveate.data.critters"], "KEEP_BYTES", 0)
    fresh = critters(0, train=4, target=0, val=0, test=0).train
    assert fresh.images._pixels.size == 0
    assert kept.fingerprint == fresh.fingerprint
    np.testing.assert_array_equal(kept.masks.read(-1), fresh.masks.read(3))


# -- exact counts -------------------------------------------------------------------------


def test_group_counts_by_hand() -> None:
    bench = critters(0, train=200, target=16, val=40, test=100)
    assert bench.train.group_counts.tolist() == [95, 5, 5, 95]
    for split, each in (("target", 4), ("val", 10), ("test", 25)):
        assert bench[split].group_counts.tolist() == [each] * 4
    # 90 of 3 classes: 30 each; 0.8 * 30 = 24 at home, the other 6 shared by two habitats
    three = critters(0, classes=3, strength=0.8, train=90, target=9, val=0, test=0)
    assert three.train.group_counts.reshape(3, 3).tolist() == [[24, 3, 3], [3, 24, 3], [3, 3, 24]]
    assert three.target.group_counts.tolist() == [1] * 9
    # 41 images: 21 + 20; 0.95 * 21 = 19.95 -> 20, 0.95 * 20 = 19
    assert critters(0, train=41, target=0, val=0, test=0).train.group_counts.tolist() == [20, 1, 1, 19]


def test_default_sizes_have_equal_groups() -> None:
    from foveate.data.critters import _size

    assert [_size(s, None, 2) for s in ("train", "target", "val", "test")] == [2000, 240, 400, 1000]
    for classes in range(2, 9):
        assert _size("train", None, classes) % classes == 0
        for split in ("target", "val", "test"):
            assert _size(split, None, classes) % classes**2 == 0


def test_strength_of_val_and_test_can_be_chosen() -> None:
    bench = critters(0, train=0, target=0, val=40, test=40, val_strength=0.9, test_strength=0.0)
    assert "train" not in bench
    assert bench.val.group_counts.tolist() == [18, 2, 2, 18]
    assert bench.test.group_counts.tolist() == [0, 20, 20, 0]


@given(count=st.integers(0, 300), strength=st.floats(0, 1), classes=st.integers(2, 8), own=st.integers(0, 7))
def test_allocation_is_exact_and_even(count: int, strength: float, classes: int, own: int) -> None:
    own %= classes
    counts = allocate(count, strength, classes, own)
    others = [n for k, n in enumerate(counts) if k != own]
    assert sum(counts) == count
    assert abs(counts[own] - strength * count) <= 0.5 + 1e-6
    assert max(others) - min(others) <= 1


def test_second_cue_is_independent_of_the_first_within_a_class() -> None:
    plan = plan_split(3, 0, 4000, 2, {"habitat": 0.9, "second": 0.8, "colour": 0.5}, first="habitat")
    for own in range(2):
        inside = plan["species"] == own
        assert (plan["second"][inside] == own).sum() == 1600
        for habitat in range(2):
            group = inside & (plan["habitat"] == habitat)
            assert (plan["second"][group] == own).mean() == pytest.approx(0.8, abs=0.02)
            alike = plan["second"][group] == plan["colour"][group]
            assert alike.mean() == pytest.approx(0.5, abs=0.08)


def test_second_cue_is_balanced_over_groups_in_test() -> None:
    test = critters(0, second_strength=0.9, train=0, target=0, val=0, test=80).test
    cells = np.bincount(test.labels * 4 + test.attributes * 2 + test.extras["second"], minlength=8)
    assert cells.tolist() == [10] * 8


# -- masks, boxes, keypoints --------------------------------------------------------------


@pytest.fixture(scope="module")
def all_species() -> list[tuple[Scene, np.ndarray, np.ndarray]]:
    scenes = [Scene(2, 0, i, (40, 64, 96)[i % 3], species=i % 8, habitat=(i // 8) % 8) for i in range(144)]
    return [(scene, *render(scene)) for scene in scenes]


def test_box_is_tight_around_the_mask(all_species: list) -> None:
    for scene, _, mask in all_species:
        ys, xs = np.nonzero(mask >= 128)
        assert outline(scene).box == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)


def test_animal_is_whole_and_of_middle_size(all_species: list) -> None:
    for scene, _, mask in all_species:
        border = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
        assert border.max() == 0, scene
        assert 0.04 < (mask >= 128).mean() < 0.3


def test_keypoints_lie_on_the_animal(all_species: list) -> None:
    for scene, _, mask in all_species:
        points = outline(scene).keypoints
        assert points.shape == (len(KEYPOINTS), 3)
        for (x, y, visible), name in zip(points, KEYPOINTS, strict=True):
            if visible:
                around = mask[max(0, int(y) - 1) : int(y) + 2, max(0, int(x) - 1) : int(x) + 2]
                assert around.max() >= 128, (name, scene)


def test_species_have_the_parts_they_should() -> None:
    def parts(species: str) -> set[str]:
        points = outline(Scene(0, 0, 0, 64, species_names().index(species), 0)).keypoints
        return {name for name, point in zip(KEYPOINTS, points, strict=True) if point[2]}

    for species in species_names():
        assert {"head", "eye", "body", "tail"} <= parts(species)
    assert "ear" in parts("rabbit")
    assert "beak" not in parts("rabbit")
    assert "beak" in parts("duck")
    assert "ear" not in parts("duck")
    assert "shell" in parts("tortoise")
    assert "neck" in parts("giraffe")
    assert not {"front_leg", "back_leg"} & (parts("fish") | parts("snail"))


def test_mask_has_soft_edges_and_marks_what_the_animal_changes() -> None:
    scene = Scene(0, 0, 3, 64, species=2, habitat=0, colour=0)
    _, mask = render(scene)
    assert 0 < ((mask > 0) & (mask < 255)).sum() < (mask > 0).sum() / 2
    recoloured, same = render(replace(scene, colour=1))
    np.testing.assert_array_equal(mask, same)
    changed = (render(scene)[0] != recoloured).any(axis=2)
    assert changed.any()
    assert not changed[mask == 0].any()


def test_another_habitat_leaves_the_animal_as_it_was() -> None:
    source = CritterImages([Scene(0, 0, 5, 64, species=1, habitat=0)])
    image, mask = source.pair(0)
    moved, same = source.redraw(0, habitat=1)
    np.testing.assert_array_equal(mask, same)
    np.testing.assert_array_equal(image[mask == 255], moved[mask == 255])
    assert (image != moved)[mask == 0].mean() > 0.9


def test_samples_carry_everything() -> None:
    ds = critters(0, train=4, target=0, val=0, test=0, size=32).train
    sample = ds[0]
    assert sample.image.shape == (3, 32, 32)
    assert sample.mask is not None
    assert float(sample.mask.max()) == 1.0
    assert sample.box is not None
    assert sample.keypoints is not None
    assert ds.keypoint_names == list(KEYPOINTS)
    assert ds.where(2) == "critters/train[2]"
    assert set(ds.extras) == {"habitat", "colour", "facing"}


# -- what tells the species apart, and what must not ---------------------------------------


def _nearest_neighbour_accuracy(features: np.ndarray, labels: np.ndarray) -> float:
    """Leave one out."""
    apart = np.square(features[:, None] - features[None]).sum(-1)
    np.fill_diagonal(apart, np.inf)
    return float((labels[apart.argmin(1)] == labels).mean())


def _mean_colour(ds, inside: bool) -> np.ndarray:
    rows = []
    for i in range(len(ds)):
        weight = ds.masks.read(i) / 255.0 if inside else 1.0 - ds.masks.read(i) / 255.0
        rows.append((ds.images.read(i) * weight[..., None]).sum((0, 1)) / weight.sum())
    return np.array(rows)


def test_colour_of_the_animal_does_not_tell_the_species() -> None:
    ds = critters(1, classes=8, strength=1 / 8, train=320, target=0, val=0, test=0, size=48).train
    # chance is 0.125 with a standard deviation of 0.018
    assert _nearest_neighbour_accuracy(_mean_colour(ds, inside=True), ds.labels) < 0.25


def test_colour_shortcut_gives_the_class_away() -> None:
    ds = critters(1, strength=None, colour_strength=1.0, train=120, target=0, val=0, test=0, size=48).train
    assert _nearest_neighbour_accuracy(_mean_colour(ds, inside=True), ds.labels) > 0.95
    np.testing.assert_array_equal(ds.attributes, ds.extras["colour"])
    # the habitat stays random: it must not give the class away as well
    assert abs((ds.extras["habitat"] == ds.labels).mean() - 0.5) < 0.2


def test_habitat_is_easy_to_see() -> None:
    ds = critters(1, classes=4, strength=0.25, train=160, target=0, val=0, test=0, size=48).train
    assert _nearest_neighbour_accuracy(_mean_colour(ds, inside=False), ds.attributes) > 0.9


def test_random_coats_use_the_whole_palette_for_every_species() -> None:
    ds = critters(1, train=400, target=0, val=0, test=0, size=32).train
    for label in range(2):
        assert set(ds.extras["colour"][ds.labels == label]) == set(range(len(COATS)))
    assert 0.4 < ds.extras["facing"].mean() < 0.6


# -- knobs --------------------------------------------------------------------------------


def test_centre_bias() -> None:
    def middles(bias: float) -> np.ndarray:
        boxes = critters(0, train=40, target=0, val=0, test=0, centre_bias=bias).train.boxes
        return (boxes[:, :2] + boxes[:, 2:]) / 2

    assert np.abs(middles(1.0) - 32).max() <= 1
    assert middles(0.0)[:, 0].std() > 2 * middles(0.6)[:, 0].std() > 0


def test_object_scale() -> None:
    small = critters(0, train=20, target=0, val=0, test=0, object_scale=(0.25, 0.3)).train.boxes
    large = critters(0, train=20, target=0, val=0, test=0, object_scale=(0.6, 0.65)).train.boxes
    sides = [np.sqrt((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])) / 64 for b in (small, large)]
    assert 0.2 < sides[0].min() <= sides[0].max() < 0.37
    assert 0.5 < sides[1].min() <= sides[1].max() < 0.75


def test_second_object_changes_only_what_is_behind_the_animal() -> None:
    bench = critters(0, second_strength=0.9, train=40, target=0, val=0, test=0)
    ds = bench.train
    assert bench.notes["second_names"] == ["mushroom", "ball"]
    assert (ds.extras["second"] == ds.labels).sum() == 36
    image, mask = ds.images.pair(0)
    without, _ = ds.images.redraw(0, second=None)
    changed = (image != without).any(axis=2)
    assert 40 < changed.sum() < 900
    assert not changed[mask == 255].any()
    assert (
        critters(0, second_strength=0.9, attribute="second", train=4, target=0, val=0, test=0).train.attribute_names[0]
        == "mushroom"
    )


def test_distractors_are_in_test_only() -> None:
    plain, messy = (critters(0, train=2, target=0, val=0, test=2, distractors=n) for n in (0, 3))
    np.testing.assert_array_equal(plain.train.images.read(0), messy.train.images.read(0))
    assert (plain.test.images.read(0) != messy.test.images.read(0)).any()
    np.testing.assert_array_equal(plain.test.masks.read(0), messy.test.masks.read(0))


@pytest.mark.parametrize("size", [32, 33, 512])
def test_any_size(size: int) -> None:
    image, mask = render(Scene(0, 0, 0, size, species=6, habitat=6))
    assert image.shape == (size, size, 3)
    assert mask.shape == (size, size)
    assert image.std() > 10


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**64), index=st.integers(0, 10**6), species=st.integers(0, 7), habitat=st.integers(0, 7))
def test_every_seed_draws(seed: int, index: int, species: int, habitat: int) -> None:
    image, mask = render(Scene(seed, 0, index, 32, species, habitat, second=species, clutter=1))
    assert (mask >= 128).sum() > 20
    assert image.std() > 5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"classes": 9}, "from 2 to 8"),
        ({"classes": 1}, "from 2 to 8"),
        ({"size": 16}, "from 32 to 512"),
        ({"strength": 1.2}, "strength is a share"),
        ({"colour_strength": -0.1}, "colour_strength is a share"),
        ({"strength": math.nan}, "strength is a share"),
        ({"centre_bias": 2}, "centre_bias"),
        ({"object_scale": (0.6, 0.4)}, "object_scale"),
        ({"attribute": "colour"}, "needs colour_strength"),
        ({"attribute": "habitats"}, "Did you mean 'habitat'"),
        ({"seed": -1}, "seed"),
        ({"train": -5}, "train must be"),
        ({"train": 0, "target": 0, "val": 0, "test": 0}, "every split has 0 images"),
        ({"distractors": 99}, "distractors"),
    ],
)
def test_bad_settings_are_explained(settings: dict, says: str) -> None:
    with pytest.raises(DataError, match=says):
        critters(**settings)


# -- raster -------------------------------------------------------------------------------


@given(st.floats(-3, 3))
def test_own_trigonometry(turns: float) -> None:
    c, s = cos_sin(turns)
    assert c == pytest.approx(math.cos(2 * math.pi * turns), abs=1e-8)
    assert s == pytest.approx(math.sin(2 * math.pi * turns), abs=1e-8)


def _supersampled_area(shape, size: int = 40, n: int = 8) -> float:
    at = (np.arange(size * n) + 0.5) / n
    return float((shape.distance(at.reshape(1, -1), at.reshape(-1, 1)) < 0).mean()) * size * size


@pytest.mark.parametrize(
    ("shape", "area"),
    [
        (circle(20.3, 19.1, 9.0), math.pi * 81),
        (ellipse(20.0, 20.0, 12.0, 5.0, 0.1), math.pi * 60),
        (Limb(((10.0, 12.0, 3.0), (30.0, 25.0, 3.0))), 6 * math.hypot(20, 13) + math.pi * 9),
        (Limb(((15.0, 15.0, 4.0), (15.0, 15.0, 4.0))), math.pi * 16),
        (Polygon(((8.0, 8.0), (30.0, 10.0), (20.0, 33.0))), 0.5 * abs(22 * 25 - 2 * 12)),
        (Polygon(((10.0, 10.0), (30.0, 10.0), (30.0, 24.0), (10.0, 24.0)), 3.0), 280 + 68 * 3 + math.pi * 9),
    ],
)
def test_coverage_sums_to_the_area(shape, area: float) -> None:
    canvas = Canvas(40)
    assert coverage(shape.distance(canvas.x, canvas.y)).sum() == pytest.approx(area, rel=0.015)
    assert _supersampled_area(shape) == pytest.approx(area, rel=0.01)
    x0, y0, x1, y1 = shape.bounds()
    outside = (canvas.x < x0 - 1) | (canvas.x > x1 + 1) | (canvas.y < y0 - 1) | (canvas.y > y1 + 1)
    assert not coverage(shape.distance(canvas.x, canvas.y))[outside].any()


def test_strokes_equal_the_same_limbs_filled_one_by_one() -> None:
    lines = [(5.0, 6.0, 1.5, 20.0, 9.0, 0.5), (-3.0, 20.0, 2.0, 8.0, 28.0, 1.0), (25.0, 25.0, 2.0, 25.0, 25.0, 2.0)]
    together, single = Canvas(32), Canvas(32)
    together.strokes(lines, rgb("FF8000"))
    for ax, ay, ar, bx, by, br in lines:
        single.fill(Limb(((ax, ay, ar), (bx, by, br))), rgb("FF8000"))
    np.testing.assert_allclose(together.planes, single.planes, atol=1e-9)


def test_dice_run_out_loudly() -> None:
    dice = Dice([0.5])
    dice.unit()
    with pytest.raises(IndexError):
        dice.unit()
