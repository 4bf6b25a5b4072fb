"""What is measured: two ways of doing the same thing, in alternating turns, and the ratio of their times."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TURNS = int(os.environ.get("FOVEATE_SPEED_TURNS", "5"))


@dataclass
class Row:
    """One line of the table.

    Attributes:
        what: what foveate does.
        anchor: what it is compared with, in the same turns on the same machine.
        ratio: median over the turns of the anchor's time by ours; above 1 is quicker.
        low, high: the smallest and the largest ratio of a turn: the noise; None where the turns are not kept.
        ours, theirs: median seconds of a turn.
        turns: how many, the first one, which warms up, not counted.
        target: what the ratio must reach, where there is a target.
        note: what else must be known to read it.
    """

    what: str
    anchor: str
    ratio: float
    low: float | None
    high: float | None
    ours: float | None
    theirs: float | None
    turns: int
    target: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def alternating(calls: dict[str, Callable[[], object]], turns: int = TURNS) -> dict[str, list[float]]:
    """Seconds of every call in every turn; one after the other in each turn, and one turn more to warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - began)
    return times


def against(what: str, anchor: str, ours: list[float], theirs: list[float], **more: Any) -> Row:
    """A row from the seconds of both in the same turns."""
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    return Row(
        what, anchor, statistics.median(ratios), min(ratios), max(ratios), statistics.median(ours),
        statistics.median(theirs), len(ratios), **more,
    )  # fmt: skip


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    import torch

    name = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        name = name or (line.partition(":")[2].strip() if line.startswith("model name") else "")
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return {
        "processor": name or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": [n for n in ("avx2", "avx512_f", "avx512_bf16", "amx_bf16") if able.get(n)],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_at_start": busy(),
        "commit": commit(),
    }


def busy() -> float | None:
    """Processes that ran or waited for a core over the last minute, where the system tells."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def commit() -> str:
    """The commit that is measured, with a + when files differ from it."""
    call = ["git", "-C", str(ROOT)]
    try:
        known = subprocess.run([*call, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*call, "status", "--porcelain", "src"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return known.stdout.strip() + ("+" if changed.stdout.strip() else "")
