"""ERM end to end on critters: learns the shortcut, saves and loads bit for bit, explains its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError, FoveateError, ModelError, UnreadableImage


def test_it_takes_the_shortcut(erm: fv.ERM, data: Benchmark) -> None:
    report = fv.evaluate(erm, data.test)
    assert report.majority > 0.85
    assert report.minority < report.majority - 0.25
    assert report.worst_group <= report.minority


def test_predictions_agree_for_datasets_and_images(erm: fv.ERM, data: Benchmark) -> None:
    logits = erm.predict_logits(data.test)
    chances = erm.predict_proba(data.test)
    assert chances.sum(1) == pytest.approx(np.ones(len(data.test)), abs=1e-5)
    assert (erm.predict(data.test) == logits.argmax(1)).all()
    some = [data.test[i].image for i in range(5)]
    np.testing.assert_allclose(erm.predict_logits(some), logits[:5], atol=1e-5)
    arrays = np.stack([s.permute(1, 2, 0).numpy() for s in some])
    np.testing.assert_allclose(erm.predict_logits(arrays), logits[:5], atol=1e-5)


def test_same_seed_same_weights(data: Benchmark) -> None:
    small = data.train.subset(range(64))
    first, second = (fv.ERM("micro_resnet", epochs=1, seed=3, progress=False).fit(small) for _ in range(2))
    for a, b in zip(first.network_.state_dict().values(), second.network_.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_save_and_load_round_trip_bit_for_bit(erm: fv.ERM, data: Benchmark, tmp_path: Path) -> None:
    folder = erm.save(tmp_path / "erm")
    assert sorted(p.name for p in folder.iterdir()) == ["system.json", "weights.safetensors"]
    again = fv.load(folder)
    assert isinstance(again, fv.ERM)
    assert again.get_params() == erm.get_params()
    assert (again.predict_logits(data.test) == erm.predict_logits(data.test)).all()
    assert again.supervision() == erm.supervision() == "train: labels; selection: labels (average)"
    np.testing.assert_array_equal(again.train_counts_, erm.train_counts_)
    folder_again = again.save(tmp_path / "again")
    for name in ("system.json", "weights.safetensors"):
        assert (folder / name).read_bytes() == (folder_again / name).read_bytes()


def test_look_shows_a_map_for_cnn_and_vit(erm: fv.ERM, data: Benchmark) -> None:
    images = torch.stack([data.test[i].image for i in range(3)])
    gaze = erm.look(images)
    assert gaze.map.shape == (3, 4, 4)
    assert gaze.map.min() >= 0
    assert gaze.map.max() > 0
    assert gaze.draw(images).shape == (3, 32, 32, 3)
    vit = fv.ERM("micro_vit", epochs=1, progress=False).fit(data.train.subset(range(64)))
    assert vit.look(images).map.shape == (3, 4, 4)
    assert all(p.requires_grad for p in vit.network_.parameters()), "looking must leave the model as it was"


def test_gradcam_equals_its_formula(erm: fv.ERM, data: Benchmark) -> None:
    """Selvaraju et al., equations 1 and 2, written out again."""
    network, inputs = erm.network_.eval(), erm.inputs([data.test[i].image for i in range(4)])
    maps = network.backbone.maps(inputs).detach().requires_grad_(True)
    logits = network.head(network.pool_maps(maps))
    logits.max(1).values.sum().backward()
    weights = maps.grad.mean((2, 3), keepdim=True)
    expected = (weights * maps).sum(1).clamp(min=0)
    torch.testing.assert_close(network.gradcam(inputs).map, expected.detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "options"),
    [("resnet10t", {"small_stem": True}), ("efficientnet_b0", {"small_stem": True}),
     ("densenet121", {"small_stem": True}), ("vit_tiny_patch16_224", {"model_args": {"depth": 2}})],
)  # fmt: skip
def test_any_timm_backbone(data: Benchmark, backbone: str, options: dict) -> None:
    model = fv.ERM(backbone, epochs=1, batch_size=8, progress=False, **options).fit(data.train.subset(range(16)))
    assert model.predict(data.test.subset(range(4))).shape == (4,)
    assert model.look(data.test[0].image[None]).map.ndim == 3


def test_a_bad_image_is_skipped_or_fatal(data: Benchmark, erm: fv.ERM) -> None:
    class OneBad(ArrayImages):
        def read(self, i: int) -> np.ndarray:
            if i == 2:
                raise UnreadableImage("photos/broken.png", "truncated")
            return super().read(i)

    pixels = np.stack([data.test.images.read(i) for i in range(8)])
    broken = GroupedDataset(
        OneBad(pixels), data.test.labels[:8], data.test.class_names,
        attributes=data.test.attributes[:8], attribute_names=data.test.attribute_names,
    )  # fmt: skip
    with pytest.raises(UnreadableImage, match=r"photos/broken.png.*on_bad='skip'"):
        erm.predict(broken)
    predictions = erm.predict(broken, on_bad="skip")
    assert predictions[2] == -1
    assert (np.delete(predictions, 2) >= 0).all()
    assert fv.evaluate(erm, broken, on_bad="skip").skipped == 1
    fitted = fv.ERM("micro_resnet", epochs=1, on_bad="skip", progress=False).fit(broken)
    assert fitted.fitted


def test_errors_are_sentences(data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"unknown model 'resnet81'. Did you mean 'resnet18'"):
        fv.ERM("resnet81", epochs=1).fit(data.train)
    with pytest.raises(ModelError, match="has not been fitted"):
        fv.ERM().predict(data.test)
    with pytest.raises(FoveateError, match="ERM has no setting"):
        fv.ERM(learning_rate=3)
    other = data.test.with_labels(data.test.labels, ["axolotl", "yeti"])
    with pytest.raises(DataError, match="'axolotl', which never occurs in the training data"):
        fv.evaluate(erm, other)
    with pytest.raises(DataError, match="one class only"):
        fv.ERM("micro_resnet").fit(data.train.subset(data.train.labels == 0))
    with pytest.raises(ModelError, match=r"no system.json"):
        fv.load(tmp_path)


def test_weights_of_another_architecture_are_refused(erm: fv.ERM, tmp_path: Path) -> None:
    folder = erm.save(tmp_path / "erm")
    described = json.loads((folder / "system.json").read_text())
    described["learned"]["network"]["backbone"]["args"] = {"width": 8}
    (folder / "system.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match="another architecture"):
        fv.load(folder)
