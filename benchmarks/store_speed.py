"""Post-hoc training through the feature store, against running the frozen backbone in every epoch.

An attention pool and a linear head are trained for 30 epochs on 1,000 images of 224 px under a frozen ResNet-18
with random weights (the time does not depend on their values). Both ways take the same steps on the same
batches. All epochs with the store are run, and its extraction counts as part of its time; an epoch with the
backbone is run once and multiplied, since every epoch costs the same. Images lie decoded in memory, so that
decoding does not flatter the store.

The backbone runs in PyTorch's usual memory layout (``ratio``), and once more in the layout the store picks for
its own extraction (``ratio_same_layout``), which tells apart what comes from caching and what from the layout.

    python -m benchmarks.store_speed --images 128
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.extract import create_backbone, freeze
from foveate.extract.store import FeatureStore
from foveate.pool import AttentionPool

TARGET = 20.0
Batches = Callable[[list[np.ndarray]], Iterator[tuple[Tensor, Tensor]]]


def _train(batches: Batches, images: int, channels: int, epochs: int, batch_size: int) -> tuple[float, float]:
    """Seconds, and the loss of the last step, for ``epochs`` of Adam on a fresh pool and head."""
    torch.manual_seed(0)
    head = nn.Sequential(AttentionPool(channels, queries=8, heads=8), nn.Linear(channels, 2))
    adam = torch.optim.Adam(head.parameters(), lr=1e-3)
    order = np.random.default_rng(0)
    loss = torch.zeros(())
    began = time.perf_counter()
    for _ in range(epochs):
        shuffled = order.permutation(images)
        for maps, labels in batches([shuffled[i : i + batch_size] for i in range(0, images, batch_size)]):
            loss = F.cross_entropy(head(maps), labels)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
    return time.perf_counter() - began, float(loss.detach())


def run(images: int = 1000, size: int = 224, epochs: int = 30, batch_size: int = 64) -> dict[str, Any]:
    """Measure both ways; prints one line and returns its numbers."""
    pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
    dataset = GroupedDataset(ArrayImages(pixels), np.arange(images) % 2, ["a", "b"])
    view = Preprocess((size, size))
    torch.manual_seed(0)
    backbone = create_backbone("resnet18")
    freeze(backbone)
    labels = torch.from_numpy(dataset.labels)
    loader = Loader(dataset, view)
    for _ in loader.in_order():  # fills its cache
        pass

    def live(layout: torch.memory_format) -> Batches:
        def batches(lists: list[np.ndarray]) -> Iterator[tuple[Tensor, Tensor]]:
            for batch in loader(lists):
                with torch.no_grad():
                    maps = backbone.maps(view.normalise(batch.inputs).contiguous(memory_format=layout))
                yield maps, batch.labels

        return batches

    with torch.no_grad():  # neither way pays for the first call
        backbone.maps(view.normalise(next(loader([np.arange(min(images, batch_size))])).inputs))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        stored = FeatureStore(folder).maps(backbone, dataset, view, batch_size=batch_size)
        extraction = time.perf_counter() - began

        def cached(lists: list[np.ndarray]) -> Iterator[tuple[Tensor, Tensor]]:
            for positions in lists:
                yield stored.batch(positions), labels[positions]

        training, cached_loss = _train(cached, images, stored.channels, epochs, batch_size)
        channels = stored.channels
        _, first_loss = _train(cached, images, channels, 1, batch_size)
    live_epoch, live_loss = _train(live(torch.contiguous_format), images, channels, 1, batch_size)
    same_epoch, _ = _train(live(torch.channels_last), images, channels, 1, batch_size)
    with_store = extraction + training
    result = {
        "name": "store_speed",
        "ratio": epochs * live_epoch / with_store,
        "ratio_same_layout": epochs * same_epoch / with_store,
        "target": TARGET,
        "images": images,
        "epochs": epochs,
        "extraction_s": extraction,
        "training_s": training,
        "live_epoch_s": live_epoch,
        "live_epoch_same_layout_s": same_epoch,
        "loss_after_one_epoch": {"store": first_loss, "live": live_loss},
        "last_loss": cached_loss,
        "threads": torch.get_num_threads(),
    }
    print(
        f"store_speed: ratio {result['ratio']:.1f} (target {TARGET:.0f}): {epochs} epochs on {images} images, "
        f"store {extraction:.1f} s once + {training:.1f} s, backbone each epoch {epochs} x {live_epoch:.1f} s "
        f"(one measured); in the store's memory layout {epochs} x {same_epoch:.1f} s, "
        f"ratio {result['ratio_same_layout']:.1f}; loss after one epoch {first_loss:.5f} / {live_loss:.5f}"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    given = parser.parse_args()
    run(images=given.images, epochs=given.epochs, batch_size=given.batch_size)
