"""A worker: takes trials from the queue and runs them, one after the other."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foveate.assemble.system import System
from foveate.bench.records import Record
from foveate.bench.sweep import Sweep
from foveate.bench.trial import Bench
from foveate.bench.trial_queue import Claim
from foveate.bench.workers import heartbeat, worker_name
from foveate.engine import Callback, EpochEnd
from foveate.errors import MissingExtra

if TYPE_CHECKING:
    from foveate.bench.run import Job


class LagsBehind(Exception):
    """Ends a trial that is pruned."""


def work(job: Job, until: Callable[[], bool] | None = None) -> int:
    """Run trials as they are queued, until told that it is enough (or the process is ended); how many were run."""
    import torch

    torch.set_num_threads(job.threads)
    sweep = job.sweep()
    bench, name, count = Bench(sweep.spec, job.runs), worker_name(), 0
    pause = 0.05
    while not (until is not None and until()):
        if work_once(job, sweep, bench, name):
            count, pause = count + 1, 0.05
            continue
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    return count


def work_once(job: Job, sweep: Sweep, bench: Bench, worker: str) -> bool:
    """Run one waiting trial; False when none waits."""
    claim = sweep.claim(worker, command=job.command, commit=job.commit)
    if claim is None:
        return False
    cell = claim.cell
    record = Record(
        sweep.spec.name, sweep.agenda.digest(cell), cell.dataset, cell.method, cell.seed, claim.point,
        select=sweep.spec.select_of(cell.dataset), system=sweep.spec.methods[cell.method].system,
        command=job.command, commit=job.commit, host=worker.rsplit(":", 2)[0],
    )  # fmt: skip
    with heartbeat(lambda: sweep.queue.beat(claim)):
        _run(job, sweep, bench, claim, record)
    sweep.finish(claim, record)
    return True


def _run(job: Job, sweep: Sweep, bench: Bench, claim: Claim, record: Record) -> None:
    """Fill in ``record``: figures, or the traceback of what went wrong."""
    folder = bench.folder(claim.cell, claim.key)
    for litter in folder.parent.glob(f".{folder.name}.*"):  # what a killed attempt at this trial left behind
        shutil.rmtree(litter, ignore_errors=True)
    log = folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    record.log = os.path.relpath(log, job.runs)
    began = time.perf_counter()
    with _logging_to(log, f"{claim.cell} {record.point}"):
        try:
            pruned = sweep.spec.methods[claim.cell.method].prune is not None
            callbacks = [_judged(sweep, claim)] if pruned else []
            found = bench.run(claim.cell, record.point, claim.key, _base(sweep, bench, claim), callbacks)
            record.score, record.metrics, record.settings = found.score, found.metrics, found.settings
            record.supervision, record.seconds, record.weights = found.supervision, found.seconds, found.weights
            record.answers = found.answers
            for kind in job.log_to:
                from foveate.bench.logging_to import log_record

                log_record(kind, record, found.epochs, Path(job.runs))
        except LagsBehind as stop:
            record.state, record.error, record.seconds = "pruned", str(stop), time.perf_counter() - began
        except Exception as error:
            record.state, record.seconds = "failed", time.perf_counter() - began
            record.error = traceback.format_exc()
            if isinstance(error, MissingExtra):
                record.error = str(error)
            print(record.error, file=sys.stderr)


def _base(sweep: Sweep, bench: Bench, claim: Claim) -> System | None:
    """The base model that was chosen when the trial was taken."""
    if not claim.base:
        return None
    chosen = sweep.records.get(claim.base)
    assert chosen is not None  # a trial is taken only when what it needs is there
    return bench.base_of(claim.cell, chosen.point, chosen.key)


def _judged(sweep: Sweep, claim: Claim) -> Callback:
    """A callback that ends the trial when it lags behind the others of its cell."""
    race, scores = sweep.race(claim), list[float]()

    def judge(end: EpochEnd) -> None:
        if end.score is None:
            return
        scores.append(end.score)
        race.follow(sweep.report(claim, scores))
        if race.lags(claim.slot, len(scores), end.score):
            raise LagsBehind(f"lags behind at epoch {end.epoch} with {end.score:.4f}")

    return judge


@contextlib.contextmanager
def _logging_to(path: Path, title: str) -> Iterator[None]:
    """Everything printed, warned and logged meanwhile goes to ``path``."""
    logger = logging.getLogger("foveate")
    level, passes = logger.level, logger.propagate
    with open(path, "w", encoding="utf-8") as file:
        print(title, file=file, flush=True)
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # the screen is for the coordinator's lines
        try:
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = passes
