"""The memory check of the audit: what it writes is what ``foveate audit`` reads, and its figures are complete."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import audit_memory


def test_pictures_differ_and_come_again() -> None:
    one, again, other = (np.asarray(audit_memory.draw(i, 0, 48)) for i in (3, 3, 4))
    assert one.shape == (48, 48, 3)
    assert (one == again).all()
    assert (one != other).any()


def test_the_command_runs_on_what_was_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit_memory.prepare(32, str(tmp_path), side=32, arch="mobilenetv2_035", asset=None)
    with open(tmp_path / "images.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 32
    assert {row["label"] for row in rows} == set(audit_memory.CLASSES)
    took = audit_memory.work(str(tmp_path), side=32, arch="mobilenetv2_035")
    assert took["seconds"] > 0
    assert took["peak_mb"] > 50
    assert "report:" in capsys.readouterr().out
    assert "mobilenetv2_035" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_run_reports_speed_and_memory_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def apart(task: str, **given: Any) -> dict[str, Any]:
        asked.append((task, given))
        if task == "work":
            (Path(given["folder"]) / "report.html").write_text("x" * 1000, encoding="utf-8")
        peak = 1024.0 if len(asked) > 2 else 1000.0
        return {"seconds": 50.0, "peak_mb": peak} if task == "work" else {}

    monkeypatch.setattr(audit_memory, "_apart", apart)
    found = audit_memory.run(100, 10)
    assert [task for task, _ in asked] == ["prepare", "work"] * 2
    assert [asked[0][1]["images"], asked[2][1]["images"]] == [10, 100]
    assert (found["images_per_s"], found["peak_mb"], found["limit_mb"]) == (2.0, 1024.0, 4096)
    assert found["ratio"] == pytest.approx(1.024)
    assert audit_memory.run(100, 0)["ratio"] == pytest.approx(0.25)
    assert not Path(asked[0][1]["folder"]).exists()
