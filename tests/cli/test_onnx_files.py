"""An ONNX file is taken wherever a saved model is: measured, asked and shown as the model it was made from."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Call

import foveate as fv

pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("onnx")
    data = fv.data.critters(size=32, train=40, target=16, val=16, test=24)
    fv.data.write_csv(data, root / "data")
    small = {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}
    erm = fv.ERM("micro_resnet", epochs=1, progress=False, pretrained=False, model_args=small).fit(data.train)
    erm.save(root / "erm")
    fv.export.to_folder(erm, root / "exported", "onnx")
    (root / "bare").mkdir()
    (root / "bare" / "model.onnx").write_bytes((root / "exported" / "model.onnx").read_bytes())
    return root


@pytest.fixture(autouse=True)
def _here(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)


def test_eval_and_predict_give_what_the_saved_model_gives(call: Call) -> None:
    saved = json.loads(call("eval", "erm", "data", "--json")[1])["erm"]
    code, out, err = call("eval", "exported/model.onnx", "data", "--json")
    assert code == 0, err
    assert json.loads(out)["model.onnx"]["average"] == saved["average"]

    def answers(model: str) -> list[str]:
        code, out, err = call("predict", model, "data")
        assert code == 0, err
        return [row["prediction"] for row in csv.DictReader(out.splitlines())]

    assert answers("exported/model.onnx") == answers("erm")


def test_whose_order_of_classes_is_assumed_is_said(call: Call) -> None:
    """A file that names no classes, beside no description."""
    size = ["--size", "32"]
    for words in (["eval"], ["audit", "--no-discover", "-o", "bare.html"]):
        code, _, err = call(words[0], "bare/model.onnx", "data", *words[1:], *size)
        assert code == 0, err
        assert "those of the dataset, in its order: cat, duck" in err
        assert "--classes" in err
    code, _, err = call("eval", "bare/model.onnx", "data", *size, "--classes", "cat,duck")
    assert (code, "in its order" in err) == (0, False)


def test_the_page_opens_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    page = pytest.importorskip("foveate.app.page", reason="needs the extra 'app'")
    shown: dict[str, Any] = {}

    class Kept:
        def __init__(self, session: Any):
            shown["session"] = session

        def launch(self, **options: Any) -> None:
            shown["report"] = shown["session"].report("model.onnx", "test")

    monkeypatch.setattr(page, "Page", Kept)
    code, _, err = call("app", "exported/model.onnx", "data")
    assert code == 0, err
    assert shown["report"].average == fv.evaluate(fv.load("erm"), fv.data.from_path("data").test).average
    code, _, err = call("app", "bare/model.onnx", "data", "--size", "32", "--classes", "cat,duck")
    assert (code, "in its order" in err) == (0, False), err  # what it does not say itself is told here too
