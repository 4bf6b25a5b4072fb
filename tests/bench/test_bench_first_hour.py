"""A study as a new user runs one: own photos, an own system, figures that cannot be had, lists that agree."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import foveate as fv
from foveate.bench import needs
from foveate.bench.ledger import Ledger
from foveate.bench.page import results_page
from foveate.bench.plot import plot
from foveate.bench.records import Record, write_csv
from foveate.bench.reproduce import Reproduction
from foveate.bench.table import lines, table
from foveate.cli.main import app

pytest.importorskip("yaml", reason="specs are YAML")


def record(method: str, seed: int, kp: float) -> Record:
    metrics = {"average": 0.5 + 0.1 * seed, "kp": kp}
    return Record("nan", "d", "critters", method, seed, {}, score=0.5, metrics=metrics, supervision="train: labels")


NAN = [record("A", 0, math.nan), record("A", 1, math.nan), record("B", 0, 0.2), record("B", 1, math.nan),
       record("C", 0, 0.3), record("C", 1, 0.5)]  # fmt: skip


def test_a_metric_that_is_nan_is_no_figure() -> None:
    text = table(NAN, metrics=["average", "kp"])
    assert "| A | **55.0 ± 7.1** | – | 2 |" in text
    assert "| B | **55.0 ± 7.1** | 20.0 (1 of 2) | 2 |" in text  # less is better, but it is not of all seeds
    assert "| C | **55.0 ± 7.1** | 40.0 ± 14.1 | 2 |" in text
    assert r"$20.0\ (1 of 2)$" in table(NAN, "latex", ["kp"])
    told = {row["method"]: row["metrics"]["kp"] for row in json.loads(table(NAN, "json", ["kp"]))}
    assert told["A"] == {"mean": None, "std": None, "seeds": 0}
    assert told["B"] == {"mean": pytest.approx(0.2), "std": None, "seeds": 1}
    assert table(NAN, "csv", ["kp"]).splitlines()[1] == "critters,A,,,2,train: labels"
    assert [line.mean("kp") for line in lines(NAN)] == [None, pytest.approx(0.2), pytest.approx(0.4)]


def test_commands_take_records_with_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(Path("nan.csv"), NAN)
    done = CliRunner().invoke(app, ["bench", "table", "nan.csv", "-m", "kp", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)[2]["metrics"]["kp"]["seeds"] == 2
    assert plot(NAN, "bars", "kp", tmp_path / "bars.png").stat().st_size > 5000
    Path("nan.yaml").write_text(
        "{name: nan, data: {name: critters}, network: {backbone: micro_resnet}, seeds: [0, 1],"
        " methods: {A: {system: ERM}, B: {system: JTT}, C: {system: GroupDRO}}}"
    )
    digests = {m: fv.bench.spec.read_spec("nan.yaml").digest("critters", m) for m in "ABC"}
    for row in NAN:
        object.__setattr__(row, "digest", digests[row.method])
    write_csv(Path("nan.csv"), NAN)
    assert "| B |" in results_page([Path("nan.yaml")], tmp_path, tmp_path / "page.md")


OWN = '''
from foveate.assemble.trained import Trained
from foveate.parameters import configured
from foveate.registries import SYSTEMS

@configured
class BroughtAlong(Trained):
    """ERM by another name."""

SYSTEMS.add("BroughtAlong", BroughtAlong)
'''
SPEC = """
name: mine
datasets:
  pets: {name: own, root: photos/benchmark.csv}
network: {backbone: micro_resnet}
training: {epochs: 1, progress: false}
seeds: [0, 1]
methods:
  base: {system: ERM}
  Mine: {system: BroughtAlong}
"""


@pytest.mark.usefixtures("_listed_for_now")
def test_own_photos_and_an_own_system_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fv.data.write_csv(fv.data.critters(size=32, train=16, target=8, val=8, test=8), tmp_path / "photos")
    Path("brought_along.py").write_text(OWN)
    Path("study.yaml").write_text(SPEC)
    run = CliRunner().invoke
    refused = run(app, ["bench", "status", "study.yaml"])
    assert "--import MODULE" in str(refused.exception)
    words = ["study.yaml", "--import", "brought_along"]
    done = run(app, ["bench", "run", *words, "--workers", "0", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(run(app, ["bench", "table", *words, "--json"]).output)
    assert {row["method"]: row["seeds"] for row in told} == {"base": [0, 1], "Mine": [0, 1]}
    assert json.loads(done.stdout) == told  # lines on the trials are on the error stream
    assert "Mine" in done.stderr
    assert {row["dataset"] for row in told} == {"pets"}
    status = json.loads(run(app, ["bench", "status", *words, "--json"]).output)
    assert (status["total"], status["done"], status["failures"]) == (4, 4, [])


def test_the_list_of_tables_agrees_with_each_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the way is judged in one place; nothing is opened and nothing fetched to judge it."""
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))
    monkeypatch.setattr(needs, "weights_here", lambda slug: True)
    monkeypatch.setattr("foveate.data.registry.load", lambda *given, **options: pytest.fail("opened"))
    needs._data_obstacle.cache_clear()
    ledger = Ledger.published()
    listed = {t.id: t.runnable for t in ledger.standings()}
    for what in ledger.ids():
        assert listed[what] == sum(reason is None for reason in Reproduction(ledger, what).obstacles())
    assert listed["a2/T13"] == 0  # Waterbirds is not here
    shown = CliRunner().invoke(app, ["reproduce", "--list", "--json"])
    assert {t["id"]: t["runnable"] for t in json.loads(shown.output)} == listed
    dry = CliRunner().invoke(app, ["reproduce", "a2/T13", "--dry", "--json"])
    assert len(json.loads(dry.output)) == 16
    assert all("no data: waterbirds is not here" in row["obstacle"] for row in json.loads(dry.output))
    assert list(tmp_path.iterdir()) == []
    needs._data_obstacle.cache_clear()
