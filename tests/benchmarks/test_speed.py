"""The table of speeds: medians of alternating turns, lines with reasons, and a second call that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed import peers, run
from benchmarks.speed.page import page
from benchmarks.speed.rows import against, alternating
from typer.testing import CliRunner

from foveate.cli.bench import bench_app
from foveate.errors import FoveateError


def test_ratios_are_those_of_the_same_turn() -> None:
    row = against("a", "b", [1.0, 2.0, 10.0], [2.0, 3.0, 40.0], target=1.5)
    assert (row.ratio, row.low, row.high, row.ours, row.theirs, row.turns) == (2.0, 1.5, 4.0, 2.0, 3.0, 3)


def test_turns_alternate_and_the_first_warms_up() -> None:
    order: list[str] = []
    times = alternating({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, turns=2)
    assert order == ["a", "b"] * 3
    assert {name: len(taken) for name, taken in times.items()} == {"a": 2, "b": 2}


def row(what: str = "reading") -> dict[str, Any]:
    return against(what, "others", [1.0, 1.0, 1.0], [1.9, 2.0, 2.1], target=1.5, note="a note").to_dict()


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def fake(name: str) -> dict[str, Any]:
        taken.append(name)
        return {"skipped": "no network"} if name == "wilds" and taken.count(name) == 1 else {"rows": [row(name)]}

    monkeypatch.setattr(run, "_taken", fake)
    record, out = tmp_path / "speed.json", tmp_path / "speed.md"
    said: list[str] = []
    run.run(record, out, ["decoding", "wilds"], say=said.append)
    assert "- `wilds`: no network" in out.read_text()
    run.run(record, out, ["decoding", "wilds"], say=said.append)
    assert taken == ["decoding", "wilds", "wilds"]  # what was skipped is tried again
    run.run(record, out, ["decoding"], again=True, say=said.append)
    assert taken[3:] == ["decoding"]
    assert set(json.loads(record.read_text())["results"]) == {"decoding", "wilds"}
    assert "| decoding [1] | others | **2.00x** (1.90 to 2.10) ✓ | 1.5x | 1.00 / 2.00 | 3 |" in out.read_text()


def test_a_measurement_that_fails_is_a_line_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(peer: str) -> Path:
        raise peers.NotHad(f"{peer} cannot be installed: no matching distribution")

    monkeypatch.setattr(run, "python_with", without)
    assert run._taken("wilds") == {"skipped": "wilds cannot be installed: no matching distribution"}
    monkeypatch.setitem(run.MEASURES, "nothing", run.Measure("reading:nothing", 1))  # the process does not know it
    assert run._taken("nothing") == {"skipped": "it failed (exit 1): KeyError: 'nothing'"}


def test_unknown_measurements_are_named(tmp_path: Path) -> None:
    with pytest.raises(FoveateError, match="there is no measurement 'decodin'"):
        run.run(tmp_path / "a.json", tmp_path / "a.md", ["decodin"])


def test_every_measurement_is_there_and_all_take_less_than_half_an_hour() -> None:
    for measure in run.MEASURES.values():
        assert callable(measure.call())
    assert sum(measure.seconds for measure in run.MEASURES.values()) < 1800
    listed = CliRunner().invoke(bench_app, ["speed", "--list"])
    assert listed.exit_code == 0
    assert "spuco-resnet18: about 2.5 minutes" in listed.output


def test_the_page_says_what_was_not_reached() -> None:
    slow = against("slow", "others", [2.0], [1.0], target=1.5).to_dict()
    here = {"processor": "p", "cores": 2, "threads": 2, "torch": "2", "instructions": ["avx2"], "python": "3"}
    text = page({"machine": here, "results": {"a": {"rows": [slow], "commit": "c", "load": 0.1}}})
    assert "**0.50x** (0.50 to 0.50) ✗ | 1.5x" in text
