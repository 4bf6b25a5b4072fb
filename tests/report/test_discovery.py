"""Discovery: each experiment changes what it says and nothing else, and only models that use a property are accused."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError
from foveate.look.gaze import Gaze
from foveate.report import Audit
from foveate.report.discovery import discover, prepare
from foveate.report.discovery.experiments import Pull, Sheet, draw_donors, measure_pull
from foveate.report.discovery.judging import judge, level_of
from foveate.report.discovery.objects import attention_mask, find_objects
from foveate.report.discovery.probes import balanced_score, holm, out_of_fold, probe_all, shuffled
from foveate.report.discovery.slices import find_slices
from foveate.report.discovery.swapping import (
    CUES,
    border,
    corner,
    exchange_background,
    exchange_brightness,
    exchange_colour,
    exchange_sharpness,
    sparing,
)
from foveate.report.examples import kept_places, part_places, views_of

SIDE = 32


# -- experiments ----------------------------------------------------------------------------------


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
    scene = next(cue for cue in CUES if cue.key == "background")
    whole = measure_pull(told, scene, reads)
    spared = measure_pull(told, sparing(scene, [corner("tl")]), reads)
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
    for cue in CUES:
        if cue.place is None or cue.exchange is None:
            continue
        region, out = cue.place(SIDE, SIDE), cue.exchange(x, mask, d, mask)
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
    scene = next(cue for cue in CUES if cue.key == "background")
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
    assert measure_pull(one, CUES[-1], lambda x: np.zeros(len(x), dtype=np.int64)) is None


def test_images_whose_object_lies_in_a_corner_are_left_out_there() -> None:
    sheet = a_sheet(80)
    sheet.masks[:60, :8, :8] = 1.0
    taken = next(cue for cue in CUES if cue.key == "corner-tl")
    assert measure_pull(sheet, taken, reads_object) is None
    assert measure_pull(sheet, next(c for c in CUES if c.key == "corner-br"), reads_object) is not None


# -- probes ---------------------------------------------------------------------------------------


def test_holm_known_answer() -> None:
    assert holm([0.01, 0.02, 0.03, 0.5]).tolist() == pytest.approx([0.04, 0.06, 0.06, 0.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_holm_lies_between_plain_and_bonferroni_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert (adjusted >= np.asarray(p) - 1e-12).all()
    assert (adjusted <= np.minimum(np.asarray(p) * len(p), 1) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= -1e-12).all()


def test_probes_of_noise_are_rarely_sure_and_of_a_cue_always() -> None:
    rng = np.random.default_rng(0)
    sure = 0
    for seed in range(20):
        y = rng.integers(0, 3, 150)
        x = {"noise": rng.normal(size=(150, 20)), "cue": np.eye(3)[y] + rng.normal(0, 0.4, (150, 3))}
        found = {p.key: p for p in probe_all(x, y, "label", shuffles=99, seed=seed)}
        sure += found["noise"].p < 0.05
        assert found["cue"].tells
        assert found["cue"].chance == pytest.approx(1 / 3)
    assert sure <= 4


def test_a_cue_is_sure_among_many_properties() -> None:
    """The smallest p-value 199 shuffles can give, times 25 properties, is 0.125: more are needed, and made."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 200)
    x = {f"noise {i}": rng.normal(size=(200, 2)) for i in range(24)} | {
        "cue": y[:, None] + rng.normal(0, 0.3, (200, 1))
    }
    found = {p.key: p for p in probe_all(x, y, "label")}
    assert found["cue"].tells
    assert found["cue"].adjusted < 0.05
    assert not any(p.tells for key, p in found.items() if key != "cue")


def test_all_labelings_at_once_equal_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(90, 4)), rng.integers(0, 3, (90, 5))
    together = out_of_fold(x, y, 3)
    for t in range(5):
        assert (out_of_fold(x, y[:, [t]], 3)[:, 0] == together[:, t]).all()
    score = balanced_score(together, y, 3)
    by_hand = np.mean([(together[y[:, 0] == k, 0] == k).mean() for k in range(3)])
    assert score[0] == pytest.approx(by_hand)


def test_answers_that_only_follow_the_label_do_not_count() -> None:
    """A property that tells the label tells a good model's answers too; beyond the label it tells nothing."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 300)
    cue = y[:, None] + rng.normal(0, 0.3, (300, 1))
    answers = np.where(rng.random(300) < 0.9, y, 1 - y)
    assert probe_all({"cue": cue}, answers, "answers")[0].tells
    assert not probe_all({"cue": cue}, answers, "answers", within=y)[0].tells
    scene = rng.integers(0, 2, 300)
    follows = np.where(rng.random(300) < 0.6, y, scene)
    assert probe_all({"scene": scene[:, None].astype(float)}, follows, "answers", within=y)[0].tells
    mixed = shuffled(y, y, 3, rng)
    assert (mixed == y[:, None]).all()


def test_slices_find_the_planted_bunch_and_nothing_in_noise() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 6))
    x[:60] += 8
    y = np.zeros(400, dtype=np.int64)
    y[200:] = 1
    said = np.where(rng.random(400) < 0.95, y, 1 - y)
    said[:60] = np.where(rng.random(60) < 0.7, 1, 0)
    found = find_slices(x, y, said)
    assert {i for s in found for i in s.members} >= set(range(50))
    assert all(s.adjusted < 0.05 and s.label == 0 for s in found)
    luck = [len(find_slices(rng.normal(size=(400, 6)), y, np.where(rng.random(400) < 0.8, y, 1 - y))) for _ in range(5)]
    assert sum(luck) <= 1
    assert find_slices(x, y, y) == []


# -- the verdict ----------------------------------------------------------------------------------


def pull(cue: str, value: float, half: float = 0.03, p: float = 1e-8) -> Pull:
    return Pull(cue, 200, value, value - half, value + half, p, 0.9, 0.9 - value)


NAMES = {cue.key: cue.name for cue in CUES}


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
    told = judge("M", [pull("background", 0.01, p=0.4)], probes, [], NAMES, objects="masks")
    assert told.level == "none"
    assert told.shortcuts == []
    assert "does not use: the background" in " ".join(told.sentences)


def test_colour_is_part_of_the_background_and_a_mark_is_not() -> None:
    both = [pull("background", 0.4), pull("colour", 0.45), pull("corner-tr", 0.35), pull("corner-bl", 0.12)]
    told = judge("M", both, [], [], NAMES, objects="masks")
    assert [s.key for s in told.shortcuts] == ["background", "corner-tr"]
    assert {s.key: s.explained_by for s in told.suspects}["corner-bl"] == "background"
    alone = judge("M", [pull("background", 0.0, p=0.5), pull("colour", 0.45)], [], [], NAMES, objects="masks")
    assert [s.key for s in alone.shortcuts] == ["colour"]


def test_masks_from_the_middle_of_the_picture_only_hint() -> None:
    told = judge("M", [pull("background", 0.4)], [], [], NAMES, objects="the middle", sure=False)
    assert told.level == "hint"


def test_what_cannot_be_exchanged_is_a_lead_and_never_a_verdict() -> None:
    y = np.random.default_rng(0).integers(0, 2, 300)
    camera = np.random.default_rng(1).integers(0, 2, 300)
    x = {"column:camera": camera[:, None].astype(float)}
    answers = probe_all(x, camera, "answers", within=y)
    told = judge("M", [pull("background", 0.0, p=0.5)], [], answers, {**NAMES, "column:camera": "the column 'camera'"},
                 objects="masks")  # fmt: skip
    assert told.level == "hint"
    assert "a lead and not a proof" in told.sentences[0]


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
        found = {m["name"]: m["discovery"] for m in report.findings["models"]}
        assert found["scene"]["shortcuts"][0] == "background"
        assert found["object"]["shortcuts"] == []
        assert found["object"]["level"] == "none"
        tests = found["object"]["mask_tests"]
        assert tests["cep"] > 0.9
        assert tests["object_only"] > 0.95
        assert found["scene"]["mask_tests"]["cep"] < 0.2
        assert found["scene"]["mask_tests"]["background_only"] == pytest.approx(
            found["scene"]["mask_tests"]["plain"], abs=0.05
        )
        assert "scene leans on the background" in report.verdict
        assert "No shortcut was found in object" in report.verdict
    told = {s["key"]: s for s in found["scene"]["suspects"]}["background"]["label"]
    assert told["tells"]  # the biased images were last
    assert told["score"] > 0.85


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
        "When properties are exchanged", "Object and background taken apart", "What the images give away",
        "Where the errors bunch", "What to do",
    ):  # fmt: skip
        assert f"<h2>{heading}</h2>" in html
    assert "now: " in html
    assert "foveate fit DATA --system DAR --base MODEL" in html
    assert not re.search(r"https?:|//[a-z]|<script|<link|@import|url\(", re.sub(r"data:image[^\"]*", "", html))
    assert "{{" not in html
    json.dumps(report.to_dict(), allow_nan=False)


def test_limits(reports: dict[str, Audit]) -> None:
    report = reports["biased"]
    assert report.failures({"average": 0.5}) == []
    assert report.failures({"shortcut": 1.0}) == ["scene: shortcut is 0.0, under 100.0."]
    with pytest.raises(DataError, match="needs attributes"):
        report.failures({"worst_group": 0.8})
    with pytest.raises(DataError, match="unknown metric"):
        report.failures({"wurst_group": 0.8})


def test_few_images_are_untested_and_discovery_can_be_left_out(balanced: GroupedDataset) -> None:
    few = fv.audit(looker("scene"), balanced.subset(np.arange(12)), examples=0)
    assert few.findings["models"][0]["discovery"]["level"] == "untested"
    without = fv.audit(looker("scene"), balanced, examples=0, discover=False)
    assert without.findings["models"][0]["discovery"] is None
    assert "no attributes were given" in without.verdict


def test_a_mark_and_the_brightness_are_named() -> None:
    rng = np.random.default_rng(7)
    n = 200
    base = pictures(n, rng.integers(0, 2, n), rng.integers(0, 2, n))
    pixels = np.stack([base.images.read(i) for i in range(n)])
    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    marked = pixels.copy()
    has = rng.integers(0, 2, n).astype(bool)
    marked[has, 1:5, -5:-1] = 255

    def by_mark(x: Tensor) -> Tensor:
        score = 10 * (x[:, :, 1:5, -5:-1].mean((1, 2, 3)) - 0.75)
        return torch.stack([-score, score], 1)

    def by_light(x: Tensor) -> Tensor:
        score = 400 * (x[:, :, 2:7].mean((1, 2, 3)) - middle_light)
        return torch.stack([-score, score], 1)

    lit = np.clip(pixels * np.where(has, 1.25, 0.8)[:, None, None, None], 0, 255).astype(np.uint8)
    middle_light = float(np.median(lit[:, 2:7].mean((1, 2, 3))) / 255)
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
    assert [view["kind"] for view in views_of(gaze, image)] == ["kept", "parts"]
    assert views_of(Gaze(torch.rand(1, 4, 4)), image) == []
