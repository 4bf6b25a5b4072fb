"""How far a sweep is: trials done, running, waiting and failed, what is left in time, and what went wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """Counts and failures as JSON values."""
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("failures", "silent")}
        told = [
            {"dataset": r.dataset, "method": r.method, "seed": r.seed, "error": r.error.strip(), "log": r.log}
            for r in self.failures
        ]
        silent = [{"dataset": r.dataset, "method": r.method, "seed": r.seed} for r in self.silent]
        return {**counts, "failures": told, "silent": silent}

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
    standing, rows = sweep.standing(), sweep.current()
    states = Counter(r.state for r in rows)
    mean = _means(rows)
    total = running = blocked = 0
    left: float | None = 0.0
    for cell in sweep.cells:
        slots = standing.slots[cell]
        # slots that drew a point which is there already are no trials of their own
        count = sweep.agenda.size(cell) - sum(slot.row is not None and slot.row.state == "same" for slot in slots)
        total += count
        if cell in standing.blocked and not standing.belonging(cell):
            blocked += count
            continue
        running += sum(slot.row is not None and slot.row.state == "running" for slot in slots)
        if open_ := max(count - len(standing.belonging(cell)), 0):
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
