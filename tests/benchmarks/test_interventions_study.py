"""The studies of interventions: rows are complete, and a run goes on where it stopped."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
study = importlib.import_module("benchmarks.interventions_study")
things = importlib.import_module("benchmarks.planted_things")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"size": 32, "train": 40, "target": 0, "val": 16, "test": 16}
    monkeypatch.setattr(study, "COMMON", data)
    monkeypatch.setattr(study, "SPURIOUS", {**data, "strength": 0.5, "second_strength": 0.9, "attribute": "second"})
    small = {"model_args": {"embed_dim": 12, "depth": 1, "num_heads": 2}, "epochs": 1, "progress": False}
    monkeypatch.setattr(study, "MODEL", {"backbone": "micro_vit", **small})
    monkeypatch.setattr(study, "PARTS", {"spurious": 2, "objects": 2})
    monkeypatch.setattr(study, "QUANTILES", (0.9,))


def run(tmp_path: Path, *words: str) -> None:
    study.main([*words, "--runs", str(tmp_path / "runs"), "--results", str(tmp_path)])


def test_parts_are_removed_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "spurious", "--seeds", "1")
    rows = {r["method"]: r for r in study.read_rows(tmp_path / "spurious.csv")}
    assert list(rows) == ["as trained", "leave-one-out", "greedy", "without part 0", "without part 1"]
    assert set(json.loads(rows["greedy"]["note"])) == {"removed", "val", "val_after", "val_without"}
    share = json.loads(rows["without part 0"]["note"])["share of the part on the thing"]
    assert 0 <= share <= 1
    assert all(r["command"] and r["commit"] and r["worst_group"] for r in rows.values())
    capsys.readouterr()
    run(tmp_path, "spurious", "--seeds", "1")
    assert capsys.readouterr().out == "", "nothing is left to compute"
    run(tmp_path, "spurious", "--table")
    assert "| leave-one-out |" in capsys.readouterr().out


def test_tokens_are_removed_and_measured(tmp_path: Path) -> None:
    run(tmp_path, "objects", "--seeds", "1")
    rows = {r["method"]: r for r in study.read_rows(tmp_path / "objects.csv")}
    plain = ["no new things", "new things"]
    assert list(rows) == [*plain, *(f"{p}, q=0.9{of}" for of in ("", " of the prototype") for p in plain)]
    assert float(rows["new things, q=0.9"]["coverage"]) <= float(rows["new things"]["coverage"])
    with pytest.raises(SystemExit):  # nothing to draw: no part is removed
        run(tmp_path, "objects", "--seeds", "1", "--figure", str(tmp_path / "parts.png"))


def test_photographs_need_their_folder(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="skipped, for it needs --pets FOLDER"):
        run(tmp_path, "photos", "--seeds", "1")
    assert not (tmp_path / "photos.csv").exists()


def test_photographs_with_a_thing(pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"backbone": "micro_vit", "model_args": {"embed_dim": 12, "depth": 1, "num_heads": 2}, "image_size": 64}
    monkeypatch.setattr(study, "PHOTOS", {**small, "parts": 3, "epochs": 1, "progress": False})
    monkeypatch.setattr(things, "COUNTS", {"train": 24, "val": 8, "test": 8})
    monkeypatch.setattr(study, "QUANTILES", (0.95, 0.9))
    run(tmp_path, "photos", "--seeds", "1", "--pets", str(pets))
    rows = {r["method"]: r for r in study.read_rows(tmp_path / "photos.csv")}
    removed = [name for name in rows if name.startswith("without part")]
    assert len(removed) == 1
    wanted = [
        "as trained",
        "leave-one-out",
        "greedy",
        *removed,
        "new things",
        "no new things, q=0.9",
        "new things, q=0.9",
    ]
    assert list(rows) == wanted
    assert all(0 <= float(r["worst_group"]) <= 1 and r["command"] and r["commit"] for r in rows.values())
    run(tmp_path, "photos", "--seeds", "1", "--pets", str(pets), "--figure", str(tmp_path / "parts.png"))
    assert Image.open(tmp_path / "parts.png").width > 300


def test_things_are_planted_as_told(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(things, "COUNTS", {"train": 40, "val": 8, "test": 8})
    found = things.pets_with_things(pets, 3, size=64)
    train, test = found.bench.train, found.bench.test
    assert train.group_counts.tolist() == [19, 1, 1, 19]
    assert test.group_counts.tolist() == [2, 2, 2, 2]
    assert train.attribute_names == ["ball", "lamp"]
    for i in range(len(test)):
        thing, animal = found.things[i], np.asarray(test.mask(i)) > 0.5
        assert 0.01 < thing.mean() < 0.1
        assert not (thing & animal).any()
        image, busy = test.images.read(i).astype(int), found.cluttered.images.read(i).astype(int)
        assert np.ptp(image[thing], axis=0).max() > 100  # it is painted: its colours are far apart
        changed = np.abs(image - busy).max(2) > 0
        assert changed.any()
        assert (np.asarray(found.cluttered.mask(i)) > 0.5).sum() <= animal.sum()
    again = things.pets_with_things(pets, 3, size=64)
    assert all((test.images.read(i) == again.bench.test.images.read(i)).all() for i in range(len(test)))
    assert found.cluttered.labels.tolist() == test.labels.tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_thing_stands_where_it_covers_least(side: str) -> None:
    keep_off = np.zeros((96, 96), bool)
    keep_off[:, :48] = side == "left"
    keep_off[:, 48:] = side == "right"
    picture = np.full((96, 96, 3), 128, np.uint8)
    where = things.plant(picture, keep_off, things.THINGS["lamp"](), np.random.default_rng(1))
    assert where.any()
    assert not (where & keep_off).any()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder like that of the photographs: bright discs as animals, plain scenes."""
    root, rng = tmp_path / "pets", np.random.default_rng(0)
    for folder in ("foregrounds", "masks", "backgrounds"):
        (root / folder).mkdir(parents=True)
    rows = [["name", "species", "split"]]
    for split, count in (("train", 40), ("test", 8)):
        for species in ("cat", "dog"):
            for i in range(count):
                name = f"{species}_{split}_{i}"
                y, x = np.mgrid[:48, :48]
                disc = (y - 24) ** 2 + (x - 24) ** 2 < 18**2
                photo = np.where(disc[..., None], (220, 180, 90) if species == "cat" else (90, 60, 30), 127)
                Image.fromarray(photo.astype(np.uint8)).save(root / "foregrounds" / f"{name}.jpg")
                Image.fromarray(np.where(disc, 255, 0).astype(np.uint8)).save(root / "masks" / f"{name}.png")
                rows.append([name, species, split])
    scenes = [["name", "scene", "split"]]
    for split in ("train", "test"):
        for scene, colour in (("forest", (40, 110, 50)), ("sea", (60, 110, 190))):
            for i in range(6):
                name = f"{scene}_{split}_{i}"
                noise = rng.integers(-20, 20, (60, 60, 3))
                Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(
                    root / "backgrounds" / f"{name}.jpg"
                )
                scenes.append([name, scene, split])
    for table, lines in (("foregrounds", rows), ("backgrounds", scenes)):
        (root / f"{table}.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    return root
