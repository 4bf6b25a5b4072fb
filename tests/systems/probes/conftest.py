"""A tiny world for tests of A² and Glimpse: a square tells the class, the colour of the ground gives it away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.extract import Backbone, FrozenModel, create_backbone
from foveate.look import Gaze

SIDE, SQUARE = 64, 16
MARK = 250
"""The square is told from the ground by this value of its green channel."""


def world(n: int, strength: float, seed: int, name: str) -> GroupedDataset:
    """Squares of 16 px on the 8 px grid: reddish for class 0, bluish for class 1; the ground is dark or light."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    attributes = np.where(rng.random(n) < strength, labels, 1 - labels)
    images = np.empty((n, SIDE, SIDE, 3), np.uint8)
    images[:] = np.where(attributes, 160, 40)[:, None, None, None] + rng.integers(0, 40, (n, SIDE, SIDE, 3))
    for i in range(n):
        y, x = 8 * rng.integers(0, 7, 2)
        red = 150 if labels[i] == 0 else 110
        colour = [red + rng.integers(-15, 16), MARK, 260 - red + rng.integers(-15, 16)]
        images[i, y : y + SQUARE, x : x + SQUARE] = colour
    return GroupedDataset(
        ArrayImages(images),
        labels,
        ["red", "blue"],
        attributes=attributes,
        attribute_names=["dark", "light"],
        name=name,
    )


@pytest.fixture(scope="session")
def squares() -> Benchmark:
    splits = {
        "train": world(160, 0.95, 0, "train"),
        "target": world(60, 0.5, 1, "target"),
        "val": world(60, 0.5, 2, "val"),
        "test": world(100, 0.5, 3, "test"),
    }
    return Benchmark("squares", splits)


@pytest.fixture(scope="session")
def vit() -> Callable[..., Backbone]:
    """Makes random ViTs for 64 px, small enough for a test."""

    def make(seed: int = 0, **args: Any) -> Backbone:
        torch.manual_seed(seed)
        settings = {"patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3, **args}
        return create_backbone("micro_vit", image_size=(SIDE, SIDE), **settings)

    return make


@pytest.fixture
def true_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attention map becomes the true mask on an 8 x 8 grid."""

    def look(model: FrozenModel, images: Tensor, *args: object) -> Gaze:
        on = F.interpolate(images, (SIDE, SIDE), mode="nearest")[:, 1] * 255 >= MARK - 1
        return Gaze(F.adaptive_avg_pool2d(on.float()[:, None], 8)[:, 0])

    monkeypatch.setattr("foveate.look.attentive.attended", look)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that went through an embedder since the test began."""
    seen: list[int] = []
    forward = Backbone.forward

    def counted(self: Backbone, x: Tensor) -> Tensor:
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(Backbone, "forward", counted)
    return seen
