"""SIIM-ACR, ImageNet-9, ImageNet boxes, and the list of all datasets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.data import data_app
from foveate.data import sources
from foveate.data.registry import catalogue
from foveate.data.sources.siim import decode_runs, read_dicom
from foveate.errors import DataError, MissingExtra, UnreadableImage
from foveate.measure import NO_ANSWER, UNREADABLE, bg_gap
from foveate.registries import DATASETS

DOCS = Path(__file__).parents[3] / "docs" / "datasets"


def test_siim_test_is_what_has_a_tube_annotation(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.siim(tmp_path)
    xrays = fv.data.load("siim-acr", tmp_path)
    assert (len(xrays.train), len(xrays.test)) == (2, 4)
    assert xrays.train.labels.tolist() == [0, 1]
    assert xrays.train.attributes is None
    assert xrays.test.labels.tolist() == [0, 1, 0, 1]
    assert xrays.test.attributes is not None
    assert xrays.test.attributes.tolist() == [0, 0, 1, 1]
    mask = xrays.train.mask(1)
    assert mask is not None
    # runs go down the columns: "1024 2 1022 3" marks the top of columns 1 and 2; a second row adds one pixel
    marked = {(int(r), int(c)) for r, c in np.argwhere(mask.numpy() > 0)}
    assert marked == {(0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (0, 0)}
    (folder / "train-rle.csv").write_text("Image,Pixels\na,-1\n")
    with pytest.raises(DataError, match="columns ImageId and EncodedPixels"):
        fv.data.load("siim-acr", tmp_path)


def test_siim_dicom_is_read_and_written_as_png(
    miniatures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydicom")
    folder = miniatures.siim(tmp_path, dicom=True)
    xrays = fv.data.load("siim-acr", tmp_path)
    image = xrays.test[1].image
    assert image.shape == (3, 16, 16)
    assert (int(image[0, 0, 0]), int(image[2, 5, 5])) == (255, 30)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pydicom", None)
        with pytest.raises(MissingExtra, match="pydicom"):
            xrays.test[0]
    sources.prepare("siim-acr", tmp_path)
    again = fv.data.load("siim-acr", tmp_path)
    assert again.test.where(1).endswith(".png")
    assert again.test[1].image.tolist() == image.tolist()
    assert (folder / "chest_tubes.csv").read_text().splitlines()[:2] == ["image_id,tube", "1.2.276.2,0"]
    next((folder / "dicom-images-train").rglob("*.5.dcm")).write_bytes(b"broken")
    with pytest.raises(UnreadableImage):
        read_dicom(next((folder / "dicom-images-train").rglob("*.5.dcm")))


@given(st.lists(st.booleans(), min_size=25, max_size=25))
def test_runs_come_back(pixels: list[bool]) -> None:
    mask = np.array(pixels).reshape(5, 5)
    words, at = [], 0
    flat = mask.T.ravel()
    position = 0
    while position < 25:
        if flat[position]:
            end = position
            while end < 25 and flat[end]:
                end += 1
            words += [str(position - at), str(end - position)]
            at = position = end
        else:
            position += 1
    assert ((decode_runs(" ".join(words) or "-1", side=5) > 0) == mask).all()


def test_imagenet9_variants_and_gap(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.imagenet9(tmp_path)
    data = fv.data.load("imagenet9", tmp_path, variant="mixed_rand")
    assert data.test.class_counts.tolist() == [2] * 9
    assert "train" not in data
    assert data.test.class_names[2] == "wheeled vehicle"
    with pytest.raises(DataError, match=r"no variant 'mixed_random'. Did you mean 'mixed_rand'"):
        fv.data.load("imagenet9", tmp_path, variant="mixed_random")
    same, rand = sources.background_pair(tmp_path)
    assert "mixed_same" in same.where(0)
    assert "mixed_rand" in rand.where(0)
    # ImageNet classes 0 and 7 belong to fish and bird, 3 to no superclass
    predicted = sources.to_superclasses([0, 7, 3], folder / "in_to_in9.json")
    assert predicted.tolist() == [8, 1, NO_ANSWER]  # wrong wherever it is counted, never left out
    codes = [UNREADABLE, NO_ANSWER]
    assert sources.to_superclasses(codes, folder / "in_to_in9.json").tolist() == codes
    assert bg_gap(predicted, [8, 1, 2], labels=[8, 1, 2]) == pytest.approx(2 / 3 - 1)
    with pytest.raises(DataError, match="from 0 to 999"):
        sources.to_superclasses([1000], folder / "in_to_in9.json")


@pytest.mark.parametrize("xml", [False, True])
def test_imagenet_val_marks_all_boxes(miniatures: Any, tmp_path: Path, xml: bool) -> None:
    miniatures.imagenet_val(tmp_path, xml)
    data = fv.data.load("imagenet-val", tmp_path)
    assert data.test.class_names == ["n01", "n02"]
    assert data.test.labels.tolist() == [1, 0, 1]
    assert data.test.extras["boxes"].tolist() == [1, 2, 1]
    sample = data.test[1]
    assert sample.box is not None
    assert sample.mask is not None
    assert sample.box.tolist() == [0, 0, 30, 32]  # around both
    wanted = np.zeros((32, 32))
    wanted[0:4, 0:4] = 1
    wanted[20:32, 20:30] = 1
    assert (sample.mask.numpy() == wanted).all()


def test_imagenet_val_faults(miniatures: Any, tmp_path: Path) -> None:
    folder = miniatures.imagenet_val(tmp_path)
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\nILSVRC2012_val_00000001,n01 1 2 3\n")
    with pytest.raises(DataError, match="five words a box"):
        fv.data.load("imagenet-val", tmp_path)
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\nother,n01 1 2 3 4\n")
    with pytest.raises(DataError, match="names do not agree"):
        fv.data.load("imagenet-val", tmp_path)


# -- all of them --------------------------------------------------------------------------


def test_catalogue_lists_all_and_knows_what_is_ready(miniatures: Any, tmp_path: Path) -> None:
    rows = {row.name: row for row in catalogue(tmp_path)}
    assert set(rows) == set(DATASETS)
    assert rows["critters"].ready
    assert not rows["imagenet9"].ready
    miniatures.imagenet9(tmp_path)
    assert {r.name for r in catalogue(tmp_path) if r.ready} - {r.name for r in rows.values() if r.ready} == {
        "imagenet9"
    }
    assert all(row.licence and row.title and row.needs for row in rows.values())


def test_data_list_prepare_and_check_commands(miniatures: Any, tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(data_app, ["list", "--json", "--root", str(tmp_path)])
    rows = json.loads(listed.stdout)
    assert {row["name"] for row in rows} == set(DATASETS)
    assert "celeba" in runner.invoke(data_app, ["list"]).stdout
    miniatures.urbancars(tmp_path)
    prepared = runner.invoke(data_app, ["prepare", "urbancars", "--root", str(tmp_path)])
    assert prepared.exit_code == 0
    assert "test         16 images, 2 classes, 4 attributes" in prepared.stdout
    checked = runner.invoke(data_app, ["check", "urbancars", "--root", str(tmp_path), "--json"])
    report = json.loads(checked.stdout)
    assert checked.exit_code == 1
    assert report["counts"]["kinds"]["unexpected-count"] == 10
    assert report["counts"]["errors"] >= 10
    with pytest.raises(DataError, match="several datasets"):
        runner.invoke(data_app, ["prepare", "spawrious"], catch_exceptions=False)
    with pytest.raises(DataError, match="Did you mean 'waterbirds'"):
        runner.invoke(data_app, ["prepare", "waterbird"], catch_exceptions=False)


def test_every_published_dataset_has_a_card() -> None:
    for name, source in sources.SOURCES.items():
        card = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        for heading in ("What it is", "Licence", "Where to get it", "Layout", "Counts", "Pitfalls"):
            assert f"## {heading}" in card, f"{name}: {heading}"
        assert source.homepage.split("//")[1].split("/")[0] in card, name
