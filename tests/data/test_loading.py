"""Batches: order, cache, worker processes, and one bad image that does not kill a run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.errors import UnreadableImage


@pytest.fixture
def files(tmp_path: Path) -> GroupedDataset:
    """Twelve files of different sizes, number 5 broken."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(12):
        path = tmp_path / f"{i}.png"
        Image.fromarray(rng.integers(0, 256, (8 + i, 10, 3), dtype=np.uint8)).save(path)
        paths.append(path)
    paths[5].write_bytes(paths[5].read_bytes()[:60])
    return GroupedDataset(
        FileImages(paths), np.arange(12) % 2, ["a", "b"], attributes=np.arange(12) % 3, attribute_names=["x", "y", "z"]
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_one_bad_image_is_named_counted_and_skipped(
    files: GroupedDataset, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    loader = Loader(files, Preprocess((8, 8)), workers=workers, on_bad="skip")
    with caplog.at_level(logging.WARNING, "foveate"):
        for _ in range(2):
            batches = list(loader([[0, 5, 11], [5], [3, 2]]))
    assert [b.indices.tolist() for b in batches] == [[0, 11], [3, 2]]
    assert [b.groups.tolist() for b in batches] == [files.groups[[0, 11]].tolist(), files.groups[[3, 2]].tolist()]
    assert list(loader.bad) == [5]
    assert caplog.text.count("5.png") == 1, "named once, however often it comes up"


@pytest.mark.parametrize("workers", [0, 2])
def test_or_it_is_fatal(files: GroupedDataset, workers: int) -> None:
    loader = Loader(files, Preprocess((8, 8)), workers=workers)
    with pytest.raises(UnreadableImage, match=r"5\.png.*--on-bad skip"):
        list(loader.in_order(4))


def test_workers_and_cache_change_nothing(files: GroupedDataset) -> None:
    good = files.subset([i for i in range(12) if i != 5])
    view = Preprocess((8, 8))
    plain = torch.cat([b.inputs for b in Loader(good, view, cache_bytes=0).in_order(3)])
    cached = Loader(good, view)
    for loader in (cached, cached, Loader(good, view, workers=2)):
        assert torch.equal(torch.cat([b.inputs for b in loader.in_order(4)]), plain)


def test_the_cache_saves_decoding(files: GroupedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    good = files.subset([0, 1, 2, 3])
    reads = []
    original = FileImages.read_at_least
    monkeypatch.setattr(FileImages, "read_at_least", lambda self, i, least: reads.append(i) or original(self, i, least))
    loader = Loader(good, Preprocess((8, 8)))
    for _ in range(3):
        list(loader.in_order(2))
    assert len(reads) == 4
