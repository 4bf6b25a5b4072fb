"""``foveate audit`` from the command line: any model in, limits as exit codes, groups out."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from foveate.cli import main
from foveate.cli.main import app


class SceneReader(nn.Module):
    """Answers by whether the top of the picture is green."""

    def forward(self, x: Tensor) -> Tensor:
        top = x[:, :, 2:6, 8:-8].mean((2, 3))
        score = 20.0 * (top[:, 1] - top[:, 0])
        return torch.stack([-score, score], 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of 80 pictures with boxes: a square, light or dark by class, on green or red by a coin."""
    place = tmp_path_factory.mktemp("auditing")
    rng = np.random.default_rng(0)
    lines = ["path,label,x0,y0,x1,y1"]
    for i in range(80):
        scene = [40, 160, 60] if rng.random() < 0.5 else [160, 40, 60]
        picture = np.tile(np.uint8(scene), (32, 32, 1))
        picture = np.clip(picture + rng.normal(0, 8, picture.shape), 0, 255).astype(np.uint8)
        x, y = (int(v) for v in rng.integers(8, 16, 2))
        picture[y : y + 8, x : x + 8] = 230 if i % 2 else 20
        Image.fromarray(picture).save(place / f"{i}.png")
        lines.append(f"{i}.png,{'light' if i % 2 else 'dark'},{x},{y},{x + 8},{y + 8}")
    (place / "mine.csv").write_text("\n".join(lines))
    torch.jit.script(SceneReader()).save(str(place / "scene.pt"))
    return place


def words(folder: Path, *more: str) -> list[str]:
    return [
        "audit", str(folder / "scene.pt"), "--data", str(folder / "mine.csv"), "--split", "train", "--size", "32",
        "--mean", "0,0,0", "--std", "1,1,1", "--trust", "--out", str(folder / "audit.html"), *more,
    ]  # fmt: skip


def test_own_model_and_images_to_a_verdict_groups_and_exit_code(folder: Path) -> None:
    done = CliRunner().invoke(
        app, words(folder, "--json", "--fail-under", "shortcut=1", "--groups-out", str(folder / "groups.csv"))
    )
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["models"][0]["discovery"]["shortcuts"][0] == "background"
    assert found["failures"] == [f"scene.pt: a shortcut was found. {found['models'][0]['verdict']['plain']}"]
    assert found["failures"][0] in done.stderr
    rows = list(csv.DictReader((folder / "groups.csv").open()))
    assert len(rows) == 80
    green = [np.asarray(Image.open(row["path"]))[3, 16, 1] > 100 for row in rows]
    agree = np.mean([(row["attribute"] == "background like light") == g for row, g in zip(rows, green, strict=True)])
    assert agree > 0.95
    assert "leans on the background" in (folder / "audit.html").read_text("utf-8")


def test_the_schema_is_printed_and_the_findings_follow_it(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    told = CliRunner().invoke(app, ["audit", "--schema"])
    assert told.exit_code == 0, told.output
    form = json.loads(told.stdout)
    assert form["properties"]["schema_version"]["const"] == 2
    done = CliRunner().invoke(app, words(folder, "--json", "--examples", "1"))
    jsonschema.validate(json.loads(done.stdout), form)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(done.stdout), "schema_version": 1}, form)


def test_limits_that_hold_exit_with_0(folder: Path) -> None:
    done = CliRunner().invoke(app, words(folder, "--fail-under", "average=0.2", "--no-discover", "--examples", "0"))
    assert done.exit_code == 0, done.output
    assert "report:" in done.output


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--fail-under", "average=80"], "a share between 0 and 1"),
        (["--fail-under", "avrage=0.8", "--no-discover"], "Did you mean 'average'"),
        (["--fail-under", "worst_group=0.8", "--no-discover"], "needs attributes"),
        (["--mean", "0.5"], "three numbers"),
        (["--classes", "a,b,c", "--no-discover"], "one column for each of the classes a, b, c"),
        (["--classes", "a,b", "--no-discover"], "does not know the classes dark, light"),
    ],
)
def test_mistakes_get_a_sentence(
    folder: Path, change: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["foveate", *words(folder, *change)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


def test_programs_are_not_loaded_without_trust(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["foveate", *[w for w in words(folder) if w != "--trust"]])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "--trust" in capsys.readouterr().err
