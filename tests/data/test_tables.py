"""The user's own CSV files and folders, and a benchmark written out and read back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from foveate.data import images
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.scan import ordered_names
from foveate.data.tables import from_csv, from_folder, from_path, write_csv
from foveate.errors import DataError, StorageError, UnreadableImage


def picture(path, shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4), (shade, 0, 0)).save(path)


@pytest.fixture
def table(tmp_path):
    """A function that writes a CSV text beside three images a.png, b.png, c.png."""
    for shade, name in enumerate("abc"):
        picture(tmp_path / f"{name}.png", shade)

    def write(text, encoding="utf-8"):
        path = tmp_path / "mine.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def fails(path, **options):
    with pytest.raises(DataError) as caught:
        from_csv(path, **options)
    return str(caught.value)


# -- a good CSV -----------------------------------------------------------------------------


def test_all_columns(table, tmp_path):
    Image.fromarray(np.full((4, 6), 255, np.uint8)).save(tmp_path / "m.png")
    benchmark = from_csv(
        table(
            "path,label,attribute,split,mask,x0,y0,x1,y1,kp_head_x,kp_head_y,kp_head_v,breed,age\n"
            "a.png,dog,sea,train,m.png,1,0,5.5,4,2,1,1,pug,3\n"
            "b.png,cat,forest,train,,,,,,,,,tabby,4\n"
            "c.png,cat,sea,test,,0,0,1,1,3,2,0,manx,5\n"
        )
    )
    assert benchmark.name == "mine"
    assert list(benchmark.splits) == ["train", "test"]
    train, test = benchmark.train, benchmark.test
    assert train.class_names == test.class_names == ["cat", "dog"]
    assert train.attribute_names == test.attribute_names == ["forest", "sea"]
    assert train.labels.tolist() == [1, 0]
    assert train.groups.tolist() == [3, 0]
    assert test.groups.tolist() == [1]
    assert [int(s.image[0, 0, 0]) for s in (train[0], train[1], test[0])] == [0, 1, 2]
    assert train[0].mask.min() == 1
    assert train[1].mask is None
    assert test.masks is None
    assert train.boxes[0].tolist() == [1, 0, 5.5, 4]
    assert np.isnan(train.boxes[1]).all()
    assert train.keypoint_names == ["head"]
    assert train.keypoints.tolist() == [[[2, 1, 1]], [[0, 0, 0]]]
    assert test.keypoints.tolist() == [[[3, 2, 0]]]
    assert train.extras["breed"].tolist() == ["pug", "tabby"]
    assert train.extras["age"].tolist() == [3, 4]
    assert set(train.extras) == {"breed", "age"}


def test_nothing_is_decoded(table, monkeypatch):
    monkeypatch.setattr(images, "_open", lambda path: pytest.fail("decoded while loading"))
    assert len(from_csv(table("path,label\na.png,x\nb.png,y\n")).train) == 2


def test_without_split_all_is_train_with_a_hint(table):
    path = table("path,label\na.png,x\nb.png,y\n")
    benchmark = from_csv(path)
    assert list(benchmark.splits) == ["train"]
    assert "all 2 images are 'train'" in benchmark.notes["hint"]
    assert list(from_csv(path, split="test").splits) == ["test"]


def test_numeric_labels_sort_as_numbers(table):
    rows = "".join(f"a.png,{k}\n" for k in (10, 9, 2, 10))
    assert from_csv(table("path,label\n" + rows)).train.class_names == ["2", "9", "10"]


@given(st.lists(st.integers(-50, 50), min_size=1))
def test_ordered_names_of_numbers(values):
    assert [int(n) for n in ordered_names(str(v) for v in values)] == sorted(set(values))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_delimiters_and_encodings(table, delimiter, encoding):
    text = "path,label,attribute\r\na.png,Kätzchen,Süßwasser\r\n\r\nb.png,Hund,Wald\r\n"
    ds = from_csv(table(text.replace(",", delimiter), encoding)).train
    assert ds.class_names == ["Hund", "Kätzchen"]
    assert len(ds) == 2


def test_quotes_spaces_and_trailing_delimiters(table):
    ds = from_csv(table('path, label,\n"a.png", "cat, small",\n b.png ,dog,\n')).train
    assert ds.class_names == ["cat, small", "dog"]
    assert ds[0].image.shape == (3, 4, 6)


def test_words_such_as_na_are_labels(table):
    assert from_csv(table("path,label\na.png,NA\nb.png,null\n")).train.class_names == ["NA", "null"]


def test_other_spellings_of_splits(table):
    rows = ["Train", "validation", "TESTING", "0", "1", "2", "target", "valid", "dev"]
    text = "path,label,split\n" + "".join(f"a.png,x,{s}\n" for s in rows)
    sizes = {k: len(v) for k, v in from_csv(table(text)).splits.items()}
    assert sizes == {"train": 2, "target": 1, "val": 4, "test": 2}


def test_root_and_renamed_columns(table, tmp_path):
    picture(tmp_path / "deep" / "z.png", 9)
    path = table("img_filename,y,place\nz.png,0,1\n")
    columns = {"path": "img_filename", "label": "y", "attribute": "place"}
    ds = from_csv(path, root=tmp_path / "deep", name="birds", columns=columns).train
    assert ds[0].image.max() == 9
    assert ds.attribute_names == ["1"]
    assert ds.name == "birds/train"
    absolute = table(f"path,label\n{tmp_path / 'deep' / 'z.png'},0\n")
    assert from_csv(absolute).train[0].image.max() == 9


# -- a bad CSV ------------------------------------------------------------------------------


def test_no_file_no_folder_not_text(table, tmp_path):
    assert "there is no file" in fails(tmp_path / "none.csv")
    assert "Use from_folder" in fails(tmp_path)
    assert "there is no folder" in fails(table("path,label\na.png,x\n"), root=tmp_path / "none")
    assert "this is not a UTF-8 text file" in fails(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["the file is empty"]),
        ("path,label\n", ["no rows", "path, label"]),
        ("image_path,label\na.png,x\n", ["no column 'path'", "image_path, label", "Did you mean 'image_path'?"]),
        ("Path,label\na.png,x\n", ["no column 'path'", "Did you mean 'Path'?"]),
        ("pth,label\na.png,x\n", ["no column 'path'", "Did you mean 'pth'?"]),
        ("path,species\na.png,x\n", ["no column 'label'", "Did you mean 'species'?"]),
        ("path,zzz\na.png,x\n", ["no column 'label'", "path, zzz"]),
        ("path,label\na.png,x\n,x\nb.png,\n,y\n", ["2 rows without path: line 3, 5", "1 more"]),
        ("path,label\na.png,x\nb.png,\n", ["1 row without label: line 3"]),
        ("path,label,attribute\na.png,x,sea\n\nb.png,x,\n", ["1 row without attribute: line 4"]),
        ("path,label,split\na.png,x,train\nb.png,x,tset\n", ["unknown split 'tset'", "line 3", "'test'?"]),
        ("path,label,split\na.png,x,train\nb.png,x,\n", ["1 row without split: line 3"]),
        ("path,label\na.png,x\nb.png,x,y\n", ["line 3 has 3 cells", "2 columns"]),
        ("path,label,label\na.png,x,y\n", ["column 'label' occurs more than once"]),
        ("path,label,x0,y0\na.png,x,1,1\n", ["no column x1, y1"]),
        ("path,label,x0,y0,x1,y1\na.png,x,1,1,two,2\n", ["'x1' holds something that is not a number: line 2"]),
        ("path,label,x0,y0,x1,y1\na.png,x,1,1,,2\n", ["all of x0, y0, x1, y1 (or none): line 2"]),
        ("path,label\nq.png,x\nr.png,y\n", ["none of 2 files", "q.png", "root"]),
    ],
)
def test_bad_tables_say_what_is_wrong(table, text, words):
    message = fails(table(text))
    for word in words:
        assert word in message


def test_a_label_that_never_occurs_in_train(table):
    message = fails(table("path,label,split\na.png,cat,train\nb.png,dog,test\nc.png,dog,test\nc.png,cat,val\n"))
    assert "label 'dog' has 2 images in 'test' but never occurs in 'train'" in message
    # without any train split there is nothing to compare with
    assert len(from_csv(table("path,label,split\na.png,cat,test\nb.png,dog,val\n")).test) == 1


def test_a_renamed_column_that_is_not_there(table):
    assert "no column 'file'" in fails(table("path,label\na.png,x\n"), columns={"path": "file"})


def test_missing_files_as_the_user_chooses(table, tmp_path):
    path = table("path,label,mask\na.png,x,\nnone.png,y,\nb.png,y,none-mask.png\n")
    kept = from_csv(path).train
    assert len(kept) == 3
    with pytest.raises(UnreadableImage, match=r"none\.png"):
        kept[1]
    skipped = from_csv(path, on_missing_files="skip")
    assert [s.label for s in skipped.train] == [0]
    assert skipped.notes["missing_files"]["count"] == 2
    assert skipped.notes["missing_files"]["first"][0] == str(tmp_path / "none.png")
    assert "2 of 3 images" in fails(path, on_missing_files="error")
    assert "must be 'keep', 'skip' or 'error'" in fails(path, on_missing_files="ignore")


# -- folders --------------------------------------------------------------------------------


def test_class_folders(tmp_path):
    for path in ("dog/2.PNG", "cat/1.png", "dog/1.jpg"):
        picture(tmp_path / path)
    ds = from_folder(tmp_path).train
    assert ds.class_names == ["cat", "dog"]
    assert ds.labels.tolist() == [0, 1, 1]
    assert ds.attributes is None
    assert ds.name == f"{tmp_path.name}/train"


def test_attribute_folders(tmp_path):
    for path in ("cat/sea/1.png", "cat/forest/1.png", "dog/sea/1.png"):
        picture(tmp_path / path)
    ds = from_folder(tmp_path, name="pets").train
    assert [ds.group_names[g] for g in ds.groups] == ["cat/forest", "cat/sea", "dog/sea"]


def test_split_folders(tmp_path):
    for path in ("train/cat/1.png", "train/dog/1.png", "Validation/dog/1.png", "target/cat/1.png"):
        picture(tmp_path / path)
    benchmark = from_folder(tmp_path)
    assert {k: v.labels.tolist() for k, v in benchmark.splits.items()} == {"train": [0, 1], "target": [0], "val": [1]}
    assert "hint" not in benchmark.notes


def test_split_and_attribute_folders(tmp_path):
    for path in ("train/cat/sea/1.png", "train/dog/forest/1.png", "test/cat/forest/1.png"):
        picture(tmp_path / path)
    benchmark = from_folder(tmp_path)
    assert benchmark.train.group_counts.tolist() == [0, 1, 1, 0]
    assert benchmark.test.group_counts.tolist() == [1, 0, 0, 0]


def test_digits_and_a_class_called_target_are_classes(tmp_path):
    for path in ("0/1.png", "1/1.png", "2/1.png", "10/1.png", "target/1.png"):
        picture(tmp_path / path)
    assert set(from_folder(tmp_path).train.class_names) == {"0", "1", "2", "10", "target"}


def test_hidden_and_other_files(tmp_path):
    for path in ("cat/1.png", "dog/1.png", "cat/.hidden.png", ".git/x.png", "__MACOSX/cat/1.png"):
        picture(tmp_path / path)
    (tmp_path / "cat" / "Thumbs.db").write_text("x")
    (tmp_path / "README.md").write_text("x")
    benchmark = from_folder(tmp_path)
    assert len(benchmark.train) == 2
    ignored = benchmark.notes["ignored_files"]
    assert ignored["count"] == 2
    assert set(ignored["first"]) == {str(tmp_path / "README.md"), str(tmp_path / "cat" / "Thumbs.db")}


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ([], "found no images"),
        (["1.png", "2.png"], "found 2 images outside class folders"),
        (["cat/1.png", "cat/sea/1.png"], "every image needs an attribute, or none"),
        (["cat/1.png", "dog/sea/1.png"], "every image needs an attribute, or none"),
        (["cat/sea/deep/1.png", "dog/sea/1.png"], "a level too deep"),
        (["train/cat/1.png", "tst/cat/1.png"], "unknown split folder 'tst'"),
        (["train/cat/1.png", "test/dog/1.png"], "label 'dog' has 1 image in 'test' but never occurs in 'train'"),
    ],
)
def test_bad_folders_say_what_is_wrong(tmp_path, paths, words):
    for path in paths:
        picture(tmp_path / path)
    with pytest.raises(DataError, match=words):
        from_folder(tmp_path)


def test_folder_not_there_or_a_file(tmp_path, table):
    with pytest.raises(DataError, match="there is no folder"):
        from_folder(tmp_path / "none")
    with pytest.raises(DataError, match="Use from_csv"):
        from_folder(table("path,label\n"))


def test_from_path_takes_either(tmp_path, table):
    assert len(from_path(table("path,label\na.png,x\n")).train) == 1
    picture(tmp_path / "pets" / "cat" / "1.png")
    assert len(from_path(tmp_path / "pets").train) == 1
    with pytest.raises(DataError, match="no file or folder"):
        from_path(tmp_path / "none")


# -- writing --------------------------------------------------------------------------------


def toy(n, seed, *, masks=True):
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0, 5, (n, 4)).astype(np.float32)
    boxes[0] = np.nan
    return GroupedDataset(
        ArrayImages(rng.integers(0, 256, (n, 5, 7, 3), dtype=np.uint8)),
        np.arange(n) % 2,
        ["cat, small", "dög"],
        attributes=rng.integers(0, 2, n),
        attribute_names=["0.0", "1.0"],
        masks=ArrayImages(rng.integers(0, 256, (n, 5, 7), dtype=np.uint8)) if masks else None,
        boxes=boxes,
        keypoints=rng.uniform(0, 5, (n, 2, 3)).astype(np.float32),
        keypoint_names=["head", "left_leg"],
        extras={"breed": np.array([f"b{i}" for i in range(n)]), "split": np.arange(n), "w": rng.uniform(size=n)},
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 6), st.integers(0, 1000))
def test_what_is_written_is_read_back(tmp_path_factory, n, seed):
    benchmark = Benchmark("toy", {"train": toy(n, seed), "test": toy(n, seed + 1, masks=False)})
    path = write_csv(benchmark, tmp_path_factory.mktemp("w") / "toy")
    back = from_path(path.parent)
    assert back.name == "toy"
    for split in ("train", "test"):
        a, b = benchmark[split], back[split]
        assert a.class_names == b.class_names
        np.testing.assert_array_equal(a.labels, b.labels)
        np.testing.assert_array_equal(
            [a.attribute_names[k] for k in a.attributes], [b.attribute_names[k] for k in b.attributes]
        )
        np.testing.assert_array_equal(a.boxes, b.boxes)
        np.testing.assert_array_equal(a.keypoints, b.keypoints)
        assert a.keypoint_names == b.keypoint_names
        assert (a.masks is None) == (b.masks is None)
        for k in range(n):
            np.testing.assert_array_equal(a.images.read(k), b.images.read(k))
            if a.masks is not None and a.masks.read(k).max() > 1:
                np.testing.assert_array_equal(a.masks.read(k), b.masks.read(k))
        np.testing.assert_array_equal(a.extras["w"], b.extras["w"])
        assert a.extras["breed"].tolist() == b.extras["breed"].tolist()
        assert a.extras["split"].tolist() == b.extras["extra_split"].tolist()


def test_writing_never_replaces_what_it_did_not_write(tmp_path):
    benchmark = Benchmark("toy", {"train": toy(2, 0)})
    picture(tmp_path / "mine" / "holiday.png")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="not empty, so nothing was written"):
            write_csv(benchmark, tmp_path / "mine", overwrite=overwrite)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["holiday.png"]
    write_csv(benchmark, tmp_path / "out")
    with pytest.raises(DataError, match="overwrite=True"):
        write_csv(benchmark, tmp_path / "out")
    write_csv(Benchmark("toy", {"train": toy(3, 0)}), tmp_path / "out", overwrite=True)
    assert len(from_path(tmp_path / "out").train) == 3


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(StorageError, match="is full"):
        write_csv(Benchmark("toy", {"train": toy(2, 0)}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
