"""What people have: a folder of new photos, single files, a table without labels, class folders without splits."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import Call

import foveate as fv

FIT = ["--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False",
       "--set", "model_args={'width': 8, 'layers': [1, 1, 1], 'stem_stride': 2}"]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model, class folders without splits, and a flat folder of the same photos."""
    root = tmp_path_factory.mktemp("photos")
    data = fv.data.critters(size=32, train=60, target=16, val=24, test=24)
    fv.data.write_csv(data, root / "data")
    erm = fv.ERM(
        "micro_resnet", epochs=1, progress=False, model_args={"width": 8, "layers": [1, 1, 1], "stem_stride": 2}
    )
    erm.fit(data.train, val=data.val).save(root / "erm")
    (root / "flat").mkdir()
    for i in range(24):
        label = data.test.class_names[data.test.labels[i]]
        (root / "classes" / label).mkdir(parents=True, exist_ok=True)
        source = root / "data" / "images" / "test" / f"{i:06d}.png"
        shutil.copy(source, root / "classes" / label / f"{i}.png")
        shutil.copy(source, root / "flat" / f"{i}.png")
    return root


def answers(text: str) -> dict[str, str]:
    return {Path(row["image"]).name: row["prediction"] for row in csv.DictReader(text.splitlines())}


def test_new_photos_get_the_answers_of_the_labelled_ones(
    world: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(world)
    code, out, err = call("predict", "erm", "data")
    assert code == 0, err
    known = {f"{int(name.removesuffix('.png'))}.png": told for name, told in answers(out).items()}
    assert len(known) == 24
    code, out, err = call("predict", "erm", "flat")
    assert (code, out.splitlines()[0]) == (0, "image,prediction,probability")
    assert answers(out) == known
    assert [Path(row.split(",")[0]).name for row in out.splitlines()[1:4]] == ["0.png", "1.png", "2.png"]
    code, out, _ = call("predict", "erm", "flat/3.png", "flat/11.png", "--json")
    assert {Path(row["image"]).name: row["prediction"] for row in json.loads(out)} == {
        name: known[name] for name in ("3.png", "11.png")
    }
    code, out, err = call("predict", "erm", "classes")
    assert (code, answers(out)) == (0, known)
    assert "no splits: all of its 24 images" in err
    rows = ["path,taken", *(f"flat/{i}.png,2024" for i in range(5))]
    Path("bare.csv").write_text("\n".join(rows) + "\n")
    code, out, err = call("predict", "erm", "bare.csv", "--out", "p.csv")
    assert code == 0, err
    assert answers(Path("p.csv").read_text()) == {f"{i}.png": known[f"{i}.png"] for i in range(5)}


def test_photos_of_classes_the_model_never_saw_are_predicted_too(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (tmp_path / "new" / "walrus").mkdir(parents=True)
    shutil.copy(world / "flat" / "0.png", tmp_path / "new" / "walrus")
    code, out, err = call("predict", str(world / "erm"), str(tmp_path / "new"))
    assert code == 0, err
    assert out.splitlines()[1].split(",")[1] == "walrus"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected images after the model"),
        (("nowhere.jpg",), "there is no file or folder nowhere.jpg"),
        (("flat", "nowhere"), "there is no file or folder nowhere"),
        (("flat", "--split", "val"), "--split goes with data that have splits"),
        (("film.mp4", "flat"), "is a video"),
        (("bad.csv",), "no column 'path'"),
        (("void.csv",), "none of 1 files looked for is there"),
        (("empty",), "empty"),
    ],
)
def test_what_cannot_be_predicted_is_said(
    words: tuple[str, ...], said: str, world: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(world)
    Path("film.mp4").touch()
    Path("bad.csv").write_text("photo\nflat/0.png\n")
    Path("void.csv").write_text("path\nnothing/0.png\n")
    Path("empty").mkdir(exist_ok=True)
    code, _, err = call("predict", "erm", *words)
    assert (code, said in err) == (2, True), err


def test_class_folders_without_splits_are_audited_and_measured(
    world: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(world)
    code, out, err = call("audit", "erm", "--data", "classes", "--no-discover", "--json")
    assert code == 0, err
    assert json.loads(out)["dataset"]["read"] == 24
    assert "classes has no splits: all of its 24 images are used." in err
    code, out, err = call("eval", "erm", "classes", "--json")
    assert (code, json.loads(out)["erm"]["n"]) == (0, 24), err
    # data that are split, but have no test images, are still asked about
    fv.data.write_csv(fv.data.critters(size=32, train=8, target=0, val=8, test=0), world / "split", overwrite=True)
    code, _, err = call("eval", "erm", "split")
    assert (code, "has no 'test' split" in err) == (2, True)
