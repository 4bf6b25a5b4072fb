"""``foveate cure`` as it is typed: a folder and sentences, JSON for programs, 130 after Ctrl-C, and what is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.main import app
from foveate.errors import FoveateError
from foveate.remedy import run
from foveate.remedy.kinds import Means

DATA = "critters:seed=3,size=32,strength=0.95,val_strength=0.95,train=200,val=100,test=60,target=0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = fv.data.critters(seed=3, size=32, strength=0.95, train=200, val=0, test=0, target=0)
    args = {"width": 8, "layers": [1, 1], "stem_stride": 2}
    erm = fv.ERM("micro_resnet", model_args=args, epochs=3, lr=3e-3, batch_size=16, progress=False).fit(data.train)
    return erm.save(tmp_path_factory.mktemp("models") / "erm")


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only DFR: the others are tried elsewhere."""
    real = run.remedies_for
    monkeypatch.setattr(run, "remedies_for", lambda *a: ([r for r in real(*a)[0] if r.means is Means.DFR], real(*a)[1]))
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))


def call(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["cure", *map(str, words)])


def test_json_record_and_folder_agree(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "cured"
    result = call(model, DATA, "--out", out, "--ignore-attributes", "--objects", "masks", "--json", "--minutes", "3")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told == json.loads((out / "cure.json").read_text())
    assert told["cues"] == ["background"]
    assert told["outcome"] in ("cured", "kept")
    assert "no attributes" in next(a for a in told["attempts"] if a["remedy"] == "dfr-exchange")["supervision"]
    assert (out / "model").is_dir() == (told["outcome"] == "cured")
    assert "left] auditing" in result.stderr
    assert told["headline"] in (out / "report.html").read_text()


def test_ctrl_c_leaves_the_best_so_far_and_says_so(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = run.attempt, []

    def stopping(*args: Any, **options: Any) -> Any:
        calls.append(args[0])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(run, "attempt", stopping)
    out = tmp_path / "cured"
    result = call(model, DATA, "--out", out, "--objects", "masks")
    assert result.exit_code == 130
    assert "best so far" in result.stdout
    assert "report:" in result.stdout
    assert (out / "cure.json").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allowed-drop", "300"), "points from 0 to 100"),
        (("--minutes", "0"), "minutes is the time"),
        (("--on-bad", "explode"), "'raise' or 'skip'"),
    ],
)
def test_what_is_refused(model: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = call(model, DATA, "--out", tmp_path / "cured", *words)
    assert isinstance(result.exception, FoveateError)
    assert said in str(result.exception)
    assert not (tmp_path / "cured").exists()


def test_the_limits_are_those_of_python() -> None:
    options = {param.name: param.default for param in typer.main.get_command(app).commands["cure"].params}  # type: ignore[attr-defined]
    limits = inspect.signature(fv.cure).parameters
    assert all(options[name] == 100 * limits[name].default for name in ("allowed_drop", "real_drop"))
