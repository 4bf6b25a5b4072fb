"""Who works on a sweep, and who of them is still alive."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

HEARTBEAT = 10.0
"""Seconds between two signs of life of a worker."""
GRACE = 90.0
"""Seconds without one after which a worker on another machine counts as dead."""


def worker_name() -> str:
    """This process: host, number, and when it began (numbers are used again)."""
    return f"{socket.gethostname()}:{os.getpid()}:{process_token(os.getpid())}"


def is_dead(worker: str, silent: float) -> bool:
    """Whether a worker is gone.

    Args:
        worker: its :func:`worker_name`.
        silent: seconds since its last sign of life; on this machine its process is looked at instead.
    """
    host, number, token = worker.rsplit(":", 2)
    if host == socket.gethostname():
        return process_token(int(number)) != token
    return silent > GRACE


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
def heartbeat(sign: Callable[[], None], every: float = HEARTBEAT) -> Iterator[None]:
    """Call ``sign`` in the background every so many seconds, for coordinators on other machines."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every):
            with contextlib.suppress(Exception):  # a busy database now is asked again the next time
                sign()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1.0)
