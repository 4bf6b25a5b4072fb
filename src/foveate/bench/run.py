"""``foveate bench run``: a coordinator that looks after the queue, and workers that run trials."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foveate.bench.records import Record
from foveate.bench.spec import Spec, parse_spec
from foveate.bench.standing import Standing
from foveate.bench.sweep import Sweep
from foveate.bench.trial import Bench
from foveate.bench.work import work, work_once
from foveate.bench.workers import worker_name
from foveate.errors import FoveateError

POLL = 0.3
LONGEST = 5.0
"""Seconds between two looks at the queue, at least and at most."""
STOPS = 30
"""After so many workers that ended by an error of their own (not of a trial: those are recorded) a run gives up."""


@dataclass
class Job:
    """All a worker needs to know; plain values, so that it can be sent to another process or machine.

    Attributes:
        text: the spec, as YAML.
        named: what to call the spec in messages.
        runs: folder of models, logs and features.
        storage: SQLite file or PostgreSQL URL.
        command: what the user typed, for the records.
        imports: modules to import first, for instance those that define systems of one's own.
        threads: threads a worker computes with.
        log_to: ``mlflow`` and ``tensorboard`` may get the figures too.
        methods, datasets: run these only; by default all of the spec.
    """

    text: str
    named: str
    runs: str
    storage: str
    command: str = ""
    imports: Sequence[str] = ()
    threads: int = 1
    log_to: Sequence[str] = ()
    commit: str = field(default_factory=lambda: commit())
    methods: Sequence[str] = ()
    datasets: Sequence[str] = ()

    def spec(self) -> Spec:
        import_modules(self.imports)
        return parse_spec(self.text, self.named).part(self.methods, self.datasets)

    def sweep(self) -> Sweep:
        return Sweep(self.spec(), self.storage)


def import_modules(names: Sequence[str]) -> None:
    """Import modules of the user's own, for instance those that define systems; the working folder is searched too."""
    if names and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a module of the user's own may raise anything
            raise FoveateError(f"cannot import '{name}' (from --import): {error}.") from error


def run(
    job: Job, workers: int | None = None, ray: str | None = None, say: Callable[[str], None] = print
) -> list[Record]:
    """Run what is left of a spec; the same call after a kill goes on where it was. Gives the records of the spec.

    Args:
        job: the spec and its places.
        workers: processes on this machine (default: one a core); 0 runs everything in this process.
        ray: address of a Ray cluster to spread the trials over, instead of processes here.
        say: gets a line for every finished trial.
    """
    sweep = job.sweep()  # a mistake in the spec shows before anything is started
    told = {r.key for r in sweep.current()}
    if sweep.maintain().over:
        return sweep.current()
    if ray is not None:
        from foveate.bench.ray_cluster import RayTeam

        team: Any = RayTeam(job, ray, workers)
    else:
        team = _Team(job, (os.cpu_count() or 1) if workers is None else workers)
    with team:
        while True:
            began = time.process_time()  # not the clock: on a busy machine that runs on while this process waits
            team.look_after(sweep)  # before the queue is: it says which workers died by themselves
            standing = sweep.maintain()
            _tell_news(sweep, standing, told, say)
            if standing.over:
                break
            # looking after the queue may take no more than a few percent of the machine
            time.sleep(min(max(POLL, 20 * (time.process_time() - began)), LONGEST) if team.size else 0.0)
    return sweep.current()


def _tell_news(sweep: Sweep, standing: Standing, told: set[str], say: Callable[[str], None]) -> None:
    for row in (row for cell in sweep.cells for row in standing.belonging(cell)):
        record = None if row.key in told else sweep.records.get(row.key)
        if record is None:
            continue
        told.add(record.key)
        point = ", ".join(f"{k} {v}" for k, v in record.point.items())
        what = f"{record.dataset}, {record.method}, seed {record.seed}" + (f" ({point})" if point else "")
        if record.state == "done":
            shown = "" if record.score is None else f"{record.select} on val {100 * record.score:.1f}, "
            say(f"{what}: {shown}{record.seconds:.1f} s")
        else:
            say(f"{what}: {record.state}: {record.error.strip().splitlines()[-1] if record.error else ''}")


# -- workers -----------------------------------------------------------------------------


class _Team:
    """Worker processes on this machine; they end when this process does, however it ends."""

    def __init__(self, job: Job, size: int):
        self.job, self.size = job, size
        self.processes: list[Any] = []
        self.stopped = 0
        self._inline: tuple[Sweep, Bench] | None = None

    def __enter__(self) -> _Team:
        # forked workers share what is imported; CUDA does not survive a fork, so then they start anew
        method = "fork" if hasattr(os, "fork") and sys.platform == "linux" and not _uses_cuda() else "spawn"
        self.context: Any = multiprocessing.get_context(method)
        self.forked = method == "fork"
        self.reader, self.writer = self.context.Pipe(duplex=False)
        for _ in range(self.size):
            self._start()
        return self

    def _start(self) -> None:
        held = self.writer if self.forked else None
        process = self.context.Process(target=_worker_process, args=(self.job, self.reader, held), daemon=False)
        process.start()
        self.processes.append(process)

    def look_after(self, sweep: Sweep) -> None:
        """Replace workers that died; without workers, run one trial here."""
        if not self.size:
            if self._inline is None:
                self._inline = sweep, Bench(sweep.spec, self.job.runs)
            if not work_once(self.job, *self._inline, worker_name()):
                time.sleep(POLL)  # another machine has what is left
            return
        for process in [p for p in self.processes if not p.is_alive()]:
            if process.exitcode is not None and process.exitcode < 0:  # killed: by the system, for want of memory?
                sweep.crashed.add(f"{socket.gethostname()}:{process.pid}")
            else:
                self.stopped += 1
            if self.stopped > STOPS:
                raise FoveateError(f"workers stop as soon as they start ({STOPS} times now); see what they printed.")
            self.processes.remove(process)
            self._start()

    def __exit__(self, *_: Any) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(timeout=5)
        self.reader.close()
        self.writer.close()


def _uses_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _worker_process(job: Job, reader: Any, writer: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator, which then ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if writer is not None:
        writer.close()

    def leave_with_coordinator() -> None:
        with contextlib.suppress(EOFError, OSError):
            reader.recv()
        os._exit(3)  # the other end is closed: the coordinator is gone

    threading.Thread(target=leave_with_coordinator, daemon=True).start()
    work(job)


def commit() -> str:
    """The commit of the code that runs, ``-dirty`` when it was changed since; the version where there is no git."""
    from foveate import __version__

    here = Path(__file__).resolve().parents[1]
    ask: dict[str, Any] = {"capture_output": True, "text": True, "cwd": here}
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **ask)
        changed = subprocess.run(["git", "status", "--porcelain", "--", str(here)], **ask)
    except OSError:
        return f"v{__version__}"
    if head.returncode:
        return f"v{__version__}"
    return head.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")
