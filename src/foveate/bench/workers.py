"""Who works on a sweep, and who of them is still alive."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foveate.bench.sweep import Sweep

HEARTBEAT = 10.0
"""Seconds between two signs of life of a worker."""
GRACE = 90.0
"""Seconds without one after which a worker on another machine counts as dead."""


class Liveness:
    """Whether the worker of a RUNNING trial is gone; asks the database once for all."""

    def __init__(self, sweep: Sweep):
        self.sweep, self.clock = sweep, 0.0
        self.known: dict[str, float] | None = None

    def __call__(self, trial: Any) -> bool:
        worker = trial.user_attrs.get("worker")
        if worker is None:
            begun: datetime | None = trial.datetime_start
            return begun is None or (datetime.now() - begun).total_seconds() > self.sweep.unclaimed
        host, pid, token = worker.rsplit(":", 2)
        if host == socket.gethostname():
            return process_token(int(pid)) != token
        if self.known is None:
            self.known, self.clock = self.sweep.seen(), self.sweep.now()
        return self.clock - self.known.get(worker, 0.0) > GRACE


def worker_name() -> str:
    """This process: host, number, and when it began (numbers are used again)."""
    return f"{socket.gethostname()}:{os.getpid()}:{process_token(os.getpid())}"


def process_token(pid: int) -> str:
    """Something only this process of that number has; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if stat[0] in ("Z", "X") else stat[19]  # a zombie works no more
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"


@contextlib.contextmanager
def heartbeat(sweep: Sweep, worker: str, every: float = HEARTBEAT) -> Iterator[None]:
    """Signs of life in the background, for coordinators on other machines."""
    over = threading.Event()

    def beat() -> None:
        while True:
            with contextlib.suppress(Exception):  # a busy database now is asked again the next time
                sweep.sign_of_life(worker)
            if over.wait(every):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1.0)
