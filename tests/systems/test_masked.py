"""Early and late masks: what they learn, what masks they take, and a sentence for what they cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.assemble.masked import MaskedNetwork
from foveate.assemble.masked_feed import MaskedFeed
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, FoveateError, ModelError
from foveate.extract import create_backbone
from foveate.look.mask_source import masks_from

TINY = {"model_args": {"depth": 2, "embed_dim": 32, "num_heads": 2, "patch_size": 4}, "batch_size": 32,
        "lr": 2e-3, "progress": False}  # fmt: skip


def squares(n: int, seed: int, strength: float, with_masks: bool = True) -> GroupedDataset:
    """A square, dull or green, on red or blue ground; the ground gives the class away in ``strength`` of them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    ground = np.where(rng.random(n) < strength, labels, 1 - labels)
    images = np.asarray([[200, 60, 60], [60, 60, 200]])[ground][:, None, None] + rng.normal(0, 25, (n, 16, 16, 3))
    masks = np.zeros((n, 16, 16), np.uint8)
    for i in range(n):
        y, x = rng.integers(0, 3, 2) * 4
        masks[i, y : y + 8, x : x + 8] = 255
        images[i, y : y + 8, x : x + 8] = np.asarray([110, 150 if labels[i] else 100, 110])
        images[i, y : y + 8, x : x + 8] += rng.normal(0, 25, (8, 8, 3))
    return GroupedDataset(
        ArrayImages(images.clip(0, 255).astype(np.uint8)), labels, ["dull", "green"], attributes=ground,
        attribute_names=["red", "blue"], masks=ArrayImages(masks) if with_masks else None, name="squares",
    )  # fmt: skip


@pytest.fixture(scope="module")
def train() -> GroupedDataset:
    return squares(256, 0, 0.95)


@pytest.fixture(scope="module")
def test() -> GroupedDataset:
    return squares(160, 1, 0.5)


@pytest.fixture(scope="module")
def early(train: GroupedDataset) -> fv.EarlyMask:
    return fv.EarlyMask("micro_vit", epochs=8, **TINY).fit(train)


@pytest.fixture(scope="module")
def late(train: GroupedDataset) -> fv.LateMask:
    return fv.LateMask("micro_vit", epochs=2, **TINY).fit(train)


def test_a_mask_closes_the_shortcut_that_a_plain_vit_takes(
    early: fv.EarlyMask, train: GroupedDataset, test: GroupedDataset
) -> None:
    plain = fv.evaluate(fv.ERM("micro_vit", epochs=8, **TINY).fit(train), test)
    masked = fv.evaluate(early, test)
    assert masked.worst_group > 0.9
    assert plain.worst_group < masked.worst_group - 0.3


def test_pixels_outside_reach_the_late_mask_and_not_the_early_one(
    early: fv.EarlyMask, late: fv.LateMask, test: GroupedDataset
) -> None:
    images = [test[i].image for i in range(6)]
    masks = [test.mask(i) for i in range(6)]
    for system, same in ((early, True), (late, False)):
        inputs, tokens = system.stage_inputs(images, masks)
        assert tokens.sum(1).tolist() == [4] * 6  # squares of 8 px on patches of 4
        other = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))
        inside = tokens.unflatten(1, (4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
        changed = torch.where(inside[:, None], inputs, other)
        with torch.no_grad():
            before, after = (system.logits_with_mask(x, tokens) for x in (inputs, changed))
        assert torch.equal(before, after) is same


def test_the_late_mask_is_the_mean_over_all_patches() -> None:
    torch.manual_seed(0)
    backbone = create_backbone("micro_vit", image_size=(16, 16), **TINY["model_args"])  # type: ignore[arg-type]
    network = MaskedNetwork(backbone, 3, "late").eval()
    x = torch.randn(2, 3, 16, 16)
    tokens = torch.zeros(2, 16, dtype=torch.bool)
    tokens[0, [1, 5]] = tokens[1, 7] = True
    with torch.no_grad():
        features = backbone.net.forward_features(x)[:, 1:]  # type: ignore[operator]
        expected = torch.stack([(features[0, 1] + features[0, 5]) / 16, features[1, 7] / 16])
        torch.testing.assert_close(network.logits(x, tokens), network.head(expected))


def test_pruned_equals_masked(early: fv.EarlyMask, test: GroupedDataset) -> None:
    inputs, tokens = early.stage_inputs([test[i].image for i in range(4)], [test.mask(i) for i in range(4)])
    tokens[1, :] = False
    tokens[2, ::2] = True
    with torch.no_grad():
        dense, pruned = early.logits_with_mask(inputs, tokens), early.logits_with_mask(inputs, tokens, prune=True)
    torch.testing.assert_close(dense, pruned, atol=1e-5, rtol=0)
    assert torch.isfinite(dense).all()


def test_predictions_agree_for_datasets_and_images_with_masks(early: fv.EarlyMask, test: GroupedDataset) -> None:
    logits = early.predict_logits(test)
    some = early.predict_logits([test[i].image for i in range(5)], masks=[test.mask(i) for i in range(5)])
    np.testing.assert_allclose(some, logits[:5], atol=1e-5)
    gaze = early.look([test[0].image], masks=[test.mask(0)])
    assert gaze.mask is not None
    assert gaze.mask.sum() == 4
    assert gaze.kind == "early mask"


def test_save_and_load(early: fv.EarlyMask, test: GroupedDataset, tmp_path: Path) -> None:
    again = fv.load(early.save(tmp_path / "early"))
    assert isinstance(again, fv.EarlyMask)
    assert again.get_params() == early.get_params()
    assert (again.predict_logits(test) == early.predict_logits(test)).all()
    assert again.supervision() == "train: labels, masks (to predict, too)"


def test_images_and_masks_are_augmented_alike() -> None:
    """An image that is its own mask stays so under mirror and shift."""
    rng = np.random.default_rng(0)
    masks = (rng.random((12, 16, 16)) < 0.5).astype(np.uint8) * 255
    data = GroupedDataset(
        ArrayImages(np.repeat(masks[..., None], 3, -1)), [0, 1] * 6, ["a", "b"], masks=ArrayImages(masks)
    )
    view = Preprocess((16, 16), mean=(0.0,) * 3, std=(1.0,) * 3, flip=True, shift=3)
    feed = MaskedFeed(Loader(data, view), augment=True)
    for epoch in range(2):  # the second one reads remembered masks
        (batch,) = feed([np.arange(12)], epoch)
        assert torch.equal(batch.inputs[:, 0], batch.inputs[:, 3])
    (plain,) = feed.evaluate(12)
    assert torch.equal(plain.inputs[:, 3], torch.from_numpy(masks / 255.0).float())
    assert not torch.equal(batch.inputs, plain.inputs)


def test_a_function_makes_the_masks_and_is_asked_for_after_loading(test: GroupedDataset, tmp_path: Path) -> None:
    def grey(images: Tensor) -> Tensor:
        """The square is the only grey thing."""
        return ((images[:, 0].float() - images[:, 2].float()).abs() < 70).float()

    few = squares(64, 3, 0.95, with_masks=False)
    system = fv.EarlyMask("micro_vit", masks=grey, epochs=1, **TINY).fit(few)
    assert system.supervision() == "train: labels"
    logits = system.predict_logits(test)
    again: Any = fv.load(system.save(tmp_path / "given"))
    with pytest.raises(ModelError, match=r"set it again: system.masks = function"):
        again.predict(test)
    again.masks = grey
    assert (again.predict_logits(test) == logits).all()


def test_found_masks_are_saved_with_the_model(test: GroupedDataset, tmp_path: Path) -> None:
    backbone = create_backbone("micro_vit", image_size=(16, 16), **TINY["model_args"])  # type: ignore[arg-type]
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file(backbone.net.state_dict(), str(path))
    system = fv.LateMask("micro_vit", masks="found", weights=str(path), image_size=16, epochs=1, **TINY).fit(
        squares(64, 3, 0.95, with_masks=False)
    )
    start = system.saliency_
    assert start is not None
    assert start.backbone is not None
    for mine, first in zip(start.backbone.state_dict().values(), backbone.state_dict().values(), strict=True):
        assert torch.equal(mine, first)  # the ViT as it started, not as it was trained
    again = fv.load(system.save(tmp_path / "found"))
    assert (again.predict_logits(test) == system.predict_logits(test)).all()
    assert system.supervision() == "train: labels"


def test_frozen_trains_the_head_only(train: GroupedDataset) -> None:
    torch.manual_seed(0)
    frozen = fv.EarlyMask("micro_vit", frozen=True, epochs=1, **TINY).fit(train.subset(range(64)))
    untouched = fv.EarlyMask("micro_vit", frozen=True, epochs=0, **TINY).fit(train.subset(range(64)))
    for a, b in zip(frozen.network_.backbone.parameters(), untouched.network_.backbone.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(frozen.network_.head[1].weight, untouched.network_.head[1].weight)  # type: ignore[index]


def test_the_backbone_may_learn_slower(train: GroupedDataset) -> None:
    few = train.subset(range(32))
    start = fv.EarlyMask("micro_vit", epochs=0, **TINY).fit(few)
    slow = fv.EarlyMask("micro_vit", epochs=1, backbone_scale=1e-3, **TINY).fit(few)

    def moved(part: str) -> float:
        a, b = (getattr(s.network_, part).state_dict().values() for s in (start, slow))
        return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))

    assert 0 < moved("backbone") < 1e-4 < moved("head")


def test_sentences_for_what_cannot_be_used(early: fv.EarlyMask, test: GroupedDataset) -> None:
    bare = squares(8, 0, 0.5, with_masks=False)
    with pytest.raises(DataError, match=r"squares has no mask for .*Add a 'mask' column"):
        early.predict(bare)
    with pytest.raises(DataError, match=r"no mask for"):
        fv.EarlyMask("micro_vit", epochs=1, **TINY).fit(bare)
    with pytest.raises(DataError, match=r"given images alone. Give masks="):
        early.predict([test[0].image])
    with pytest.raises(DataError, match=r"given images alone"):
        early.look([test[0].image])
    with pytest.raises(DataError, match=r"one mask per image, 1; got 2"):
        early.predict([test[0].image], masks=[test.mask(0)] * 2)
    with pytest.raises(FoveateError, match=r"unknown masks 'magic'"):
        fv.EarlyMask("micro_vit", masks="magic").check()
    with pytest.raises(ModelError, match=r"'micro_vit' starts from scratch"):
        fv.EarlyMask("micro_vit", masks="found", epochs=1, **TINY).fit(bare)
    with pytest.raises(ModelError, match=r"(?i)micro_resnet|ResNet"):
        fv.EarlyMask("micro_resnet", epochs=1, progress=False).fit(test)
    late = fv.LateMask("micro_vit", epochs=0, **TINY).fit(test)
    inputs, tokens = late.stage_inputs([test[0].image], [test.mask(0)])
    with pytest.raises(ModelError, match=r"nothing can be pruned"):
        late.logits_with_mask(inputs, tokens, prune=True)


def test_fitting_again_with_true_masks_forgets_the_saliency(test: GroupedDataset) -> None:
    settings = {"image_size": 64, "epochs": 0, "progress": False}
    system = fv.EarlyMask("micro-vit", masks="found", **settings).fit(test)
    system.set_params(masks="truth").fit(test)
    fresh = fv.EarlyMask("micro-vit", masks="truth", **settings).fit(test)
    np.testing.assert_array_equal(system.predict_logits(test), fresh.predict_logits(test))


def test_a_source_must_give_masks() -> None:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(ModelError, match=r"one mask per image, \[2, h, w\]; got \[2, 1, 8, 8\]"):
        masks_from(lambda x: torch.zeros(2, 1, 8, 8), images)
    with pytest.raises(ModelError, match=r"values in \[0, 1\]"):
        masks_from(lambda x: torch.full((2, 8, 8), 255.0), images)
    assert masks_from(lambda x: torch.ones(2, 4, 4, dtype=torch.bool), images).unique().tolist() == [255]


def test_an_audit_goes_on_without_a_gaze(early: fv.EarlyMask, test: GroupedDataset) -> None:
    said: list[str] = []
    report = fv.audit({"early": early}, test, progress=said.append)  # changed images have no masks
    assert report.verdict
    assert not report.discoveries
    assert "early: no discovery: it reads a true mask with every image, and changed images have none" in said


def test_an_audit_of_a_model_that_finds_its_masks_discovers_and_looks(test: GroupedDataset) -> None:
    system = fv.EarlyMask("micro-vit", masks="found", image_size=64, epochs=0, progress=False).fit(test)
    assert fv.audit({"found": system}, test).discoveries  # its network reads four channels: embeddings are not from it
