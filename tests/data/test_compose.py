from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from foveate.data.compose import compose
from foveate.data.composite import Placement, paste, paste_mask, tight_box
from foveate.data.tables import from_csv
from foveate.errors import DataError, StorageError

OBJECT = {"cat": (220, 30, 30), "dog": (30, 30, 220)}
SCENE = {"forest": (20, 120, 20), "sea": (20, 160, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Discs and bars on white, and plain scenes with a little texture; 20 objects and 12 scenes of a kind."""
    base = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:40, :50]
    rows = []
    for kind, colour in OBJECT.items():
        for i in range(20):
            on = (xx - 25) ** 2 + (yy - 20) ** 2 < (8 + i % 8) ** 2 if kind == "cat" else abs(yy - 20) < 4 + i % 6
            on = on & (abs(xx - 25) < 20)
            photo = np.where(on[..., None], np.array(colour), 255).astype(np.uint8)
            photo[0, 0] = rng.integers(0, 256, 3)  # no two files alike
            Image.fromarray(photo).save(base / f"{kind}{i}.png")
            band = (np.roll(on, 1, 0) | np.roll(on, -1, 0)) & ~on
            Image.fromarray(np.where(on, 255, np.where(band, 128, 0)).astype(np.uint8)).save(base / f"{kind}{i}_m.png")
            rows.append({"id": f"{kind}{i}", "species": kind, "split": "test" if i >= 14 else "train"})
    pd.DataFrame(rows).to_csv(base / "fg.csv", index=False)
    rows = []
    for kind, colour in SCENE.items():
        for i in range(12):
            scene = np.clip(np.array(colour) + rng.integers(-9, 10, (30, 44, 1)), 0, 255).astype(np.uint8)
            Image.fromarray(scene).save(base / f"{kind}{i}.png")
            rows.append({"id": f"{kind}{i}", "scene": kind, "split": "test" if i >= 8 else "train"})
    pd.DataFrame(rows).to_csv(base / "bg.csv", index=False)
    return base


COLUMNS = {
    "fg_path": "{id}.png", "fg_mask": "{id}_m.png", "fg_label": "species", "bg_path": "{id}.png", "bg_label": "scene",
}  # fmt: skip


def make(folder: Path, out: Path | None = None, **options):
    options = {"size": 48, "fractions": {"target": 0.15, "val": 0.15}, "strength": 0.8} | COLUMNS | options
    return compose(folder / "fg.csv", folder / "bg.csv", out, **options)


def test_counts_are_exact(folder):
    bench = make(folder)
    # 14 training objects of a kind; 2 each for target and val; 10 left: 8 on the paired scene, 2 on the other
    assert bench.train.group_counts.tolist() == [8, 2, 2, 8]
    assert bench.target.group_counts.tolist() == [1, 1, 1, 1]
    assert bench.val.group_counts.tolist() == [1, 1, 1, 1]
    assert bench.test.group_counts.tolist() == [3, 3, 3, 3]
    assert bench.train.class_names == ["cat", "dog"]
    assert bench.train.attribute_names == ["forest", "sea"]


def test_splits_share_no_foreground_and_no_background(folder):
    bench = make(folder)
    for column in ("foreground", "background"):
        seen: set[str] = set()
        for ds in bench.splits.values():
            names = set(ds.extras[column].tolist())
            assert not names & seen
            seen |= names
    tests = {f"{k}{i}.png" for k in OBJECT for i in range(14, 20)}
    assert set(bench.test.extras["foreground"].tolist()) == tests
    for ds in bench.splits.values():
        assert len(set(ds.extras["foreground"].tolist())) == len(ds)


def test_the_picture_shows_what_the_labels_say(folder):
    for ds in make(folder, soft_edge=0).splits.values():
        for i in range(len(ds)):
            image, mask = ds.images.read(i), ds.masks.read(i)
            assert image.shape == (48, 48, 3)
            colour = OBJECT[ds.class_names[ds.labels[i]]]
            inside = image[mask > 0].astype(int)
            assert np.median(np.abs(inside - colour).max(axis=1)) <= 3
            scene = SCENE[ds.attribute_names[ds.attributes[i]]]
            outside = image[mask == 0].astype(int)
            assert np.median(np.abs(outside - scene).max(axis=1)) <= 12
            assert tuple(ds.boxes[i].astype(int)) == tight_box(mask > 0)


@pytest.mark.parametrize("feather", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("scale", [0.3, 0.97])
def test_nothing_around_the_object_comes_along(feather, scale):
    """What the photograph shows outside the mask cannot change the composite: no halo."""
    yy, xx = np.mgrid[:60, :60]
    mask = (xx - 30) ** 2 + (yy - 28) ** 2 < 400
    scene = np.full((50, 50, 3), (20, 160, 200), np.uint8)
    pictures = []
    for around in ((255, 255, 255), (0, 0, 0)):
        photo = np.where(mask[..., None], np.array((220, 30, 30)), np.array(around)).astype(np.uint8)
        pictures.append(paste(photo, mask, scene, Placement(scale, 0.4, 0.7), 64, feather)[0])
    assert np.array_equal(pictures[0], pictures[1])
    # every pixel is a mixture of object and scene: on the line between the two colours
    share = (pictures[0][..., 0].astype(float) - 20) / 200
    expected = share[..., None] * np.array((220, 30, 30)) + (1 - share[..., None]) * np.array((20, 160, 200))
    assert np.abs(pictures[0] - expected).max() < 4


def test_a_lower_threshold_lets_the_rim_in(folder):
    strict, loose = make(folder, flip=False), make(folder, flip=False, mask_threshold=128)
    cats = np.flatnonzero(strict.train.attributes == 0)
    whitest = [max(int(b.train.images.read(i).min(axis=2).max()) for i in cats) for b in (strict, loose)]
    assert whitest[0] < 60 < 150 < whitest[1]


def test_seed_decides(folder):
    one, same, other = make(folder, seed=1), make(folder, seed=1), make(folder, seed=2)
    assert all(np.array_equal(one.train.images.read(i), same.train.images.read(i)) for i in range(len(one.train)))
    assert one.train.fingerprint == same.train.fingerprint != other.train.fingerprint


def test_written_equals_lazy_and_reads_back_as_csv(folder, tmp_path):
    lazy, written = make(folder), make(folder, tmp_path / "out")
    again = from_csv(tmp_path / "out" / "benchmark.csv")
    for split, ds in lazy.splits.items():
        for other in (written[split], again[split]):
            assert np.array_equal(ds.labels, other.labels)
            assert np.array_equal(ds.attributes, other.attributes)
            assert np.array_equal(ds.boxes, other.boxes)
            assert other.class_names == ds.class_names
            assert other.attribute_names == ds.attribute_names
            for i in range(len(ds)):
                assert np.array_equal(ds.images.read(i), other.images.read(i))
                assert np.array_equal(ds.masks.read(i), other.masks.read(i))


def test_jpeg_stays_close(folder, tmp_path):
    bench = make(folder, tmp_path / "out", image_format="jpg")
    exact = make(folder)
    difference = bench.train.images.read(0).astype(int) - exact.train.images.read(0)
    assert np.abs(difference).mean() < 4
    assert np.array_equal(bench.train.masks.read(0), exact.train.masks.read(0))


def test_strength_counts_pairing_and_reuse(folder):
    bench = make(
        folder,
        strength={"train": 0.9, "test": 0.5},
        pairing={"cat": "sea", "dog": "forest"},
        counts={"train": 80, "val": 10, "target": {"cat/forest": 1, "cat/sea": 2, "dog/sea": 3}},
        reuse=True,
    )
    assert bench.train.group_counts.tolist() == [4, 36, 36, 4]
    assert bench.val.group_counts.tolist() == [2, 2, 2, 2]  # 10 rounded down to equal groups
    assert bench.target.group_counts.tolist() == [1, 2, 0, 3]
    assert bench.test.group_counts.tolist() == [3, 3, 3, 3]
    times = pd.Series(bench.train.extras["foreground"]).value_counts()
    assert times.max() - times.min() == 0  # 40 of a class from 10 objects: each four times


def test_without_reuse_too_many_is_an_error(folder):
    with pytest.raises(DataError, match=r"foregrounds in train .* reuse"):
        make(folder, counts={"train": 80})


def test_tables_without_splits_are_divided(folder):
    fore = pd.read_csv(folder / "fg.csv").drop(columns="split")
    back = pd.read_csv(folder / "bg.csv").drop(columns="split")
    bench = compose(fore, back, size=32, root=folder, fractions={"target": 0.1, "val": 0.1, "test": 0.3}, **COLUMNS)
    assert {s: len(d) for s, d in bench.splits.items()} == {"train": 20, "target": 4, "val": 4, "test": 12}
    names = [n for d in bench.splits.values() for n in d.extras["foreground"].tolist()]
    assert len(set(names)) == 40


def test_fraction_zero_leaves_the_split_out(folder):
    bench = make(folder, fractions={"target": 0, "val": 0.15})
    assert "target" not in bench
    assert "val" in bench


@pytest.mark.parametrize("position", ["random", 0.5, "centre"])
def test_objects_are_wholly_inside_and_biased_as_asked(folder, position):
    ds = make(folder, position=position, scale=(0.5, 0.5), soft_edge=0).train
    spread = []
    for i in range(len(ds)):
        x0, y0, x1, y1 = ds.boxes[i]
        assert 0 <= x0 < x1 <= 48
        assert 0 <= y0 < y1 <= 48
        assert max(x1 - x0, y1 - y0) == pytest.approx(24, abs=1)
        spread.append(max(abs((x0 + x1) / 2 - 24), abs((y0 + y1) / 2 - 24)))
    limit = {"random": 24, 0.5: 12, "centre": 1.01}[position]
    assert max(spread) <= limit
    if position != "centre":
        assert max(spread) > limit / 4


def test_bad_pictures_are_named_and_left_out_or_fatal(folder, tmp_path):
    fore = pd.read_csv(folder / "fg.csv")
    empty, cut, small = tmp_path / "empty.png", tmp_path / "cut.png", tmp_path / "small.png"
    Image.fromarray(np.zeros((40, 50), np.uint8)).save(empty)
    Image.fromarray(np.full((10, 10), 255, np.uint8)).save(small)
    cut.write_bytes((folder / "cat0.png").read_bytes()[:60])
    fore["photo"] = [str(folder / f"{i}.png") for i in fore["id"]]
    fore["shape"] = [str(folder / f"{i}_m.png") for i in fore["id"]]
    fore.loc[0, "photo"], fore.loc[1, "shape"], fore.loc[2, "shape"] = str(cut), str(empty), str(small)
    fore.loc[3, "photo"] = str(tmp_path / "gone.png")
    options = COLUMNS | {"fg_path": "{photo}", "fg_mask": "{shape}", "size": 32, "root": folder}
    options["fractions"] = {"target": 0.2, "val": 0.2}
    with pytest.warns(UserWarning, match="left out 4 pictures"):
        bench = compose(fore, folder / "bg.csv", **options)
    said = " ".join(bench.notes["bad"])
    for part in ("cut.png", "empty.png: no pixel", "10x10, its photograph 50x40", "gone.png: there is no such file"):
        assert part in said
    used = {n for d in bench.splits.values() for n in d.extras["foreground"].tolist()}
    assert not used & {"cut.png", "cat1.png", "cat2.png", "gone.png"}
    with pytest.raises(DataError, match="4 pictures cannot be used"):
        compose(fore, folder / "bg.csv", on_bad="raise", **options)
    with pytest.raises(DataError, match="on_bad is 'raise' or 'skip', found 'stop'"):
        compose(fore, folder / "bg.csv", on_bad="stop", **options)


def test_writing_is_whole_or_not_at_all(folder, tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["foveate.data.compose"], "write_rows", full)
    with pytest.raises(StorageError, match="is full"):
        make(folder, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_other_peoples_folders_are_safe(folder, tmp_path):
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not empty"):
        make(folder, precious, overwrite=True)
    assert (precious / "thesis.txt").read_text() == "mine"
    make(folder, tmp_path / "out")
    with pytest.raises(DataError, match="Pass overwrite"):
        make(folder, tmp_path / "out")
    assert make(folder, tmp_path / "out", overwrite=True).train[0].image.shape == (3, 48, 48)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fg_label": "specis"}, "no column 'specis'. Did you mean 'species'"),
        ({"bg_path": "{nom}.png"}, "backgrounds: no column 'nom'"),
        ({"fg_path": "{id"}, "not a path template"),
        ({"scale": (0.9, 0.2)}, "scale is"),
        ({"position": "left"}, "centre bias from 0 to 1"),
        ({"pairing": {"cat": "see", "dog": "sea"}}, "unknown scene 'see'"),
        ({"pairing": {"cat": "sea"}}, "no scene for 'dog'"),
        ({"counts": {"tset": 4}}, "counts: unknown split 'tset'"),
        ({"counts": {"test": {"cat/see": 4}}}, "unknown group 'cat/see'"),
        ({"fractions": {"target": 0.15, "val": 0.01}}, "val cannot be balanced"),
        ({"strength": 2.0}, "from 0 to 1"),
        ({"mask_threshold": 0}, "mask_threshold"),
        ({"image_format": "gif"}, "image_format"),
    ],
)
def test_what_bad_settings_get(folder, options, says):
    with pytest.raises(DataError) as caught:
        make(folder, **options)
    assert says in str(caught.value)


def test_a_missing_table(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        compose(tmp_path / "no.csv", tmp_path / "no.csv")


@given(
    scale=st.floats(0.1, 1),
    x=st.floats(0, 1),
    y=st.floats(0, 1),
    flip=st.booleans(),
    feather=st.sampled_from([0, 0.7, 1.5]),
)
@settings(max_examples=40, deadline=None)
def test_mask_alone_equals_the_mask_of_the_picture(scale, x, y, flip, feather):
    rng = np.random.default_rng(0)
    mask = np.zeros((30, 21), bool)
    mask[3:25, 4:12] = True
    mask[10:14, 12:20] = True
    photo = rng.integers(0, 256, (30, 21, 3), dtype=np.uint8)
    where = Placement(scale, x, y, flip)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image, full = paste(photo, mask, np.zeros((20, 33, 3), np.uint8), where, 40, feather)
    assert np.array_equal(full, paste_mask(mask, where, 40, feather))
    assert full.any()
    far = paste(photo, mask, np.full((20, 33, 3), 255, np.uint8), where, 40, feather)[0]
    changed = np.abs(image.astype(int) - far).max(axis=2) < 255  # where the object has any say
    assert changed[full > 0].all()


def test_placement_by_hand():
    """A 2 x 4 block at scale 0.5 of 8 pixels is 2 x 4 again; x = 1 and y = 0 put it top right."""
    photo = np.zeros((6, 6, 3), np.uint8)
    photo[1:3, 1:5] = [10, 20, 30]
    photo[1:3, 1] = [200, 0, 0]  # its left end
    mask = np.zeros((6, 6), bool)
    mask[1:3, 1:5] = True
    scene = np.full((8, 8, 3), 100, np.uint8)
    image, out = paste(photo, mask, scene, Placement(0.5, 1.0, 0.0), 8, feather=0)
    assert tight_box(out > 0) == (4, 0, 8, 2)
    assert image[0, 4].tolist() == [200, 0, 0]
    assert image[1, 7].tolist() == [10, 20, 30]
    assert (image[2:] == 100).all()
    mirrored, _ = paste(photo, mask, scene, Placement(0.5, 1.0, 0.0, flip=True), 8, feather=0)
    assert mirrored[0, 7].tolist() == [200, 0, 0]
