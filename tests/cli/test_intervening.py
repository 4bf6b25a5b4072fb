"""``foveate verify`` and ``foveate intervene`` as they are typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import foveate as fv
from foveate.cli import main as entry
from foveate.cli.main import app

DATA = "critters:size=32,train=60,target=16,val=40,test=40"
VIT = {"model_args": {"depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 4}, "progress": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    data = fv.data.critters(size=32, train=60, target=16, val=40, test=40)
    fv.IFAM("micro_vit", parts=4, epochs=2, **VIT).fit(data.train, val=data.val).save(folder / "ifam")
    fv.EarlyMask("micro_vit", epochs=1, **VIT).fit(data.train).save(folder / "early")
    fv.LateMask("micro_vit", epochs=1, **VIT).fit(data.train).save(folder / "late")
    return folder


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and the sentence of an error."""
    monkeypatch.setattr(sys, "argv", ["foveate", *words])
    with pytest.raises(SystemExit) as stopped:
        entry()
    return int(stopped.value.code or 0), " ".join(capsys.readouterr().err.split())


def test_verify(models: Path) -> None:
    run = CliRunner().invoke
    shown = run(app, ["verify", str(models / "early"), DATA, "--images", "4", "--against", str(models / "late")])
    assert shown.exit_code == 0, shown.output
    assert "early: the patches its mask hides do not reach the logits" in shown.output
    assert "late: the patches its mask hides change the logits" in shown.output
    leaks = run(app, ["verify", str(models / "late"), DATA, "--images", "4", "--json"])
    assert leaks.exit_code == 1
    figures = json.loads(leaks.output)
    assert figures["holds"] is False
    assert figures["systems"][0]["largest"] > 0


def test_verify_needs_no_data_of_yours(models: Path) -> None:
    shown = CliRunner().invoke(app, ["verify", str(models / "early"), "--images", "2", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["systems"][0]["largest"] == 0


def test_interventions_are_saved_and_add_up(models: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    first = tmp_path / "first"
    words = ["intervene", str(models / "ifam"), DATA, "--drop", "3", "--q", "0.9", "--out", str(first)]
    shown = run(app, words)
    assert shown.exit_code == 0, shown.output
    for expected in ("parts removed: 3 (of 4)", "than 90% of the training", "before", "after", "foreground mIoU"):
        assert expected in shown.output
    saved, before = fv.load(first), fv.load(models / "ifam")
    assert saved.dropped_parts_ == (3,)  # type: ignore[attr-defined]
    assert saved.token_thresholds_.q == 0.9  # type: ignore[attr-defined]
    assert before.dropped_parts_ is None  # type: ignore[attr-defined]
    second = json.loads(run(app, ["intervene", str(first), DATA, "--drop", "0,1", "--json"]).output)
    assert (second["removed"], second["q"]) == ([0, 1, 3], 0.9)
    fresh = json.loads(run(app, ["intervene", str(first), DATA, "--clear", "--json"]).output)
    assert (fresh["removed"], fresh["q"]) == ([], None)
    test = fv.data.critters(size=32, train=60, target=16, val=40, test=40).test
    assert fresh["after"]["average"] == pytest.approx(fv.evaluate(before, test).average)
    assert fresh["before"]["average"] == pytest.approx(fv.evaluate(saved, test).average)


@pytest.mark.parametrize("how", ["leave-one-out", "greedy"])
def test_parts_are_chosen_on_val_and_the_labels_told(models: Path, how: str) -> None:
    words = ["intervene", str(models / "ifam"), DATA, "--auto", how, "--metric", "average", "--json"]
    shown = CliRunner().invoke(app, words)
    if shown.exit_code:  # a barely trained model may be better without any part, which is said
        assert "without each of its 4 parts" in str(shown.exception)
        return
    told = json.loads(shown.output)
    assert set(told["alone"]) == {"0", "1", "2", "3"}
    helps = [int(k) for k, v in told["alone"].items() if v > told["baseline"]]
    if how == "leave-one-out":
        assert told["removed"] == helps
    assert "parts removed by average" in told["supervision"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ifam", DATA], "say what to do"),
        (["ifam", DATA, "--drop", "9"], "there is no part 9: the model has 4 parts"),
        (["ifam", DATA, "--drop", "0,1,2,3"], "removing all 4 parts leaves nothing to look at"),
        (["ifam", DATA, "--drop", "ear"], "--drop takes part numbers"),
        (["ifam", DATA, "--drop", "1", "--auto", "greedy"], "give one of the two"),
        (["ifam", DATA, "--auto", "magic"], "use 'leave-one-out' or 'greedy'"),
        (["ifam", DATA, "--q", "1.5"], "above 0 and at most 1"),
        (["early", DATA, "--drop", "1"], "EarlyMask has no parts to remove"),
    ],
)
def test_sentences(
    models: Path, words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = call(monkeypatch, capsys, "intervene", str(models / words[0]), *words[1:])
    assert code == 2
    assert sentence in said


def test_thresholds_of_another_number_of_parts(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    model = fv.load(models / "ifam")
    model.token_thresholds_ = fv.intervene.TokenThresholds((1.0, 2.0), 0.99)  # type: ignore[attr-defined]
    model.save(folder)
    shown = CliRunner().invoke(app, ["intervene", str(folder), DATA, "--drop", "1"])
    assert "calibrated for 2 parts and the model has 4" in str(shown.exception)
