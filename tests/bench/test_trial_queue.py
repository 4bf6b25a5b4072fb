"""The table as a queue: taken once, given back when its worker is gone, given up in the end, and never judged stale."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")

from foveate.bench.records import COLUMNS, Record, Records, flat, read_csv, write_csv
from foveate.bench.run import Job, run
from foveate.bench.status import status
from foveate.bench.sweep import ATTEMPTS, Sweep
from foveate.bench.trial import Bench, Cell
from foveate.bench.trial_queue import Claim, TrialQueue
from foveate.bench.work import work_once
from foveate.bench.workers import is_dead, process_token, worker_name
from foveate.cli.bench import bench_app
from foveate.errors import StorageError

SPEC = """
name: small
data: {name: critters, options: {train: 16, target: 16, val: 16, test: 40, size: 32}}
seeds: [0, 1]
select: average
methods:
  grid: {system: QuickTrial, grid: {skill: [0.2, 0.3, 0.4]}}
  drawn: {system: QuickTrial, search: random, trials: 3, space: {skill: {low: 0.1, high: 0.9}}}
"""
FIRST, SECOND = Cell("critters", "grid", 0), Cell("critters", "grid", 1)
HERE = socket.gethostname()


def job(folder: Path, text: str = SPEC, **more: Any) -> Job:
    return Job(text, "small.yaml", str(folder), str(folder / "records.db"), command="cmd", commit="c0", **more)


def quiet(line: str) -> None:
    pass


def result(sweep: Sweep, claim: Claim, score: float = 0.5, **more: Any) -> Record:
    cell = claim.cell
    return Record(
        sweep.spec.name, sweep.agenda.digest(cell), *vars(cell).values(), claim.point, score=score, **more
    )  # fmt: skip


def states(sweep: Sweep, cell: Cell) -> list[str]:
    return [row.state for row in sweep.standing().rows[cell]]


def take(sweep: Sweep, worker: str = "elsewhere:1:x") -> Claim:
    claim = sweep.claim(worker)
    assert claim is not None
    return claim


def finish_all(sweep: Sweep, scores: dict[float, float] | None = None) -> list[Claim]:
    """Take and finish all that waits; ``scores`` by skill."""
    found = []
    while (claim := sweep.claim(worker_name())) is not None:
        found.append(claim)
        assert sweep.finish(claim, result(sweep, claim, (scores or {}).get(claim.point["skill"], 0.5)))
    return found


def test_a_row_is_taken_once(kills: Any, tmp_path: Path) -> None:
    """Eight workers at once: every trial goes to one of them, with a point each."""
    work = job(tmp_path, SPEC.replace("[0.2, 0.3, 0.4]", str([n / 100 for n in range(1, 30)])))
    work.sweep().maintain()
    taken: list[Claim] = []

    def claimer(number: int) -> None:
        sweep = work.sweep()
        while (claim := sweep.claim(f"{HERE}:{os.getpid()}:{number}")) is not None:
            taken.append(claim)

    threads = [threading.Thread(target=claimer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(taken) == len({claim.key for claim in taken}) == 29 + 3
    assert sorted(c.slot for c in taken if c.cell == FIRST) == [*range(29)]
    rows = {row.key: row for cell in work.sweep().cells for row in work.sweep().standing().rows[cell]}
    assert {claim.key: claim.worker for claim in taken} == {row.key: row.worker for row in rows.values()}


def test_a_dead_workers_trial_waits_again_with_the_same_point(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    before = []
    while (claim := sweep.claim(f"{HERE}:999999:gone")) is not None:
        before.append(claim)
    assert len(before) == 6  # the other seeds wait for the choice
    assert states(sweep, FIRST) == ["running"] * 3
    fresh = job(tmp_path).sweep()
    fresh.maintain()
    assert states(fresh, FIRST) == ["waiting"] * 3
    again = []
    while (claim := fresh.claim(worker_name())) is not None:
        again.append(claim)
    assert [(c.key, c.point, c.slot) for c in again] == [(c.key, c.point, c.slot) for c in before]
    fresh.maintain()
    assert states(fresh, FIRST) == ["running"] * 3  # this process is alive


def test_a_slot_is_given_up_after_so_many_deaths_and_a_record_says_so(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    sweep.crashed.add(f"{HERE}:999999")
    for attempt in range(1, ATTEMPTS + 1):
        claim = take(sweep, f"{HERE}:999999:gone")
        assert (claim.cell, claim.slot) == (FIRST, 0)
        sweep.maintain()
        (row,) = [row for row in sweep.standing().rows[FIRST] if row.key == claim.key]
        assert (row.attempts, row.state) == (attempt, "failed" if attempt == ATTEMPTS else "waiting")
    (record,) = sweep.records.all()
    assert "its worker died 3 times on it" in record.error
    assert (record.point, record.log) == ({"skill": 0.2}, f"small/critters/grid/0/{record.key}.log")
    assert record.finished
    shown = str(status(sweep))
    assert "1 failed" in shown
    assert "died 3 times" in shown
    records = run(job(tmp_path), workers=0, say=quiet)  # and the rest goes on
    assert sorted(r.state for r in records) == ["done"] * 7 + ["failed"]


def test_a_kill_of_all_blames_nobody(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    for _ in range(2 * ATTEMPTS):  # a coordinator that comes anew does not know why the worker died
        take(sweep, f"{HERE}:999999:gone")
        sweep = job(tmp_path).sweep()
        sweep.maintain()
    assert {(row.state, row.attempts) for row in sweep.standing().rows[FIRST]} == {("waiting", 0)}


def test_where_workers_have_no_numbers_those_that_fall_silent_are_blamed(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    sweep.blames_since = sweep.now()
    claim = take(sweep, f"{HERE}:999999:gone")
    sweep.maintain()
    assert {row.attempts for row in sweep.standing().rows[FIRST] if row.key == claim.key} == {1}


def test_a_worker_that_was_thought_dead(kills: Any, tmp_path: Path) -> None:
    """Its failure is not a record while another one has its trial; what it made is as good as any, once."""
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    claim = take(sweep, f"{HERE}:999999:silent")
    sweep.maintain()  # its process is gone, so its slot waits again
    assert states(sweep, FIRST) == ["waiting"] * 3
    other = take(sweep, worker_name())
    assert other.key == claim.key
    assert not sweep.finish(claim, result(sweep, claim, state="failed", error="gone"))
    assert sweep.records.all() == []
    assert sweep.finish(claim, result(sweep, claim, 0.25))
    assert not sweep.finish(other, result(sweep, other, 0.75))
    (record,) = sweep.records.all()
    assert record.score == 0.25


def test_signs_of_life_count_on_other_machines(kills: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    claim = take(sweep, "elsewhere:7:1")
    monkeypatch.setattr("foveate.bench.workers.GRACE", 0.2)
    threading.Event().wait(0.3)
    sweep.queue.beat(claim)
    monkeypatch.setattr("foveate.bench.workers.GRACE", 60.0)
    sweep.maintain()
    assert states(sweep, FIRST).count("running") == 1
    monkeypatch.setattr("foveate.bench.workers.GRACE", -1.0)
    sweep.maintain()
    assert states(sweep, FIRST) == ["waiting"] * 3
    assert is_dead("elsewhere:7:1", 1.0)


def test_a_choice_is_taken_over_only_when_it_is_final(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    claims = [take(sweep) for _ in range(3)]
    for claim, score in zip(claims, (0.4, 0.9), strict=False):
        sweep.finish(claim, result(sweep, claim, score))
    # somebody queued the second seed with what was best for a while
    with sweep.records.database.writing() as connection:
        early = sweep.standing().slots[SECOND]
        assert [slot.point for slot in early] == [{"skill": 0.3}]
        sweep.queue.put(connection, early[0], sweep.agenda.digest(SECOND), "QuickTrial", "average")
    assert [claim.cell.method for claim in finish_all(sweep)] == ["drawn"] * 3  # it is not run
    sweep.finish(claims[2], result(sweep, claims[2], 0.95))
    sweep.maintain()
    assert [(c.cell, c.point) for c in finish_all(sweep) if c.cell.method == "grid"] == [(SECOND, {"skill": 0.4})]
    assert sweep.maintain().over
    assert {r.point["skill"] for r in sweep.current() if r.cell == ("critters", "grid", 1)} == {0.4}


def test_what_happens_while_the_table_is_read_is_not_missed(
    kills: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last trials of the first seed end right after the coordinator has read the table, which is then of no use."""
    sweep, other = job(tmp_path).sweep(), job(tmp_path).sweep()
    sweep.maintain()
    claims = [take(other) for _ in range(6)]
    scores = iter([0.1, 0.2, 0.9, 0.1, 0.2, 0.9])
    plain = TrialQueue.rows

    def slowly(self: TrialQueue, connection: Any, cell: Cell | None = None) -> Any:
        found = plain(self, connection, cell)
        if claims and not connection.get_execution_options().get("foveate_writes"):
            monkeypatch.setattr(TrialQueue, "rows", plain)
            while claims:
                claim = claims.pop(0)
                assert other.finish(claim, result(other, claim, next(scores)))
        return found

    monkeypatch.setattr(TrialQueue, "rows", slowly)
    assert not sweep.maintain().over
    sweep.maintain()
    taken = finish_all(other)
    best = {method: other.best(Cell("critters", method, 0)) for method in ("grid", "drawn")}
    assert {(c.cell.method, c.cell.seed, str(c.point)) for c in taken} == {
        (method, 1, str(record.point)) for method, record in best.items() if record is not None
    }
    assert len(taken) == 2
    assert sweep.maintain().over
    assert len(sweep.current()) == 8


@pytest.mark.parametrize("turn", range(3))
def test_delays_at_every_read_change_nothing(kills: Any, tmp_path: Path, turn: int) -> None:
    with kills.delayed(0.05):
        records = run(job(tmp_path), workers=2, say=quiet)
    assert len(records) == 2 * (3 + 1)
    for method in ("grid", "drawn"):
        first = {str(r.point): r.score for r in records if (r.method, r.seed) == (method, 0)}
        (second,) = [r for r in records if (r.method, r.seed) == (method, 1)]
        assert first[str(second.point)] == max(first.values())
    assert job(tmp_path).sweep().standing().missing() == []


def test_kills_and_delays_together(kills: Any) -> None:
    found = kills.run(kills=3, points=3, pause=0.05, longest=1.0, delays=0.03)
    for name in ("same_records", "same_table", "every_slot_once", "right_choice"):
        assert found[name], found


def test_a_grown_grid_changes_the_choice_and_the_old_one_no_longer_counts(kills: Any, tmp_path: Path) -> None:
    sweep = job(tmp_path).sweep()
    sweep.maintain()
    finish_all(sweep, {0.2: 0.9})
    sweep.maintain()
    finish_all(sweep)
    assert sweep.maintain().over
    assert [r.point for r in sweep.current() if r.cell == ("critters", "grid", 1)] == [{"skill": 0.2}]
    wider = job(tmp_path, SPEC.replace("0.4]", "0.4, 0.5]")).sweep()
    wider.maintain()
    (claim,) = finish_all(wider, {0.5: 0.95})
    assert (claim.cell, claim.slot) == (FIRST, 3)
    wider.maintain()
    assert [(c.cell, c.point) for c in finish_all(wider)] == [(SECOND, {"skill": 0.5})]
    assert wider.maintain().over
    # the table is made of the choice, although the old one may be better on the second seed
    assert [r.point for r in wider.current() if r.cell == ("critters", "grid", 1)] == [{"skill": 0.5}]
    assert len(wider.records.all()) == len(wider.current()) + 1


def test_drawn_points_are_the_seeds_and_are_all_different(kills: Any, tmp_path: Path) -> None:
    text = SPEC.replace("{low: 0.1, high: 0.9}", "{low: 0.1, high: 0.9, step: 0.2}").replace("trials: 3", "trials: 5")
    found = []
    for place in ("a", "b"):
        sweep = job(tmp_path / place, text).sweep()
        sweep.maintain()
        found.append([c.point["skill"] for c in finish_all(sweep) if c.cell.method == "drawn"])
    assert found[0] == found[1]
    assert sorted(found[0]) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    # one more than there are points: that slot ends, and is not a trial
    more = job(tmp_path / "a", text.replace("trials: 5", "trials: 6")).sweep()
    more.maintain()
    assert [c for c in finish_all(more) if c.cell == Cell("critters", "drawn", 0)] == []
    assert sorted(states(more, Cell("critters", "drawn", 0))) == ["done"] * 5 + ["same"]
    more.maintain()
    finish_all(more)
    assert more.maintain().over
    assert str(status(more)).startswith("10 of 10 trials done")


def test_a_base_that_is_no_longer_the_chosen_one_is_noticed(tmp_path: Path) -> None:
    text = """
name: based
data: {name: critters, options: {train: 16, target: 16, val: 16, test: 16, size: 32}}
network: {backbone: micro_resnet}
seeds: [0]
select: average
methods:
  base: {system: ERM, search: random, trials: TRIALS, space: {lr: {low: 0.001, high: 0.1}}}
  DFR: {system: DFR, grid: {refits: [1, 2]}}
"""

    def sweep(trials: int) -> Sweep:
        found = job(tmp_path, text.replace("TRIALS", str(trials))).sweep()
        found.maintain()
        return found

    def finish(which: Sweep, score: float) -> Claim:
        claim = take(which, worker_name())
        assert which.finish(claim, result(which, claim, score))
        which.maintain()
        return claim

    one = sweep(1)
    base = finish(one, 0.5)
    assert [finish(one, 0.6).base, finish(one, 0.7).base] == [base.key] * 2
    assert one.maintain().over
    two = sweep(2)  # another base is tried, and is better
    better = finish(two, 0.8)
    assert two.standing().missing() == [
        f"critters, DFR, seed 0 (refits {n}): waits" for n in (1, 2)
    ]  # what was made from the first is made again
    assert [finish(two, 0.6).base, finish(two, 0.7).base] == [better.key] * 2
    assert two.maintain().over


def test_records_of_an_earlier_version(kills: Any, tmp_path: Path) -> None:
    """A database without the columns of a queue: its records count, and nothing of them is run again."""
    records = run(job(tmp_path / "new"), workers=0, say=quiet)
    old = tmp_path / "records.db"
    with sqlite3.connect(old) as connection:
        kinds = {"seed": "INTEGER", "score": "FLOAT", "seconds": "FLOAT"}
        columns = ", ".join(f"'{name}' {kinds.get(name, 'TEXT')}" for name in COLUMNS)
        connection.execute(f"CREATE TABLE foveate_records (key VARCHAR(32) NOT NULL PRIMARY KEY, {columns})")
        marks = ", ".join("?" * (1 + len(COLUMNS)))
        for record in records:
            connection.execute(f"INSERT INTO foveate_records VALUES ({marks})", [record.key, *flat(record).values()])
    connection.close()
    assert Records(old).all("small") == records
    told: list[str] = []
    assert run(job(tmp_path), workers=0, say=told.append) == records
    assert told == []
    sweep = job(tmp_path).sweep()
    assert [s.row is not None and s.row.slot for s in sweep.standing().slots[FIRST]] == [0, 1, 2]
    drawn = sweep.standing().slots[Cell("critters", "drawn", 0)]
    assert [s.row is not None and s.row.search == s.search for s in drawn] == [True] * 3
    path = write_csv(tmp_path / "out.csv", sweep.current())
    assert {r.key for r in read_csv(path)} == {r.key for r in records}
    # half of them lost: only that half is run
    with sqlite3.connect(old) as connection:
        connection.execute("DELETE FROM foveate_records WHERE method = 'grid'")
    connection.close()
    assert len(run(job(tmp_path), workers=0, say=told.append)) == 8
    assert len(told) == 4
    assert all("grid" in line for line in told)


def test_a_run_that_cannot_be_complete_says_what_is_missing_and_fails(kills: Any, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    failing = "  grid: {system: QuickTrial, settings: {fails: true}, grid: {skill: [0.2, 0.3]}}\n"
    spec.write_text(SPEC[: SPEC.index("  grid:")] + failing, encoding="utf-8")
    words = ["run", str(spec), "--workers", "0", "--runs", str(tmp_path)]
    done = CliRunner().invoke(bench_app, words)
    assert done.exit_code == 1
    assert "not there: critters, grid, seed 1: cannot be run, for no trial of grid, seed 0, succeeded" in done.output
    spec.write_text(SPEC, encoding="utf-8")
    done = CliRunner().invoke(bench_app, words)
    assert done.exit_code == 0, done.output
    assert "not there" not in done.output


def test_a_storage_that_cannot_be_written_is_a_sentence(kills: Any, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, but longer than a header of one would be" * 40)
    with pytest.raises(StorageError, match="is not a database of records"):
        Records(tmp_path / "text.db")


def test_one_worker_after_the_other_runs_what_waits(kills: Any, tmp_path: Path) -> None:
    work = job(tmp_path)
    sweep = work.sweep()
    sweep.maintain()
    bench = Bench(sweep.spec, tmp_path)
    assert work_once(work, sweep, bench, worker_name())
    (record,) = sweep.records.all()
    assert (record.host, record.command, record.state) == (HERE, "cmd", "done")
    assert work_once(replace(work, command="other"), sweep, bench, worker_name())
    assert {r.command for r in sweep.records.all()} == {"cmd", "other"}


def test_liveness_of_processes() -> None:
    assert process_token(os.getpid()) == process_token(os.getpid()) != ""
    assert process_token(2**22 + 12345) == ""
    assert not is_dead(worker_name(), 1e9)
    assert is_dead(f"{HERE}:{2**22 + 12345}:1", 0.0)
