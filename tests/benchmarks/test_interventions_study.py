"""The iFAM studies: rows are complete, a run goes on where it stopped, interventions are measured."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import foveate as fv

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
study = importlib.import_module("benchmarks.ifam_study")
SMALL = {"model_args": {"embed_dim": 12, "depth": 1, "num_heads": 2}, "epochs": 1, "progress": False}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"size": 32, "strength": 0.9, "train": 40, "target": 0, "val": 16, "test": 16}
    monkeypatch.setattr(study, "DATA", data)
    monkeypatch.setattr(study, "SPURIOUS", {**data, "strength": 0.5, "second_strength": 0.9, "attribute": "second"})

    def tiny(seed: int, parts: int = 2, **_: object) -> fv.IFAM:
        return fv.IFAM("micro_vit", parts=parts, seed=seed, **SMALL)

    monkeypatch.setattr(study, "_ifam", tiny)
    methods = {"ViT": lambda seed: fv.ERM("micro_vit", seed=seed, **SMALL), "IFAM K=2": tiny}
    monkeypatch.setattr(study, "METHODS", methods)
    known = {"methods": list(methods), "spurious": ["K=2"], "objects": ["K=2"]}
    monkeypatch.setattr(study, "STUDIES", {k: (*study.STUDIES[k][:2], v) for k, v in known.items()})


def run(tmp_path: Path, *words: str) -> int:
    return study.main([*words, "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")])


def test_rows_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "methods", "--seeds", "0") == 0
    rows = study.read_rows(tmp_path / "results" / "ifam-critters.csv")
    assert [r["method"] for r in rows] == ["ViT", "IFAM K=2"]
    for column in ("worst_group", "average", "seconds", "command", "commit", "settings"):
        assert all(r[column] for r in rows), column
    assert all(rows[1][column] for column in ("miou", "mass", "coverage", "kp"))
    assert rows[0]["miou"] == ""
    capsys.readouterr()
    assert run(tmp_path, "methods", "--seeds", "0") == 0
    assert capsys.readouterr().out == "", "nothing is left to compute"
    assert run(tmp_path, "methods", "--table") == 0
    assert "| IFAM K=2 |" in capsys.readouterr().out
    assert run(tmp_path, "methods", "--methods", "ViTs") == 2
    assert "unknown method 'ViTs'. Did you mean 'ViT'" in capsys.readouterr().err


def test_interventions_are_measured(tmp_path: Path) -> None:
    assert run(tmp_path, "spurious", "--seeds", "1") == 0
    rows = {r["method"]: r for r in study.read_rows(tmp_path / "results" / "ifam-spurious.csv")}
    assert set(rows) == {"K=2", "K=2, leave-one-out", "K=2, greedy", "K=2, without part 0", "K=2, without part 1"}
    assert set(json.loads(rows["K=2, greedy"]["note"])) == {"removed", "val", "val_after", "val_without"}
    assert run(tmp_path, "objects", "--seeds", "1") == 0
    rows = {r["method"]: r for r in study.read_rows(tmp_path / "results" / "ifam-objects.csv")}
    assert float(rows["K=2, q=0.9"]["coverage"]) <= float(rows["K=2"]["coverage"])
