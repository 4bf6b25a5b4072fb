from __future__ import annotations

import numpy as np
import pytest

from foveate.data.cmnist import cmnist, from_pools
from foveate.data.composite import tight_box
from foveate.data.pools import ImagePool
from foveate.errors import DataError


def pool(per_digit: int, seed: int = 0) -> ImagePool:
    """Digits that are a bright bar with a dim rim, each at its own height."""
    rng = np.random.default_rng(seed)
    n = 10 * per_digit
    images = np.zeros((n, 28, 28), np.uint8)
    for i, top in enumerate(rng.integers(2, 20, n)):
        images[i, top : top + 6, 4:20] = 60
        images[i, top + 1 : top + 5, 5:19] = 200
    return ImagePool(images, np.arange(n) % 10)


def ten(seed: int = 0, **options):
    options = {"per_class": 100, "per_cell": {"target": 2, "val": 2, "test": 4}} | options
    return from_pools(pool(160), pool(40, 1), seed, **options)


def test_digits10_counts_and_no_reuse():
    bench = ten()
    cells = bench.train.group_counts.reshape(10, 10)
    assert np.diag(cells).tolist() == [91] * 10  # 100 - 9 x round(5 / 9)
    assert set(cells[~np.eye(10, dtype=bool)]) == {1}
    assert set(bench.target.group_counts) == {2}
    assert set(bench.test.group_counts) == {4}
    used = np.concatenate([bench[s].extras["mnist_index"] for s in ("train", "target", "val")])
    assert len(np.unique(used)) == len(used)
    assert np.array_equal(bench.train.labels, bench.train.extras["digit"])


def test_colour_fills_the_strokes_and_nothing_else():
    bench = ten()
    ds = bench.train
    palette = {"red": (235, 40, 40), "white": (245, 245, 245)}
    for i in range(30):
        image, mask = ds.images.read(i), ds.masks.read(i)
        assert image.shape == (32, 32, 3)
        assert np.array_equal(image.any(axis=2), mask > 0)
        name = ds.attribute_names[ds.attributes[i]]
        if name in palette:
            assert image.max(axis=(0, 1)).tolist() == [round(200 * c / 255) for c in palette[name]]


@pytest.mark.parametrize("variant", ["digits10", "arjovsky", "cnc"])
@pytest.mark.parametrize("size", [14, 28, 33])
def test_boxes_are_tight(variant, size):
    counts = {"per_class": 50, "per_cell": {"target": 2, "val": 2} | ({} if variant == "arjovsky" else {"test": 2})}
    bench = from_pools(pool(100), pool(20, 1), variant=variant, size=size, **counts)
    for ds in bench.splits.values():
        for i in range(0, len(ds), 7):
            mask = ds.masks.read(i)
            assert mask.shape == (size, size)
            assert ds.images.read(i).shape == (size, size, 3)
            assert tuple(ds.boxes[i].astype(int)) == tight_box(mask > 0)


def test_cnc_colours_only_bright_pixels():
    bench = from_pools(pool(60), pool(20, 1), variant="cnc", per_class=80, per_cell={"test": 4}, strength=0.95)
    ds = bench.train
    assert ds.class_names == ["0-1", "2-3", "4-5", "6-7", "8-9"]
    assert ds.group_counts.reshape(5, 5)[0].tolist() == [76, 1, 1, 1, 1]
    red = int(np.flatnonzero(ds.attributes == 0)[0])
    image, mask = ds.images.read(red), ds.masks.read(red)
    assert {tuple(c) for c in image[mask > 0].tolist()} == {(255, 0, 0)}
    assert {tuple(c) for c in image[mask == 0].tolist()} == {(0, 0, 0), (60, 60, 60)}
    assert np.array_equal(ds.labels, ds.extras["digit"] // 2)


def test_arjovsky_noise_and_environments():
    bench = from_pools(pool(2000), pool(1000, 1), variant="arjovsky", per_class=16_000, per_cell={"target": 20})
    train, test = bench.train, bench.test
    clean = (train.extras["digit"] < 5).astype(int)
    assert np.mean(train.labels != clean) == pytest.approx(0.25, abs=0.015)
    odd = train.labels != train.attributes
    environment = train.extras["environment"]
    assert np.mean(odd[environment == 0]) == pytest.approx(0.2, abs=0.015)
    assert np.mean(odd[environment == 1]) == pytest.approx(0.1, abs=0.015)
    assert np.mean(test.labels != test.attributes) == pytest.approx(0.9, abs=0.015)
    assert set(bench.target.group_counts) == {20}
    assert not set(bench.target.extras["mnist_index"]) & set(train.extras["mnist_index"])
    image = train.images.read(0)
    assert image.shape == (14, 14, 3)
    channel = int(train.attributes[0])
    assert image[..., channel].max() == 200
    assert image[..., [c for c in range(3) if c != channel]].max() == 0


def test_seed_decides():
    assert ten(1).train.fingerprint == ten(1).train.fingerprint != ten(2).train.fingerprint


def test_what_bad_settings_get():
    with pytest.raises(DataError, match="Did you mean 'digits10'"):
        cmnist(variant="digit10")
    with pytest.raises(DataError, match="fixes its own strengths"):
        from_pools(pool(1), pool(1), variant="arjovsky", strength=0.9)
    with pytest.raises(DataError, match="14, 28 or more"):
        from_pools(pool(1), pool(1), size=20)
