"""The queue of trials: rows of the records table that wait, run, or are over.

A worker takes a row that waits by writing its name on it, in one transaction; signs while it works; and turns the row
into a record at the end. What can happen, and why it does no harm:

- killed while a transaction is open: the database forgets it.
- killed while running: the row is found with a worker that is gone, and waits again, with the same point.
- the same trial run twice (a machine that was thought dead comes back): both change the same row, and only one of
  them finds it unfinished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foveate.bench.records import OVER, Record, Records, flat
from foveate.bench.standing import Slot, TrialRow
from foveate.bench.trial import Cell

LIGHT = (
    "key", "digest", "dataset", "method", "seed", "point", "state", "score", "slot", "search", "base", "worker",
    "heartbeat", "attempts", "reports",
)  # fmt: skip
"""The columns the queue is judged by; figures, settings and tracebacks stay where they are."""
BLANK = {"state": "waiting", "worker": "", "heartbeat": 0.0, "reports": "", "error": "", "finished": ""}
"""What a row has that waits for its first worker, or for the next one."""


@dataclass(frozen=True)
class Claim:
    """A trial that a worker has taken."""

    cell: Cell
    key: str
    point: dict[str, Any]
    slot: int
    worker: str
    search: str = ""
    base: str = ""


class TrialQueue:
    """The rows of one spec.

    Args:
        records: the table.
        spec: the name of the spec.
    """

    def __init__(self, records: Records, spec: str):
        self.records, self.spec = records, spec
        self.database, self.table = records.database, records.table

    def rows(self, connection: Any, cell: Cell | None = None) -> list[TrialRow]:
        """All rows of the spec (or of one cell), in the order they were finished."""
        columns = self.table.c
        query = self.database.sa.select(*(columns[name] for name in LIGHT)).where(columns.spec == self.spec)
        if cell is not None:
            query = query.where(
                columns.dataset == cell.dataset, columns.method == cell.method, columns.seed == cell.seed
            )
        return [_row(found._mapping) for found in connection.execute(query.order_by(columns.finished, columns.key))]

    def some_wait(self) -> bool:
        """Whether a row waits; cheap, to be asked often."""
        columns = self.table.c
        query = self.database.sa.select(columns.key).where(columns.spec == self.spec, columns.state == "waiting")
        with self.database.reading() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def now(self, connection: Any) -> float:
        return float(connection.execute(self.database.sa.select(self.database.clock)).scalar())

    def put(self, connection: Any, slot: Slot, digest: str, system: str, select: str) -> None:
        """Queue a slot that has no row."""
        cell, point = slot.cell, slot.point
        blank = Record(self.spec, digest, cell.dataset, cell.method, cell.seed, {}, system=system, select=select)
        values = {
            **flat(blank), **BLANK, "key": slot.key, "slot": slot.number, "search": slot.search, "base": slot.base,
            "attempts": 0, "point": "" if point is None else dumped(point),
        }  # fmt: skip
        self.records.insert(connection, values)

    def change(self, connection: Any, key: str, values: Mapping[str, Any], **were: Any) -> bool:
        """Write ``values`` into a row if its columns are as ``were`` says; whether they were."""
        query = self.table.update().where(self.table.c.key == key).values(dict(values))
        for name, value in were.items():
            column = self.table.c[name]
            if value == "":  # rows of an earlier version have nothing there
                column = self.database.sa.func.coalesce(column, "")
            query = query.where(column.in_(value) if isinstance(value, tuple) else column == value)
        return bool(connection.execute(query).rowcount)

    # -- what a worker does with the row it has ---------------------------------------------

    def beat(self, claim: Claim) -> None:
        """Sign that the worker of a claim is alive."""
        with self.database.writing(alone=False) as connection:
            self.change(connection, claim.key, {"heartbeat": self.database.clock}, worker=claim.worker, state="running")

    def report(self, claim: Claim, scores: list[float]) -> list[TrialRow]:
        """Write down the validation scores so far; gives the rows of the cell, to compare with."""
        values = {"reports": json.dumps(scores), "heartbeat": self.database.clock}
        with self.database.writing(alone=False) as connection:
            self.change(connection, claim.key, values, worker=claim.worker, state="running")
        with self.database.reading() as connection:
            return self.rows(connection, claim.cell)

    def finish(self, claim: Claim, record: Record) -> bool:
        """Turn the row into a record; whether this worker's was taken.

        From a worker that was thought dead, and whose row is not its own any more, a result is taken if the trial is
        not over yet (it is as good as any); a failure is not: it may have failed because the one who has the trial now
        cleared its files away.
        """
        values, base = flat(record), claim.base
        with self.database.writing() as connection:
            if self.change(connection, claim.key, values, worker=claim.worker, state="running"):
                return True
            if record.state == "failed":
                return False
            return self.change(connection, claim.key, values, state=("waiting", "running"), base=base)

    def settle(self, record: Record) -> bool:
        """Take a record that was made elsewhere, also in place of a row that waits; False when the trial has a record
        or a worker here."""
        if self.records.add(record):
            return True
        with self.database.writing() as connection:
            return self.change(connection, record.key, {**BLANK, **flat(record)}, state="waiting")

    def retry(self, records: list[Record]) -> int:
        """Let failed trials wait again; how many there were."""
        with self.database.writing() as connection:
            again = {**BLANK, "attempts": 0}
            return sum(self.change(connection, r.key, again, state="failed") for r in records if r.state in OVER)


def dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def _row(values: Mapping[str, Any]) -> TrialRow:
    point, reports = values["point"], values["reports"]
    return TrialRow(
        values["key"],
        values["digest"],
        Cell(values["dataset"], values["method"], int(values["seed"])),
        json.loads(point) if point else None,
        values["state"],
        values["score"],
        values["slot"],
        values["search"] or "",
        values["base"] or "",
        values["worker"] or "",
        values["heartbeat"] or 0.0,
        values["attempts"] or 0,
        tuple(json.loads(reports)) if reports else (),
    )
