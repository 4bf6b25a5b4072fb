"""The database of a study: SQLite in a file, or PostgreSQL for many machines; who changes it does so alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foveate.errors import FoveateError, MissingExtra, StorageError

LOCK = 7065
"""The number of our advisory lock in PostgreSQL."""


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


class Database:
    """Transactions on a storage. No connection is kept open, so that worker processes may be forked at any time.

    Args:
        storage: a file (SQLite; made with its folder when missing) or a PostgreSQL URL.
    """

    def __init__(self, storage: str | Path):
        try:
            import sqlalchemy as sa
        except ImportError as error:
            raise MissingExtra("sqlalchemy", "bench", "keeping records") from error
        self.sa = sa
        self.storage = str(storage)
        url = database_url(storage)
        options: dict[str, Any] = {"poolclass": sa.pool.NullPool}
        if url.startswith("sqlite:///"):
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": 120}  # workers write in turns
        try:
            self.engine: Any = sa.create_engine(url, **options)
        except ImportError as error:
            raise MissingExtra("psycopg", "postgres", "a PostgreSQL storage") from error
        except sa.exc.ArgumentError as error:
            raise FoveateError(
                f"'{storage}' is not a storage: give a file for SQLite, or postgresql://host/name."
            ) from error
        self.sqlite = self.engine.dialect.name == "sqlite"
        if self.sqlite:
            sa.event.listen(self.engine, "connect", _settle)
            sa.event.listen(self.engine, "begin", _begin)
            self._write_ahead()

    def _write_ahead(self) -> None:
        """Let readers of SQLite not wait for writers; the file remembers it."""
        with self._explained():
            for turn in range(100):
                with contextlib.closing(self.engine.raw_connection()) as connection:
                    try:
                        connection.cursor().execute("PRAGMA journal_mode=WAL")
                        return
                    except self.engine.dialect.dbapi.OperationalError as error:
                        # another process is doing the same; SQLite does not wait its timeout for that
                        if "locked" not in str(error) or turn == 99:
                            raise
                time.sleep(0.05)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection whose reads belong together: in SQLite all of them see the same state."""
        with self._explained(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, alone: bool = True) -> Iterator[Any]:
        """A transaction, kept whole or not at all, also when this process is killed.

        ``alone``: of all processes and machines one at a time is in here, so what it reads stays true until it is
        through. (In SQLite that is so for every transaction that writes.)
        """
        with self._explained(), self.engine.execution_options(foveate_writes=True).begin() as connection:
            if alone and not self.sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
            yield connection

    @property
    def clock(self) -> Any:
        """The database's time in seconds, for use in statements: machines need not agree on the time."""
        text = "((julianday('now') - 2440587.5) * 86400.0)" if self.sqlite else "extract(epoch FROM clock_timestamp())"
        return self.sa.literal_column(text, self.sa.Float)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        plain, wrapped = self.engine.dialect.dbapi, self.sa.exc  # a statement's error is wrapped, a connection's not
        try:
            yield
        except (plain.DatabaseError, wrapped.DatabaseError) as error:
            reason = str(getattr(error, "orig", error)).strip()
            if "not a database" in reason:
                raise StorageError(f"{self.storage} is not a database of records: {reason}.") from error
            if isinstance(error, (plain.OperationalError, wrapped.OperationalError)):
                raise StorageError(f"cannot read or write the records at {self.storage}: {reason}.") from error
            raise


def _settle(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    # with its log (WAL) a killed process loses nothing by not waiting for the disk
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin(connection: Any) -> None:
    # a transaction that reads first and takes the lock later is refused at once when another process wrote in between,
    # however long it would be ready to wait
    writes = connection.get_execution_options().get("foveate_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
