"""Records: one row per trial, in the study's database (SQLite or PostgreSQL) and, when it is over, as CSV.

A record says what was run (spec, dataset, method, point, seed), what came out, what labels it took, and what made it:
command, commit, weights hash, log, seconds. Its key is a hash of what was run, so a trial that is run twice, because
a machine went down at the wrong moment, is still one record.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from foveate.bench.database import Database
from foveate.errors import FoveateError
from foveate.files import from_csv_cell, read_text, write_rows

JSON_COLUMNS = ("point", "metrics", "settings", "answers")
LOCAL_COLUMNS = ("error", "host")
"""Columns that are of no use on another machine: they stay in the database and out of the CSV."""


@dataclass
class Record:
    """What one trial gave. ``score`` is the selection metric on validation; ``metrics`` are those of test; ``answers``
    say which test images were answered rightly (:class:`~foveate.bench.hits.KeptHits`), where that was kept."""

    spec: str
    digest: str
    dataset: str
    method: str
    seed: int
    point: dict[str, Any]
    state: str = "done"
    system: str = ""
    select: str = ""
    score: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    supervision: str = ""
    seconds: float = 0.0
    command: str = ""
    commit: str = ""
    weights: str = ""
    log: str = ""
    finished: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    host: str = ""
    error: str = ""

    @property
    def key(self) -> str:
        return record_key(self.digest, self.dataset, self.method, self.point, self.seed)

    @property
    def cell(self) -> tuple[str, str, int]:
        return self.dataset, self.method, self.seed


def record_key(digest: str, dataset: str, method: str, point: Mapping[str, Any], seed: int) -> str:
    """The name of a trial, the same wherever and however often it is run.

    >>> record_key("d", "x", "DFR", {"a": 1, "b": 2}, 0) == record_key("d", "x", "DFR", {"b": 2, "a": 1}, 0)
    True
    """
    parts = [digest, dataset, method, json.dumps(point, sort_keys=True, default=str), seed]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


COLUMNS = tuple(f.name for f in fields(Record))
QUEUE_COLUMNS = {
    "worker": "text", "heartbeat": "number", "attempts": "whole", "slot": "whole", "search": "text", "base": "text",
    "reports": "text",
}  # fmt: skip
"""What a row knows beside its record, for as long as it is a place in the queue (:mod:`foveate.bench.trial_queue`):

- ``worker`` has or had it, and gave its last sign of life at ``heartbeat``; ``attempts`` workers died on it;
- it is number ``slot`` of its cell's search; ``search`` tells searches apart whose points are drawn;
- ``base`` is the key of the base model's record; ``reports`` are the validation scores of its epochs so far.
"""
OVER = ("done", "failed", "pruned")
"""States of a trial that has a record; the other rows wait, run, or drew a point that is there already (``same``)."""


class Records:
    """The table of trials in a database: the records of those that are over, and the queue of those that are not.

    A table of an earlier version gets the columns it lacks; its records stay as they are.

    >>> import tempfile
    >>> records = Records(Path(tempfile.mkdtemp()) / "records.db")
    >>> one = Record("demo", "d0", "critters", "DFR", 0, {"refits": 5}, score=0.9, metrics={"average": 0.8})
    >>> records.add(one), records.add(one), len(records.all())
    (True, False, 1)
    """

    def __init__(self, storage: str | Path):
        self.database = Database(storage)
        sa = self.database.sa
        self.storage = str(storage)
        kinds = {"text": sa.Text, "number": sa.Float, "whole": sa.Integer}
        named = {**dict.fromkeys(COLUMNS, "text"), "seed": "whole", "score": "number", "seconds": "number"}
        columns: list[Any] = [sa.Column(name, kinds[kind]) for name, kind in {**named, **QUEUE_COLUMNS}.items()]
        self.table = sa.Table(
            "foveate_records", sa.MetaData(), sa.Column("key", sa.String(32), primary_key=True), *columns
        )
        with self.database.reading() as connection:
            missing = self._missing_columns(connection)
        if missing != []:
            self._make_table()

    def _missing_columns(self, connection: Any) -> list[Any] | None:
        """Columns that the database's table lacks; None when there is no table."""
        inspector = self.database.sa.inspect(connection)
        if not inspector.has_table(self.table.name):
            return None
        there = {column["name"] for column in inspector.get_columns(self.table.name)}
        return [column for column in self.table.columns if column.name not in there]

    def _make_table(self) -> None:
        with self.database.writing() as connection:  # alone, so that two processes do not both make it
            missing = self._missing_columns(connection)
            if missing is None:
                self.table.create(connection)
            for column in missing or ():
                kind = column.type.compile(self.database.engine.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {self.table.name} ADD COLUMN {column.name} {kind}")

    def add(self, record: Record, replace: bool = False) -> bool:
        """Put a record in, in one transaction; False when it was there (and was left as it is, unless ``replace``)."""
        with self.database.writing() as connection:
            if replace:
                connection.execute(self.table.delete().where(self.table.c.key == record.key))
            return self.insert(connection, {"key": record.key, **flat(record)})

    def insert(self, connection: Any, values: Mapping[str, Any]) -> bool:
        """A new row; False when there is one with this key."""
        from sqlalchemy.dialects import postgresql, sqlite

        insert = (sqlite if self.database.sqlite else postgresql).insert(self.table).values(dict(values))
        return bool(connection.execute(insert.on_conflict_do_nothing(index_elements=["key"])).rowcount)

    def get(self, key: str) -> Record | None:
        """The record of a trial, None when it has none yet."""
        query = self.table.select().where(self.table.c.key == key, self.table.c.state.in_(OVER))
        with self.database.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else _record(row._mapping)

    def all(self, spec: str | None = None) -> list[Record]:
        """All records (of one spec), in the order they were finished."""
        table = self.table
        query = table.select().where(table.c.state.in_(OVER)).order_by(table.c.finished, table.c.key)
        if spec is not None:
            query = query.where(table.c.spec == spec)
        with self.database.reading() as connection:
            return [_record(row._mapping) for row in connection.execute(query)]

    def remove(self, records: Iterable[Record]) -> None:
        """Forget these records."""
        with self.database.writing() as connection:
            for record in records:
                connection.execute(self.table.delete().where(self.table.c.key == record.key))


def flat(record: Record) -> dict[str, Any]:
    """The columns of a record, as they are written."""
    values = asdict(record)
    for name in JSON_COLUMNS:
        values[name] = json.dumps(values[name], sort_keys=True, default=str, ensure_ascii=False)
    return values


def _record(row: Mapping[str, Any]) -> Record:
    values = {name: row[name] for name in COLUMNS if row.get(name) is not None}
    for name in JSON_COLUMNS:
        if name in values:
            values[name] = json.loads(values[name])
            if not isinstance(values[name], dict):
                raise ValueError(f"'{name}' is no JSON object")
    if not all(isinstance(v, (int, float)) or v is None for v in values.get("metrics", {}).values()):
        raise ValueError("'metrics' holds something that is no number")
    values["seed"] = int(values["seed"])
    for name in ("score", "seconds"):
        if values.get(name, "") == "":
            values.pop(name, None)
        else:
            values[name] = float(values[name])
    return Record(**values)


def write_csv(path: str | Path, records: Sequence[Record]) -> Path:
    """Records as a CSV file, whole or not at all, in an order that does not depend on who finished first."""
    names = [n for n in COLUMNS if n not in LOCAL_COLUMNS]
    ordered = sorted(records, key=lambda r: (r.spec, r.dataset, r.method, r.seed, json.dumps(r.point, default=str)))
    written = (flat(record) for record in ordered)
    return write_rows(path, [names, *([row[n] for n in names] for row in written)], "\n")


def read_csv(path: str | Path) -> list[Record]:
    """Records of a CSV file written by :func:`write_csv`."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
        if missing := [name for name in ("spec", "dataset", "method", "seed") if name not in (reader.fieldnames or ())]:
            raise ValueError(f"it has no column '{missing[0]}'")  # else any text would be a file of no records
        rows = ({k: from_csv_cell(v) for k, v in row.items() if k and isinstance(v, str)} for row in reader)
        return [_record(row) for row in rows]
    except (OSError, KeyError, ValueError, TypeError, csv.Error, RecursionError) as error:
        raise FoveateError(f"{path} is not a CSV file of records: {error}.") from error


def read_records(source: str | Path) -> list[Record]:
    """Records of a CSV file, of a folder of them, or of a database."""
    place = Path(source) if "://" not in str(source) else None
    if place is not None and place.is_dir() and not (place / "records.db").exists():
        return [record for file in sorted(place.glob("*.csv")) for record in read_csv(file)]
    if place is not None and place.suffix == ".csv":
        return read_csv(place)
    if place is not None:
        place = place / "records.db" if place.is_dir() else place
        if not place.exists():
            raise FoveateError(f"there are no records at {place}; run a spec first: foveate bench run SPEC.")
        return Records(place).all()
    return Records(str(source)).all()
