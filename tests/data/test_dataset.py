"""The dataset type: groups, views, joins, fingerprints, and the splits of a benchmark."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages, FileImages
from foveate.errors import DataError, UnreadableImage


def make(n=8, seed=0, **changes):
    rng = np.random.default_rng(seed)
    settings = dict(
        labels=np.arange(n) % 2,
        class_names=["cat", "dog"],
        attributes=np.arange(n) // 2 % 2,
        attribute_names=["forest", "sea"],
        masks=ArrayImages(rng.integers(0, 2, (n, 4, 6), dtype=np.uint8) * 255),
        boxes=rng.uniform(0, 4, (n, 4)),
        keypoints=rng.uniform(0, 4, (n, 2, 3)),
        keypoint_names=["head", "tail"],
        extras={"id": np.arange(n) * 10},
        name="toy",
    )
    settings.update(changes)
    pixels = ArrayImages(rng.integers(0, 256, (n, 4, 6, 3), dtype=np.uint8))
    return GroupedDataset(pixels, settings.pop("labels"), settings.pop("class_names"), **settings)


def same(a, b):
    """Two samples hold the same, their position apart."""
    assert torch.equal(a.image, b.image)
    assert (a.label, a.attribute, a.group) == (b.label, b.attribute, b.group)
    assert torch.equal(a.mask, b.mask)
    assert torch.equal(a.box, b.box)
    assert torch.equal(a.keypoints, b.keypoints)


def test_groups_by_hand():
    ds = make(6, labels=[0, 0, 1, 1, 1, 0], attributes=[0, 1, 0, 1, 1, 1])
    assert ds.groups.tolist() == [0, 1, 2, 3, 3, 1]
    assert ds.group_counts.tolist() == [1, 2, 1, 2]
    assert ds.class_counts.tolist() == [3, 3]
    assert ds.group_names == ["cat/forest", "cat/sea", "dog/forest", "dog/sea"]


def test_sample_holds_what_it_says():
    ds = make()
    sample = ds[-1]
    assert (sample.index, sample.label, sample.attribute, sample.group) == (7, 1, 1, 3)
    assert sample.image.shape == (3, 4, 6)
    assert sample.image.dtype == torch.uint8
    np.testing.assert_array_equal(sample.image.permute(1, 2, 0).numpy(), ds.images.read(7))
    assert set(sample.mask.unique().tolist()) <= {0.0, 1.0}
    with pytest.raises(IndexError):
        ds[8]
    with pytest.raises(IndexError):
        ds[-9]
    assert len(list(ds)) == 8


def test_changing_a_sample_leaves_the_dataset_alone():
    ds = make()
    before = ds.images.read(0).copy()
    ds[0].image.zero_()
    ds[0].box.zero_()
    np.testing.assert_array_equal(ds.images.read(0), before)
    assert ds.boxes[0].any()


def test_without_attributes():
    ds = make(attributes=None, attribute_names=None)
    assert ds.groups is None
    assert ds[0].group is None
    with pytest.raises(DataError, match=r"DFR needs groups.*toy.*'attribute' column"):
        ds.require_groups("DFR")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": [0, 1]}, "2 labels for 8 images"),
        ({"labels": [2] * 8}, "labels run from 2 to 2"),
        ({"labels": [-1] * 8}, "labels run from -1"),
        ({"attribute_names": None}, "without attribute_names"),
        ({"attributes": [5] * 8}, "attributes run from 5"),
        ({"boxes": np.zeros((3, 4))}, "3 boxes for 8 images"),
        ({"masks": ArrayImages(np.zeros((2, 4, 6), np.uint8))}, "2 masks for 8 images"),
    ],
)
def test_columns_that_do_not_fit(changes, message):
    with pytest.raises(DataError, match=message):
        make(**changes)


# -- views ----------------------------------------------------------------------------------


@given(st.lists(st.integers(-8, 7), max_size=12))
def test_subset_is_picking_one_by_one(indices):
    ds = make()
    part = ds.subset(indices)
    assert len(part) == len(indices)
    assert part.extras["id"].tolist() == [ds.extras["id"][i] for i in indices]
    for k, i in enumerate(indices):
        same(part[k], ds[i])
        assert part[k].index == k
        assert part.where(k) == ds.where(i % 8)


def test_subset_of_a_subset():
    ds = make()
    same(ds.subset([5, 3, 1]).subset([2, 0])[1], ds[5])


def test_subset_by_mask_and_beyond_the_end():
    ds = make()
    assert ds.subset(ds.labels == 1).extras["id"].tolist() == [10, 30, 50, 70]
    with pytest.raises(IndexError):
        ds.subset([True, False])
    with pytest.raises(IndexError):
        ds.subset([8])


def test_add():
    a, b = make(3, seed=1), make(4, seed=2)
    both = a + b
    assert len(both) == 7
    assert both.name == "toy+toy"
    for k in range(7):
        same(both[k], a[k] if k < 3 else b[k - 3])
    same(both.subset([-1])[0], b[3])
    assert both.extras["id"].tolist() == [0, 10, 20, 0, 10, 20, 30]


def test_add_keeps_only_what_both_have():
    both = make() + make(masks=None, keypoints=None, keypoint_names=None, extras={})
    assert both.masks is None
    assert both.keypoints is None
    assert both.keypoint_names is None
    assert both.extras == {}
    assert both.boxes is not None


def test_add_refuses_other_classes_and_keypoints():
    with pytest.raises(DataError, match="other classes or attributes"):
        make() + make(class_names=["cat", "cow"])
    with pytest.raises(DataError, match="other keypoints"):
        make() + make(keypoint_names=["head", "leg"])


def test_with_labels_keeps_the_rest():
    ds = make()
    swapped = ds.with_labels(ds.attributes, ds.attribute_names)
    assert swapped.class_names == ["forest", "sea"]
    assert swapped.labels.tolist() == ds.attributes.tolist()
    assert torch.equal(swapped[3].image, ds[3].image)


def test_partly_known_masks(tmp_path):
    Image.fromarray(np.full((4, 6), 255, np.uint8)).save(tmp_path / "m.png")
    ds = make(2, masks=FileImages([tmp_path / "m.png", None], masks=True))
    assert ds[0].mask.min() == 1
    assert ds[1].mask is None
    assert ds.subset([1])[0].mask is None


# -- fingerprint ----------------------------------------------------------------------------


def test_fingerprint_follows_content_labels_and_attributes():
    base = make()
    assert base.fingerprint == make().fingerprint
    assert base.fingerprint == base.subset(range(8)).fingerprint
    labels, attributes = base.labels.copy(), base.attributes.copy()
    labels[0], attributes[0] = 1, 1
    others = [
        make(seed=1), make(labels=labels), make(attributes=attributes), make(class_names=["cat", "cow"]),
        make(attributes=None, attribute_names=None), base.subset(range(7)), base.subset([1, 0, *range(2, 8)]),
    ]  # fmt: skip
    prints = {base.fingerprint, *(o.fingerprint for o in others)}
    assert len(prints) == 1 + len(others)


def test_fingerprint_follows_the_file(tmp_path):
    path = tmp_path / "a.png"

    def print_now():
        return GroupedDataset(FileImages([path]), [0], ["cat"]).fingerprint

    missing = print_now()
    Image.new("RGB", (3, 3)).save(path)
    black = print_now()
    Image.new("RGB", (3, 3), (1, 1, 1)).save(path)
    assert len({missing, black, print_now()}) == 3


def test_readable_names_the_bad_and_goes_on(tmp_path):
    Image.new("RGB", (3, 3)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no")
    ds = GroupedDataset(FileImages([tmp_path / f"{n}.png" for n in "aba"]), [0, 0, 0], ["cat"])
    good, bad = ds.readable()
    assert good.tolist() == [0, 2]
    assert [e.where for e in bad] == [str(tmp_path / "b.png")]
    with pytest.raises(UnreadableImage):
        ds[1]


# -- benchmarks -----------------------------------------------------------------------------


def test_a_missing_split_says_what_to_do():
    benchmark = Benchmark("toy", {"train": make()})
    assert "train" in benchmark
    assert benchmark.get("val") is None
    with pytest.raises(DataError, match=r"toy has no 'val' split \(it has: train\).*with_val.*--val-share F"):
        benchmark.val  # noqa: B018
    with pytest.raises(DataError, match=r"with_target.*--target-size N"):
        benchmark.target  # noqa: B018
    with pytest.raises(DataError, match="unknown split 'valid'"):
        benchmark["valid"]


@given(st.integers(20, 60), st.floats(0.2, 0.8), st.integers(0, 5))  # groups of 5 give and keep at least one
def test_with_val_takes_its_share_of_every_group(n, fraction, seed):
    whole = make(n)
    split = Benchmark("toy", {"train": whole}).with_val(fraction, seed)
    ids = np.concatenate([split.train.extras["id"], split.val.extras["id"]])
    assert sorted(ids) == sorted(whole.extras["id"])
    np.testing.assert_array_equal(split.val.group_counts, [round(fraction * int(c)) for c in whole.group_counts])
    again = Benchmark("toy", {"train": whole}).with_val(fraction, seed)
    assert again.val.extras["id"].tolist() == split.val.extras["id"].tolist()


@pytest.mark.parametrize("fraction", [0, 1, 1.5, -0.1])
def test_with_val_refuses_a_fraction_that_leaves_nothing(fraction):
    with pytest.raises(DataError, match="between 0 and 1"):
        Benchmark("toy", {"train": make()}).with_val(fraction)


@pytest.mark.parametrize(("fraction", "sentence"), [(0.01, "8 of 8 .* 0 for val"), (0.99, "0 of 8 .* 8 for val")])
def test_with_val_refuses_a_share_that_rounds_to_all_or_nothing(fraction, sentence):
    with pytest.raises(DataError, match=sentence):
        Benchmark("toy", {"train": make()}).with_val(fraction)


def test_with_target_is_balanced_and_leaves_the_rest():
    val = make(40, labels=[0] * 28 + [1] * 12, attributes=[0] * 20 + [1] * 8 + [0] * 6 + [1] * 6)
    split = Benchmark("toy", {"val": val}).with_target(12)
    assert split.target.group_counts.tolist() == [3, 3, 3, 3]
    assert split.val.group_counts.tolist() == [17, 5, 3, 3]
    assert not set(split.target.extras["id"]) & set(split.val.extras["id"])
    with pytest.raises(DataError, match="smallest group in val has 6"):
        Benchmark("toy", {"val": val}).with_target(24)
