"""Many machines on one study: a real PostgreSQL server, started here."""

from __future__ import annotations

import glob
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
    sweep.sign_of_life(other)
    cell, trial = sweep.claim(other) or (None, None)
    assert cell == Cell("critters", "grid", 0)
    assert trial is not None
    sweep.maintain()
    assert sweep.store.get_trial(trial._trial_id).state.name == "RUNNING"
    with sweep.records.engine.begin() as connection:
        long_ago = sweep.now() - workers.GRACE - 1
        connection.execute(sweep.workers.update().where(sweep.workers.c.name == other).values(seen=long_ago))
    sweep.maintain()
    assert sweep.store.get_trial(trial._trial_id).state.name == "FAIL"
    assert [t.state.name for t in sweep.trials(cell)].count("WAITING") == 2
    assert len(run(work, workers=0, say=quiet)) == 8
