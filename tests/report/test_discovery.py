"""Discovery: only models that use a property are accused."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError
from foveate.look.gaze import Gaze
from foveate.report import Audit
from foveate.report.discovery import discover, prepare
from foveate.report.discovery.cues import BY_KEY, column
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import judge, level_of
from foveate.report.discovery.objects import attention_mask, find_objects
from foveate.report.discovery.probes import PropertyProbe, probe_all
from foveate.report.examples import kept_places, part_places, views_of
from foveate.report.sentences.experiments import experiment_sentences

SIDE = 32


# -- the verdict ----------------------------------------------------------------------------------


def pull(cue: str, value: float, half: float = 0.03, p: float = 1e-8) -> Pull:
    return Pull(BY_KEY[cue], 200, value, value - half, value + half, p, 0.9, 0.9 - value)


def test_levels_of_a_pull() -> None:
    assert level_of(pull("background", 0.4), 1e-6) == "found"
    assert level_of(pull("background", 0.12, half=0.08), 0.01) == "hint"  # the low end is under five points
    assert level_of(pull("background", 0.05), 0.001) == "hint"
    assert level_of(pull("background", 0.02), 0.001) == "none"
    assert level_of(pull("background", 0.05, half=0.1), 0.3) == "unclear"
    assert level_of(pull("background", 0.4), 0.2) == "unclear"


def test_data_that_hold_a_shortcut_do_not_accuse_a_model_that_ignores_it() -> None:
    y = np.arange(200) % 2
    probes = probe_all({"background": y[:, None] + 0.0}, y, "label")
    assert probes[0].tells
    told = judge([pull("background", 0.01, p=0.4)], probes, [], BY_KEY, objects="masks")
    assert told.level == "none"
    assert told.shortcuts == []
    assert "does not use: the background" in " ".join(experiment_sentences("M", told))


def test_colour_is_part_of_the_background_and_a_mark_is_not() -> None:
    both = [pull("background", 0.4), pull("colour", 0.45), pull("corner-tr", 0.35), pull("corner-bl", 0.12)]
    told = judge(both, [], [], BY_KEY, objects="masks")
    assert [s.key for s in told.shortcuts] == ["background", "corner-tr"]
    assert {s.key: s.explained_by for s in told.suspects}["corner-bl"] == BY_KEY["background"]
    alone = judge([pull("background", 0.0, p=0.5), pull("colour", 0.45)], [], [], BY_KEY, objects="masks")
    assert [s.key for s in alone.shortcuts] == ["colour"]


def test_only_what_was_exchanged_is_listed() -> None:
    """With the object in every corner no corner is tested, and the sentence must not claim it was."""

    def told(*keys: str) -> str:
        pulls = [pull(key, 0.01, p=0.4) for key in keys]
        return experiment_sentences("M", judge(pulls, [], [], BY_KEY, objects="masks"))[0]

    assert "the frame of the picture and the background were exchanged" in told("frame", "background")
    both = told("corner-tl", "corner-br", "frame", "background")
    assert "the corners, the frame of the picture and the background were exchanged" in both
    assert "M: the corners were exchanged" in told("corner-tl")


def test_masks_from_the_middle_of_the_picture_only_hint() -> None:
    told = judge([pull("background", 0.4)], [], [], BY_KEY, objects="the middle", sure=False)
    assert told.level == "hint"


def test_of_leads_the_whole_is_named_before_its_parts() -> None:
    follows = {"corner-tl": 0.9, "brightness": 0.8, "background": 0.9, "colour": 0.9}
    answers = [PropertyProbe(key, "answers", score, 0.5, 0.001, 0.01, 200) for key, score in follows.items()]
    told = judge([], [], answers, BY_KEY, objects="masks")
    assert [s.key for s in told.accused] == ["background", "corner-tl", "colour", "brightness"]


def test_what_cannot_be_exchanged_is_a_lead_and_never_a_verdict() -> None:
    y = np.random.default_rng(0).integers(0, 2, 300)
    camera = np.random.default_rng(1).integers(0, 2, 300)
    x = {"column:camera": camera[:, None].astype(float)}
    answers = probe_all(x, camera, "answers", within=y)
    told = judge([pull("background", 0.0, p=0.5)], [], answers, {**BY_KEY, "column:camera": column("camera")},
                 objects="masks")  # fmt: skip
    assert told.level == "hint"
    assert "a lead and not a proof" in experiment_sentences("M", told)[0]


# -- end to end -----------------------------------------------------------------------------------


def pictures(n: int, scene: np.ndarray, labels: np.ndarray, seed: int = 0) -> GroupedDataset:
    """A red or blue-ish square (the class) on a green or purple scene, with noise; masks but no attributes."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((n, SIDE, SIDE, 3), np.float64)
    pixels[:] = np.where(scene[:, None, None, None], [60, 150, 60], [140, 60, 140])
    masks = np.zeros((n, SIDE, SIDE), np.uint8)
    for i in range(n):
        y, x = rng.integers(7, 16, 2)
        pixels[i, y : y + 9, x : x + 9] = [230, 40, 40] if labels[i] else [40, 40, 230]
        masks[i, y : y + 9, x : x + 9] = 255
    pixels = np.clip(pixels + rng.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
    return GroupedDataset(ArrayImages(pixels, "toy"), labels, ["blue", "red"], masks=ArrayImages(masks), name="toy")


def looker(kind: str) -> fv.Wrapped:
    def by_scene(x: Tensor) -> Tensor:  # the frame of the picture does not count: it has experiments of its own
        inner = x[:, :, 7:-7, 7:-7].mean((2, 3)) * 0 + torch.cat([x[:, :, 2:7, 8:-8], x[:, :, -7:-2, 8:-8]], 2).mean(
            (2, 3)
        )
        score = 8 * (inner[:, 1] - 0.5 * inner[:, 0] - 0.5 * inner[:, 2])
        return torch.stack([-score, score], 1)

    def by_object(x: Tensor) -> Tensor:
        score = 60 * ((x[:, 0] - x[:, 2]).clamp(min=0.3) - 0.3).mean((1, 2)) - 0.8
        return torch.stack([-score, score], 1)

    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    return fv.wrap({"scene": by_scene, "object": by_object}[kind], ["blue", "red"], preprocess=view, name=kind)


@pytest.fixture(scope="module")
def balanced() -> GroupedDataset:
    rng = np.random.default_rng(5)
    return pictures(240, rng.integers(0, 2, 240), rng.integers(0, 2, 240))


@pytest.fixture(scope="module")
def biased() -> GroupedDataset:
    labels = np.arange(240) % 2
    scene = np.where(np.random.default_rng(6).random(240) < 0.95, labels, 1 - labels)
    return pictures(240, scene, labels)


@pytest.fixture(scope="module")
def reports(balanced: GroupedDataset, biased: GroupedDataset) -> dict[str, Audit]:
    models = {"scene": looker("scene"), "object": looker("object")}
    return {name: fv.audit(models, data, examples=2) for name, data in (("balanced", balanced), ("biased", biased))}


def test_the_scene_reader_is_named_and_the_object_reader_is_not(reports: dict[str, Audit]) -> None:
    for report in reports.values():
        found = {m.name: m.discovery for m in report.findings.models if m.discovery is not None}
        assert found["scene"].shortcuts[0] == "background"
        assert found["object"].shortcuts == []
        assert found["object"].level == "none"
        tests, of_scene = found["object"].mask_tests, found["scene"].mask_tests
        assert tests is not None
        assert of_scene is not None
        assert tests.cep > 0.9
        assert tests.object_only > 0.95
        assert of_scene.cep < 0.2
        assert of_scene.background_only == pytest.approx(of_scene.plain, abs=0.05)
        assert "scene leans on the background" in report.verdict
        assert "No shortcut was found in object" in report.verdict
    told = {s.key: s for s in found["scene"].suspects}["background"].label
    assert told is not None
    assert told.tells  # the biased images were last
    assert told.score > 0.85


def test_pseudo_groups_are_the_scenes(balanced: GroupedDataset, reports: dict[str, Audit]) -> None:
    report = reports["balanced"]
    groups = report.pseudo_groups()
    scene = np.asarray([balanced.images.read(i)[3, 16, 1] > balanced.images.read(i)[3, 16, 0] for i in range(240)])
    assert (groups.attributes == scene).mean() > 0.97
    assert groups.attribute_names == ["background like blue", "background like red"]
    worst = fv.evaluate(looker("scene"), groups).worst_group
    assert worst is not None
    assert worst < 0.1
    other = pictures(40, np.arange(40) % 2, np.arange(40) // 20, seed=9)
    assert (report.pseudo_groups(other).attributes == np.arange(40) % 2).mean() > 0.9
    with pytest.raises(DataError, match="no shortcut to make groups from"):
        report.pseudo_groups(model="object")


def test_report_holds_the_sections_and_nothing_foreign(reports: dict[str, Audit], tmp_path: Any) -> None:
    report = reports["biased"]
    html = report.save(tmp_path / "a.html").read_text("utf-8")
    for heading in (
        "<h2>When properties are exchanged</h2>", "<summary>Object and background taken apart</summary>",
        "<h2>What the images give away</h2>", "<h2>The most telling mistakes</h2>", "<summary>What to do",
        "<h2>Method and limits</h2>",
    ):  # fmt: skip
        assert heading in html
    assert "now: " in html
    assert "foveate fit groups.csv --system DAR --base MODEL" in html
    assert not re.search(r"https?:|//[a-z]|<link|@import|url\(", re.sub(r"data:image[^\"]*", "", html))
    assert "{{" not in html
    json.dumps(report.to_dict(), allow_nan=False)


def test_limits(reports: dict[str, Audit]) -> None:
    report = reports["biased"]
    assert report.failures({"average": 0.5}) == []
    (failure,) = report.failures({"shortcut": 1.0})
    assert failure.startswith("scene: a shortcut was found. Put a ")
    assert report.failures({"shortcut": 0.0}) == []
    with pytest.raises(DataError, match="needs attributes"):
        report.failures({"worst_group": 0.8})
    with pytest.raises(DataError, match="unknown metric"):
        report.failures({"wurst_group": 0.8})


def test_few_images_are_untested_and_discovery_can_be_left_out(balanced: GroupedDataset) -> None:
    few = fv.audit(looker("scene"), balanced.subset(np.arange(12)), examples=0)
    assert few.discoveries["Wrapped"].judgement.level == "untested"
    without = fv.audit(looker("scene"), balanced, examples=0, discover=False)
    assert without.findings.models[0].discovery is None
    assert "no attributes were given" in without.verdict


def test_a_mark_and_the_brightness_are_named() -> None:
    rng = np.random.default_rng(7)
    n = 200
    base = pictures(n, rng.integers(0, 2, n), rng.integers(0, 2, n))
    pixels = np.stack([base.images.read(i) for i in range(n)])
    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    luma = torch.tensor([0.299, 0.587, 0.114])
    marked = pixels.copy()
    has = rng.integers(0, 2, n).astype(bool)
    marked[has, 1:5, -5:-1] = 255

    def by_mark(x: Tensor) -> Tensor:
        score = 10 * (x[:, :, 1:5, -5:-1].mean((1, 2, 3)) - 0.75)
        return torch.stack([-score, score], 1)

    def by_light(x: Tensor) -> Tensor:
        score = 400 * (x[:, :, 2:7].mean((2, 3)) @ luma - middle_light)
        return torch.stack([-score, score], 1)

    lit = np.clip(pixels * np.where(has, 1.25, 0.8)[:, None, None, None], 0, 255).astype(np.uint8)
    middle_light = float(np.median(lit[:, 2:7].mean((1, 2)) @ luma.numpy()) / 255)
    for made, model, expected in ((marked, by_mark, "corner-tr"), (lit, by_light, "brightness")):
        data = GroupedDataset(ArrayImages(made), base.labels, base.class_names, masks=base.masks)
        base_work = prepare(data, np.ones(n, dtype=bool))
        system = fv.wrap(model, base.class_names, preprocess=view)
        found = discover(system, base_work, system.predict_proba(data).astype(float), base.class_names)
        assert [s.key for s in found.judgement.shortcuts][:1] == [expected]


# -- objects and pictures -------------------------------------------------------------------------


def test_objects_come_from_what_there_is(balanced: GroupedDataset) -> None:
    assert find_objects(balanced).source == "masks"
    boxes = np.tile(np.float32([8, 8, 20, 20]), (len(balanced), 1))
    boxed = GroupedDataset(balanced.images, balanced.labels, balanced.class_names, boxes=boxes)
    found = find_objects(boxed)
    assert found.source == "boxes"
    (mask,) = found.masks([balanced[0].image], [0])
    assert mask is not None
    assert mask[8:20, 8:20].min() == 1
    assert mask.sum() > 144  # with a margin
    middle_only = find_objects(boxed, "centre")
    assert not middle_only.sure


def test_attention_mask_keeps_the_blob() -> None:
    heat = torch.full((8, 8), 0.01)
    heat[2:5, 3:6] = 1.0
    heat[7, 0] = 0.2
    assert attention_mask(heat).sum() == 9


def test_gallery_shows_what_was_kept_and_the_parts() -> None:
    image = torch.full((3, 32, 32), 200, dtype=torch.uint8)
    mask = torch.zeros(1, 4, 4)
    mask[0, :2] = 1
    parts = torch.zeros(1, 3, 4, 4)
    parts[0, 0, :, :2], parts[0, 2, :, 2:] = 1, 1
    gaze = Gaze(torch.rand(1, 4, 4), "parts", parts=parts, mask=mask)
    kept, coloured = kept_places(gaze, image), part_places(gaze, image)
    assert kept is not None
    assert kept[:100].min() == 200
    assert kept[110:].max() == 30
    assert coloured is not None
    assert (coloured[:, 110:] == 200).all()  # the background stays plain
    assert not (coloured[:, :100] == 200).any()
    assert [view.kind for view in views_of(gaze, image)] == ["kept", "parts"]
    assert views_of(Gaze(torch.rand(1, 4, 4)), image) == ()
