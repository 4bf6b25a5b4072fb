"""Waterbirds, CUB, Waterbird200 and CelebA, each from a miniature in the published layout."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate as fv
from foveate.data import sources
from foveate.data.sources.waterbirds import rebuild
from foveate.errors import DataError


def test_waterbirds_reads_the_public_folder(miniatures: Any, tmp_path: Path) -> None:
    miniatures.waterbirds(tmp_path)
    birds = fv.data.load("waterbirds", tmp_path)
    assert {s: len(d) for s, d in birds.splits.items()} == {"train": 8, "val": 4, "test": 12}
    # per species: train has k=2 (water) and k=4 (land), val k=0 (land), test k=1 (land), 3 (water), 5 (land)
    assert birds.train.group_names == ["landbird/land", "landbird/water", "waterbird/land", "waterbird/water"]
    assert birds.train.group_counts.tolist() == [1, 1, 3, 3]
    assert birds.test.group_counts.tolist() == [2, 1, 6, 3]
    assert birds.train[0].image.shape == (3, 32, 32)
    assert birds.train.boxes is None
    assert birds.train.masks is None
    assert "target" not in birds
    # the folder itself may be the root too
    inside = fv.data.load("waterbirds", tmp_path / "waterbird_complete95_forest2water2")
    assert inside.test.fingerprint == birds.test.fingerprint


def test_waterbirds_species_fix_and_cub_beside_it(miniatures: Any, tmp_path: Path) -> None:
    miniatures.waterbirds(tmp_path)
    cub = miniatures.cub(tmp_path)
    plain, fixed = fv.data.load("waterbirds", tmp_path), fv.data.load("waterbirds", tmp_path, fix_species=True)
    changed = np.flatnonzero(plain.test.labels != fixed.test.labels)
    assert set(plain.test.extras["species"][changed]) == {"eastern_towhee"}
    assert (fixed.test.labels[changed] == 0).all()
    assert len(changed) == 3
    assert "western_gull" in plain.test.extras["species"]  # also has 'tern' in it, and is a waterbird all the same
    first = plain.test[0]
    line = (cub / "bounding_boxes.txt").read_text().splitlines()[int(plain.test.extras["image_id"][0]) - 1]
    _, x, y, w, h = (float(v) for v in line.split())
    assert first.box is not None
    assert first.mask is not None
    assert first.box.tolist() == pytest.approx([x, y, x + w, y + h])
    assert first.mask.shape == (32, 32)
    assert 0 < first.mask.mean() < 1


def test_counts_are_checked_against_the_published_ones(miniatures: Any, tmp_path: Path) -> None:
    miniatures.waterbirds(tmp_path)
    problems = sources.check("waterbirds", tmp_path)
    assert len(problems) == 12
    assert problems[0].message.startswith("landbird/land: published 3,498, found 1")
    assert {p.kind for p in problems} == {"unexpected-count"}


def test_metadata_faults_are_named(miniatures: Any, tmp_path: Path) -> None:
    table = miniatures.waterbirds(tmp_path) / "metadata.csv"
    text = table.read_text()
    table.write_text(text.replace("place,", "scene,", 1))
    with pytest.raises(DataError, match="no column 'place'"):
        fv.data.load("waterbirds", tmp_path)
    table.write_text(text.replace(",1,2,0,", ",7,2,0,", 1))
    with pytest.raises(DataError, match=r"'y' must be one of \(0, 1\), found 7"):
        fv.data.load("waterbirds", tmp_path)


def test_missing_data_says_what_to_download_and_where_to_put_it(tmp_path: Path) -> None:
    for name, source in sources.SOURCES.items():
        with pytest.raises(DataError) as said:
            fv.data.load(name, tmp_path / "nowhere")
        assert f"{name} is not here" in str(said.value)
        assert str(tmp_path / "nowhere") in str(said.value)
        assert "http" in str(said.value)
        assert not source.ready(tmp_path)


def test_archive_is_unpacked_once_and_never_outside(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.waterbirds(tmp_path / "made")
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "waterbird_complete95_forest2water2.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    said: list[str] = []
    found = sources.prepare("waterbirds", root, said.append)
    assert found == root / "waterbird_complete95_forest2water2"
    assert len(fv.data.load("waterbirds", root).test) == 12
    assert any("unpacking" in line for line in said)
    said.clear()
    sources.prepare("waterbirds", root, said.append)
    assert not any("unpacking" in line for line in said)
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "x.txt").write_text("x")
    with tarfile.open(evil / "waterbird_complete95_forest2water2.tar.gz", "w:gz") as tar:
        tar.add(evil / "x.txt", "../outside.txt")
    with pytest.raises(DataError, match="leads outside"):
        sources.prepare("waterbirds", evil)
    assert not (tmp_path / "outside.txt").exists()
    (evil / "waterbird_complete95_forest2water2.tar.gz").write_bytes(b"broken off")
    with pytest.raises(DataError, match="cannot be unpacked"):
        sources.prepare("waterbirds", evil)
    assert sorted(p.name for p in evil.iterdir()) == ["waterbird_complete95_forest2water2.tar.gz", "x.txt"]


def test_wrong_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"not the birds")
    with pytest.raises(DataError, match="97eceeb196236b17998738112f37df78"):
        sources.prepare("cub", tmp_path)


def test_waterbirds_rebuilt_and_dar_counts_from_cub_and_places(miniatures: Any, tmp_path: Path) -> None:
    miniatures.cub(tmp_path, per_species=16)
    miniatures.places(tmp_path)
    rebuild(tmp_path, tmp_path / "waterbirds-rebuilt", "waterbirds-rebuilt", size=32)
    plain = fv.data.load("waterbirds-rebuilt", tmp_path)
    assert plain.test.group_counts.sum() == 32  # every official test bird once
    assert plain.test.class_counts.tolist() == [16, 16]  # towhee and sayornis are landbirds here
    # of 16 training birds a class 3 are held out for val, rounded down to equal groups
    assert (len(plain.train), plain.val.group_counts.tolist()) == (26, [1, 1, 1, 1])
    counts = {
        "train": {"landbird/land": 30, "landbird/water": 2, "waterbird/land": 2, "waterbird/water": 30},
        "target": dict.fromkeys(plain.train.group_names, 3),
        "val": dict.fromkeys(plain.train.group_names, 3),
        "test": dict.fromkeys(plain.train.group_names, 4),
    }
    rebuild(tmp_path, tmp_path / "waterbirds-dar", "waterbirds-dar", counts, size=32)
    dar = fv.data.load("waterbirds-dar", tmp_path)
    assert dar.train.group_counts.tolist() == [30, 2, 2, 30]
    assert dar.target.group_counts.tolist() == [3, 3, 3, 3]
    birds = {s: set(d.extras["foreground"]) for s, d in dar.splits.items()}
    for one, other in (("train", "test"), ("train", "target"), ("target", "val"), ("val", "test")):
        assert not birds[one] & birds[other]
    assert dar.train[0].mask is not None
    # a folder says which of the two it is: one is never taken for the other
    with pytest.raises(DataError, match="waterbirds-dar is not here"):
        fv.data.load("waterbirds-dar", tmp_path / "waterbirds-rebuilt")


def test_rebuilding_says_what_is_missing(miniatures: Any, tmp_path: Path) -> None:
    miniatures.cub(tmp_path, masks=False)
    with pytest.raises(DataError, match=r"segmentations\.tgz"):
        sources.prepare("waterbirds-dar", tmp_path)
    miniatures.cub(tmp_path)
    with pytest.raises(DataError, match="bamboo_forest"):
        sources.prepare("waterbirds-rebuilt", tmp_path)


def test_cub_has_official_split_boxes_parts_and_masks(miniatures: Any, tmp_path: Path) -> None:
    miniatures.cub(tmp_path)
    cub = fv.data.load("cub", tmp_path)
    assert (len(cub.train), len(cub.test)) == (12, 12)
    assert cub.train.class_names == ["Black footed Albatross", "Eastern Towhee", "Western Gull", "Sayornis"]
    assert cub.train.keypoint_names == ["back", "left eye"]
    sample = cub.test[0]  # image 2: parts at (2, 1) visible and (2, 2) hidden
    assert sample.keypoints is not None
    assert sample.keypoints.tolist() == [[2, 1, 1], [2, 2, 0]]
    assert sample.mask is not None
    assert sample.box is not None
    rows, columns = np.nonzero(sample.mask.numpy() > 0.5)
    assert sample.box.tolist() == pytest.approx([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], abs=2)
    bare = tmp_path / "bare"
    miniatures.cub(bare, masks=False, parts=False)
    plain = fv.data.load("cub", bare)
    assert plain.train.masks is None
    assert plain.train.keypoints is None


def test_waterbird200_tests_on_composites_of_the_same_birds(miniatures: Any, tmp_path: Path) -> None:
    miniatures.cub(tmp_path)
    with pytest.raises(DataError, match="waterbirds is not here"):
        fv.data.load("waterbird200", tmp_path)
    assert not sources.SOURCES["waterbird200"].ready(tmp_path)
    folder = miniatures.waterbirds(tmp_path)
    assert sources.SOURCES["waterbird200"].ready(tmp_path)
    birds, cub = fv.data.load("waterbird200", tmp_path), fv.data.load("cub", tmp_path)
    assert birds.train.fingerprint == cub.train.fingerprint
    assert birds.test.labels.tolist() == cub.test.labels.tolist()
    assert "waterbird_complete95" in birds.test.where(0)
    assert birds.test.attributes is not None
    assert birds.test.attributes.tolist() == [0, 1, 0] * 4
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text(text.replace(",1,2,0,", ",1,0,0,", 1))
    with pytest.raises(DataError, match="1 of the 12 CUB test images are not test images"):
        fv.data.load("waterbird200", tmp_path)


@pytest.mark.parametrize("kaggle", [False, True])
def test_celeba_reads_both_forms(miniatures: Any, tmp_path: Path, kaggle: bool) -> None:
    miniatures.celeba(tmp_path, kaggle)
    faces = fv.data.load("celeba", tmp_path)
    assert {s: len(d) for s, d in faces.splits.items()} == {"train": 36, "val": 12, "test": 12}
    assert faces.train.group_names == ["not blond/female", "not blond/male", "blond/female", "blond/male"]
    assert faces.train.group_counts.tolist() == [9, 9, 9, 9]
    assert faces.train.labels[:4].tolist() == [0, 0, 1, 1]
    assert faces.test[0].image.shape == (3, 32, 32)
    other = fv.data.load("celeba", tmp_path, label="Young", attribute="Blond_Hair")
    assert other.train.class_counts.tolist() == [0, 36]
    with pytest.raises(DataError, match=r"no annotation 'Blonde_Hair'. Did you mean 'Blond_Hair'"):
        fv.data.load("celeba", tmp_path, label="Blonde_Hair")


def test_celeba_dar_draws_exact_counts_and_never_twice(miniatures: Any, tmp_path: Path) -> None:
    miniatures.celeba(tmp_path)
    options = {"majority": 5, "minority": 2, "per_group": 2}
    faces = fv.data.load("celeba-dar", tmp_path, **options)
    assert faces.train.group_counts.tolist() == [2, 5, 5, 2]
    assert faces.target.group_counts.tolist() == faces.val.group_counts.tolist() == [2, 2, 2, 2]
    assert len(faces.test) == 12
    used = [d.where(i) for d in faces.splits.values() for i in range(len(d))]
    assert len(used) == len(set(used))
    assert faces.train.fingerprint == fv.data.load("celeba-dar", tmp_path, **options).train.fingerprint
    assert faces.train.fingerprint != fv.data.load("celeba-dar", tmp_path, seed=1, **options).train.fingerprint
    with pytest.raises(DataError, match=r"not blond/female \(train 473, target 250, val 250\), but the files hold 9"):
        fv.data.load("celeba-dar", tmp_path)


def test_celeba_list_that_broke_off(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.celeba(tmp_path)
    lines = (folder / "list_attr_celeba.txt").read_text().splitlines()
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines[:40]) + "\n")
    with pytest.raises(DataError, match="promises 60 images and lists 38"):
        fv.data.load("celeba", tmp_path)
    assert any(p.kind == "unexpected-checksum" for p in _problems(miniatures, tmp_path / "again"))


def _problems(miniatures: Any, root: Path) -> list[Any]:
    miniatures.celeba(root)
    return sources.check("celeba", root)
