"""The colour of the object, the tilt and the stretching of the picture: read, given, and told from their neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import foveate as fv
from foveate.report.data_shortcuts import data_shortcuts
from foveate.report.discovery.cues import BY_KEY, Cue
from foveate.report.discovery.cues.geometry import exchange_aspect, exchange_tilt, lying_alike, stretch, tilt, tilting
from foveate.report.discovery.cues.object_colour import exchange_object_colour, object_colour
from foveate.report.discovery.cues.object_mark import OBJECT_MARK
from foveate.report.discovery.donors import FEWEST_TAKEN, drawn_pairs
from foveate.report.discovery.experiments import Pull, Sheet, measure_pull
from foveate.report.discovery.inquiry import Inquiry
from foveate.report.discovery.lookalikes import beside_a_mark, how_it_lies, whose_colour
from foveate.report.discovery.nested import Nesting

SIDE = 48
Reads = Callable[[Tensor], NDArray[np.int64]]


def grid(degrees: float, side: int = 80) -> Tensor:
    """Crossing lines, turned clockwise by so much, ``[1, 3, side, side]``."""
    turn, places = math.radians(degrees), torch.arange(float(side))
    across = places * math.cos(turn) + places[:, None] * math.sin(turn)
    down = places[:, None] * math.cos(turn) - places * math.sin(turn)
    lines = torch.maximum((across / 2.5).sin(), (down / 2.5).sin()).clamp(min=0.3) * 100 + 80
    return lines.expand(1, 3, side, side).clone()


@pytest.mark.parametrize("degrees", [-20, -10, 0, 10, 20])
def test_the_tilt_of_a_grid_is_read_and_given_back(degrees: float) -> None:
    upright, turned, mask = grid(0), grid(degrees), torch.zeros(1, 80, 80)
    assert float(tilt(turned)) == pytest.approx(degrees, abs=1)
    given = exchange_tilt(upright, mask, turned, mask)
    assert float(tilt(given)) == pytest.approx(degrees, abs=2), "mirrored borders tilt the other way"
    back = exchange_tilt(given, mask, upright, mask)
    inner = (..., slice(30, 50), slice(30, 50))
    away, left = ((picture[inner] - upright[inner]).abs().mean() for picture in (given, back))
    assert left < 9, "what was turned there and back is what it was"
    assert left < 0.6 * away or not degrees


def ellipse(across: float, down: float, side: int = 64) -> tuple[Tensor, Tensor]:
    """A round thing with a round pattern, wider or higher; picture ``[1, 3, side, side]`` and mask."""
    places = torch.arange(float(side)) - (side - 1) / 2
    away = ((places / across) ** 2 + (places[:, None] / down) ** 2).sqrt()
    mask = (away < 1).float()[None]
    picture = torch.where(away < 1, 120 + 60 * (away * 9).cos(), 60.0)
    return picture.expand(1, 3, side, side).clone(), mask


def test_a_picture_is_stretched_around_its_object_which_stays_as_large() -> None:
    even, wide = ellipse(14, 14), ellipse(14 * 1.3, 14 / 1.3)
    assert float(stretch(*even)) == pytest.approx(0, abs=0.03)
    assert float(stretch(*wide)) == pytest.approx(math.log(1.3**2), abs=0.1)
    given = exchange_aspect(*even, *wide)
    assert (given - wide[0]).abs().mean() < 6
    assert (exchange_aspect(given, wide[1], *even) - even[0]).abs().mean() < 6
    light = (given[0, 0] > 70) & (wide[1][0] > 0)
    assert float(light.sum()) == pytest.approx(float(((even[0][0, 0] > 70) & (even[1][0] > 0)).sum()), rel=0.15)


def test_an_objects_colour_is_given_and_its_surroundings_stay_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    x, donor = (torch.from_numpy(rng.uniform(90, 150, (2, 3, SIDE, SIDE))).float() for _ in range(2))
    donor = donor * torch.tensor([1.3, 0.9, 0.7]).view(1, 3, 1, 1)
    mask = torch.zeros(2, SIDE, SIDE)
    mask[:, 12:36, 12:36] = 1
    given = exchange_object_colour(x, mask, donor, mask)
    assert torch.equal(given[:, :, mask[0] == 0], x[:, :, mask[0] == 0])
    assert torch.allclose(object_colour(given, mask), object_colour(donor, mask), atol=1.0)
    pattern = given[:, :, 16:32, 16:32] - x[:, :, 16:32, 16:32]
    assert float(pattern.std((2, 3)).max()) < 1, "the pattern of the object is its own"
    assert torch.equal(exchange_object_colour(x, torch.zeros_like(mask), donor, mask), x), "no object, nothing to tint"


# -- who is accused -------------------------------------------------------------------------------


def coats(n: int, belongs: bool, seed: int = 0) -> tuple[Sheet, NDArray[np.int64]]:
    """Discs (class 0) and squares (class 1) in a red or a blue coat: that of their class but for 2 of 100, or any."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    coat = np.where(rng.random(n) < 0.02, 1 - labels, labels) if belongs else rng.integers(0, 2, n)
    places = torch.arange(SIDE) - (SIDE - 1) / 2
    disc = (places**2 + places[:, None] ** 2).sqrt() < 11
    square = (places.abs() < 12) & (places[:, None].abs() < 12)
    masks = torch.stack([square if label else disc for label in labels]).to(torch.uint8)
    images = torch.from_numpy(rng.integers(70, 110, (n, 3, SIDE, SIDE)).astype(np.uint8))
    for i in range(n):
        tint = torch.tensor([60, 0, 0] if coat[i] else [0, 0, 60], dtype=torch.uint8)
        images[i] += tint[:, None, None] * masks[i]
    return Sheet(images, masks, labels, labels.copy(), np.ones(n), np.arange(n), masks), coat


def reads_coat(x: Tensor) -> NDArray[np.int64]:
    middle = x[:, :, 18:30, 18:30].float().mean((2, 3))
    return (middle[:, 0] > middle[:, 2]).long().numpy()


def asked(sheet: Sheet, reads: Reads, cue: Cue) -> Pull | None:
    """The experiment with one cue on the reader's own answers."""
    told = Sheet(**{**vars(sheet), "predictions": reads(sheet.images)})
    colours = object_colour(told.images.float(), told.masks).double().numpy()

    def scores(x: Tensor) -> NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[reads(x)]

    return Inquiry(told, {cue.key: colours}, scores, lambda s: s.argmax(1).astype(np.int64))._pull(cue)


def test_who_follows_a_coat_is_accused_and_who_reads_a_coat_that_is_the_class_is_not() -> None:
    cue = BY_KEY["object-colour"]
    free = asked(coats(200, belongs=False)[0], reads_coat, cue)
    assert free is not None
    assert free.value > 0.9
    sheet, coat = coats(200, belongs=True)
    assert 0 < (coat != sheet.labels).sum() < FEWEST_TAKEN
    assert asked(sheet, reads_coat, cue) is None, "foxes are red"

    def reads_shape(x: Tensor) -> NDArray[np.int64]:
        """A corner of the square is as its middle, and that of the disc is as the ground."""
        contrast = (x.amax(1).float()[:, 13:16, 13:16]).mean((1, 2))
        return (contrast > 120).long().numpy()

    other, _ = coats(200, belongs=False)
    assert (reads_shape(other.images) == other.labels).mean() > 0.95
    assert asked(other, reads_shape, cue) is None, "answers that do not go with the coat need no experiment"


def test_what_may_belong_to_a_class_is_exchanged_within_it() -> None:
    sheet, coat = coats(120, belongs=False)
    told = Sheet(**{**vars(sheet), "predictions": coat})
    drawn = drawn_pairs(told, BY_KEY["object-colour"], seed=0)
    assert len(drawn) == 120
    i, same, other = drawn.T
    for donors in (same, other):
        assert (told.labels[donors] == told.labels[i]).all()
    assert (told.predictions[same] == told.labels[i]).all()
    assert (told.predictions[other] != told.labels[i]).all()
    one_way = Sheet(**{**vars(sheet), "predictions": np.where(coat == 0, 0, sheet.labels)})
    assert ((one_way.predictions != sheet.labels) & (sheet.labels == 1)).sum() > 2 * FEWEST_TAKEN
    assert not len(drawn_pairs(one_way, BY_KEY["object-colour"], seed=0)), "pale foxes are no fault"


# -- what explains what ---------------------------------------------------------------------------


def pulled(key: str, value: float, n: int) -> Pull:
    pairs = tuple((i, (i + 2) % n, (i + 1) % n) for i in range(n))
    return Pull(BY_KEY[key], n, value, value - 0.05, value + 0.05, 1e-9, 1.0, 1 - value, pairs=pairs)


def test_tilted_surroundings_are_explained_by_the_tilt() -> None:
    """Every second picture is tilted; a reader of the tilt follows tilted surroundings as well."""
    n = 24
    images = torch.cat([grid(14.0 if i % 2 else -14.0, SIDE) for i in range(n)]).to(torch.uint8)
    masks = torch.zeros(n, SIDE, SIDE, dtype=torch.uint8)
    masks[:, 18:30, 18:30] = 1

    def reads(x: Tensor) -> NDArray[np.int64]:
        return (tilt(x.float()) > 0).long().numpy()

    answers = reads(images)
    assert (answers == np.arange(n) % 2).all()
    sheet = Sheet(images, masks, answers, answers, np.ones(n), np.arange(n), masks)
    found = Nesting()
    how_it_lies(sheet, reads, [pulled("tilt", 0.9, n), pulled("background", 0.9, n)], found)
    assert {key: by.key for key, by in found.explained.items()} == {"background": "tilt"}
    weak = Nesting()
    how_it_lies(sheet, reads, [pulled("tilt", 0.05, n), pulled("background", 0.9, n)], weak)
    assert not weak.explained, "a tilt that is not found explains nothing"
    x, donor, mask = images[:1].float(), images[1:2].float(), masks[:1].float()
    level = lying_alike(BY_KEY["background"], tilting).exchange
    assert level is not None
    assert float(tilt(level(x, mask, donor, mask))) == pytest.approx(float(tilt(x)), abs=4)


@pytest.mark.parametrize(
    ("accused", "explained"),
    [
        ({"object-colour": 0.3, "brightness": 0.9}, {"object-colour": "brightness"}),
        ({"object-colour": 0.9, "brightness": 0.2}, {}),
        ({"object-colour": 0.3, "background": 0.6}, {"object-colour": "background"}),
        ({"object-colour": 0.9, "background": 0.2}, {}),
        ({"object-colour": 0.3, "frame": 0.9}, {}),
    ],
)
def test_a_lamp_or_a_scene_that_pulls_alike_makes_the_colour_of_the_object(
    accused: dict[str, float], explained: dict[str, str]
) -> None:
    sheet, _ = coats(60, belongs=False)
    sheet.images[::2] = (sheet.images[::2].float() * 0.6).to(torch.uint8)

    def reads_light(x: Tensor) -> NDArray[np.int64]:
        return (x[:, :, :8].float().mean((1, 2, 3)) > 70).long().numpy()

    told = Sheet(**{**vars(sheet), "predictions": reads_light(sheet.images)})
    found = Nesting()
    whose_colour(told, reads_light, [pulled(key, value, 60) for key, value in accused.items()], found)
    assert {key: by.key for key, by in found.explained.items()} == explained


def test_a_picture_that_only_lights_its_object_is_explained_by_the_objects_colour() -> None:
    sheet, _ = coats(60, belongs=False)
    sheet.images[::2] = (sheet.images[::2].float() * 0.6).to(torch.uint8)

    def reads_object(x: Tensor) -> NDArray[np.int64]:
        return (x[:, :, 18:30, 18:30].float().mean((1, 2, 3)) > 90).long().numpy()

    told = Sheet(**{**vars(sheet), "predictions": reads_object(sheet.images)})
    light = measure_pull(told, BY_KEY["brightness"], reads_object)
    assert light is not None
    assert light.value > 0.5
    found = Nesting()
    whose_colour(told, reads_object, [light, pulled("object-colour", 0.9, 60)], found)
    assert {key: by.key for key, by in found.explained.items()} == {"brightness": "object-colour"}
    lamp = Nesting()
    whose_colour(told, reads_object, [light, pulled("object-colour", light.value / 1.4, 60)], lamp)
    assert {key: by.key for key, by in lamp.explained.items()} == {"object-colour": "brightness"}, (
        "it does clearly more"
    )


@pytest.mark.parametrize("other", ["object-colour", "aspect"])
def test_of_a_band_and_what_else_is_read_within_the_outline_the_stronger_one_is_named(other: str) -> None:
    for mark, by in ((0.8, OBJECT_MARK.key), (0.4, OBJECT_MARK.key), (0.35, other), (0.2, other)):
        band = Pull(OBJECT_MARK, 60, mark, mark - 0.1, mark + 0.1, 1e-9, 1.0, 1 - mark)
        found = Nesting()
        beside_a_mark([band, pulled(other, 0.5, 12), pulled("background", 0.9, 12)], found)
        assert [cue.key for cue in found.explained.values()] == [by]
    alone = Nesting()
    beside_a_mark([pulled(other, 0.5, 12)], alone)
    assert not alone.explained


def test_the_colour_of_a_fox_is_no_warning_about_the_data() -> None:
    made = fv.data.critters(size=32, strength=0.5, train=120, target=0, val=0, test=0).train
    found = data_shortcuts(made)
    assert found is not None
    assert not {g.cue.key for g in found.probes} & {"object-colour", "aspect"}
