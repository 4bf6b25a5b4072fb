"""Extraction in parts: the same bits as in one piece, whatever is missing, stopped or left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, StorageError, UnreadableImage
from foveate.extract import Backbone, create_backbone, shelf
from foveate.extract.extraction import Bad, Extraction, Range
from foveate.extract.features import save_npz
from foveate.extract.store import FeatureStore, spreading

VIEW = Preprocess((32, 32))


class Gaps(ArrayImages):
    """Some images cannot be read; remembers which were."""

    def __init__(self, array: np.ndarray, bad: Sequence[int] = ()):
        super().__init__(array)
        self.bad_ones, self.read_ones = set(bad), []  # type: ignore[var-annotated]

    def read(self, i: int) -> np.ndarray:
        self.read_ones.append(i)
        if i in self.bad_ones:
            raise UnreadableImage(self.where(i), "broken")
        return super().read(i)


def images(n: int, bad: Sequence[int] = ()) -> GroupedDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    return GroupedDataset(Gaps(pixels, bad), np.arange(n) % 2, ["cat", "dog"])


@pytest.fixture(scope="module")
def net() -> Backbone:
    torch.manual_seed(0)
    return create_backbone("micro_resnet", width=4)


class Here:
    """Computes the parts in this process, and stops after some of them when told to."""

    def __init__(self, rows: int, stop_after: int | None = None):
        self.rows, self.stop_after, self.asked = rows, stop_after, []  # type: ignore[var-annotated]

    def __call__(self, extraction: Extraction, root: Path, ranges: Sequence[Range]) -> Iterator[list[Bad]]:
        for number, chosen in enumerate(ranges):
            if number == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(chosen)
            yield extraction.part(root, chosen)


def read(store: FeatureStore, net: Backbone, data: GroupedDataset, **more: Any) -> Any:
    return store.read(net, data, VIEW, **{"batch_size": 4, "on_bad": "skip", "progress": lambda *_: None, **more})


@pytest.mark.parametrize("more", [{}, {"layer": "maps"}, {"copies": 2, "seed": 3}, {"layer": "net.layer2"}])
def test_parts_are_the_same_bits(net: Backbone, tmp_path: Path, more: dict[str, Any]) -> None:
    data, there = images(23), Here(rows=9)
    whole = read(FeatureStore(tmp_path / "a"), net, data, **more)
    told: list[tuple[int, int]] = []
    store = FeatureStore(tmp_path / "b", spread=there)
    joined = read(store, net, data, progress=lambda *done: told.append(done), **more)
    assert there.asked == [(0, 8), (8, 16), (16, 23)]  # whole batches
    assert told == [(8, 23), (16, 23), (23, 23)]
    assert joined.key == whole.key
    assert joined.array.tobytes() == whole.array.tobytes()
    assert [p.name for p in store.root.iterdir()] == [whole.key]  # no part, no lock is left
    again = FeatureStore(tmp_path / "b", spread=Here(rows=1, stop_after=0))
    assert read(again, net, data, **more).key == whole.key  # what is there is not asked for


@settings(max_examples=15, deadline=None)
@given(
    bad=st.sets(st.integers(0, 16), max_size=16),
    rows=st.integers(1, 20),
    batch_size=st.integers(1, 6),
    stop=st.none() | st.integers(0, 4),
)
def test_unreadable_images_and_stops(
    net: Backbone, tmp_path_factory: pytest.TempPathFactory, bad: set[int], rows: int, batch_size: int, stop: int | None
) -> None:
    folder = tmp_path_factory.mktemp("store")
    whole = read(FeatureStore(folder / "a"), net, images(17, sorted(bad)), batch_size=batch_size)
    data, first, second = images(17, sorted(bad)), Here(rows, stop), Here(rows)
    if stop is not None:
        try:
            read(FeatureStore(folder / "b", spread=first, flush_seconds=0), net, data, batch_size=batch_size)
        except KeyboardInterrupt:
            seen = set(data.images.read_ones) - bad  # type: ignore[attr-defined]
            data.images.read_ones.clear()  # type: ignore[attr-defined]
            read(FeatureStore(folder / "b", spread=second, flush_seconds=0), net, data, batch_size=batch_size)
            assert not seen & set(data.images.read_ones)  # type: ignore[attr-defined]
    joined = read(FeatureStore(folder / "b", spread=second), net, data, batch_size=batch_size)
    assert joined.array.tobytes() == whole.array.tobytes()
    assert joined.bad == whole.bad
    assert np.flatnonzero(~joined.valid).tolist() == sorted(bad)


def test_a_part_of_another_process_is_taken_as_it_is(net: Backbone, tmp_path: Path) -> None:
    """The one who joins was killed, the others finished: only what is missing is computed."""
    data = images(16)

    class Doomed(Here):
        def __call__(self, extraction: Extraction, root: Path, ranges: Sequence[Range]) -> Iterator[list[Bad]]:
            for chosen in ranges[1:]:
                extraction.part(root, chosen)
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        read(FeatureStore(tmp_path, spread=Doomed(rows=4)), net, data)
    assert len(FeatureStore(tmp_path).entries()) == 3
    data.images.read_ones.clear()  # type: ignore[attr-defined]
    there = Here(rows=4)
    read(FeatureStore(tmp_path, spread=there), net, data)
    assert len(there.asked) == 4
    assert data.images.read_ones == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert len(FeatureStore(tmp_path).entries()) == 1


def test_an_extraction_here_goes_on_with_what_was_joined(net: Backbone, tmp_path: Path) -> None:
    data = images(16)
    with pytest.raises(KeyboardInterrupt):
        read(FeatureStore(tmp_path, spread=Here(4, stop_after=2), flush_seconds=0), net, data)
    data.images.read_ones.clear()  # type: ignore[attr-defined]
    found = read(FeatureStore(tmp_path), net, data)
    assert data.images.read_ones == list(range(8, 16))  # type: ignore[attr-defined]
    assert found.array.tobytes() == read(FeatureStore(tmp_path / "whole"), net, data).array.tobytes()
    assert len(FeatureStore(tmp_path).entries()) == 1  # the parts that nobody will join are gone


def test_mistakes(net: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableImage, match="broken"):
        read(FeatureStore(tmp_path / "a", spread=Here(4)), net, images(8, [5]), on_bad="raise")
    with pytest.raises(DataError, match="none of its 8 images"):
        read(FeatureStore(tmp_path / "b", spread=Here(4)), net, images(8, range(8)))
    with pytest.raises(StorageError, match="limited to"):
        read(FeatureStore(tmp_path / "c", spread=Here(4), max_bytes=100), net, images(8))
    monkeypatch.setattr(shelf.await_entry, "__defaults__", (0.0,))

    class Elsewhere(Here):
        def __call__(self, extraction: Extraction, root: Path, ranges: Sequence[Range]) -> Iterator[list[Bad]]:
            (tmp_path / "other").mkdir(exist_ok=True)
            return super().__call__(extraction, tmp_path / "other", ranges)

    with pytest.raises(StorageError, match="that all machines see"):
        read(FeatureStore(tmp_path / "mine", spread=Elsewhere(4)), net, images(8))


def test_systems_read_through_what_is_spread(tmp_path: Path) -> None:
    import foveate as fv

    data = fv.data.critters(train=24, target=0, val=0, test=8, size=32)
    plain = fv.FullImage("micro-vit", embed_size=64, batch_size=4, store=tmp_path / "a", progress=False).fit(data.train)
    there = Here(rows=8)
    with spreading(there):
        spread = fv.FullImage("micro-vit", embed_size=64, batch_size=4, store=tmp_path / "b", progress=False)
        spread.fit(data.train)
    assert len(there.asked) > 1
    assert np.array_equal(spread.predict_proba(data.test), plain.predict_proba(data.test))
    asked = len(there.asked)
    spread.predict(data.train.subset([0, 5, 6]))  # no longer within
    assert len(there.asked) == asked


def test_npz(net: Backbone, tmp_path: Path) -> None:
    data = images(6, [2])
    path = save_npz(tmp_path / "x.npz", read(FeatureStore(tmp_path / "store"), net, data), data)
    with np.load(path) as found:
        assert sorted(found) == ["features", "labels", "valid"]
        assert found["features"].shape == (6, net.dim)
        assert found["valid"].tolist() == [True, True, False, True, True, True]
        assert found["labels"].tolist() == [0, 1, 0, 1, 0, 1]
