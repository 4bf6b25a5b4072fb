"""Part quality on parts that are known: the true mask, its complement, and everything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.assess import part_quality
from foveate.errors import DataError
from foveate.report import part_panels
from foveate.report.examples import thumbnail


class Oracle:
    """Looks where the masks say, in the order the images come; ``flip`` looks everywhere else."""

    def __init__(self, data: fv.data.GroupedDataset, flip: bool = False):
        self.truth = {data[i].image.numpy().tobytes(): data[i].mask for i in range(len(data))}
        self.flip = flip

    def look(self, images: Tensor) -> Any:
        masks = torch.stack([self.truth[i.numpy().tobytes()] for i in images]) > 0.5
        chosen = ~masks if self.flip else masks
        parts = torch.stack([chosen, ~chosen], 1).float()
        return SimpleNamespace(parts=parts, mask=chosen, map=chosen.float())


@pytest.fixture(scope="module")
def data() -> fv.data.GroupedDataset:
    return fv.data.critters(train=12, target=0, val=0, test=0, size=32).train


def test_true_masks_are_perfect_and_their_complement_is_worthless(data: fv.data.GroupedDataset) -> None:
    soft = torch.stack([data[i].mask for i in range(len(data))]).float()  # type: ignore[misc]
    hard = soft > 0.5
    area = hard.float().mean().item()
    for flip, miou in ((False, 1.0), (True, 0.0)):
        chosen = hard != flip
        shares = [(s * c).sum() / c.sum() for s, c in zip(soft, chosen, strict=True)]  # edges of the masks are soft
        found = part_quality(Oracle(data, flip), data)  # type: ignore[arg-type]
        assert found.miou == pytest.approx(miou)
        assert found.mass == pytest.approx(float(torch.stack(shares).mean()), abs=1e-6)
        assert found.coverage == pytest.approx(1 - area if flip else area)
        assert found.kp is None


def test_centroids_of_the_true_mask_say_something_about_keypoints(data: fv.data.GroupedDataset) -> None:
    found = part_quality(Oracle(data), data, fit_on=data)  # type: ignore[arg-type]
    assert found.kp is not None
    assert 0 < found.kp < 50  # percent of the box; the box's far corner would be 141


def test_images_without_masks_are_turned_away(data: fv.data.GroupedDataset) -> None:
    bare = fv.data.GroupedDataset(data.images, data.labels, data.class_names, name="bare")
    with pytest.raises(DataError, match="no masks"):
        part_quality(Oracle(data), bare)  # type: ignore[arg-type]


def test_part_panels_colour_what_the_parts_claim(data: fv.data.GroupedDataset) -> None:
    model = fv.PDiscoFormer("micro_vit", parts=2, epochs=1, progress=False, model_args={"depth": 1}).fit(data)
    figure = part_panels({"PDiscoFormer": model}, data, [0, 5, 7])
    pictures = [np.asarray(ax.images[0].get_array(), dtype=float) for ax in figure.axes]
    assert len(pictures) == 6
    gaze = model.look([data[5].image])
    assert gaze.parts is not None
    claimed = (gaze.parts.argmax(1) < 2).float().mean().item()
    plain = thumbnail(data[5].image.permute(1, 2, 0).numpy())
    assert (np.abs(pictures[3] - plain).max(2) > 0).mean() == pytest.approx(claimed, abs=0.02)
    probe = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data)
    with pytest.raises(DataError, match="no parts to draw"):
        part_panels({"ERM": probe}, data, [0])
