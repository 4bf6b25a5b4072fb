"""The study command: specs are checked, runs go on where they stopped, tables add up."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from foveate.errors import FoveateError
from foveate.systems import DAR, DFR, ERM

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
study = importlib.import_module("benchmarks.study")
specs = importlib.import_module("benchmarks.study_spec")
results = importlib.import_module("benchmarks.study_results")

SPEC = """
name: tiny
about: a study that fits in a test
data: {name: critters, options: {train: 80, target: 16, val: 16, test: 16, size: 32}}
core: masks
network: {backbone: micro_resnet, model_args: {layers: [1, 1], width: 8, stem_stride: 2}}
training: {epochs: 1, batch_size: 16}
seeds: [0, 1]
methods:
  base: {system: ERM, grid: {lr: [1e-3, 0.01]}}
  DFR: {system: DFR, settings: {refits: 1}}
  DAR: {system: DAR, base: true, settings: {epochs: 1}, grid: {lr: [1e-3, 3e-3]}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_a_study_runs_once_and_is_not_run_again(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    command = [str(spec), "--results", "results", "--docs", "docs"]
    fits: list[tuple[str, float, int]] = []
    for kind in (ERM, DFR, DAR):

        def counted(self: Any, *data: Any, _fit: Any = kind.fit, **more: Any) -> Any:
            fits.append((type(self).__name__, self.training.lr, self.training.seed))
            return _fit(self, *data, **more)

        monkeypatch.setattr(kind, "fit", counted)
    assert study.main(command) == 0

    rows = results.read_rows(tmp_path / "results" / "tiny.csv")
    assert [(r["seed"], r["method"]) for r in rows] == [(s, m) for s in "01" for m in ("base", "DFR", "DAR")]
    assert tuple(rows[0]) == results.COLUMNS
    assert all(r["reused"] == "false" and float(r["seconds"]) > 0 and r["commit"] for r in rows)
    assert all(0 <= float(r[c]) <= 1 for r in rows for c in ("average", "minority", "cep_output", "cgp"))
    assert rows[0]["command"] == "python -m benchmarks.study " + " ".join(command)
    # trained: both points on the first seed, the chosen one on the second; post-hoc: both on every seed
    chosen = json.loads(rows[0]["settings"]).get("lr", 0.001)
    assert [f for f in fits if f[0] == "ERM"] == [("ERM", 0.001, 0), ("ERM", 0.01, 0), ("ERM", chosen, 1)]
    assert [f for f in fits if f[0] == "DAR"] == [("DAR", lr, seed) for seed in (0, 1) for lr in (0.001, 0.003)]

    def never(self: Any, *data: Any, **more: Any) -> Any:
        raise AssertionError("fitted again")

    for kind in (ERM, DFR, DAR):
        monkeypatch.setattr(kind, "fit", never)
    assert study.main(command) == 0
    assert results.read_rows(tmp_path / "results" / "tiny.csv") == rows

    # a lost row comes back from the saved model, and says so
    results.write_rows(tmp_path / "results" / "tiny.csv", rows[:-1])
    assert study.main(command) == 0
    again = results.read_rows(tmp_path / "results" / "tiny.csv")[-1]
    assert again["reused"] == "true"
    assert {k: again[k] for k in (*results.ACCURACIES, *results.SHARES)} == {
        k: rows[-1][k] for k in (*results.ACCURACIES, *results.SHARES)
    }

    assert study.main([*command, "--figures", "--seeds", "0"]) == 0
    drawn = {p.name for p in (tmp_path / "docs" / "figures").iterdir()}
    assert drawn == {"tiny-cep.png", "tiny-gradcam.png", "tiny-queries.png"}
    text = results.page([specs.read_spec(spec)], tmp_path / "results", tmp_path / "docs")
    assert "](figures/tiny-cep.png)" in text
    assert "](figures/tiny-ablation.png)" not in text

    # a trained model of other settings is refused, not passed off as the spec's
    spec.write_text(SPEC.replace("epochs: 1, batch_size: 16", "epochs: 2, batch_size: 16"), encoding="utf-8")
    (tmp_path / "results" / "tiny.csv").unlink()
    capsys.readouterr()
    assert study.main(command) == 2
    assert "epochs 1 instead of 2" in capsys.readouterr().err


def test_the_table_is_mean_and_deviation_in_percent() -> None:
    rows = [
        {"method": "DAR", "seed": "0", "average": "0.5", "minority": "0.2"},
        {"method": "DAR", "seed": "1", "average": "0.7", "minority": ""},
        {"method": "base", "seed": "0", "average": "0.25"},
    ]
    lines = results.table(rows, ["base", "DFR", "DAR"]).splitlines()
    assert lines[2] == "| ERM, train only (base) | 25.0 ± 0.0 | – | – | – | – | – | – | 1 |"
    assert lines[3] == "| DAR | 60.0 ± 10.0 | – | 20.0 ± 0.0 | – | – | – | – | 2 |"
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("training:", "trainings:", "trainings: unknown field. Did you mean 'training'?"),
        ("epochs: 1, batch_size: 16", "epoch: 1", "'epoch'. Did you mean 'epochs'?"),
        ("system: DFR", "system: DFS", "methods.DFR.system: unknown system 'DFS'. Did you mean 'DFR'?"),
        ("refits: 1", "refit: 1", "methods.DFR.settings.refit: DFR has no such setting. Did you mean 'refits'?"),
        ("grid: {lr: [1e-3, 3e-3]}", "grids: {}", "methods.DAR.grids: unknown field. Did you mean 'grid'?"),
        ("settings: {epochs: 1}", "settings: {seed: 1}", "methods.DAR.settings.seed"),
        ("base: true", "base: false", "methods.DAR.base: DAR starts from the base model"),
        ("core: masks", "core: mask", "core: "),
        ("name: tiny", "", "name: this field is missing"),
        ("  base: {system: ERM, grid: {lr: [1e-3, 0.01]}}\n", "", "starts from the method 'base'"),
        ("seeds: [0, 1]", "seeds: [0, 1", "this is not YAML"),
    ],
)
def test_a_wrong_spec_is_named(spec: Path, old: str, new: str, words: str) -> None:
    assert old in SPEC
    spec.write_text(SPEC.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FoveateError, match=r"tiny\.yaml: ") as caught:
        specs.read_spec(spec)
    assert words in str(caught.value)


def test_an_unknown_method_is_named(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study.main([str(spec), "--methods", "DARR"]) == 2
    assert "unknown method 'DARR'. Did you mean 'DAR'?" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "specs").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_specs_here_are_sound(path: Path) -> None:
    spec = specs.read_spec(path)
    assert spec.name == path.stem
    assert next(iter(spec.methods)) == "base"
