"""Features of the grid: where to look, what is let through, and a frozen backbone, for every split at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError
from foveate.extract import MaskedViT
from foveate.extract.named import list_named
from foveate.restrict import extract_crops, greedy_crops
from foveate.systems import ERM, load
from foveate.extract import FrozenModel
from foveate.systems.glimpse import attended_tokens

CROP = 0.5
"""Side of a crop, as a share of the image's."""
KEEP = 0.25
"""Share of the tokens (or of the map) that a look lets through."""


@dataclass
class SplitFeatures:
    """``vectors [N, D]`` by the model's own pooling, ``maps [N, C, h, w]`` and what of them is ``visible [N, h, w]``.

    Maps are zero where hidden.
    """

    vectors: NDArray[np.float32]
    maps: NDArray[np.float32]
    visible: NDArray[np.bool_]

    def mean(self) -> NDArray[np.float32]:
        """The mean over what is visible, ``[N, C]``."""
        counts = self.visible.sum((1, 2)).clip(min=1)[:, None]
        return (self.maps.sum((2, 3)) / counts).astype(np.float32)


@dataclass
class Features:
    """Features of every split of a benchmark."""

    splits: dict[str, SplitFeatures]


class Looker:
    """Where to look, as a map ``[B, h, w]`` (or ``None`` for everywhere).

    Args:
        model: the ViT whose CLS attention is read; without one ``attention`` is refused.
    """

    def __init__(self, model: FrozenModel | None):
        self.model = model

    @property
    def name(self) -> str:
        return "" if self.model is None else self.model.backbone.weights_hash()

    def __call__(self, look: str, images: Tensor, masks: Tensor | None) -> Tensor | None:
        if look == "everywhere":
            return None
        if look == "attention":
            if self.model is None:
                raise FoveateError("none of the backbones is a ViT whose attention could be read; add 'micro-vit'.")
            return self.model.attend(images).map.float()
        if look == "truth":
            if masks is None:
                raise FoveateError("the data have no masks, so the truth cannot be looked at.")
            return F.adaptive_avg_pool2d(masks[:, None].float(), (16, 16))[:, 0]
        return centre_map(len(images))


def centre_map(count: int, cells: int = 8) -> Tensor:
    """A bump in the middle of the image, ``[count, cells, cells]``.

    >>> bool(centre_map(1, 3)[0].argmax() == 4)
    True
    """
    line = torch.linspace(-1, 1, cells)
    bump = torch.exp(-2 * (line[:, None] ** 2 + line[None] ** 2))
    return bump.expand(count, -1, -1).contiguous()


def open_model(name: str, bench: Benchmark, epochs: int, seed: int, runs: Path) -> FrozenModel:
    """A frozen backbone: known weights, or a network trained on ``train`` by ERM (kept in ``runs/grid``)."""
    if name in list_named() or "@" in name or name.startswith("open_clip:"):
        return FrozenModel.open(name)
    folder = runs / "grid" / f"{name}-{epochs}-{seed}-{bench.train.fingerprint[:10]}"
    if (folder / "system.json").exists():
        system = load(folder)
    else:
        system = ERM(name, epochs=epochs, lr=2e-3, seed=seed, progress=False).fit(bench.train, val=bench.get("val"))
        system.save(folder)
    return FrozenModel(system.network_.cpu().backbone, system.preprocess_)  # type: ignore[attr-defined]


def read_features(model: FrozenModel, looker: Looker, look: str, restrict: str, bench: Benchmark) -> Features:
    """Features of every split under one look and one restriction."""
    return Features({name: _split(model, looker, look, restrict, split) for name, split in bench.splits.items()})


@torch.no_grad()
def _split(model: FrozenModel, looker: Looker, look: str, restrict: str, data: GroupedDataset) -> SplitFeatures:
    side = max(model.size, 0 if looker.model is None else looker.model.size)
    view = Preprocess((side, side), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    loader = Loader(data, view, cache_bytes=0)
    vectors: list[NDArray[Any]] = []
    maps: list[NDArray[Any]] = []
    visible: list[NDArray[Any]] = []
    for batch in loader.in_order(64):
        images = view.normalise(batch.inputs)  # floats in [0, 1]
        masks = None
        if look == "truth":
            found = [data.mask(int(i)) for i in batch.indices]
            masks = torch.stack([_sized(m, side) for m in found if m is not None])
        part = _batch(model, images, looker(look, images, masks), restrict)
        for kept, one in zip((vectors, maps, visible), part, strict=True):
            kept.append(one.numpy())
    return SplitFeatures(np.concatenate(vectors), np.concatenate(maps), np.concatenate(visible))


def _sized(mask: Tensor, side: int) -> Tensor:
    return F.interpolate(mask.float()[None, None], (side, side), mode="nearest-exact")[0, 0]


def _batch(model: FrozenModel, images: Tensor, gaze: Tensor | None, restrict: str) -> tuple[Tensor, Tensor, Tensor]:
    """Own vectors, maps and what is visible of them, for one batch."""
    backbone = model.backbone
    if restrict == "crop":
        assert gaze is not None
        size = int(CROP * images.shape[-1])
        boxes = greedy_crops(gaze, [size], image_size=images.shape[-1])
        images = extract_crops(images, boxes, size=model.size)[:, 0]
    inputs = model.prepare(images)
    if restrict == "tokens":
        assert gaze is not None
        masked = MaskedViT(backbone)
        keep = attended_tokens(on_grid(gaze, masked.grid(inputs)), keep=KEEP)
        tokens = masked.tokens(inputs, keep.flatten(1), prune=True)
        maps = backbone.as_grid(tokens, inputs.shape[-2:])
        return masked.features(inputs, keep.flatten(1), prune=True), maps, keep
    maps = backbone.maps(inputs)
    visible = torch.ones(len(maps), *maps.shape[-2:], dtype=torch.bool)
    if restrict == "late":
        assert gaze is not None
        visible = attended_tokens(on_grid(gaze, (maps.shape[-2], maps.shape[-1])), keep=KEEP)
        maps = maps * visible[:, None]
    return backbone(inputs), maps, visible


def on_grid(gaze: Tensor, grid: tuple[int, int]) -> Tensor:
    """A map on another grid, antialiased."""
    if tuple(gaze.shape[1:]) == tuple(grid):
        return gaze
    return F.interpolate(gaze[:, None], grid, mode="bilinear", align_corners=False, antialias=True)[:, 0].clamp(min=0)
