"""What training images give away: biased sets are flagged, balanced ones are not, and file facts count."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.main import app
from foveate.data.dataset import GroupedDataset
from foveate.data.headers import file_facts
from foveate.data.images import FileImages
from foveate.data.tables import write_csv
from foveate.report.data_shortcuts import data_shortcuts
from foveate.report.discovery.cues.file_facts import read_files


def drawn(seed: int, strength: float, masks: bool, n: int = 120) -> GroupedDataset:
    made = fv.data.critters(seed=seed, size=32, strength=strength, train=n, target=0, val=0, test=0).train
    return made if masks else GroupedDataset(made.images, made.labels, made.class_names)


@pytest.mark.parametrize("masks", [True, False])
def test_biased_sets_are_flagged_and_balanced_ones_are_not(masks: bool) -> None:
    biased = data_shortcuts(drawn(50, 0.95, masks))
    assert biased is not None
    assert "background" in [g.cue.key for g in biased.giveaways]
    assert "a model can learn it in place of the object" in biased.giveaways[0].sentence
    for seed in range(51, 53):
        balanced = data_shortcuts(drawn(seed, 0.5, masks))
        assert balanced is not None
        assert balanced.giveaways == ()


@pytest.mark.slow
def test_false_alarms_over_seeds() -> None:
    alarms = [bool(data_shortcuts(drawn(seed, 0.5, seed % 2 == 0, 300)).giveaways) for seed in range(200, 240)]  # type: ignore[union-attr]
    assert sum(alarms) <= 1


def test_nothing_to_compare_says_nothing() -> None:
    assert data_shortcuts(drawn(1, 0.5, True, 40)) is None
    one = drawn(1, 0.5, True).subset(np.arange(120)[drawn(1, 0.5, True).labels == 0])
    assert data_shortcuts(one) is None


# -- files ------------------------------------------------------------------------------------------


def scenes(folder: Path, n: int, **saved: object) -> GroupedDataset:
    """Noise without any class in its pixels; ``saved`` maps what is saved with to a function of the label."""
    rng = np.random.default_rng(0)
    paths, labels = [], []
    for i in range(n):
        label = i % 2
        options = {key: value(label, i) for key, value in saved.items()}  # type: ignore[operator]
        path = folder / str(options.pop("name", f"{i:04d}.jpg"))
        smooth = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize(
            (48, 40), Image.Resampling.BILINEAR
        )
        smooth.save(path, **options)
        paths.append(path)
        labels.append(label)
    return GroupedDataset(FileImages(paths), labels, ["cat", "dog"])


def exif_of(make: str, date: str) -> Image.Exif:
    exif = Image.Exif()
    exif[271], exif[306] = make, date
    return exif


@pytest.mark.parametrize(
    ("key", "saved"),
    [
        ("file-encoding", {"quality": lambda label, i: 90 - 4 * (label if i % 20 else 1 - label)}),
        ("file-camera", {"exif": lambda label, i: exif_of("AB"[label], "2020:01:01 00:00:00")}),
        ("file-date", {"exif": lambda label, i: exif_of("A", f"20{10 + label}:0{1 + i % 9}:01 00:00:00")}),
        ("file-profile", {"icc_profile": lambda label, i: b"x" * 300 * label or None}),
        ("file-name", {"name": lambda label, i: f"{'IMG_' if label else 'DSC'}{i:04d}.jpg"}),
        ("file-format", {"name": lambda label, i: f"{i:04d}.{'png' if label else 'jpg'}"}),
    ],
)
def test_a_fact_of_the_file_that_tells_the_class(tmp_path: Path, key: str, saved: dict[str, object]) -> None:
    found = data_shortcuts(scenes(tmp_path, 80, **saved))
    assert found is not None
    assert key in [g.cue.key for g in found.giveaways]


def test_equal_files_give_nothing_away(tmp_path: Path) -> None:
    data = scenes(tmp_path, 80, quality=lambda label, i: 70 + i % 7, name=lambda label, i: f"{'ab'[i // 2 % 2]}{i}.jpg")
    found = data_shortcuts(data)
    assert found is not None
    assert found.giveaways == ()
    assert {"file-encoding", "file-name"} <= {g.cue.key for g in found.probes}


def test_files_named_by_class_are_no_news(tmp_path: Path) -> None:
    data = scenes(tmp_path, 60, name=lambda label, i: f"{'dog' if label else 'cat'}.{i}.jpg")
    assert "file-name" not in [cue.key for cue, _ in read_files(data, np.arange(60))]


@pytest.mark.parametrize("quality", [5, 30, 50, 75, 92, 100])
def test_jpeg_quality_is_read_off_the_tables(tmp_path: Path, quality: int) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "a.jpg", quality=quality)
    facts = file_facts(tmp_path / "a.jpg")
    assert facts is not None
    assert abs((facts.quality or 0) - quality) <= 1


def test_headers_of_what_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe1" + b"\x00" * 40)
    (tmp_path / "b.png").write_text("text")
    assert file_facts(tmp_path / "a.jpg") is None
    assert file_facts(tmp_path / "b.png") is None
    assert file_facts(tmp_path) is None
    assert file_facts(tmp_path / "none.png") is None
    Image.new("RGB", (8, 8)).save(tmp_path / "c.jpg", exif=b"Exif\0\0broken" + b"\xff" * 30)
    facts = file_facts(tmp_path / "c.jpg")
    assert facts is not None
    assert facts.camera is None


# -- the command ------------------------------------------------------------------------------------


def test_data_check_says_it_about_the_data(tmp_path: Path) -> None:
    data = fv.data.critters(seed=8, size=32, strength=0.95, train=120, target=0, val=20, test=20)
    path = write_csv(data, tmp_path / "biased")
    done = CliRunner().invoke(app, ["data", "check", str(path), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {p["where"] for p in found["problems"] if p["kind"] == "shortcut"} >= {"train: background"}
    assert found["notes"]["shortcut_properties"]["about"] == "the data, not a model"
    assert found["counts"]["warnings"] >= found["counts"]["kinds"]["shortcut"] >= 1
    assert CliRunner().invoke(app, ["data", "check", str(path), "--strict"]).exit_code == 1
    said = CliRunner().invoke(app, ["data", "check", str(path)]).output
    assert "This is about the data" in " ".join(said.split())
    assert "no problems" not in said
    without = CliRunner().invoke(app, ["data", "check", str(path), "--json", "--no-shortcuts"])
    assert "shortcut" not in {p["kind"] for p in json.loads(without.stdout)["problems"]}
