"""The studies of interventions: rows are complete, and a run goes on where it stopped."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
study = importlib.import_module("benchmarks.interventions_study")


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
