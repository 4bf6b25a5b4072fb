"""Rehearsed answers are those of the system itself, under every intervention, and cost what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import foveate as fv
from foveate.assemble.parts_network import Intervention
from foveate.data.benchmark import Benchmark
from foveate.errors import UnreadableImage
from foveate.intervene import Rehearsal, leave_one_out, rehearsal, search_parts

SMALL = {"model_args": {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 8}, "epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.critters(train=48, target=0, val=40, test=16, size=32)


def changes(system: fv.IFAM | fv.PDiscoFormer, data: Benchmark) -> list[Intervention]:
    limits = [None, system.with_thresholds(None).calibrate(data.train, 0.7).token_thresholds_]
    return [Intervention(gone, limit) for limit in limits for gone in ((), (0,), (1, 2), (0, 1, 2))]


@pytest.mark.parametrize("mask", ["straight-through", "boolean", "soft", "late", "another grid"])
def test_the_same_answers_as_the_system(data: Benchmark, mask: str) -> None:
    system: fv.IFAM | fv.PDiscoFormer
    if mask == "late":
        system = fv.PDiscoFormer(parts=3, **SMALL, seed=1)
    elif mask == "another grid":
        other = {**SMALL["model_args"], "patch_size": 4}
        system = fv.IFAM(parts=3, **SMALL, seed=1, predictor="micro_vit", predictor_args=other)
    else:
        system = fv.IFAM(parts=3, **SMALL, seed=1, mask=mask)
    system.fit(data.train)
    again = Rehearsal(system, data.val, batch_size=16)
    for change in [*changes(system, data), *changes(system, data)[::-1]]:  # the second time from memory
        expected = system.with_parts_removed(change.parts).with_thresholds(change.thresholds)
        np.testing.assert_allclose(again.logits(change), expected.predict_logits(data.val), atol=1e-4)


def test_stage_one_runs_once_and_stage_two_where_the_mask_changed(
    data: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fv.IFAM(parts=3, **SMALL, seed=1).fit(data.train)
    asked = {"first": 0, "second": 0}
    first, second = rehearsal.first_stage, rehearsal.second_stage

    def counted_first(system: fv.IFAM, inputs: torch.Tensor, measure: str | None = None) -> object:
        asked["first"] += len(inputs)
        return first(system, inputs, measure)  # type: ignore[arg-type]

    def counted_second(system: fv.IFAM, inputs: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
        asked["second"] += len(inputs)
        return second(system, inputs, maps)

    monkeypatch.setattr(rehearsal, "first_stage", counted_first)
    monkeypatch.setattr(rehearsal, "second_stage", counted_second)
    _, found = search_parts(system, data.val, metric="average", min_gain=2.0)  # removes none
    assert asked["first"] == len(data.val)
    maps = system.part_maps([data.val[i].image for i in range(len(data.val))])
    best = maps.argmax(1)
    shows = sum(int((best == k).flatten(1).any(1).sum()) for k in range(3))
    assert asked["second"] <= len(data.val) + shows
    direct = leave_one_out(lambda gone: fv.evaluate(system.with_parts_removed(gone), data.val).average, 3, min_gain=2.0)
    assert found.scores == pytest.approx(direct.scores)
    assert found.baseline == pytest.approx(direct.baseline)


def test_unreadable_images(data: Benchmark, tmp_path: Path) -> None:
    system = fv.IFAM(parts=3, **SMALL, seed=1).fit(data.train)
    folder = tmp_path / "photos"
    for i in range(4):
        place = folder / data.val.class_names[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.val[i].image.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    (folder / data.val.class_names[0] / "0.png").write_bytes(b"no image")
    photos = fv.data.from_folder(folder).train
    with pytest.raises(UnreadableImage, match=r"0\.png"):
        Rehearsal(system, photos)
    skipped = Rehearsal(system, photos, on_bad="skip").predict(Intervention())
    np.testing.assert_array_equal(skipped, system.predict(photos, on_bad="skip"))
    assert (skipped == -1).sum() == 1
