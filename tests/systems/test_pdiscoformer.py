"""PDiscoFormer end to end: parts vote for the class; its mask is late, so the background still decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.errors import ModelError

VIT = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 4}
FAST = {"model_args": VIT, "progress": False, "lr": 1e-3, "parts": 3}


@pytest.fixture(scope="module")
def model(data: Benchmark) -> fv.PDiscoFormer:
    return fv.PDiscoFormer("micro_vit", epochs=2, **FAST).fit(data.train.subset(range(200)), val=data.val)


def test_it_learns_looks_and_round_trips(model: fv.PDiscoFormer, data: Benchmark, tmp_path: Path) -> None:
    assert np.mean(model.history_.losses[-3:]) < np.mean(model.history_.losses[:3])
    gaze = model.look([data.test[i].image for i in range(3)])
    assert gaze.kind == "parts"
    assert gaze.parts.shape == (3, 4, 8, 8)
    logits = model.predict_logits(data.test)
    assert (model.predict_logits(data.test) == logits).all(), "no noise at evaluation"
    again = fv.load(model.save(tmp_path / "m"))
    assert (again.predict_logits(data.test) == logits).all()
    assert again.get_params() == model.get_params()


def test_the_class_is_the_mean_vote_of_the_parts(model: fv.PDiscoFormer, data: Benchmark) -> None:
    """The forward pass written out again from the maps."""
    images = [data.test[i].image for i in range(3)]
    inputs, net = model.inputs(images), model.network_.eval()
    features, maps = net.selector.maps(inputs), model.part_maps(images)
    vectors = (maps[:, :, None] * features[:, None]).mean((3, 4))
    part = net.discovery.modulation(vectors)[:, :3] @ net.discovery.classifier.weight.T
    np.testing.assert_allclose(part.mean(1).detach(), model.predict_logits(images), atol=1e-5)


def test_a_late_mask_hides_nothing(model: fv.PDiscoFormer, data: Benchmark) -> None:
    inputs, mask = model.stage_inputs([data.test[i].image for i in range(6)])
    assert mask.dtype == torch.bool
    np.testing.assert_allclose(
        model.logits_with_mask(inputs, mask).detach(),
        model.predict_logits([data.test[i].image for i in range(6)]),
        atol=0.5,  # soft maps outside the mask are lost, no more
    )
    outside = ~mask.view(6, 1, 8, 8).repeat_interleave(4, 2).repeat_interleave(4, 3)
    changed = torch.where(outside, torch.randn_like(inputs), inputs)
    assert (model.logits_with_mask(changed, mask) - model.logits_with_mask(inputs, mask)).abs().max() > 1e-3


def test_removing_every_part_leaves_one_prediction(model: fv.PDiscoFormer, data: Benchmark) -> None:
    none = model.with_parts_removed(range(3)).part_maps([data.test[0].image])
    assert bool((none.argmax(1) == 3).all())
    logits = model.with_parts_removed(range(3)).predict_logits(data.test)
    assert np.isfinite(logits).all()


def test_errors_are_sentences(data: Benchmark) -> None:
    few = data.train.subset(range(16))
    with pytest.raises(ModelError, match=r"'micro_resnet' is a CNN"):
        fv.PDiscoFormer("micro_resnet", epochs=1).fit(few)
    with pytest.raises(ModelError, match="shows its parts"):
        fv.PDiscoFormer("micro_vit", epochs=0, **FAST).fit(few).look([few[0].image], method="grad-cam")
    with pytest.raises(ModelError, match="part dropout is a probability"):
        fv.PDiscoFormer("micro_vit", epochs=1, part_dropout=1.5, **FAST).fit(few)
