"""AIM and EP probes on a frozen backbone: what is trained, what is frozen, what is read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError, FoveateError, ModelError
from foveate.extract import create_backbone


def corners(n: int, seed: int) -> GroupedDataset:
    """One bright patch of 8 px on noise; its colour is the class, its place says nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    images = rng.integers(0, 60, (n, 32, 32, 3))
    for i in range(n):
        y, x = rng.integers(0, 4, 2) * 8
        images[i, y : y + 8, x : x + 8, labels[i]] = 255
    return GroupedDataset(ArrayImages(images.astype(np.uint8)), labels, ["red", "green"], name="corners")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random ViT by name, as any checkpoint: ``ARCH@file``."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("vit") / "micro.safetensors"
    net = create_backbone("micro_vit", image_size=(64, 64)).net
    with torch.no_grad():
        net.pos_embed.mul_(0)  # type: ignore[union-attr,operator]
    save_file(net.state_dict(), str(path))
    return f"micro_vit@{path}"


@pytest.fixture(scope="module", params=["AIMProbe", "EPProbe"])
def probe(request: pytest.FixtureRequest, frozen: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind = getattr(fv, request.param)
    store = tmp_path_factory.mktemp("store")
    return kind(frozen, image_size=32, epochs=30, lr=5e-3, store=str(store), progress=False).fit(
        corners(200, 0), val=corners(40, 1)
    )


def test_it_finds_the_patch(probe: Any) -> None:
    test = corners(100, 2)
    assert fv.evaluate(probe, test).average > 0.9
    gaze = probe.look([test[i].image for i in range(3)])
    assert gaze.map.shape == (3, 4, 4)
    torch.testing.assert_close(gaze.map.sum((1, 2)), torch.ones(3))
    assert probe.look([test[0].image], method="grad-cam").kind == "grad-cam"


def test_the_backbone_stays_as_it_was(probe: Any, frozen: str) -> None:
    start, _ = fv.extract.named.open_backbone(frozen, 32)
    assert probe.network_.backbone.weights_hash() == start.weights_hash()
    assert probe.supervision() == "train: labels; selection: labels (average)"


def test_save_and_load(probe: Any, tmp_path: Path) -> None:
    test = corners(20, 2)
    again = fv.load(probe.save(tmp_path / "probe"))
    kept = [{k: v for k, v in p.get_params(deep=False).items() if k != "store"} for p in (again, probe)]
    assert kept[0] == kept[1]
    assert (again.predict_logits(test) == probe.predict_logits(test)).all()


def test_the_backbone_runs_once(frozen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"image_size": 32, "epochs": 1, "store": str(tmp_path), "progress": False}
    train = corners(40, 0)
    fv.AIMProbe(frozen, **settings).fit(train)
    monkeypatch.setattr(fv.extract.Backbone, "maps", lambda *_: pytest.fail("the maps were computed again"))
    fv.EPProbe(frozen, **settings).fit(train)


def test_heads_of_the_two() -> None:
    """AIM ends in a linear layer without bias, EP in one with."""
    for system, biased in ((fv.AIMProbe(), False), (fv.EPProbe(), True)):
        decide = system.parts().decide
        decide.build(96, 3)
        assert (decide.head_.bias is not None) == biased


def test_a_fitted_base(tmp_path: Path) -> None:
    base = fv.ERM("micro_resnet", epochs=0, model_args={"width": 8}, progress=False).fit(corners(40, 0))
    probe = fv.AIMProbe(base=base, heads=4, epochs=2, store=str(tmp_path), progress=False).fit(corners(40, 0))
    assert probe.supervision() == "train: base (labels)"
    assert probe.predict(corners(20, 2)).shape == (20,)


def test_a_vit_is_fine_tuned_from_a_named_checkpoint(frozen: str) -> None:
    train = corners(40, 0)
    tuned = fv.ERM(frozen, image_size=32, epochs=0, progress=False).fit(train)
    start, view = fv.extract.named.open_backbone(frozen, 32)
    assert tuned.network_.backbone.weights_hash() == start.weights_hash()
    assert (tuned.preprocess_.mean, tuned.preprocess_.size) == (view.mean, (32, 32))
    moved = fv.ERM(frozen, image_size=32, epochs=1, backbone_scale=0.1, progress=False).fit(train)
    assert moved.network_.backbone.weights_hash() != start.weights_hash()
    with pytest.raises(ModelError, match=r"leave weights, small_stem and model_args out"):
        fv.ERM(frozen, model_args={"depth": 2}).fit(train)


def test_sentences(frozen: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"image_size": 32, "epochs": 1, "store": str(tmp_path), "progress": False}
    train = corners(40, 0)
    with pytest.raises(FoveateError, match=r"7 heads do not divide 96"):
        fv.AIMProbe(frozen, heads=7, **settings).fit(train)
    with pytest.raises(FoveateError, match=r"7 queries do not divide 96"):
        fv.EPProbe(frozen, queries=7, **settings).fit(train)
    with pytest.raises(DataError, match=r"one class only"):
        fv.EPProbe(frozen, **settings).fit(train.subset(train.labels == 0))
    with pytest.raises(ModelError, match=r"unknown model 'vit-s-focsu'"):
        fv.EPProbe("vit-s-focsu", **settings).fit(train)
