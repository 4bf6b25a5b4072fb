"""Things that come along: found by their looks, told from the scene, and named beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery import inquiry
from foveate.report.discovery.cues import BY_KEY
from foveate.report.discovery.experiments import Sheet, exchange
from foveate.report.discovery.inquiry import Inquiry, accuses
from foveate.report.discovery.marks import PUT, beyond_marks, with_marks, without_marks
from foveate.report.discovery.patterns import find_things, follows, read_patches, regions

SIDE, N = 48, 240


class Pictures:
    """Squares on scenes of upright or lying waves; half show a striped plate somewhere, also over the square."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.labels, self.scene, self.there = (rng.integers(0, 2, N) for _ in range(3))
        noise = rng.integers(0, 30, (N, 3, SIDE, SIDE))
        waves = 25 * np.sin(np.arange(SIDE) * np.pi / 3).round(6)
        across, down = np.broadcast_to(waves, (SIDE, SIDE)), np.broadcast_to(waves[:, None], (SIDE, SIDE))
        pixels = 90 + noise + np.where(self.scene[:, None, None], across, down)[:, None].astype(int)
        self.masks = torch.zeros(N, SIDE, SIDE)
        self.masks[:, 16:32, 16:32] = 1
        pixels[:, 1, 16:32, 16:32] = np.where(self.labels, 180, 40)[:, None, None] + noise[:, 1, 16:32, 16:32]
        self.plates = np.zeros((N, SIDE, SIDE), dtype=bool)
        for i in np.flatnonzero(self.there):
            top, left = rng.integers(0, SIDE - 8), rng.integers(0, SIDE - 18)
            pixels[i, :, top : top + 8, left : left + 18] = np.where(np.arange(18) % 4 < 2, 250, 10)
            self.plates[i, top : top + 8, left : left + 18] = True
        self.images = torch.from_numpy(pixels.astype(np.uint8))

    def features(self) -> dict[str, NDArray[np.float64]]:
        return {"background": Reader(1.0, 0.0, 0.0)(self.images)[:, 1:]}

    def sheet(self, reads: Reader) -> Sheet:
        scores = reads(self.images)
        return Sheet(self.images, self.masks, self.labels, scores.argmax(1), scores.max(1), np.arange(N))


class Reader:
    """Adds up what it sees of the scene, of plates and of the object."""

    def __init__(self, scene: float, plate: float, object_: float) -> None:
        self.scene, self.plate, self.object = scene, plate, object_

    def __call__(self, x: Tensor) -> NDArray[np.float64]:
        x = x.float()
        mean = x.mean(1)
        waves = mean.diff(dim=2).abs().flatten(1).median(1).values - mean.diff(dim=1).abs().flatten(1).median(1).values
        # light beside dark, which noise never is
        stripes = (x[:, 1].diff(dim=2).abs() > 200).float().mean((1, 2)) * SIDE**2 / 50
        green = x[:, 1, 16:32, 16:32].flatten(1).median(1).values
        said = self.scene * waves / 10.5 + self.plate * (2 * stripes.clamp(max=1) - 1)
        said = said + self.object * (green - 125) / 70
        return torch.stack([-said, said], 1).numpy()


@pytest.mark.parametrize(
    ("reader", "named"),
    [
        (Reader(1.0, 1.2, 0.5), {"background", "mark"}),
        (Reader(0.0, 1.0, 0.5), {"mark"}),
        (Reader(1.0, 0.0, 0.5), {"background"}),
        (Reader(0.0, 0.0, 1.0), set()),
    ],
)
def test_what_a_model_reads_is_what_stands(reader: Reader, named: set[str]) -> None:
    pictures = Pictures()
    asked = Inquiry(pictures.sheet(reader), pictures.features(), reader, lambda scores: scores.argmax(1)).run()
    standing = {p.cue.key for p in asked.pulls if accuses(p) and p.cue.key not in asked.nesting.explained}
    assert standing == named
    if "mark" in named:
        assert asked.marks is not None
        where = torch.from_numpy(pictures.plates)
        held = (asked.marks > 0)[where].float().mean()
        assert held > 0.5, "most of the plates are found, and over the object too"
        assert (asked.marks > 0)[~where].float().mean() < 0.08


def test_a_thing_is_no_bit_of_the_scene_and_chance_makes_none() -> None:
    pictures = Pictures(1)
    patches, half = read_patches(pictures.images), np.arange(N) % 2 == 0
    told = pictures.scene[:, None].astype(float)
    assert not find_things(patches, pictures.labels, pictures.scene, told, half), "beyond the scene nothing is left"
    found = find_things(patches, pictures.labels, pictures.there, told, half)
    assert found
    shown = regions(patches.kinds, found[0], SIDE, SIDE).amax((1, 2)).numpy()
    assert (shown == pictures.there).mean() > 0.9
    rng = np.random.default_rng(0)
    by_chance = [find_things(patches, pictures.labels, rng.integers(0, 2, N), told, half) for _ in range(20)]
    assert sum(map(bool, by_chance)) <= 1


def test_another_kind_is_tried_where_the_first_turns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, reader = Pictures(), Reader(0.0, 1.0, 0.5)
    sheet, half = pictures.sheet(reader), np.arange(N) % 2 == 0
    kinds = read_patches(pictures.images)
    right = find_things(kinds, pictures.labels, sheet.predictions, pictures.features()["background"], half)[0]
    shown = [regions(kinds.kinds, kind, SIDE, SIDE).numpy() > 0 for kind in range(int(kinds.kinds.max()) + 1)]
    wrong = next(k for k, at in enumerate(shown) if 0.02 < at.mean() < 0.1 and not (at & pictures.plates).any())
    monkeypatch.setattr(inquiry, "find_things", lambda *_: [wrong, right])
    asked = Inquiry(sheet, pictures.features(), reader, lambda scores: scores.argmax(1)).run()
    assert asked.marks is not None
    assert (asked.marks > 0)[torch.from_numpy(pictures.plates)].float().mean() > 0.5


def test_what_goes_with_the_scene_alone_does_not_follow_beyond_it() -> None:
    rng = np.random.default_rng(0)
    n = 400
    labels, scene = rng.integers(0, 2, n), rng.normal(size=n)
    there = np.stack([scene + 0.3 * rng.normal(size=n) > 0, rng.random(n) < 0.5], 1)
    answers = np.stack([scene > 0, there[:, 1] & (rng.random(n) < 0.8)], 1)
    sure = follows(answers, there, scene[:, None], labels, np.ones(n, dtype=bool))
    assert sure[1, 1] > 10, "answers follow the second thing"
    assert abs(sure[0, 1]) < 3 > abs(sure[1, 0])
    plain = follows(answers, there, np.zeros((n, 1)), labels, np.ones(n, dtype=bool))
    assert plain[0, 0] > 2 * sure[0, 0], "most of what goes with the scene is gone with it"


def test_a_thing_is_given_by_pictures_in_which_it_keeps_off_the_object() -> None:
    pictures, reader = Pictures(), Reader(0.0, 1.0, 0.5)
    asked = Inquiry(pictures.sheet(reader), pictures.features(), reader, lambda scores: scores.argmax(1)).run()
    found = next(pull for pull in asked.pulls if pull.cue.key == "mark")
    assert asked.marks is not None
    met = (asked.marks * (pictures.masks > 0)).float().mean((1, 2)) / asked.marks.float().mean((1, 2)).clamp(min=1e-6)
    givers = sorted({row for _, same, other in found.pairs for row in (same, other)})
    assert float(met[givers].max()) <= 0.1 < float(met.max())


def test_what_is_kept_stays_and_what_is_bare_gives_nothing() -> None:
    pictures = Pictures(2)
    marks = torch.from_numpy(pictures.plates.astype(np.uint8))
    reader = Reader(1.0, 1.0, 0.0)
    sheet = pictures.sheet(reader)
    have, lack = np.flatnonzero(pictures.there)[:5], np.flatnonzero(pictures.there == 0)[:5]
    put = exchange(with_marks(sheet, marks), PUT, lack, have)
    inside = 1 - torch.nn.functional.max_pool2d(1 - marks[have][:, None].float(), 3, 1, 1)  # edges are soft
    assert torch.equal(put[:, :1][inside > 0], sheet.images[have][:, :1][inside > 0])
    taken = exchange(with_marks(sheet, marks), PUT, have, lack)
    assert (reader(taken) != reader(sheet.images[have])).any(1).all()
    assert torch.equal(taken, without_marks(sheet, marks).images[have])
    moved = exchange(beyond_marks(sheet, marks), BY_KEY["background"], have, lack)
    kept = marks[have][:, None].expand_as(moved) > 0
    assert torch.equal(moved[kept], sheet.images[have][kept])
    given = exchange(beyond_marks(sheet, marks), BY_KEY["background"], lack, have)
    assert not (given.float().amax(1) > 240).any(), "a donor's plate does not come along"
