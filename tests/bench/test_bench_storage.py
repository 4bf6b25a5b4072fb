"""Many machines on one study: a real PostgreSQL server, started here."""

from __future__ import annotations

import glob
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")

from foveate.bench import workers
from foveate.bench.records import QUEUE_COLUMNS, Record, Records
from foveate.bench.run import Job, run
from foveate.bench.table import table
from foveate.bench.trial import Cell

SPEC = """
name: shared
data: {name: critters, options: {train: 16, target: 16, val: 16, test: 40, size: 32}}
seeds: [0, 1]
select: average
methods:
  grid: {system: QuickTrial, grid: {skill: [0.2, 0.3]}, repeat: search}
  drawn: {system: QuickTrial, search: random, trials: 2, repeat: search, space: {skill: {low: 0.1, high: 0.9}}}
"""


def tool(name: str) -> str | None:
    """A program of PostgreSQL's, from Debian's folder (its wrappers on PATH may want another layout) or PATH."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server that lives as long as these tests."""
    pytest.importorskip("psycopg", reason="a PostgreSQL storage needs the extra [postgres]")
    initdb, pg_ctl = tool("initdb"), tool("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no initdb and pg_ctl on PATH or in /usr/lib/postgresql/*/bin")
    before: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:  # the server refuses to run as root
        for command in (["runuser", "-u", "postgres", "--"], ["setpriv", "--reuid=postgres", "--clear-groups"]):
            if shutil.which(command[0]) and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                before = command
                break
        else:
            shutil.rmtree(folder)
            pytest.skip("run as root, and there is no user 'postgres' (with runuser or setpriv) to run the server as")
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")

    def call(*command: str) -> None:
        done = subprocess.run([*before, *command], capture_output=True, text=True, cwd=folder, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        call(initdb, "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
        options = f"-p {port} -k {folder} -h 127.0.0.1 -F"
        call(pg_ctl, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            call(pg_ctl, "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def job(folder: Path, storage: str, **more: Any) -> Job:
    return Job(SPEC, "shared.yaml", str(folder), storage, command="cmd", commit="c0", **more)


def quiet(line: str) -> None:
    pass


def test_postgresql_gives_what_sqlite_gives(kills: Any, server: str, tmp_path: Path) -> None:
    here = run(job(tmp_path / "a", str(tmp_path / "a.db")), workers=0, say=quiet)
    there = run(job(tmp_path / "b", server), workers=2, say=quiet)
    order = ["grid", "drawn"]
    assert len(there) == len(here) == 8
    assert table(there, order=order) == table(here, order=order)
    assert {(r.key, r.score) for r in there} == {(r.key, r.score) for r in here}
    assert run(job(tmp_path / "b", server), workers=0, say=quiet) == there


def test_a_machine_that_went_silent(kills: Any, server: str, tmp_path: Path) -> None:
    """A trial of another host is left alone while that host signs, and taken back when it stops."""
    work = job(tmp_path, server)
    work.text = SPEC.replace("name: shared", "name: silent")
    sweep, other = work.sweep(), "elsewhere:7:1"
    sweep.maintain()
    claim = sweep.claim(other)
    assert claim is not None
    assert claim.cell == Cell("critters", "grid", 0)
    sweep.maintain()
    assert [row.state for row in sweep.standing().rows[claim.cell]] == ["running", "waiting"]
    with sweep.records.database.writing() as connection:
        sweep.queue.change(connection, claim.key, {"heartbeat": sweep.now() - workers.GRACE - 1})
    sweep.queue.beat(claim)
    sweep.maintain()
    assert [row.state for row in sweep.standing().rows[claim.cell]] == ["running", "waiting"]
    with sweep.records.database.writing() as connection:
        sweep.queue.change(connection, claim.key, {"heartbeat": sweep.now() - workers.GRACE - 1})
    sweep.maintain()
    assert [row.state for row in sweep.standing().rows[claim.cell]] == ["waiting", "waiting"]
    assert len(run(work, workers=0, say=quiet)) == 8


def test_two_runs_at_once_share_the_work(kills: Any, server: str, tmp_path: Path) -> None:
    """Two coordinators, as on two machines, with delays at every statement: each trial is run once."""
    work = job(tmp_path, server)
    work.text = SPEC.replace("name: shared", "name: both").replace(", repeat: search", "")
    fork = multiprocessing.get_context("fork")
    with kills.delayed(0.03):
        both = [fork.Process(target=run, args=(work, 0, None, quiet)) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join(300)
    assert [one.exitcode for one in both] == [0, 0]
    records = work.sweep().current()
    assert len(records) == 6
    assert work.sweep().standing().missing() == []
    for method in ("grid", "drawn"):
        first = {str(r.point): r.score for r in records if (r.method, r.seed) == (method, 0)}
        (second,) = [r for r in records if (r.method, r.seed) == (method, 1)]
        assert first[str(second.point)] == max(first.values())


def test_a_table_of_an_earlier_version_gets_its_columns(server: str) -> None:
    storage = Records(server)
    storage.add(Record("before", "d", "critters", "DFR", 0, {"C": 1}, score=0.5))
    with storage.database.writing() as connection:
        for name in QUEUE_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE foveate_records DROP COLUMN {name}")
    (record,) = Records(server).all("before")
    assert (record.point, record.score) == ({"C": 1}, 0.5)
