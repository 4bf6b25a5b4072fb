from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate import assets
from foveate.data.dominoes import dominoes, from_pools
from foveate.data.pools import Deck, ImagePool, cell_counts
from foveate.errors import DataError


def photo_pool(per_class: int, start: int = 0) -> ImagePool:
    """Photographs whose first pixel says which they are."""
    n = 10 * per_class
    images = np.zeros((n, 32, 32, 3), np.uint8)
    ids = np.arange(start, start + n)
    images[:, 0, 0, 0], images[:, 0, 0, 1], images[:, 0, 0, 2] = ids // 256, ids % 256, 77
    return ImagePool(images, np.arange(n) % 10)


def digit_pool(per_class: int, start: int = 0) -> ImagePool:
    n = 10 * per_class
    images = np.zeros((n, 28, 28), np.uint8)
    ids = np.arange(start, start + n)
    images[:, 0, 0], images[:, 0, 1], images[:, 27, 27] = ids // 256, ids % 256, 99
    return ImagePool(images, np.arange(n) % 10)


def small(seed: int = 0, test_digits: int = 20):
    return from_pools(
        (photo_pool(60), digit_pool(60)),
        (photo_pool(20, 5000), digit_pool(test_digits, 5000)),
        seed,
        cell_counts(40, 10, 0.75),
        {"target": 1, "val": 1, "test": 2},
    )


def test_counts_of_the_paper_at_full_size():
    labels = np.arange(50_000) % 10
    photos = ImagePool(np.broadcast_to(np.zeros((1, 1, 1, 3), np.uint8), (50_000, 32, 32, 3)), labels)
    # MNIST's own digit counts, which leave little room: the rarest digit has 5,421
    held = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    digits = ImagePool(np.broadcast_to(np.zeros((1, 1, 1), np.uint8), (60_000, 28, 28)), np.repeat(np.arange(10), held))
    test_held = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    test_digits = ImagePool(digits.images[:10_000], np.repeat(np.arange(10), test_held))
    test_photos = ImagePool(photos.images[:10_000], labels[:10_000])
    bench = from_pools(
        (photos, digits),
        (test_photos, test_digits),
        0,
        cell_counts(4396, 10, 0.95),
        {"target": 10, "val": 10, "test": 100},
    )
    cells = bench.train.group_counts.reshape(10, 10)
    assert len(bench.train) == 43_960
    assert np.diag(cells).tolist() == [4180] * 10
    assert set(cells[~np.eye(10, dtype=bool)]) == {24}
    assert (len(bench.target), set(bench.target.group_counts)) == (1000, {10})
    assert (len(bench.val), set(bench.val.group_counts)) == (1000, {10})
    assert (len(bench.test), set(bench.test.group_counts)) == (10_000, {100})
    for column in ("cifar_index", "mnist_index"):
        used = np.concatenate([bench[s].extras[column] for s in ("train", "target", "val")])
        assert len(np.unique(used)) == len(used) == 45_960
    assert len(np.unique(bench.test.extras["cifar_index"])) == 10_000
    assert np.bincount(bench.test.extras["mnist_index"]).max() == 2  # five digits have fewer than 1,000


@pytest.mark.parametrize(
    ("strength", "own", "other"), [(0.95, 4180, 24), (0.90, 3955, 49), (1.0, 4396, 0), (0.1, 436, 440)]
)
def test_cell_rule(strength, own, other):
    assert cell_counts(4396, 10, strength)[3].tolist() == [other] * 3 + [own] + [other] * 6


@given(st.integers(0, 5000), st.integers(2, 12), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_cells_always_add_up(total, attributes, strength):
    cells = cell_counts([total, total], attributes, strength)
    assert (cells >= 0).all()
    assert cells.sum(axis=1).tolist() == [total, total]
    off = np.delete(cells[0], 0)
    assert len(set(off.tolist())) == 1


def test_image_is_digit_over_photograph():
    bench = small()
    for split in ("train", "test"):
        ds = bench[split]
        for i in (0, 7, len(ds) - 1):
            image = ds[i].image.numpy().transpose(1, 2, 0)
            assert image.shape == (64, 32, 3)
            start = 5000 if split == "test" else 0
            photo, digit = int(ds.extras["cifar_index"][i]) + start, int(ds.extras["mnist_index"][i]) + start
            assert image[32, 0].tolist() == [photo // 256, photo % 256, 77]
            assert image[2, 2].tolist() == [digit // 256] * 3
            assert image[2, 3].tolist() == [digit % 256] * 3
            assert image[29, 29].tolist() == [99] * 3
            assert not image[:2].any()
            assert not image[30:32].any()
            assert ds.labels[i] == photo % 10
            assert ds.attributes[i] == digit % 10


def test_mask_and_box_mark_the_photograph():
    sample = small().val[0]
    assert sample.mask.shape == (64, 32)
    assert sample.mask[:32].sum() == 0
    assert bool((sample.mask[32:] == 1).all())
    assert sample.box.tolist() == [0, 32, 32, 64]


def test_seed_decides():
    one, same, other = small(1), small(1), small(2)
    assert one.train.fingerprint == same.train.fingerprint != other.train.fingerprint


def test_digest_tells_images_apart():
    ds = small().train
    assert len({ds.images.digest(i) for i in range(len(ds))}) == len(ds)


def test_too_few_images_is_said():
    with pytest.raises(DataError, match="digits with label 0 are needed, but only"):
        from_pools((photo_pool(60), digit_pool(20)), (photo_pool(20), digit_pool(20)), 0, cell_counts(40, 10, 0.75), {})
    bench = small(test_digits=10)  # test may use a digit twice, when it must
    assert np.bincount(bench.test.extras["mnist_index"]).max() == 2


def test_deck_uses_everything_before_it_repeats():
    deck = Deck([0, 0, 0, 1], np.random.default_rng(0))
    drawn = deck.draw(0, 7, reuse=True)
    assert np.bincount(drawn).tolist() in ([3, 2, 2], [2, 3, 2], [2, 2, 3])
    with pytest.raises(DataError, match="only 0 are left"):
        deck.draw(2, 1, reuse=True)


def test_strength_out_of_range():
    with pytest.raises(DataError, match="from 0 to 1"):
        cell_counts(10, 2, 1.5)
    with pytest.raises(DataError, match="at least 2"):
        cell_counts([10], 1, 0.5)


def test_the_real_thing_when_it_is_here():
    if not all(row.ready for row in assets.status() if row.name in ("mnist", "cifar10")):
        pytest.skip("MNIST and CIFAR-10 are not on this machine (foveate data prepare dominoes fetches them)")
    bench = dominoes(seed=3, strength=0.9)
    assert len(bench.train) == 43_960
    assert bench.train.group_counts[0] == 3955
    again = pickle.loads(pickle.dumps(bench.train.images))
    assert np.array_equal(again.read(5), bench.train.images.read(5))
    assert len(pickle.dumps(bench.train.images)) < 2_000_000  # positions only, not the pixels
