"""Records: one row a finished trial, in the study's database (SQLite or PostgreSQL) and as CSV.

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

from foveate.errors import FoveateError, MissingExtra, StorageError
from foveate.files import from_csv_cell, read_text, write_rows

JSON_COLUMNS = ("point", "metrics", "settings")
LOCAL_COLUMNS = ("error", "host")
"""Columns that are of no use on another machine: they stay in the database and out of the CSV."""


@dataclass
class Record:
    """What one trial gave. ``score`` is the selection metric on validation; ``metrics`` are those of test."""

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


def database_url(storage: str | Path) -> str:
    """What SQLAlchemy calls a storage: a file's path becomes SQLite, ``postgresql://`` gets its driver.

    >>> database_url("runs/records.db"), database_url("postgresql://me@host/study")
    ('sqlite:///runs/records.db', 'postgresql+psycopg://me@host/study')
    """
    text = str(storage)
    for old in ("postgresql://", "postgres://"):
        if text.startswith(old):
            return "postgresql+psycopg://" + text.removeprefix(old)
    return text if "://" in text else f"sqlite:///{text}"


def open_engine(storage: str | Path) -> Any:
    """A SQLAlchemy engine that keeps no connection open, so that worker processes may be forked at any time."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingExtra("sqlalchemy", "bench", "keeping records") from error
    url = database_url(storage)
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    try:
        return tune(sqlalchemy.create_engine(url, **engine_options(url)))
    except ImportError as error:
        raise MissingExtra("psycopg", "postgres", "a PostgreSQL storage") from error
    except sqlalchemy.exc.ArgumentError as error:
        raise FoveateError(
            f"'{storage}' is not a storage: give a file for SQLite, or postgresql://host/name."
        ) from error


def engine_options(url: str) -> dict[str, Any]:
    """How both Optuna and the records connect."""
    import sqlalchemy

    options: dict[str, Any] = {"poolclass": sqlalchemy.pool.NullPool}
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": 120}  # workers write in turns
    return options


def tune(engine: Any, immediate: bool = False) -> Any:
    """Let SQLite commit without waiting for the disk: with its log (WAL) a killed process loses nothing by that.

    ``immediate``: take the lock when a transaction begins. One that reads first and writes later, as Optuna's do, is
    otherwise refused at once when another process wrote in between, however long it would be ready to wait.
    """
    import sqlalchemy

    if engine.dialect.name == "sqlite":

        def settle(connection: Any, _: Any) -> None:
            if immediate:
                connection.isolation_level = None  # the driver must not begin transactions of its own
            connection.execute("PRAGMA synchronous=NORMAL")

        sqlalchemy.event.listen(engine, "connect", settle)
        if immediate:
            sqlalchemy.event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


class Records:
    """The table of records in a database.

    >>> import tempfile
    >>> records = Records(Path(tempfile.mkdtemp()) / "records.db")
    >>> one = Record("demo", "d0", "critters", "DFR", 0, {"refits": 5}, score=0.9, metrics={"average": 0.8})
    >>> records.add(one), records.add(one), len(records.all())
    (True, False, 1)
    """

    def __init__(self, storage: str | Path):
        import sqlalchemy as sa

        self.engine = open_engine(storage)
        self.storage = str(storage)
        kinds = {"seed": sa.Integer, "score": sa.Float, "seconds": sa.Float}
        columns: list[Any] = [sa.Column(name, kinds.get(name, sa.Text)) for name in COLUMNS]
        self.table = sa.Table(
            "foveate_records", sa.MetaData(), sa.Column("key", sa.String(32), primary_key=True), *columns
        )
        try:
            with self.engine.begin() as connection:
                if self.engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("PRAGMA journal_mode=WAL")  # readers do not wait for writers
            self.table.create(self.engine, checkfirst=True)
        except sa.exc.ProgrammingError as error:  # another process made the table at the same moment
            if "already exists" not in str(error):
                raise
        except sa.exc.OperationalError as error:
            if "already exists" not in str(error):
                raise StorageError(f"cannot open the records at {storage}: {str(error.orig).strip()}.") from error
        except sa.exc.DatabaseError as error:
            raise StorageError(f"{storage} is not a database of records: {str(error.orig).strip()}.") from error
        except sa.exc.IntegrityError as error:
            if "already exists" not in str(error):
                raise

    def add(self, record: Record, replace: bool = False) -> bool:
        """Put a record in, in one transaction; False when it was there (and was left as it is, unless ``replace``)."""
        from sqlalchemy.dialects import postgresql, sqlite

        dialect = postgresql if self.engine.dialect.name == "postgresql" else sqlite
        values = {"key": record.key, **_flat(record)}
        insert = dialect.insert(self.table).values(values)
        with self.engine.begin() as connection:
            if replace:
                connection.execute(self.table.delete().where(self.table.c.key == record.key))
            return bool(connection.execute(insert.on_conflict_do_nothing(index_elements=["key"])).rowcount)

    def get(self, key: str) -> Record | None:
        with self.engine.connect() as connection:
            row = connection.execute(self.table.select().where(self.table.c.key == key)).first()
        return None if row is None else _record(row._mapping)

    def all(self, spec: str | None = None) -> list[Record]:
        """All records (of one spec), in the order they were finished."""
        query = self.table.select().order_by(self.table.c.finished, self.table.c.key)
        if spec is not None:
            query = query.where(self.table.c.spec == spec)
        with self.engine.connect() as connection:
            return [_record(row._mapping) for row in connection.execute(query)]

    def remove(self, records: Iterable[Record]) -> None:
        """Forget these records."""
        with self.engine.begin() as connection:
            for record in records:
                connection.execute(self.table.delete().where(self.table.c.key == record.key))


def _flat(record: Record) -> dict[str, Any]:
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
    flat = (_flat(record) for record in ordered)
    return write_rows(path, [names, *([row[n] for n in names] for row in flat)], "\n")


def read_csv(path: str | Path) -> list[Record]:
    """Records of a CSV file written by :func:`write_csv`."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
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
