"""Datasets of the Hugging Face library, made in memory; skipped when the library is not installed."""

import ast
import importlib.util
import inspect
import io

import numpy as np
import pytest
from PIL import Image

from foveate.data import huggingface
from foveate.data.check import check
from foveate.data.huggingface import from_huggingface
from foveate.errors import DataError, MissingExtra, UnreadableImage

needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the extra 'hf' (datasets) is not installed"
)


def pictures(n, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 5, 7, 3), dtype=np.uint8)
    return pixels, [Image.fromarray(p) for p in pixels]


def make(n=6, seed=0, **columns):
    import datasets

    _, images = pictures(n, seed)
    table = {"image": images, "label": [k % 2 for k in range(n)], "place": ["sea", "forest", "sea"] * (n // 3)}
    ds = datasets.Dataset.from_dict(table | columns)
    ds = ds.cast_column("image", datasets.Image())
    if "label" not in columns:
        ds = ds.cast_column("label", datasets.ClassLabel(names=["dog", "cat"]))
    return ds


@needs_datasets
def test_a_dict_of_splits():
    import datasets

    both = datasets.DatasetDict({"train": make(), "validation": make(seed=1)})
    benchmark = from_huggingface(both, attribute="place", name="pets", extras=["place"])
    assert list(benchmark.splits) == ["train", "val"]
    train = benchmark.train
    assert train.class_names == ["dog", "cat"]  # as the ClassLabel has them, not sorted
    assert train.attribute_names == ["forest", "sea"]
    assert train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert train.attributes.tolist() == [1, 0, 1, 1, 0, 1]
    assert train.extras["place"].tolist() == ["sea", "forest", "sea"] * 2
    for split, seed in (("train", 0), ("val", 1)):
        pixels, _ = pictures(6, seed)
        for k in range(6):
            np.testing.assert_array_equal(benchmark[split].images.read(k), pixels[k])
    assert train.where(3) == "pets/train[3]"
    assert tuple(train[0].image.shape) == (3, 5, 7)


@needs_datasets
def test_decoding_waits_until_asked(monkeypatch):
    monkeypatch.setattr(huggingface, "decode_bytes", lambda *a: pytest.fail("decoded while loading"))
    assert len(from_huggingface(make()).train) == 6


@needs_datasets
def test_a_single_dataset_other_columns_and_formats():
    import datasets

    pixels, images = pictures(4)
    ds = datasets.Dataset.from_dict({"img": images, "kind": [10, 9, 10, 2], "old": [True, False, True, True]})
    ds = ds.cast_column("img", datasets.Image())
    benchmark = from_huggingface(ds.with_format("torch"), "img", "kind", "old", split="test")
    assert benchmark.test.class_names == ["2", "9", "10"]
    assert benchmark.test.labels.tolist() == [2, 1, 2, 0]
    assert benchmark.test.attribute_names == ["False", "True"]
    np.testing.assert_array_equal(benchmark.test.images.read(3), pixels[3])


@needs_datasets
def test_arrays_and_exif_rotation():
    import datasets

    pixels, _ = pictures(2)
    ds = datasets.Dataset.from_dict({"image": [p.tolist() for p in pixels], "label": [0, 1]})
    np.testing.assert_array_equal(from_huggingface(ds).train.images.read(1), pixels[1])
    exif = Image.Exif()
    exif[0x0112] = 3
    buffer = io.BytesIO()
    Image.fromarray(pixels[0]).save(buffer, "png", exif=exif)
    turned = make(1, image=[{"bytes": buffer.getvalue(), "path": None}], label=[0], place=["sea"])
    np.testing.assert_array_equal(from_huggingface(turned).train.images.read(0), pixels[0][::-1, ::-1])


@needs_datasets
def test_bad_images_are_named_and_do_not_stop_a_check():
    good = io.BytesIO()
    Image.fromarray(pictures(1)[0][0]).save(good, "png")
    cells = [
        {"bytes": good.getvalue(), "path": None},
        {"bytes": b"no picture", "path": None},
        {"bytes": None, "path": "not-there.png"},
        None,
    ]
    ds = from_huggingface(make(4, image=cells, label=[0, 1, 0, 1], place=["x"] * 4), name="pets").train
    for k, reason in ((1, "not an image"), (2, "no such file"), (3, "the cell is empty")):
        with pytest.raises(UnreadableImage, match=reason) as caught:
            ds.images.read(k)
        assert caught.value.where == f"pets/train[{k}]"
        assert len(ds.images.digest(k)) == 16
    assert check(ds, tiny=1).counts["kinds"] == {"unreadable-image": 2, "missing-file": 1}
    assert len(ds.fingerprint) == 32


@needs_datasets
def test_fingerprint_follows_the_images():
    a, b, c = (from_huggingface(make(seed=s)).train.fingerprint for s in (0, 0, 1))
    assert a == b != c


@needs_datasets
def test_chosen_splits():
    import datasets

    ds = datasets.DatasetDict({"small": make(), "large": make(), "unlabelled": make(label=[-1] * 6)})
    with pytest.raises(DataError, match=r"unknown split 'small' \(the dataset has: small, large, unlabelled\)"):
        from_huggingface(ds)
    benchmark = from_huggingface(ds, splits={"small": "val", "large": "train"})
    assert list(benchmark.splits) == ["train", "val"]
    with pytest.raises(DataError, match="two splits are 'train'"):
        from_huggingface(ds, splits={"small": "train", "large": "train"})
    with pytest.raises(DataError, match="no split 'middle'"):
        from_huggingface(ds, splits={"middle": "train"})


@needs_datasets
def test_what_is_wrong_is_said():
    import datasets

    with pytest.raises(DataError, match=r"no column 'label'.*image, lable, place.*Did you mean 'lable'"):
        from_huggingface(make().rename_column("label", "lable"))
    unlabelled = make(label=[0, 1, -1, -1, 0, 1]).cast_column("label", datasets.ClassLabel(names=["a", "b"]))
    with pytest.raises(DataError, match="2 of 6 rows of 'train' have no label"):
        from_huggingface(unlabelled)
    with pytest.raises(DataError, match="1 of 6 rows of 'train' have no attribute"):
        from_huggingface(make(place=["x", None, "x", "x", "x", "x"]), attribute="place")
    with pytest.raises(DataError, match="label '7' has 6 images in 'test' but never occurs in 'train'"):
        from_huggingface(datasets.DatasetDict({"train": make(label=[0, 1] * 3), "test": make(label=[7] * 6)}))
    other = make().cast_column("label", datasets.ClassLabel(names=["x", "y"]))
    with pytest.raises(DataError, match="other names for 'label'"):
        from_huggingface(datasets.DatasetDict({"train": make(), "test": other}))
    with pytest.raises(DataError, match="streaming=False"):
        from_huggingface(make().to_iterable_dataset())
    with pytest.raises(DataError, match="found the name 'someone/birds'"):
        from_huggingface("someone/birds")
    with pytest.raises(DataError, match=r"expected a datasets\.Dataset or DatasetDict.*found builtins\.list"):
        from_huggingface([1, 2])


def test_a_name_without_the_library_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'foveate\[hf\]'"):
        from_huggingface("someone/birds")


def test_the_library_is_not_imported_with_ours():
    tree = ast.walk(ast.parse(inspect.getsource(huggingface)))
    imported = {a.name for node in tree if isinstance(node, ast.Import) for a in node.names}
    assert imported == {"hashlib", "importlib.util", "numpy"}
