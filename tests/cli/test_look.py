"""``foveate look`` on files, folders and frames, with a ViT name and with a saved system."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.main import app, main
from foveate.data.unlabelled import named_images
from foveate.look import Gaze
from foveate.report.look_sheet import look_rows, look_sheet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look")
    images = fv.data.critters(size=48, train=4, target=0, val=0, test=0).train.images
    (root / "frames").mkdir()
    for n in range(4):
        Image.fromarray(images.read(n)).save(root / "frames" / f"frame{7 + n}.png")
    (root / "frames" / "notes.txt").write_text("not an image")
    torch.manual_seed(0)
    weights = fv.extract.create_backbone("micro_vit").net.state_dict()
    save_file(dict(weights), str(root / "vit.safetensors"))
    return root


def model(folder: Path) -> str:
    return f"micro_vit@{folder}/vit.safetensors"


def test_a_folder_of_frames_makes_one_sheet_in_natural_order(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    command = ["look", str(folder / "frames"), "--model", model(folder), "--crops", "24,16", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    names = "frame7.png, frame8.png, frame9.png, frame10.png"
    assert names in " ".join(result.output.split())
    width, height = Image.open(out).size
    assert width == 4 * 192 + 3 * 8, "image, attention and two crops"
    assert height == 4 * (192 + 20) + 3 * 4


def test_one_picture_each(folder: Path, tmp_path: Path) -> None:
    files = [str(folder / "frames" / f"frame{n}.png") for n in (8, 7)]
    command = ["look", *files, "-m", model(folder), "--crops", "0", "--layer", "0", "--heads", "max"]
    assert CliRunner().invoke(app, [*command, "-o", str(tmp_path / "each")]).exit_code == 0
    assert sorted(p.name for p in (tmp_path / "each").iterdir()) == ["frame7.png", "frame8.png"]
    assert Image.open(tmp_path / "each" / "frame7.png").width == 2 * 192 + 8, "no crops were asked for"


def test_a_saved_system_shows_its_own_crops_and_prediction(folder: Path, tmp_path: Path) -> None:
    data = fv.data.critters(size=64, train=24, target=0, val=0, test=0)
    vit = fv.extract.create_backbone("micro_vit")
    fv.A2(vit, vit, crops=(24,), store=tmp_path / "store", progress=False).fit(data.train).save(tmp_path / "a2")
    picture = str(folder / "frames" / "frame7.png")
    for command in (["look", str(tmp_path / "a2"), picture], ["look", picture, "--model", str(tmp_path / "a2")]):
        result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "a2.png")])
        assert result.exit_code == 0, result.output
        assert "→ cat" in result.output or "→ duck" in result.output
        assert Image.open(tmp_path / "a2.png").width == 3 * 192 + 2 * 8


def test_what_is_drawn() -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    images[:, 0, 8:16, 16:24] = 255  # a red square
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 2] = 1.0
    gaze = Gaze(maps, boxes=torch.tensor([[[16, 8, 8], [-1, -1, -1]]]))
    row = look_rows(images, gaze, ["x"], cell=64)[0]
    body = row[20:]
    assert body.shape == (64, 4 * 72 - 8, 3)
    crop = body[:, 144 : 144 + 64]
    assert (crop[10:-10, 10:-10] == (255, 0, 0)).all(), "the crop is the red square alone"
    assert (crop[0] == 255).all(), "framed in the colour of its outline"
    outline = body[:, 72 : 72 + 64][16:32, 32]
    assert (outline == 255).all(), "the box at twice its size"
    assert (body[:, 216:] == 24).all(), "a crop that found no place is left empty"
    assert look_sheet([row] * 3, columns=2).size == (2 * row.shape[1] + 4, 2 * row.shape[0] + 4)


def test_a_wide_picture_keeps_its_shape() -> None:
    row = look_rows(torch.zeros(1, 3, 20, 40, dtype=torch.uint8), Gaze(torch.rand(1, 2, 4)), ["wide"], cell=64)[0]
    assert row.shape[0] == 32 + 20


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.png"], "no file or folder"),
        (["film.mp4"], "is a video"),
        (["{empty}"], "no images directly in"),
        (["{frames}", "--crops", "many"], "--crops takes sizes"),
        (["{frames}", "--model", "{vit}", "--crops", "100"], "does not fit"),
        (["{frames}", "--model", "{vit}", "--layer", "9"], "no layer 9"),
        (["{frames}", "--model", "{cnn}"], "not a vision transformer"),
        (["{frames}", "--on-bad", "maybe"], "raise or skip"),
    ],
)
def test_mistakes_get_a_sentence(
    arguments: list[str], said: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    weights = tmp_path / "cnn.safetensors"
    save_file(
        {k: v.clone() for k, v in fv.extract.create_backbone("micro_resnet").net.state_dict().items()}, str(weights)
    )
    places = {
        "empty": tmp_path / "empty", "frames": folder / "frames", "vit": model(folder),
        "cnn": f"micro_resnet@{weights}",
    }  # fmt: skip
    typed = [a.format(**places) for a in arguments]
    monkeypatch.setattr("sys.argv", ["foveate", "look", *typed, "--out", str(tmp_path / "x.png")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_a_broken_file_is_named_or_skipped(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((48, 48, 3), np.uint8)).save(tmp_path / "good.png")
    command = ["look", str(tmp_path), "--model", model(folder), "--out", str(tmp_path / "out" / "x.png")]
    stopped = CliRunner().invoke(app, command)
    assert isinstance(stopped.exception, fv.FoveateError)
    assert "bad.png" in str(stopped.exception)
    went_on = CliRunner().invoke(app, [*command, "--on-bad", "skip"])
    assert went_on.exit_code == 0, went_on.output
    assert "good.png" in went_on.output


def test_too_many_for_one_sheet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveate.cli.looking.MOST", 3)
    stopped = CliRunner().invoke(app, ["look", str(folder / "frames"), "--model", model(folder)])
    assert "give --out a folder" in str(stopped.exception)
    assert len(named_images([folder / "frames"])) == 4
