"""Where objects are: masks of both kinds, one pass for all, kept for the next audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.report.discovery import finder as finding
from foveate.report.discovery.finder import Finder
from foveate.report.discovery.objects import Objects, find_objects
from foveate.report.discovery.outlines import edge_masks, grow


@pytest.fixture(scope="module")
def drawn() -> GroupedDataset:
    return fv.data.critters(seed=31, size=64, strength=0.5, train=8, target=0, val=0, test=24).test


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images in every pass of the network."""
    seen: list[int] = []
    real = finding.cls_attention

    def counted(net: Any, inputs: torch.Tensor, **options: Any) -> Any:
        seen.append(len(inputs))
        return real(net, inputs, **options)

    monkeypatch.setattr(finding, "cls_attention", counted)
    return seen


def overlap(mask: torch.Tensor, truth: torch.Tensor) -> float:
    a, b = mask > 0.5, truth > 0.5
    return float((a & b).sum() / (a | b).sum())


def test_tight_masks_follow_the_object_better_than_patches(drawn: GroupedDataset) -> None:
    objects = find_objects(drawn, "micro-vit")
    images, at = [drawn[i].image for i in range(24)], list(range(24))
    truth = [drawn.mask(i) for i in at]
    generous, tight = objects.masks(images, at), objects.tight(images, at)
    scores = {
        name: np.mean([overlap(m, t) for m, t in zip(masks, truth, strict=True)])
        for name, masks in (("generous", generous), ("tight", tight))
    }
    assert scores["tight"] > 0.72
    assert scores["tight"] > scores["generous"] + 0.25
    for mask, wide, image in zip(tight, generous, images, strict=True):
        assert mask.shape == wide.shape == image.shape[-2:]
        assert 0 <= mask.min() <= mask.max() <= 1
    covered = [float(w[t > 0.5].mean()) for w, t in zip(generous, truth, strict=True)]
    assert np.mean(covered) > 0.95


def test_the_masks_of_a_dataset_are_its_own_without_a_margin(drawn: GroupedDataset) -> None:
    objects = find_objects(drawn)
    (tight,), (wide,) = objects.tight([drawn[3].image], [3]), objects.masks([drawn[3].image], [3])
    assert torch.equal(tight, drawn.mask(3))
    assert torch.equal(wide, grow((drawn.mask(3) > 0.1).float()))
    middle = Objects(drawn, "centre")
    assert middle.estimated
    assert middle.tight([drawn[0].image], [0])[0].sum() < middle.masks([drawn[0].image], [0])[0].sum()


def test_the_network_looks_once_and_what_it_saw_is_kept(
    drawn: GroupedDataset, passes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path))
    objects, at = find_objects(drawn, "micro-vit"), np.arange(24)
    passes.clear()
    ticked: list[int] = []
    objects.look(at, ticked.append)
    assert passes == [16, 16, 8, 8]  # in batches: the images, and the images without their object
    assert sum(ticked) == 24
    images = [drawn[i].image for i in (5, 2)]
    live = Finder("micro-vit").see(images)
    passes.clear()
    kept = objects.sighting([], [5, 2])
    assert kept is not None
    assert not passes
    assert torch.allclose(kept.attention, live.attention, atol=1e-5)
    assert torch.allclose(kept.surroundings, live.surroundings, atol=1e-3)
    again = find_objects(drawn, "micro-vit")  # another audit of the same pixels under other labels
    passes.clear()
    again.look(at)
    assert not passes
    assert torch.equal(again.sighting([], [5, 2]).embedding, kept.embedding)  # type: ignore[union-attr]


def test_a_disk_that_keeps_nothing_costs_time_only(
    drawn: GroupedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    objects = find_objects(drawn, "micro-vit")
    objects.look(np.arange(6))
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "file"))
    other = find_objects(drawn, "micro-vit")
    other.look(np.arange(6))
    assert torch.allclose(other.sighting([], [4]).embedding, objects.sighting([], [4]).embedding, atol=1e-3)  # type: ignore[union-attr]


def test_outlines_of_pictures_of_any_size() -> None:
    image = torch.zeros(3, 700, 400, dtype=torch.uint8)
    image[:, 200:500, 100:300] = 220
    heat = torch.zeros(1, 8, 8)
    heat[0, 3:5, 2:6] = 1.0
    (mask,) = edge_masks(heat, [image])
    assert mask.shape == (700, 400)
    truth = torch.zeros(700, 400)
    truth[200:500, 100:300] = 1
    assert overlap(mask, truth) > 0.8  # the patches alone reach 0.58
