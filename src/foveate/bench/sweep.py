"""The search of every cell, made so that a kill at any moment loses and doubles nothing.

There is one truth, the records table, which is the queue as well (:mod:`foveate.bench.trial_queue`). What the rows mean
for the spec is judged by :class:`~foveate.bench.standing.Standing`; Optuna is asked for points and whom to prune
(:mod:`foveate.bench.search`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from foveate.bench.records import OVER, Record, Records
from foveate.bench.search import Race, draws, import_optuna
from foveate.bench.spec import Spec
from foveate.bench.standing import Agenda, Slot, Standing, TrialRow
from foveate.bench.trial import Cell, trial_folder
from foveate.bench.trial_queue import BLANK, Claim, TrialQueue, dumped
from foveate.bench.workers import is_dead
from foveate.errors import FoveateError

ATTEMPTS = 3
"""So many times a slot is tried when its workers die on it (for instance for want of memory)."""


@dataclass
class Added:
    """What became of records made elsewhere; those of another version of the spec are kept and do not count."""

    added: int = 0
    already_there: int = 0
    of_another_version: int = 0


class Sweep:
    """What a spec asks for and what the table has of it; any number of processes may have one.

    Args:
        spec: what to run.
        storage: a file (SQLite) or a PostgreSQL URL.
    """

    def __init__(self, spec: Spec, storage: str | Path):
        self.spec = spec
        self.agenda = Agenda(spec)
        self.records = Records(storage)  # makes the folder and explains a storage that cannot be opened
        self.queue = TrialQueue(self.records, spec.name)
        self.crashed: set[str] = set()
        """Workers (``host:number``) that died while their coordinator lived: what they ran may be to blame."""
        self.blames_since: float | None = None
        """Where workers cannot be told apart by number: all that fell silent after this time are to blame too."""
        if any(method.search != "grid" or method.prune for method in spec.methods.values()):
            import_optuna()  # now, and not in the middle of a transaction

    @property
    def cells(self) -> list[Cell]:
        return self.agenda.cells

    # -- reading ----------------------------------------------------------------------------

    def standing(self) -> Standing:
        """How far the spec is."""
        with self.records.database.reading() as connection:
            return Standing(self.agenda, self.queue.rows(connection))

    def current(self) -> list[Record]:
        """The records that belong to the spec as it is now."""
        standing = self.standing()
        keys = {row.key for cell in self.cells for row in standing.belonging(cell)}
        return [record for record in self.records.all(self.spec.name) if record.key in keys]

    def best(self, cell: Cell) -> Record | None:
        """The record the selection metric chose among a cell's trials, or None when none was successful."""
        row = self.standing().best(cell)
        return None if row is None else self.records.get(row.key)

    def now(self) -> float:
        with self.records.database.reading() as connection:
            return self.queue.now(connection)

    # -- looking after the queue ------------------------------------------------------------

    def maintain(self) -> Standing:
        """Queue what is ready, take back what dead workers held; how far the spec is."""
        database = self.records.database
        with database.reading() as connection:
            standing = Standing(self.agenda, self.queue.rows(connection))
            if next(self._chores(standing, self.queue.now(connection)), None) is None:
                return standing
        with database.writing() as connection:  # what is to be done is judged again by what nobody else changes now
            standing = Standing(self.agenda, self.queue.rows(connection))
            for slot, values in list(self._chores(standing, self.queue.now(connection))):
                if slot.row is None:
                    method = self.spec.methods[slot.cell.method]
                    select = self.spec.select_of(slot.cell.dataset)
                    self.queue.put(connection, slot, self.agenda.digest(slot.cell), method.system, select)
                else:
                    row = slot.row
                    self.queue.change(connection, row.key, values, state=row.state, worker=row.worker)
        return standing

    def _chores(self, standing: Standing, now: float) -> Iterator[tuple[Slot, dict[str, Any]]]:
        """Slots of ready cells that need something done, and what is to be written into their rows."""
        for cell in self.cells:
            if cell not in standing.ready:
                continue
            for slot in standing.slots[cell]:
                row = slot.row
                if row is None:
                    yield slot, {}
                elif row.state == "running":
                    if is_dead(row.worker, now - row.heartbeat):
                        yield slot, self._taken_back(slot)
                elif slot.outdated:
                    yield slot, {**BLANK, "base": slot.base, "attempts": 0}
                elif (row.slot, row.search) != (slot.number, slot.search):  # of an earlier version, or another search
                    yield slot, {"slot": slot.number, "search": slot.search}

    def _taken_back(self, slot: Slot) -> dict[str, Any]:
        """A row whose worker is gone: it waits again, or is given up."""
        row = slot.row
        assert row is not None
        silent = self.blames_since is not None and row.heartbeat >= self.blames_since
        attempts = row.attempts + (silent or row.worker.rpartition(":")[0] in self.crashed)
        if attempts < ATTEMPTS:
            return {**BLANK, "base": slot.base or row.base, "attempts": attempts}
        error = f"its worker died {ATTEMPTS} times on it (out of memory?); see the log."
        return {"state": "failed", "attempts": attempts, "error": error, "finished": timestamp()}

    def add(self, records: Iterable[Record]) -> Added:
        """Take records made elsewhere into the table; a trial that has a record here, or runs, is left as it is."""
        records = list(records)
        if foreign := sorted({record.spec for record in records} - {self.spec.name}):
            raise FoveateError(
                f"these are records of '{foreign[0]}' and the spec is '{self.spec.name}'; give the spec they belong to."
            )
        told = Added()
        for record in records:
            if self.queue.settle(record):
                told.added += 1
            else:
                told.already_there += 1
        keys = {record.key for record in self.current()}
        told.of_another_version = sum(record.key not in keys for record in records)
        return told

    def retry_failed(self) -> int:
        """Let failed trials wait again; how many there were."""
        return self.queue.retry([record for record in self.current() if record.state == "failed"])

    # -- taking and finishing trials (any number of workers) --------------------------------

    def claim(self, worker: str, **noted: Any) -> Claim | None:
        """Take a waiting trial of any cell, or None when none waits now.

        Whether a trial may be run is judged in the transaction that takes it, so no point is run that was the choice
        of a search only for a while. ``noted`` is written into the row.
        """
        if not self.queue.some_wait() or next(self.standing().waiting(), None) is None:
            return None
        with self.records.database.writing() as connection:
            standing = Standing(self.agenda, self.queue.rows(connection))
            for slot in standing.waiting():
                claim = self._take(connection, standing, slot, worker, noted)
                if claim is not None:
                    return claim
        return None

    def _take(
        self, connection: Any, standing: Standing, slot: Slot, worker: str, noted: dict[str, Any]
    ) -> Claim | None:
        cell, key, point = slot.cell, slot.key, slot.point
        assert slot.row is not None
        values: dict[str, Any] = {}
        if point is None:
            point = self._drawn(connection, standing, slot)
            if point is None:
                self.queue.change(connection, key, {"state": "same"}, state="waiting")
                return None
            key = self.agenda.key(cell, point)
            values = {"key": key, "point": dumped(point)}
        values |= {
            **BLANK, "state": "running", "worker": worker, "heartbeat": self.records.database.clock, "base": slot.base,
            "host": worker.rsplit(":", 2)[0], "log": str(trial_folder(self.spec.name, cell, key)) + ".log", **noted,
        }  # fmt: skip
        if not self.queue.change(connection, slot.key, values, state="waiting"):
            return None  # another worker was quicker
        return Claim(cell, key, point, slot.number, worker, slot.search, slot.base)

    def _drawn(self, connection: Any, standing: Standing, slot: Slot) -> dict[str, Any] | None:
        """A point for a slot that is nobody else's, or None when there seems to be no other."""
        cell, method = slot.cell, self.spec.methods[slot.cell.method]
        mine = [s.row for s in standing.slots[cell] if s.row is not None]
        there = {row.key for row in self.queue.rows(connection, cell)}
        for point in draws(method, self._name(cell), cell.seed, slot.number, mine):
            if self.agenda.key(cell, point) not in there:
                return point
        return None

    def _name(self, cell: Cell) -> str:
        return f"{self.spec.name}/{cell}/{self.agenda.digest(cell)}"

    def race(self, claim: Claim) -> Race:
        """What a trial that may be pruned is compared with."""
        return Race(self.spec.methods[claim.cell.method], self._name(claim.cell), self.agenda.size(claim.cell))

    def report(self, claim: Claim, scores: list[float]) -> dict[int, TrialRow]:
        """Write down the validation scores of a trial so far; gives the other rows of its search by slot."""
        found = self.queue.report(claim, scores)
        digest = self.agenda.digest(claim.cell)
        others = [r for r in found if r.key != claim.key and r.digest == digest and r.state != "same"]
        return {slot: row for row in others if (slot := self.agenda.slot_of(row)) is not None}

    def finish(self, claim: Claim, record: Record) -> bool:
        """Turn the row of a trial into its record, once; see :meth:`TrialQueue.finish`."""
        assert record.state in OVER
        record.finished = record.finished or timestamp()
        return self.queue.finish(claim, record)


def timestamp() -> str:
    """The time, as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
