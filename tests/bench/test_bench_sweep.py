"""Sweeps: nothing lost, nothing twice, whatever is killed; failures are kept; bases and first seeds come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import foveate as fv
from foveate.bench.records import Record, Records, read_csv, record_key, write_csv

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")

from foveate.bench.hits import KeptHits
from foveate.bench.run import Job, run
from foveate.bench.spec import parse_spec
from foveate.bench.status import status
from foveate.bench.sweep import Added
from foveate.bench.table import table
from foveate.bench.trial import Bench
from foveate.cli.main import app
from foveate.data.tables import write_csv as write_images

SPEC = """
name: small
data: {name: critters, options: {train: 16, target: 16, val: 16, test: 40, size: 32}}
seeds: [0, 1]
select: average
methods:
  grid: {system: QuickTrial, grid: {skill: [0.2, 0.3, 0.4]}}
  failing: {system: QuickTrial, settings: {fails: true}}
"""


def job(folder: Path, text: str = SPEC, **more: Any) -> Job:
    return Job(text, "small.yaml", str(folder), str(folder / "records.db"), command="cmd", commit="c0", **more)


def quiet(line: str) -> None:
    pass


def test_five_kills_change_nothing(kills: Any) -> None:
    found = kills.run(kills=5, points=6, pause=0.05, longest=0.8)
    assert found["struck"] >= 2, found
    for name in ("same_records", "same_table", "every_slot_once", "right_choice"):
        assert found[name], found
    assert found["half_written"] == 0, found
    assert found["records"] == 2 * 6 + 3 + 1 + 4 + 1 + 2  # both seeds; search + reuse; drawn + reuse; failures
    assert found["models"] == found["records"] - 2


def test_a_run_is_resumed_and_not_repeated(kills: Any, tmp_path: Path) -> None:
    told: list[str] = []
    first = run(job(tmp_path), workers=0, say=told.append)
    assert len(told) == len(first) == 3 + 1 + 2
    assert run(job(tmp_path), workers=0, say=told.append) == first
    assert len(told) == 6
    done = [r for r in first if r.state == "done"]
    assert all(r.weights and r.command == "cmd" and r.commit == "c0" and r.supervision for r in done)
    assert all((tmp_path / r.log).exists() for r in first)
    # the second seed takes what the first one chose
    best = max((r for r in done if r.seed == 0), key=lambda r: r.score or 0.0)
    (reused,) = [r for r in done if r.seed == 1]
    assert reused.point == best.point
    # one more point: only that is run
    wider = SPEC.replace("0.4]", "0.4, 0.5]")
    run(job(tmp_path, wider), workers=0, say=told.append)
    assert 7 <= len(told) <= 8  # the new point, and the second seed again when the new point is chosen
    assert "skill 0.5" in told[6]


def test_records_made_elsewhere_count_and_are_not_run_again(kills: Any, tmp_path: Path) -> None:
    there, here = job(tmp_path / "there"), job(tmp_path / "here")
    made = run(there, workers=0, say=quiet)
    first = [r for r in made if r.seed == 0]
    sweep = here.sweep()
    sweep.maintain()  # rows that wait are filled in
    assert sweep.add(read_csv(write_csv(tmp_path / "first.csv", first))) == Added(len(first), 0, 0)
    assert sweep.add(first) == Added(0, len(first), 0)
    told: list[str] = []
    whole = run(here, workers=0, say=told.append)
    assert len(told) == len(made) - len(first)
    assert all("seed 1" in line for line in told)
    assert {(r.key, r.score) for r in whole} == {(r.key, r.score) for r in made}
    changed = job(tmp_path / "changed", SPEC.replace("train: 16", "train: 18"))
    assert changed.sweep().add(made) == Added(len(made), 0, len(made))
    other = job(tmp_path / "other", SPEC.replace("name: small", "name: other"))
    with pytest.raises(fv.FoveateError, match="records of 'small' and the spec is 'other'"):
        other.sweep().add(made)


def test_records_are_added_on_the_command_line(kills: Any, tmp_path: Path) -> None:
    spec = tmp_path / "small.yaml"
    spec.write_text(SPEC)
    made = write_csv(tmp_path / "made.csv", run(job(tmp_path / "there"), workers=0, say=quiet))
    words = ["bench", "add", str(spec), str(made), "--runs", str(tmp_path / "here")]
    told = CliRunner().invoke(app, [*words, "--export", str(tmp_path / "out.csv")])
    assert told.exit_code == 0, told.output
    assert "6 added, 0 already there, 0 of another version" in told.output
    assert (tmp_path / "out.csv").read_text() == made.read_text()
    (tmp_path / "text.csv").write_text("not records\n")
    refused = CliRunner().invoke(app, [*words[:3], str(tmp_path / "text.csv"), "--runs", str(tmp_path / "here")])
    assert isinstance(refused.exception, fv.FoveateError)
    assert "is not a CSV file of records: it has no column 'spec'" in str(refused.exception)


def test_a_point_taken_out_of_the_grid_no_longer_competes(kills: Any, tmp_path: Path) -> None:
    def chosen(rows: list[Record]) -> Record:
        return max((r for r in rows if r.seed == 0 and r.state == "done"), key=lambda r: r.score or 0.0)

    first = run(job(tmp_path), workers=0, say=quiet)
    gone = chosen(first).point["skill"]
    kept = [skill for skill in (0.2, 0.3, 0.4) if skill != gone]
    again = run(job(tmp_path, SPEC.replace("[0.2, 0.3, 0.4]", str(kept))), workers=0, say=quiet)
    assert {r.point["skill"] for r in again if r.method == "grid"} == {*kept}
    (reused,) = [r for r in again if r.method == "grid" and r.seed == 1]
    assert reused.point == chosen(again).point
    # the record is still there for the day the point comes back
    told: list[str] = []
    assert chosen(run(job(tmp_path), workers=0, say=told.append)) == chosen(first)
    assert told == []


def test_failures_are_kept_and_can_be_tried_again(kills: Any, tmp_path: Path) -> None:
    records = run(job(tmp_path), workers=0, say=quiet)
    failed = [r for r in records if r.state == "failed"]
    assert len(failed) == 2
    assert "RuntimeError: this trial was asked to fail" in failed[0].error
    assert "Traceback" in (tmp_path / failed[0].log).read_text()
    sweep = job(tmp_path).sweep()
    shown = str(status(sweep))
    assert shown.startswith("4 of 6 trials done, 2 failed")
    assert "asked to fail" in shown
    assert sweep.retry_failed() == 2
    again = run(job(tmp_path), workers=0, say=quiet)
    assert sorted(r.state for r in again) == ["done"] * 4 + ["failed"] * 2
    assert len({r.key for r in again}) == 6


def test_post_hoc_systems_wait_for_their_base(tmp_path: Path) -> None:
    text = """
name: posthoc
data: {name: critters, options: {train: 40, target: 16, val: 16, test: 24, size: 32}}
network: {backbone: micro_resnet, model_args: {layers: [1, 1], width: 8, stem_stride: 2}}
training: {epochs: 1, batch_size: 16}
core: masks
seeds: [0]
select: worst_group
methods:
  DFR: {system: DFR, settings: {refits: 2}}
  base: {system: ERM, last: true}
  ERM: {system: ERM, target: false}
"""
    records = run(job(tmp_path, text), workers=0, say=quiet)
    for record in records:  # what a page needs long after the models are gone
        assert {"weight_decay", "epochs", "batch_size", "optimizer"} <= {*record.settings}, record.settings
        kept = KeptHits.unpacked(record.answers)
        if "worst_group" in record.metrics:
            assert kept is not None
            assert min(v.mean() for v in kept.right.values()) == pytest.approx(record.metrics["worst_group"], abs=1e-4)
    records = sorted(records, key=lambda r: ["base", "DFR", "ERM"].index(r.method))
    assert [(r.method, r.state, r.error) for r in records] == [(m, "done", "") for m in ("base", "DFR", "ERM")]
    assert records[0].supervision == "train: labels"  # the last epoch, whatever val says of it
    assert records[2].supervision == "train: labels; selection: group labels (worst_group)"
    assert "base (labels" in records[1].supervision
    assert {"average", "worst_group", "cep_output", "cgp"} <= set(records[1].metrics)
    assert "store" not in records[1].settings
    assert table(records, order=["base", "DFR", "ERM"]).count("\n") == 4
    # a base that cannot be trained: what waits for it is not run, and the run ends
    broken = """
name: broken
data: {name: critters, options: {train: 40, target: 16, val: 16, test: 24, size: 32}}
network: {backbone: micro_resnet, model_args: {width: wide}}
seeds: [0]
select: worst_group
methods:
  DFR: {system: DFR}
  base: {system: ERM}
"""
    records = run(job(tmp_path, broken), workers=0, say=quiet)
    assert [(r.method, r.state) for r in records] == [("base", "failed")]
    assert "1 failed, 1 blocked" in str(status(job(tmp_path, broken).sweep()))


def test_every_seed_may_have_images_of_its_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_images(
            fv.data.critters(seed=seed, train=16, target=8, val=8, test=8, size=32), tmp_path / f"images-{seed}"
        )
    text = f"""
name: own-images
data: {{name: own, root: "{tmp_path}/images-{{seed}}/benchmark.csv"}}
seeds: [0, 1]
select: average
methods:
  full: {{system: FullImage, settings: {{embedder: micro-vit}}}}
"""
    bench = Bench(parse_spec(text), tmp_path)
    first, second = (bench.data("own", seed).train.fingerprint for seed in (0, 1))
    assert first != second


def test_pruning_and_tpe(tmp_path: Path) -> None:
    text = """
name: pruned
data: {name: critters, options: {train: 40, target: 16, val: 16, test: 24, size: 32}}
network: {backbone: micro_resnet, model_args: {layers: [1, 1], width: 8, stem_stride: 2}}
training: {epochs: 3, batch_size: 20}
seeds: [0]
select: loss
methods:
  ERM:
    system: ERM
    prune: median
    grid: {lr: [0.01, 0.011, 0.012, 0.013, 0.014, 1e-9]}
  drawn:
    system: ERM
    search: tpe
    trials: 3
    space: {lr: {low: 1e-5, high: 1e-1, log: true}, batch_size: {low: 8, high: 32}}
"""
    records = run(job(tmp_path, text), workers=0, say=quiet)
    mine = [r for r in records if r.method == "ERM"]
    assert [r.state for r in mine] == ["done"] * 5 + ["pruned"]
    assert mine[-1].point == {"lr": 1e-9}
    assert "lags behind at epoch" in mine[-1].error
    drawn = [r for r in records if r.method == "drawn"]
    assert len({r.point["lr"] for r in drawn}) == 3
    assert all(8 <= r.point["batch_size"] <= 32 and r.state == "done" for r in drawn)


def test_a_system_without_epochs_is_not_pruned(kills: Any, tmp_path: Path) -> None:
    text = SPEC.replace("grid: {system: QuickTrial,", "grid: {system: QuickTrial, prune: halving,")
    records = run(job(tmp_path, text), workers=0, say=quiet)
    assert [r.state for r in records if r.method == "grid"] == ["done"] * 4


def test_records_in_and_out(tmp_path: Path) -> None:
    store = Records(tmp_path / "a.db")
    rows = [
        Record("s", "d", "critters", "DFR", seed, {"C": [1, 2]}, score=0.5, metrics={"average": 0.25}, log="x.log")
        for seed in (1, 0)
    ]
    assert [store.add(r) for r in rows] == [True, True]
    assert not store.add(rows[0])
    assert store.get(rows[0].key) == rows[0]
    path = write_csv(tmp_path / "a.csv", store.all())
    assert sorted(read_csv(path), key=lambda r: r.seed) == sorted(rows, key=lambda r: r.seed)
    assert path.read_text() == write_csv(tmp_path / "b.csv", rows[::-1]).read_text()
    assert record_key("d", "x", "m", {"a": 1}, 0) != record_key("d", "x", "m", {"a": 1}, 1)
