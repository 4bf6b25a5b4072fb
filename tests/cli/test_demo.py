"""``foveate demo`` from end to end, at a size that fits a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import foveate as fv
from foveate.cli.main import app


def test_demo_shows_every_system_and_writes_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["foveate.data.critters"]
    small = {"size": 32, "train": 200, "target": 40, "val": 40, "test": 80}
    original = fv.data.critters
    monkeypatch.setattr(module, "critters", lambda **options: original(**{**options, **small}))
    demo = sys.modules["foveate.cli.demo"]
    monkeypatch.setattr(demo, "TRAINING", {"epochs": 1, "lr": 2e-3, "batch_size": 32, "progress": False})
    monkeypatch.setattr(demo, "CURE_MINUTES", 0.2)  # so that nothing dear is begun
    monkeypatch.setenv("FOVEATE_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(app, ["demo", "--json", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    for name in ("ERM", "JTT", "GroupDRO", "DFR", "DAR"):
        assert f"{name} trained in" in result.output
        assert fv.load(tmp_path / "demo" / name.lower()).fitted
    page = (tmp_path / "demo" / "report.html").read_text()
    assert all(name in page for name in ("GroupDRO", "DAR", "habitat"))
    assert "report:" in result.output
    assert "worst group" in result.output
    assert (tmp_path / "demo" / "cured" / "cure.json").is_file()
    told = json.loads(result.stdout)  # all else is on the error stream
    assert told == json.loads((tmp_path / "demo" / "figures.json").read_text())
    assert set(told["test"]) == {*demo.SYSTEMS, "cure"}
    assert all({"average", "majority", "minority", "worst_group"} <= set(row) for row in told["test"].values())
    after = 100 * told["test"]["cure"]["worst_group"]
    assert f"{after:.1f} % after" in " ".join(result.output.split())
