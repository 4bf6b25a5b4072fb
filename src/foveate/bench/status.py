"""How far a sweep is: trials done, running, waiting and failed, what is left in time, and what went wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from foveate.bench.records import Record
from foveate.bench.sweep import Sweep


@dataclass
class Status:
    """Counts of trials by state, and seconds of work left (None when nothing has been finished to judge by)."""

    total: int
    done: int
    running: int
    failed: int
    pruned: int
    blocked: int
    left_seconds: float | None
    failures: list[Record] = field(default_factory=list)
    silent: list[Record] = field(default_factory=list)
    """Trials whose model had no answer (NaN) to some test images."""

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} trials done"]
        for name in ("running", "failed", "pruned", "blocked"):
            if count := getattr(self, name):
                parts.append(f"{count} {name}")
        text = ", ".join(parts)
        if self.left_seconds:
            text += f"; about {duration(self.left_seconds)} left on one worker"
            if self.running > 1:
                text += f", {duration(self.left_seconds / self.running)} on the {self.running} that run"
        for record in self.failures:
            last = record.error.strip().splitlines()[-1] if record.error.strip() else "failed"
            text += f"\n  {record.dataset}, {record.method}, seed {record.seed}: {last} (log: {record.log or 'none'})"
        for record in self.silent:
            text += (
                f"\n  {record.dataset}, {record.method}, seed {record.seed}: no answer (NaN) for "
                f"{100 * record.metrics['unanswered']:.1f} % of the test images; they count as wrong"
            )
        return text


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            shown = seconds / unit
            return f"{shown:.1f} {name}" if name == "h" else f"{shown:.0f} {name}"
    return f"{seconds / 86400:.1f} days"


def status(sweep: Sweep) -> Status:
    """Where the sweep stands; reads only."""
    rows = sweep.current()
    states = Counter(r.state for r in rows)
    mean = _means(rows)
    counts = sweep.counts()
    total = running = blocked = 0
    left: float | None = 0.0
    for cell in sweep.cells:
        mine = [r for r in rows if r.cell == (cell.dataset, cell.method, cell.seed)]
        method = sweep.spec.methods[cell.method]
        reused = method.searches_once and cell.seed != sweep.spec.seeds_of(cell.dataset)[0]
        count = 1 if reused else (len(method.points()) if method.search == "grid" else method.trials or 0)
        total += count
        needed = [n for n in sweep.waits_for(cell) if sweep.best(n, rows) is None]
        gone = [n for n in needed if any(r.cell == (n.dataset, n.method, n.seed) and r.state == "failed" for r in rows)]
        if gone and not mine:
            blocked += count
            continue
        open_ = max(count - len(mine), 0)
        if open_:
            running += counts.get(sweep.name(cell), {}).get("RUNNING", 0)
            seconds = mean.get((cell.dataset, cell.method), mean.get("all"))
            left = None if seconds is None or left is None else left + open_ * seconds
    failures = [r for r in rows if r.state == "failed"]
    silent = [r for r in rows if r.metrics.get("unanswered")]
    return Status(total, states["done"], running, states["failed"], states["pruned"], blocked, left, failures, silent)


def _means(rows: list[Record]) -> dict[object, float]:
    """Mean seconds of a trial by dataset and method, and of all."""
    found: dict[object, list[float]] = {}
    for record in rows:
        if record.state == "done":
            found.setdefault((record.dataset, record.method), []).append(record.seconds)
            found.setdefault("all", []).append(record.seconds)
    return {key: statistics.fmean(values) for key, values in found.items()}
