"""TTR: the cluster a general prompt fits is what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.images import ArrayImages
from foveate.errors import FoveateError
from foveate.extract import create_backbone
from foveate.extract.clip import Clip

pytest.importorskip("open_clip")

TOWER = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 1, "vocab_size": 1, "width": 8, "heads": 1, "layers": 1},
}


def halves(left: int, right: int) -> np.ndarray[Any, Any]:
    image = np.empty((32, 32, 3), np.uint8)
    image[:, :16], image[:, 16:] = left, right
    return image


@pytest.fixture(params=["masked", "mean"])
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> fv.TTR:
    """A TTR whose patch tokens are the brightness of each patch: bright patches are what the general prompt means."""
    torch.manual_seed(0)
    data = fv.data.GroupedDataset(ArrayImages(np.stack([halves(250, 20), halves(20, 250)])), [0, 1], ["a", "b"])
    backbone = create_backbone("open_clip_visual", config=TOWER)
    view = fv.data.Preprocess((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    clip = Clip(backbone, view, lambda texts: torch.eye(24)[: len(texts)], 100.0, "unused")
    monkeypatch.setattr("foveate.extract.frozen_model.open_clip_model", lambda name, size: clip)
    system = fv.TTR("open_clip:unused", clusters=2, components=1, how=request.param, store=tmp_path).fit(data)
    system.parts_.look.general_ = torch.tensor([1.0, 0.0])

    def brightness(model: Any, images: torch.Tensor) -> torch.Tensor:
        bright = torch.nn.functional.avg_pool2d(images.mean(1, keepdim=True), 8).flatten(1)
        return torch.stack([bright, 1 - bright], dim=2)

    for place in ("look.clusters", "extract.extractor"):
        monkeypatch.setattr(f"foveate.{place}.joint_tokens", brightness)
    return system


def test_the_cluster_that_fits_the_prompt_is_kept(fitted: fv.TTR) -> None:
    pictures = [torch.from_numpy(halves(250, 20)).permute(2, 0, 1), torch.from_numpy(halves(20, 250)).permute(2, 0, 1)]
    gaze = fitted.look(pictures)
    assert gaze.mask is not None
    assert gaze.mask[0, :, :2].all()
    assert not gaze.mask[0, :, 2:].any()
    assert torch.equal(gaze.mask[1], gaze.mask[0].flip(1))


def test_pixels_outside_the_cluster_do_not_count(fitted: fv.TTR) -> None:
    one, other = torch.full((1, 3, 32, 32), 0.1), torch.full((1, 3, 32, 32), 0.1)
    one[..., :16], other[..., :16] = 0.9, 0.9
    other[..., 16:] = 0.2  # still dark: the clusters stay the same
    if fitted.how == "masked":
        assert torch.equal(fitted._features(one, (0,)), fitted._features(other, (0,)))
    else:
        torch.testing.assert_close(fitted._features(one, (0,)), fitted._features(other, (0,)))
    brighter = one.clone()
    brighter[..., :16] = 0.7
    assert not torch.allclose(fitted._features(one, (0,)), fitted._features(brighter, (0,)))


def test_bad_settings() -> None:
    data = fv.data.critters(train=8, target=0, val=0, test=0, size=32).train
    with pytest.raises(FoveateError, match="unknown way to read"):
        fv.TTR(how="other").fit(data)  # type: ignore[arg-type]
    with pytest.raises(FoveateError, match="general is empty"):
        fv.TTR(general="").fit(data)
