"""Settling a study on seed 10: validation images alone, whole rows, nothing twice, tables that are the rows."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from pathlib import Path

import pytest

import foveate as fv

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
seed10 = importlib.import_module("benchmarks.seed10")
SPEC = """
name: tiny
datasets:
  drawn: {name: critters, options: {size: 32, train: 40, target: 16, val: 16, test: 16}}
network: {backbone: micro_resnet, model_args: {width: 4}}
training: {epochs: 1, batch_size: 8}
select: worst_group
methods:
  base: {system: ERM}
  DAR: {system: DAR, settings: {epochs: 1, heads: 1}, grid: {lr: [0.001, 0.01]}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_rows_are_of_val_and_not_made_twice(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    evaluate = fv.evaluate

    def listened(system: fv.systems.System, data: object) -> object:
        asked.append(data.name)  # type: ignore[attr-defined]
        return evaluate(system, data)  # type: ignore[arg-type]

    monkeypatch.setattr(seed10.fv, "evaluate", listened)
    out = tmp_path / "seed10.csv"
    words = [str(spec), "-m", "DAR", "--try", '{"lr": 0.01}', "--try", '{"lr": 0.001}', "--out", str(out)]
    seed10.main(words)
    rows = seed10.read_rows(out)
    assert [json.loads(r["tried"]) for r in rows] == [{"lr": 0.01}, {"lr": 0.001}]
    assert asked, "val was measured"
    assert all("val" in name for name in asked), asked
    for row in rows:
        assert json.loads(row["settings"])["lr"] == json.loads(row["tried"])["lr"]
        assert len(json.loads(row["epochs"])) == 1
        assert row["seed"] == "10"
        again = shlex.split(row["command"])  # the command of this row alone, wherever the file was put
        assert again[:3] == ["python", "-m", "benchmarks.seed10"]
        assert again[3:] == [str(spec), "-d", "drawn", "-m", "DAR", "--try", row["tried"]]
        assert row["commit"]
    seed10.main(words)
    assert "is there" in capsys.readouterr().out
    assert seed10.read_rows(out) == rows


def test_a_row_of_what_val_was_not_asked_about_has_no_last_epoch() -> None:
    figures = dict.fromkeys(seed10.SHOWN, "0.5")
    asked = json.dumps([{"average": 0.25, "majority": 0.75}])
    row = {**figures, "method": "base", "tried": '{"lr": 0.01}', "miou": "", "epochs": json.dumps([{}])}
    lines = seed10.table([row, {**row, "epochs": asked}]).splitlines()
    assert lines[0].endswith("| average and majority after the last epoch |")
    assert lines[2] == "| base | lr 0.01 | 50.0 | 50.0 | 50.0 | 50.0 | – |"
    assert lines[3].endswith("| 25.0, 75.0 |")


def test_figures_on_the_page_are_of_rows() -> None:
    """Outside of the tables that are made, the protocol types no result."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for study in seed10.re.findall(r"<!-- seed-10 ([\w-]+) -->", page):
        page = seed10.re.sub(seed10.MARKED.format(study=study), "", page, flags=seed10.re.S)
    assert not seed10.re.findall(r"(?<![\w.])\d\d\.\d\b", page)


def test_the_protocols_tables_are_the_rows() -> None:
    """Figures of seed 10 that were tried with the command stand on the page as they are recorded."""
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = seed10.read_rows(ROOT / "benchmarks" / "results" / "seed10.csv")
    assert seed10.filled(page, rows) == page, "run: python -m benchmarks.seed10 --page"
    assert {r["study"] for r in rows} <= {*seed10.re.findall(r"<!-- seed-10 ([\w-]+) -->", page)}
    assert not [r["commit"] for r in rows if r["commit"].endswith("-dirty")]
